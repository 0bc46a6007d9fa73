//! Results that are computed incrementally while the step runs: the figures equal those from all rows at once, and
//! the end of the step does not read all rows.

use super::{Mesh, S, T0, batch, interval, new_step, running, sample, seen, send, task_end};
use crate::finish::follow::FollowedSteps;
use crate::ingest::batch::OpInterval;
use crate::writer::CommitPolicy;
use benchmesh_model::mesh::{StepId, TaskId, TaskState};
use rusqlite::Connection;
use std::path::Path;

/// Four slices and some seconds.
const SECONDS: i64 = 2500;

/// Everything that the end of a step computes.
pub(super) const FIGURES: [&str; 5] = [
    "SELECT flags, partial, measured_from_us, all_active_from_us, all_active_until_us, last_done_us FROM steps",
    "SELECT * FROM step_results ORDER BY op",
    "SELECT * FROM task_results ORDER BY task_id, op",
    "SELECT at_us, op, span_us, tasks, ops, bytes, mean_ns, p99_ns, hex(histogram) FROM step_intervals ORDER BY at_us, op",
    "SELECT * FROM step_daemons ORDER BY daemon_id",
];

fn figures(path: &Path) -> Vec<String> {
    answers(path, &FIGURES)
}

/// The rows of the answers, without their ids.
pub(super) fn answers(path: &Path, queries: &[&str]) -> Vec<String> {
    let file = Connection::open(path).unwrap();
    let mut all = Vec::new();
    for sql in queries {
        let mut statement = file.prepare(sql).unwrap();
        // A row that is written again has another id.
        let columns: Vec<usize> = (0..statement.column_count())
            .filter(|column| statement.column_name(*column).unwrap() != "id")
            .collect();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values = columns.iter().map(|column| row.get_ref(*column).unwrap());
            all.push(format!("{:?}", values.collect::<Vec<_>>()));
        }
    }
    all
}

/// Deterministic pseudo-random numbers.
pub(super) struct Seeded(pub u64);

impl Seeded {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A task's intervals: mostly seconds, some wider, some that begin within a second, some with long operations.
pub(super) fn intervals_of(task: TaskId, seconds: i64, seeded: &mut Seeded) -> Vec<OpInterval> {
    let mut at = T0;
    let mut all = Vec::new();
    while at < T0 + seconds * S {
        let ns = match seeded.below(200) {
            0 => 4_000_000_000,
            other => 1_000_000 + other * 1000,
        };
        let mut one = interval(task, at, "create", seeded.below(6), ns);
        one.span_us = match seeded.below(150) {
            0 => 3 * S,
            1 => 2 * S + 400_000,
            _ => S,
        };
        // The next interval begins on the grid again.
        at = T0 + (one.at.0 + one.span_us - T0 + S - 1).div_euclid(S) * S;
        all.push(one);
    }
    all
}

async fn grown(seed: u64) {
    let mesh = Mesh::new().await;
    let mut seeded = Seeded(seed);
    let run = mesh.run("u").await;
    mesh.store.set_run_state(run, running(T0)).await.unwrap();
    let mut publishers = Vec::new();
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        let (publisher, agent, _) = mesh.publisher(name).await;
        publishers.push(publisher);
        agents.push(agent);
    }
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &agents)
        .await;
    let mut sequences = [0; 3];
    // By agent. The rows of the last one arrive up to ten minutes late, in any order.
    let mut waiting: Vec<Vec<OpInterval>> = tasks
        .iter()
        .map(|task| intervals_of(*task, SECONDS, &mut seeded))
        .collect();
    for rows in &mut waiting {
        rows.reverse();
    }
    let mut held: Vec<OpInterval> = Vec::new();
    let mut followed = FollowedSteps::new(CommitPolicy::Now);
    for now in (200..=SECONDS + 200).step_by(200) {
        for (agent, publisher) in publishers.iter().enumerate() {
            let mut due = Vec::new();
            while let Some(next) = waiting[agent].pop_if(|next| next.at.0 < T0 + now * S) {
                due.push(next);
            }
            if agent == 2 {
                let keep = seeded.below(3) == 0 && now < SECONDS - 400;
                held.append(&mut due);
                for at in (1..held.len()).rev() {
                    held.swap(at, usize::try_from(seeded.below(at as u64 + 1)).unwrap());
                }
                let left = if keep { held.len() / 2 } else { 0 };
                due = held.split_off(left);
            }
            sequences[agent] += 1;
            let mut more = batch("s", sequences[agent]);
            more.op_intervals = due;
            more.daemons = vec![seen(7, "ceph-osd", T0)];
            more.daemon_samples = (now - 200..now)
                .map(|second| {
                    let rss = 1000 + i64::try_from(seeded.below(1000)).unwrap();
                    sample(7, T0 + second * S, second * 1000, rss)
                })
                .collect();
            // Another part of an earlier interval arrives, which is added to the existing row.
            if seeded.below(4) == 0 && now > 800 {
                more.op_intervals.push(interval(
                    tasks[agent],
                    T0 + (now - 700) * S,
                    "create",
                    2,
                    77_000,
                ));
            }
            send(publisher, more).await.unwrap();
        }
        mesh.store.follow_once(&mut followed).await.unwrap();
        mesh.store.sum_once(&mut followed).await.unwrap();
    }
    for (agent, task) in tasks.iter().enumerate() {
        sequences[agent] += 1;
        let mut last = batch("s", sequences[agent]);
        let mut end = task_end(
            *task,
            1000 * agent as i64,
            T0 + SECONDS * S - agent as i64 * S,
        );
        if agent == 2 && seed % 2 == 1 {
            end.state = TaskState::Failed;
        }
        last.task_ends = vec![end];
        send(&publishers[agent], last).await.unwrap();
    }
    // In parts of a second each.
    for _ in 0..10 {
        mesh.store.follow_once(&mut followed).await.unwrap();
        mesh.store.sum_once(&mut followed).await.unwrap();
    }
    let kept =
        "SELECT count(*) FROM step_sums WHERE sums IS NOT NULL AND stale = 0 AND stale_samples = 0";
    assert!(mesh.number(kept).await >= 3, "of seed {seed}");
    mesh.finish(step, T0 + (SECONDS + 1) * S).await;
    let with_slices = figures(&mesh.path());
    computed_from_all_rows(&mesh, step).await;
    assert_eq!(with_slices, figures(&mesh.path()), "of seed {seed}");
    mesh.assert_sound().await;
}

