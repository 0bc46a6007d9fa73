//! Rows of a running step are merged and its samples thinned. The end of the step computes the same results as from
//! all original rows.

use super::grown::{FIGURES, Seeded, answers, intervals_of};
use super::{Mesh, S, T0, batch, interval, new_step, running, sample, seen, send, task_end};
use crate::finish::follow::FollowedSteps;
use crate::ingest::batch::{Batch, OpInterval};
use crate::retention::{KeepFor, MaxSize, Retainer, Retention};
use crate::rows::NewRun;
use crate::writer::CommitPolicy;
use crate::{Publisher, Store};
use benchmesh_model::mesh::{AgentId, MeshMicros, StepId, TaskId, TaskState};
use std::time::Duration;

/// Nine slices.
const SECONDS: i64 = 5400;
const BEAT: i64 = 200;
const PLAN: &str = "name = \"soak\"
[[phase]]
workload = \"null\"
modes = [\"run\"]
runtime = \"1s\"
[[objective]]
holds = \"p99 < 2ms for 90% of seconds\"
[[objective]]
holds = \"rate > 4 for 50% of seconds\"
";
/// All figures computed at the end of a step, except its time line.
const RESULTS: [&str; 5] = [
    FIGURES[0],
    FIGURES[1],
    FIGURES[2],
    FIGURES[4],
    "SELECT * FROM step_objectives ORDER BY holds",
];
/// Properties of the time line that merging does not change.
const CONSERVED: [&str; 2] = [
    "SELECT op, sum(ops), sum(bytes), sum(errors), sum(span_us), max(max_ns), min(at_us), max(at_us + span_us)
     FROM step_intervals GROUP BY op",
    "SELECT task_id, op, sum(ops), sum(bytes), sum(service_count), min(at_us), max(at_us + span_us)
     FROM op_intervals GROUP BY task_id, op ORDER BY task_id",
];

fn keeping(seconds: i64, tens: i64) -> Retention {
    let span = |seconds: i64| KeepFor::Span(Duration::from_secs(u64::try_from(seconds).unwrap()));
    Retention {
        keep_seconds: span(seconds),
        keep_10s: span(tens),
        max_size: MaxSize::Unlimited,
        keep_tags: Vec::new(),
        min_rows: 0,
    }
}

async fn run_with_objectives(mesh: &Mesh) -> benchmesh_model::mesh::RunId {
    assert!(benchmesh_plan::parse(PLAN, "plan").is_ok());
    let run = NewRun {
        uid: "u".to_owned(),
        name: "soak".to_owned(),
        plan_text: PLAN.to_owned(),
        agents_json: "[]".to_owned(),
        order_seed: None,
        created: MeshMicros(T0),
        due: None,
        version: "0".to_owned(),
    };
    let (run, _) = mesh.store.create_run(run).await.unwrap();
    mesh.store.set_run_state(run, running(T0)).await.unwrap();
    run
}

/// The pruning of old rows while the step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pruning {
    Never,
    Always,
    /// Each pass is interrupted, each time at another point, and the file is reopened.
    CutOff,
}

struct Soak {
    mesh: Mesh,
    seeded: Seeded,
    step: StepId,
    agents: Vec<AgentId>,
    publishers: Vec<Publisher>,
    sequences: [u64; 3],
    tasks: Vec<TaskId>,
    /// By agent, the rows not sent yet, oldest last.
    waiting: Vec<Vec<OpInterval>>,
    followed: FollowedSteps,
}

