//! Usage of daemons in a step: exact at the step's edges, with an error bound elsewhere, for the daemons that serve
//! its target.
#![expect(
    clippy::print_stderr,
    reason = "the measured time stands in the test's output"
)]

use super::{Mesh, S, T0, batch, interval, new_step, running, sample, seen, send, task_end};
use crate::Publisher;
use crate::ingest::batch::{AgentEvent, Batch, HostSample};
use crate::rows::StepChange;
use benchmesh_model::figures::{Figures, HostFigures};
use benchmesh_model::mesh::{MeshMicros, RunId, Severity, StepId, StepState};
use benchmesh_testing::{TimingError, measured, timing};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use std::time::Duration;

/// A step of four seconds from `T0` on, on the target `cephfs`, and the batch that its agent sends.
async fn step_of_four_seconds(mesh: &Mesh) -> (Publisher, StepId, Batch) {
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store
        .set_run_state(run, running(T0 - S))
        .await
        .unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mesh.begun(step).await;
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
        .collect();
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    (publisher, step, one)
}

async fn usage(mesh: &Mesh) -> Vec<SqliteRow> {
    sqlx::query("SELECT * FROM v_daemon_usage ORDER BY pid")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap()
}

fn seconds(row: &SqliteRow, column: &str) -> Option<f64> {
    row.get(column)
}

#[tokio::test]
async fn a_sample_at_the_edge_is_exact_and_any_other_is_bounded() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    one.daemons = vec![
        seen(1, "ceph-osd", T0 - 9 * S),
        seen(2, "ceph-osd", T0 - 9 * S),
    ];
    // 500 ms of CPU each second. The first daemon is also sampled at the edges, the second 0.3 s away from them.
    for beat in -3..8 {
        let at = T0 + beat * S + 300_000;
        for pid in [1, 2] {
            one.daemon_samples
                .push(sample(pid, at, 10 * S + (at - T0) / 2, 1));
        }
    }
    // Within the second before the start, and the second before the end, all CPU time was used at once.
    for (at, cpu) in [(T0, 9_900_000), (T0 + 4 * S, 12_100_000)] {
        one.daemon_samples.push(sample(1, at, cpu, 1));
    }
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let rows = usage(&mesh).await;
    assert_eq!(seconds(&rows[0], "cpu_s"), Some(2.2));
    assert_eq!(seconds(&rows[0], "cpu_error_s"), Some(0.0));
    assert_eq!(seconds(&rows[1], "cpu_s"), Some(2.0));
    // The bound is the CPU time used between the two samples around each edge.
    assert_eq!(seconds(&rows[1], "cpu_error_s"), Some(0.7));
    assert_eq!(seconds(&rows[1], "sampled_s"), Some(4.0));
    assert!(seconds(&rows[1], "vsz_mib").is_some());
}

#[tokio::test]
async fn a_daemon_that_is_born_in_the_step_counts_from_zero() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let mut restarted = seen(1, "ceph-osd", T0 + 3 * S);
    restarted.born = Some(MeshMicros(T0 + S));
    let mut old = seen(2, "ceph-osd", T0 + 3 * S);
    old.born = Some(MeshMicros(T0 - 900 * S));
    one.daemons = vec![restarted, old];
    for pid in [1, 2] {
        one.daemon_samples.push(sample(pid, T0 + 3 * S, 800_000, 1));
        one.daemon_samples.push(sample(pid, T0 + 4 * S, 900_000, 1));
    }
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let rows = usage(&mesh).await;
    assert_eq!(seconds(&rows[0], "cpu_s"), Some(0.9));
    assert_eq!(seconds(&rows[0], "sampled_s"), Some(3.0));
    assert_eq!(rows[0].get::<Option<bool>, _>("born_in_step"), Some(true));
    // For a daemon that started long before, only the sampled usage.
    assert_eq!(seconds(&rows[1], "cpu_s"), Some(0.1));
    assert_eq!(rows[1].get::<Option<bool>, _>("born_in_step"), Some(false));
}