async fn computed_from_all_rows(mesh: &Mesh, step: StepId) {
    Connection::open(mesh.path())
        .unwrap()
        .execute_batch("DELETE FROM step_sums; DELETE FROM step_intervals")
        .unwrap();
    mesh.store.compute_results(step).await.unwrap();
}

/// Random orders, late rows and rows that are added to earlier ones. For odd seeds a task fails, whose seconds do not
/// count.
#[tokio::test]
async fn figures_that_grew_are_those_of_all_rows_at_once() {
    for seed in 1..=4 {
        grown(seed).await;
    }
}

#[tokio::test]
async fn the_end_does_not_read_the_rows_of_kept_slices_and_late_rows_make_it() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store.set_run_state(run, running(T0)).await.unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut all = batch("s", 1);
    all.op_intervals = (0..SECONDS)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 10, 1000))
        .collect();
    send(&publisher, all).await.unwrap();
    let mut followed = FollowedSteps::new(CommitPolicy::Now);
    mesh.store.follow_once(&mut followed).await.unwrap();
    mesh.store.sum_once(&mut followed).await.unwrap();
    while mesh
        .number("SELECT count(*) FROM step_sums WHERE sums IS NOT NULL")
        .await
        < 4
    {
        mesh.store.follow_once(&mut followed).await.unwrap();
        mesh.store.sum_once(&mut followed).await.unwrap();
    }
    // The figures that a report of the running step reads.
    mesh.store.compute_so_far(run).await.unwrap();
    let so_far =
        "SELECT (SELECT ops FROM step_results) + partial FROM steps WHERE state = 'running'";
    assert_eq!(mesh.number(so_far).await, SECONDS * 10);
    let mut last = batch("s", 2);
    last.task_ends = vec![task_end(tasks[0], 0, T0 + SECONDS * S)];
    send(&publisher, last).await.unwrap();
    // Changes seconds of the second slice without the store's knowledge.
    Connection::open(mesh.path())
        .unwrap()
        .execute_batch(&format!(
            "UPDATE op_intervals SET ops = 0 WHERE at_us BETWEEN {} AND {}",
            T0 + 700 * S,
            T0 + 800 * S
        ))
        .unwrap();
    let results = mesh.finish(step, T0 + (SECONDS + 1) * S).await;
    assert_eq!(results.ops[0].ops, SECONDS * 10);
    let mut late = batch("s", 3);
    late.op_intervals = vec![interval(tasks[0], T0 + 900 * S, "create", 1, 1000)];
    send(&publisher, late).await.unwrap();
    let results = mesh.store.compute_results(step).await.unwrap();
    assert_eq!(results.ops[0].ops, SECONDS * 10 - 1010 + 1);
}