impl Soak {
    async fn begin(seed: u64) -> Self {
        let mesh = Mesh::new().await;
        let mut seeded = Seeded(seed);
        let run = run_with_objectives(&mesh).await;
        let (mut agents, mut publishers) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c"] {
            let (publisher, agent, _) = mesh.publisher(name).await;
            publishers.push(publisher);
            agents.push(agent);
        }
        let (step, tasks) = mesh
            .step(run, new_step(0, "files", "create"), &agents)
            .await;
        let mut waiting: Vec<Vec<OpInterval>> = tasks
            .iter()
            .map(|task| intervals_of(*task, SECONDS, &mut seeded))
            .collect();
        for rows in &mut waiting {
            rows.reverse();
        }
        Self {
            mesh,
            seeded,
            step,
            agents,
            publishers,
            sequences: [0; 3],
            tasks,
            waiting,
            followed: FollowedSteps::new(CommitPolicy::Now),
        }
    }

    /// All agents send their due rows; the last one is up to ten minutes behind, and sends at irregular times.
    async fn beat(&mut self, now: i64) {
        for agent in 0..self.agents.len() {
            let behind = match agent {
                2 if now < SECONDS => i64::try_from(self.seeded.below(600)).unwrap(),
                _ => 0,
            };
            let mut due = Vec::new();
            while let Some(next) =
                self.waiting[agent].pop_if(|next| next.at.0 < T0 + (now - behind) * S)
            {
                due.push(next);
            }
            self.sequences[agent] += 1;
            let mut more = batch("s", self.sequences[agent]);
            more.op_intervals = due;
            more.daemons = vec![seen(7, "ceph-osd", T0)];
            more.daemon_samples = (now - BEAT..now)
                .map(|second| {
                    let rss = 1000 + i64::try_from(self.seeded.below(1000)).unwrap();
                    sample(7, T0 + second * S, second * 1000, rss)
                })
                .collect();
            // A part that is added to an existing row.
            if self.seeded.below(4) == 0 && now > 900 && agent != 1 {
                let at = T0 + (now - 700) * S;
                let extra = interval(self.tasks[agent], at, "create", 2, 77_000);
                more.op_intervals.push(extra);
            }
            self.send(agent, more).await;
        }
        self.sum().await;
    }

    /// The rows are stored at once; on a slow machine each batch would otherwise wait for as long as the test has
    /// run.
    async fn send(&self, agent: usize, batch: Batch) {
        let receipt = self.publishers[agent].submit(batch).await.unwrap();
        self.mesh.store.flush().await;
        receipt.await.unwrap();
    }

    async fn sum(&mut self) {
        let store = &self.mesh.store;
        store.follow_once(&mut self.followed).await.unwrap();
        store.sum_once(&mut self.followed).await.unwrap();
    }

    /// The agent's client ends.
    async fn end(&mut self, agent: usize, at: i64, state: TaskState) {
        self.sequences[agent] += 1;
        let mut last = batch("s", self.sequences[agent]);
        let mut end = task_end(self.tasks[agent], 1000 * agent as i64, T0 + at * S);
        end.state = state;
        last.task_ends = vec![end];
        self.send(agent, last).await;
    }

    async fn prune(&mut self, now: i64, pruning: Pruning) {
        let retention = keeping(900, 2700);
        let pass = async |store: &Store| {
            let retainer = Retainer::new(store.clone(), retention.clone());
            let mut pass = std::pin::pin!(retainer.pass(MeshMicros(T0 + now * S)));
            loop {
                tokio::select! {
                    passed = &mut pass => return passed.map(drop).unwrap(),
                    // Its last write waits for rows of agents; none arrive meanwhile, hence the flush.
                    () = tokio::time::sleep(Duration::from_millis(10)) => store.flush().await,
                }
            }
        };
        match pruning {
            Pruning::Never => {}
            Pruning::Always if now % 600 == 0 => pass(&self.mesh.store).await,
            Pruning::Always => {}
            Pruning::CutOff => {
                let patience = Duration::from_micros(500 * (1 + self.seeded.below(60)));
                let cut = tokio::time::timeout(patience, pass(&self.mesh.store)).await;
                drop(cut);
                if now % 1000 == 0 {
                    self.reopen().await;
                }
            }
        }
    }

    async fn reopen(&mut self) {
        self.mesh.reopen().await;
        self.followed = FollowedSteps::new(CommitPolicy::Now);
        self.publishers.clear();
        for name in ["a", "b", "c"] {
            self.publishers.push(self.mesh.publisher(name).await.0);
        }
    }
}

/// The numbers of rows and samples of the step before it ends, its results, and the conserved properties of its rows.
struct EndedStep {
    rows: i64,
    samples: i64,
    results: Vec<String>,
    conserved: Vec<String>,
}