#[tokio::test]
async fn the_parent_of_a_background_process_is_no_daemon() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let same = |mut daemon: crate::ingest::batch::DaemonSeen, at: i64| {
        daemon.instance = "osd.1".to_owned();
        daemon.born = Some(MeshMicros(at));
        daemon
    };
    let parent = same(seen(1, "ceph-osd", T0 + S), T0 + S);
    let child = same(seen(2, "ceph-osd", T0 + S + 200_000), T0 + S + 100_000);
    let mut parent_gone = same(seen(1, "ceph-osd", T0 + S + 300_000), T0 + S);
    parent_gone.ended = true;
    one.daemons = vec![parent, child, parent_gone.clone()];
    one.daemon_samples = vec![
        sample(1, T0 + S, 10_000, 1),
        sample(1, T0 + S + 300_000, 20_000, 1),
        sample(2, T0 + 2 * S, 100_000, 1),
        sample(2, T0 + 4 * S, 300_000, 1),
    ];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    // Apparently a restarted daemon.
    assert_eq!(mesh.number("SELECT daemons FROM v_cost").await, 2);
    // The agent's next scan recognizes it as the parent.
    parent_gone.is_parent = true;
    let later = Batch {
        daemons: vec![parent_gone],
        ..batch("s", 2)
    };
    send(&publisher, later).await.unwrap();
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while mesh.number("SELECT daemons FROM v_cost").await != 1 {
        assert!(std::time::Instant::now() < limit, "it is made again");
        tokio::task::yield_now().await;
    }
    let rows = usage(&mesh).await;
    let pids: Vec<i64> = rows.iter().map(|row| row.get("pid")).collect();
    assert_eq!(pids, [2]);
}

/// The parent's end arrives in the same batch as its birth, if the daemon starts quickly, or in a later batch.
#[tokio::test]
async fn a_restart_is_told_of_the_daemon_and_not_of_the_parent_that_put_it_into_the_background() {
    for is_one_batch in [true, false] {
        let mesh = Mesh::new().await;
        let (publisher, _, mut one) = step_of_four_seconds(&mesh).await;
        let life = |pid: i32, born: i64| {
            let mut daemon = seen(pid, "ceph-osd", born);
            daemon.instance = "osd.1".to_owned();
            daemon.born = Some(MeshMicros(born));
            daemon
        };
        let mut former = life(1, T0 - 900 * S);
        (former.at, former.ended) = (MeshMicros(T0 + S), true);
        let (born, other) = (T0 + 2 * S, "another instance of that host");
        let (mut parent, child) = (life(2, born), life(3, born + 50_000));
        let mut bystander = life(4, born + 60_000);
        bystander.instance = other.to_owned();
        one.daemons = vec![former, parent.clone()];
        one.events = vec![AgentEvent {
            at: MeshMicros(born),
            run_uid: String::new(),
            run: None,
            step: None,
            severity: Severity::Warning,
            kind: "daemon-restarted".to_owned(),
            message: "ceph-osd osd.1 (pid 2) was started again".to_owned(),
            detail_json: Some(
                r#"{"name": "ceph-osd", "instance": "osd.1", "pid": 2, "start_ticks": 1002}"#
                    .to_owned(),
            ),
        }];
        let mut later = batch("s", 2);
        let ends = if is_one_batch { &mut one } else { &mut later };
        (parent.at, parent.ended, parent.is_parent) = (MeshMicros(born + 100_000), true, true);
        ends.daemons.extend([parent, child, bystander]);
        send(&publisher, one).await.unwrap();
        send(&publisher, later).await.unwrap();
        let told: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT message, detail ->> 'pid', detail ->> 'start_ticks' FROM events WHERE kind = 'daemon-restarted'",
        )
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
        let message = "ceph-osd osd.1 (pid 3) was started again".to_owned();
        assert_eq!(told, [(message, 3, 1003)], "in one batch: {is_one_batch}");
    }
}