async fn soaked(seed: u64, pruning: Pruning) -> EndedStep {
    let mut soak = Soak::begin(seed).await;
    for now in (BEAT..=SECONDS).step_by(200) {
        soak.beat(now).await;
        // The interruption draws numbers too, which must not change the data that is sent.
        let before = soak.seeded.0;
        soak.prune(now, pruning).await;
        soak.seeded.0 = before;
        if now == 3000 && seed.is_multiple_of(3) {
            soak.waiting[1].clear();
            soak.end(1, 3000, TaskState::Failed).await;
        }
    }
    if pruning == Pruning::CutOff {
        // Prunes what the interrupted passes left.
        soak.prune(SECONDS, Pruning::Always).await;
    }
    let rows = soak.mesh.number("SELECT count(*) FROM op_intervals").await;
    let samples = soak
        .mesh
        .number("SELECT count(*) FROM daemon_samples")
        .await;
    for agent in 0..3 {
        let state = match agent == 2 && seed % 2 == 1 {
            true => TaskState::Failed,
            false => TaskState::Done,
        };
        if agent != 1 || !seed.is_multiple_of(3) {
            soak.end(agent, SECONDS - agent as i64, state).await;
        }
    }
    for _ in 0..10 {
        soak.sum().await;
    }
    soak.mesh.finish(soak.step, T0 + (SECONDS + 1) * S).await;
    soak.mesh.assert_sound().await;
    let events = "SELECT count(*) FROM events WHERE kind = 'rows-too-late'";
    assert_eq!(soak.mesh.number(events).await, 0);
    assert_eq!(
        soak.mesh
            .number("SELECT count(*) FROM step_sums WHERE merging")
            .await,
        0
    );
    let path = soak.mesh.path();
    EndedStep {
        rows,
        samples,
        results: answers(&path, &RESULTS),
        conserved: answers(&path, &CONSERVED),
    }
}

/// A client fails, so that the seconds that count change after rows were merged.
async fn assert_results_of_its_rows(seed: u64) {
    let raw = soaked(seed, Pruning::Never).await;
    let merged = soaked(seed, Pruning::Always).await;
    assert!(raw.results.len() >= 8, "{:?}", raw.results);
    assert_eq!(merged.results, raw.results);
    assert_eq!(merged.conserved, raw.conserved);
    // The first and the newest slices are not merged, nor the one in which a client failed.
    let (rows, samples) = (merged.rows * 3 / 2, merged.samples * 2);
    assert!(rows < raw.rows, "{} of {}", merged.rows, raw.rows);
    assert!(
        samples < raw.samples * 3 / 2,
        "{} of {}",
        merged.samples,
        raw.samples
    );
}

#[tokio::test]
async fn a_merged_step_of_which_a_client_failed_at_the_end_has_the_results_of_its_rows() {
    assert_results_of_its_rows(1).await;
}

#[tokio::test]
async fn a_merged_step_of_which_a_client_failed_in_the_middle_has_the_results_of_its_rows() {
    assert_results_of_its_rows(6).await;
}

#[tokio::test]
async fn a_pass_over_a_running_step_may_be_cut_off_anywhere() {
    let raw = soaked(3, Pruning::Never).await;
    let merged = soaked(3, Pruning::CutOff).await;
    assert_eq!(merged.results, raw.results);
    assert_eq!(merged.conserved, raw.conserved);
    assert!(
        merged.rows * 3 / 2 < raw.rows,
        "{} of {}",
        merged.rows,
        raw.rows
    );
}

/// A step of one client that has sent this many seconds, with sums.
async fn one_client(seconds: i64) -> Soak {
    let mut soak = Soak::begin(2).await;
    let rows = (0..seconds).map(|at| interval(soak.tasks[0], T0 + at * S, "create", 10, 1000));
    let mut all = batch("s", 1);
    all.op_intervals = rows.collect();
    soak.sequences[0] = 1;
    send(&soak.publishers[0], all).await.unwrap();
    for _ in 0..20 {
        soak.sum().await;
    }
    soak
}