#[tokio::test]
async fn only_daemons_that_serve_the_target_are_in_its_cost() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let names = ["ceph-osd", "mfschunkserver", "shardd", "benchmesh"];
    for (pid, name) in (1..).zip(names) {
        one.daemons.push(seen(pid, name, T0 - S));
        one.daemon_samples.push(sample(pid, T0, 0, 1));
        one.daemon_samples.push(sample(pid, T0 + 4 * S, S, 1));
    }
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let serves: Vec<(String, Option<bool>)> =
        sqlx::query_as("SELECT name, serves_target FROM v_daemon_usage ORDER BY pid")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    let expected = [
        ("ceph-osd", Some(true)),
        ("mfschunkserver", Some(false)),
        ("shardd", None),
        ("benchmesh", Some(false)),
    ]
    .map(|(name, serves)| (name.to_owned(), serves));
    assert_eq!(serves, expected);
    let cost: Vec<String> = sqlx::query_scalar("SELECT name FROM v_cost ORDER BY name")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(
        cost,
        ["ceph-osd"],
        "what no rule knows is charged to nobody"
    );
}

/// The daemons that count for `target` of system `system`, given what an agent found there.
async fn charged(mount: &str, beneath: &str, label: Option<&str>) -> Vec<(String, Option<bool>)> {
    let mesh = Mesh::new().await;
    let (publisher, agent, host) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store
        .set_run_state(run, running(T0 - S))
        .await
        .unwrap();
    let mut new = new_step(0, "files", "create");
    (new.target, new.system) = ("image".to_owned(), "ours".to_owned());
    let (step, _) = mesh.step(run, new, &[agent]).await;
    mesh.begun(step).await;
    let writer = rusqlite::Connection::open(mesh.path()).unwrap();
    writer
        .execute(
            "INSERT INTO run_targets (run_id, agent_id, target, system, path, mount_type, beneath)
             VALUES (?, ?, 'image', 'ours', '/mnt/image', ?, ?)",
            (run.0, agent.0, mount, beneath),
        )
        .unwrap();
    if let Some(serves) = label {
        writer
            .execute(
                "UPDATE agents SET labels = json_object('serves', ?) WHERE host_id = ?",
                (serves, host.0),
            )
            .unwrap();
    }
    let mut one = batch("s", 1);
    for (pid, name) in (1..).zip(["ceph-osd", "sheep", "shardd"]) {
        one.daemons.push(seen(pid, name, T0 - S));
        one.daemon_samples.push(sample(pid, T0, 0, 1));
        one.daemon_samples.push(sample(pid, T0 + 4 * S, S, 1));
    }
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    sqlx::query_as("SELECT name, serves_target FROM v_daemon_usage ORDER BY pid")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_file_system_on_a_network_block_device_is_served_by_its_daemons() {
    let check = |found: Vec<(String, Option<bool>)>, expected: [Option<bool>; 3]| {
        let found: Vec<Option<bool>> = found.into_iter().map(|(_, serves)| serves).collect();
        assert_eq!(found, expected);
    };
    let rbd = r#"["loop","fuse.rbd-fuse"]"#;
    let sheep = r#"["loop","fuse.sheepfs"]"#;
    let (yes, no) = (Some(true), Some(false));
    check(charged("ext4", rbd, None).await, [yes, no, None]);
    check(charged("ext4", sheep, None).await, [no, yes, None]);
    check(charged("ext4", r#"["disk"]"#, None).await, [no, no, no]);
    // A guest's disk; only the operator knows where its data are stored.
    check(
        charged("ext4", r#"["disk"]"#, Some("image")).await,
        [yes, yes, yes],
    );
    check(charged("ext4", rbd, Some("image")).await, [yes, no, yes]);
    check(charged("ext4", rbd, Some("another")).await, [no, no, no]);
}

#[tokio::test]
async fn a_label_says_which_of_two_clusters_serves_a_target() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    for (name, serves) in [("n1", "cephfs"), ("n2", "other")] {
        let mut agent = super::new_agent(name);
        agent.labels_json = format!("{{\"serves\":\"{serves}\"}}");
        let (agent, host) = mesh.store.attach_agent(agent).await.unwrap();
        let node = mesh.store.publisher(agent, host, "net:1".to_owned());
        let mut samples = batch("n", 1);
        samples.daemons = vec![seen(1, "ceph-osd", T0 - S)];
        samples.daemon_samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 4 * S, S, 1)];
        send(&node, samples).await.unwrap();
    }
    one.daemons = vec![];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let serves: Vec<(String, Option<bool>)> =
        sqlx::query_as("SELECT host, serves_target FROM v_daemon_usage ORDER BY host")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    let expected = [("host-n1", Some(true)), ("host-n2", Some(false))]
        .map(|(host, serves)| (host.to_owned(), serves));
    assert_eq!(serves, expected);
    assert_eq!(mesh.number("SELECT daemons FROM v_cost").await, 1);
}

#[tokio::test]
async fn late_samples_change_the_usage() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    one.daemons = vec![seen(1, "ceph-osd", T0 - S)];
    one.daemon_samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 3 * S, 300_000, 1)];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    assert_eq!(seconds(&usage(&mesh).await[0], "cpu_s"), Some(0.3));
    let mut late = batch("s", 2);
    late.daemon_samples = vec![sample(1, T0 + 4 * S, 500_000, 1)];
    send(&publisher, late).await.unwrap();
    let worked_in = async {
        while seconds(&usage(&mesh).await[0], "cpu_s") != Some(0.5) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), worked_in)
        .await
        .expect("the late sample is worked in");
    let stale = "SELECT count(*) FROM steps WHERE stale_samples > 0";
    let settled = async {
        while mesh.number(stale).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settled)
        .await
        .expect("nothing is left to be worked in");
}

pub(super) fn host_sample(at: i64) -> HostSample {
    HostSample {
        at: MeshMicros(at),
        figures: HostFigures::from_values(std::iter::repeat(0)),
        busy_others: None,
    }
}

/// A report at a run's end waits for these samples.
#[tokio::test]
async fn the_samples_of_a_run_are_complete_when_one_of_its_end_is_here() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let run = RunId(mesh.number("SELECT max(id) FROM runs").await);
    one.host_samples = vec![host_sample(T0), host_sample(T0 + 3 * S)];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let awaited = mesh.store.hosts_awaited(run).await.unwrap();
    assert_eq!(awaited, ["host-a"]);
    let mut late = batch("s", 2);
    late.host_samples = vec![host_sample(T0 + 4 * S)];
    send(&publisher, late).await.unwrap();
    let awaited = mesh.store.hosts_awaited(run).await.unwrap();
    assert_eq!(awaited, [""; 0]);
}

/// An agent without a sampler, or one that was lost during the run, is not waited for.
#[tokio::test]
async fn a_host_that_was_not_sampled_at_the_end_is_not_waited_for() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let run = RunId(mesh.number("SELECT max(id) FROM runs").await);
    one.host_samples = vec![host_sample(T0 - S)];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    assert!(mesh.store.hosts_awaited(run).await.unwrap().is_empty());
}

/// A report does not wait for a quiet time: stored rows are included at once.
#[tokio::test]
async fn late_samples_are_worked_in_when_they_are_asked_for() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let run = RunId(mesh.number("SELECT max(id) FROM runs").await);
    one.daemons = vec![seen(1, "ceph-osd", T0 - S)];
    one.daemon_samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 3 * S, 300_000, 1)];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let mut arrived = mesh.store.late_data();
    arrived.mark_unchanged();
    let mut late = batch("s", 2);
    late.daemon_samples = vec![sample(1, T0 + 4 * S, 500_000, 1)];
    send(&publisher, late).await.unwrap();
    assert!(arrived.has_changed().unwrap());
    mesh.store.compute_stale(run).await.unwrap();
    assert_eq!(seconds(&usage(&mesh).await[0], "cpu_s"), Some(0.5));
}