/// The other two clients have sent nothing, and rows of theirs may arrive for a day.
#[tokio::test]
async fn nothing_is_merged_that_a_silent_client_may_still_bring() {
    let soak = one_client(4000).await;
    let merged = "SELECT count(*) FROM step_sums WHERE resolution_s > 1";
    let retainer = Retainer::new(soak.mesh.store.clone(), keeping(900, 90_000));
    let day = 86_400;
    for (now, is_merged) in [(4000, false), (day / 2, false)] {
        retainer.pass(MeshMicros(T0 + now * S)).await.unwrap();
        assert_eq!(soak.mesh.number(merged).await > 0, is_merged, "at {now} s");
    }
    retainer
        .pass(MeshMicros(T0 + (day + 120) * S))
        .await
        .unwrap();
    let many = soak.mesh.number(merged).await;
    // All except the first, in which the tasks began, and the newest, in which the rows of the clients end.
    assert!((3..=5).contains(&many), "{many}");
}

#[tokio::test]
async fn rows_that_come_to_merged_ones_are_merged_and_said() {
    let mut soak = one_client(4000).await;
    for agent in [1, 2] {
        soak.end(agent, 3990, TaskState::Done).await;
    }
    let retainer = Retainer::new(soak.mesh.store.clone(), keeping(900, 90_000));
    let now = MeshMicros(T0 + 4000 * S);
    retainer.pass(now).await.unwrap();
    let rows = "SELECT count(*) FROM op_intervals";
    let before = soak.mesh.number(rows).await;
    assert!(before < 2500, "{before}");
    let said = "SELECT count(*) FROM events WHERE kind = 'rows-too-late' AND step_id IS NOT NULL";
    let mut late = batch("s", 2);
    // One second is added to an existing row, the others are separate rows until they are merged.
    late.op_intervals = (1500..1520)
        .map(|at| interval(soak.tasks[0], T0 + at * S, "create", 1, 1000))
        .collect();
    soak.sequences[0] = 2;
    send(&soak.publishers[0], late).await.unwrap();
    assert!(soak.mesh.number(rows).await > before);
    retainer.pass(now).await.unwrap();
    assert_eq!(soak.mesh.number(rows).await, before);
    assert_eq!(soak.mesh.number(said).await, 1);
    retainer.pass(now).await.unwrap();
    assert_eq!(soak.mesh.number(said).await, 1);
    soak.end(0, 4000, TaskState::Done).await;
    soak.mesh.finish(soak.step, T0 + 4001 * S).await;
    let ops = "SELECT sum(ops) FROM step_results";
    assert_eq!(soak.mesh.number(ops).await, 40_000);
    let stored = "SELECT sum(ops) FROM op_intervals";
    assert_eq!(soak.mesh.number(stored).await, 40_020);
}

#[tokio::test]
async fn the_size_limit_takes_a_running_step_at_last() {
    let mut soak = one_client(6000).await;
    for agent in [1, 2] {
        soak.end(agent, 5990, TaskState::Done).await;
    }
    let limited = Retention {
        max_size: MaxSize::Bytes(1),
        ..keeping(1_000_000, 2_000_000)
    };
    let retainer = Retainer::new(soak.mesh.store.clone(), limited);
    for _ in 0..2 {
        retainer.pass(MeshMicros(T0 + 6000 * S)).await.unwrap();
    }
    let merged = "SELECT count(*) FROM step_sums WHERE resolution_s = 60";
    assert!(soak.mesh.number(merged).await >= 6);
    let told = "SELECT count(*) FROM events WHERE kind = 'size-limit'";
    assert_eq!(soak.mesh.number(told).await, 2);
    // The report reads and mentions the late rows.
    let report = benchmesh_answers::report::load_file(&soak.mesh.path(), "1")
        .await
        .unwrap();
    let checks = serde_json::to_value(&report).unwrap().to_string();
    assert!(
        checks.contains("merged into rows of 10 s, before 2025-"),
        "{checks}"
    );
    soak.end(0, 6000, TaskState::Done).await;
    soak.mesh.finish(soak.step, T0 + 6001 * S).await;
    let ops = "SELECT sum(ops) FROM step_results";
    assert_eq!(soak.mesh.number(ops).await, 60_000);
}