/// Work of a daemon after a step is reported separately, until the daemon is idle.
#[tokio::test]
async fn work_after_the_step_counts_until_the_daemon_is_idle() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    one.daemons = vec![seen(1, "ceph-osd", T0 - S)];
    // Half a CPU in the step and for 2 s after it, then nothing.
    one.daemon_samples = (0..9)
        .map(|second: i64| sample(1, T0 + second * S, second.min(6) * S / 2, 1))
        .collect();
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let rows = usage(&mesh).await;
    assert_eq!(seconds(&rows[0], "cpu_s"), Some(2.0));
    assert_eq!(seconds(&rows[0], "after_cpu_s"), Some(1.0));
    assert_eq!(seconds(&rows[0], "after_s"), Some(2.0));
    assert_eq!(rows[0].get::<Option<bool>, _>("after_idle"), Some(true));
    let cost: (f64, f64) =
        sqlx::query_as("SELECT cpu_us_per_op, cpu_us_per_op_until_idle FROM v_cost")
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(cost, (5000.0, 7500.0));
}

#[tokio::test]
async fn work_for_the_next_step_is_not_the_last_ones() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let run = RunId(mesh.number("SELECT max(id) FROM runs").await);
    one.daemons = vec![seen(1, "ceph-osd", T0 - S)];
    one.daemon_samples = (0..9)
        .map(|second: i64| sample(1, T0 + second * S, second * S / 2, 1))
        .collect();
    send(&publisher, one).await.unwrap();
    let next = mesh
        .store
        .create_steps(run, vec![new_step(1, "files", "stat")])
        .await
        .unwrap()[0];
    // The mesh lays out data from 1 s after the end on.
    for (state, at) in [(StepState::Prepare, 5), (StepState::Settle, 7)] {
        let change = StepChange {
            state,
            at: MeshMicros(T0 + at * S),
            start: None,
            ended: None,
            reason: None,
        };
        mesh.store.set_step_state(next, change).await.unwrap();
    }
    mesh.finish(step, T0 + 4 * S).await;
    let rows = usage(&mesh).await;
    assert_eq!(seconds(&rows[0], "after_cpu_s"), Some(0.5));
    assert_eq!(rows[0].get::<Option<bool>, _>("after_idle"), Some(false));
}

/// The kernel's high-water mark shows peaks between samples; a peak from before the step does not count.
#[tokio::test]
async fn the_peak_of_memory_counts_where_it_rose_in_the_step() {
    const MIB: i64 = 1 << 20;
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    one.daemons = (1..4).map(|pid| seen(pid, "ceph-osd", T0 - S)).collect();
    for pid in 1..4 {
        for second in 0..5 {
            one.daemon_samples
                .push(sample(pid, T0 + second * S, second, 100 * MIB));
        }
    }
    let peaks = [(1, 345, 345), (2, 120, 345)];
    for sample in &mut one.daemon_samples {
        let edge = match (sample.at.0 - T0) / S {
            0 => 0,
            4 => 1,
            _ => continue,
        };
        let own = peaks.iter().find(|(pid, ..)| *pid == sample.process.pid);
        sample.figures.rss_peak_bytes =
            own.map_or(-1, |(_, first, last)| [first, last][edge] * MIB);
    }
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let rows = usage(&mesh).await;
    let peaks: Vec<Option<f64>> = rows.iter().map(|row| row.get("rss_peak_mib")).collect();
    assert_eq!(peaks, [Some(100.0), Some(345.0), None]);
    assert!(
        rows.iter()
            .all(|row| seconds(row, "rss_max_mib") == Some(100.0))
    );
}

#[tokio::test]
async fn usage_before_the_run_is_listed_separately() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    one.daemons = vec![
        seen(1, "ceph-osd", T0 - 30 * S),
        seen(2, "ceph-osd", T0 - S),
    ];
    // 5 % of a CPU before the run, which begins a second before the step; the other daemon was not sampled then.
    one.daemon_samples = vec![
        sample(1, T0 - 21 * S, 0, 1),
        sample(1, T0 - S, S, 1),
        sample(1, T0, S, 1),
        sample(1, T0 + 4 * S, 3 * S, 1),
        sample(2, T0, 0, 1),
        sample(2, T0 + 4 * S, S, 1),
    ];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let rows = usage(&mesh).await;
    assert_eq!(seconds(&rows[0], "cpu_percent"), Some(50.0));
    assert_eq!(seconds(&rows[0], "idle_cpu_percent"), Some(5.0));
    assert_eq!(seconds(&rows[1], "idle_cpu_percent"), None);
    let idle: Option<f64> = sqlx::query_scalar("SELECT idle_cpu_s FROM v_cost")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(idle, None, "of one of the two it is not known");
}

/// 400 steps and 200 daemons: 80,000 rows of usage.
const LARGE: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
        INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
        SELECT i, 'b' || i, 'p', 'host' || i, 'Linux', 8, 1 << 33 FROM n;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
        INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us)
        SELECT i, 1 + i % 20, 'ceph-osd', 'osd.' || i, 1000 + i, 5, 'ceph-osd', 0, 5000000000 FROM n;
    INSERT INTO runs (id, uid, name, plan, state, created_us, started_us, version)
        VALUES (1, 'u', 'r', '', 'done', 0, 0, '0');
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
        INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, target, system, workload, mode, clients, cache, state,
            start_us, measured_from_us, last_done_us, ended_us)
        SELECT i, 1, i, 1, 'p', 'c', 't', 'cephfs', 'io', 'read', 3, 'asis', 'done',
            i * 10000000, i * 10000000, i * 10000000 + 9000000, i * 10000000 + 9500000 FROM n;
    INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, saturated)
        SELECT id, 'read', 3, 1000, 4096000, 0, 'window', 0 FROM steps;
    INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, cpu_user_us, cpu_system_us,
            cpu_error_us, idle_cpu_us, rss_first_bytes, rss_min_bytes, rss_max_bytes, rss_last_bytes,
            rss_peak_bytes, vsz_bytes, read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults,
            major_faults, threads, fds, samples, after_us, after_cpu_us, after_write_bytes, after_idle)
        SELECT s.id, d.id, 1, s.start_us, s.last_done_us, 100000, 50000, 10, 20, 1, 1, 1, 1, 1, 1, 5, 5, 1, 1, 1, 1, 4,
               10, 9, 0, 0, 0, 1
        FROM steps AS s CROSS JOIN daemons AS d;";

/// Limit: five times the CPU time of reading all columns of `step_daemons` in the same run. Views that compute usage
/// from samples took forty times as long as these, which read `step_daemons`.
#[test]
fn usage_and_cost_of_a_long_run_are_read_within_the_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    measured(|| runtime.block_on(read_usage_and_cost()));
}

async fn read_usage_and_cost() -> Result<(), TimingError> {
    let mesh = Mesh::new().await;
    mesh.store.close().await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    file.execute_batch(LARGE).unwrap();
    let mut baseline = 0;
    for (view, rows) in [
        ("step_daemons", 80_000),
        ("v_daemon_usage", 80_000),
        ("v_cost", 400),
    ] {
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let mut statement = file.prepare(&format!("SELECT * FROM {view}")).unwrap();
        let columns = statement.column_count();
        let mut read = statement.query([]).unwrap();
        let mut found = 0;
        while let Some(row) = read.next().unwrap() {
            for column in 0..columns {
                row.get_ref(column).unwrap();
            }
            found += 1;
        }
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let took =
            (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1_000_000;
        eprintln!("{view}: {found} rows in {took} ms of CPU");
        assert_eq!(found, rows, "{view}");
        if view == "step_daemons" {
            baseline = took;
        }
        timing!(
            took <= 5 * baseline,
            "{view} took {took} ms of CPU, the table {baseline} ms"
        );
    }
    Ok(())
}
