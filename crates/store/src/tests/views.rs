//! The views return correct figures, and use indexes.

use super::{Mesh, S, T0, batch, interval, new_step, sample, seen, send, task_end};
use crate::distribution::Distribution;
use benchmesh_model::mesh::{AgentId, StepId, TaskId};
use benchmesh_workloads::histogram::Histogram;
use sqlx::Row;

/// Four seconds of `create` at 100 operations per second of 1 ms, by one agent, while two daemons use 10 % and 50 %.
async fn soak(mesh: &Mesh) -> (AgentId, StepId, TaskId) {
    let (publisher, agent, host) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 100, S as u64))
        .collect();
    one.task_ends = vec![task_end(tasks[0], 100, T0 + 4 * S)];
    one.daemons = vec![
        seen(1, "ceph-osd", T0 - 9 * S),
        seen(2, "ceph-osd", T0 - 9 * S),
    ];
    for pid in 1..=2 {
        // From 9 s before to 5 s after, 0.3 s off the full second; and at the exact start and end.
        let beats = (-9..10).map(|second| T0 + second * S + 300_000);
        for at in beats.chain([T0, T0 + 4 * S]) {
            let per_second = if pid == 1 { 100_000 } else { 500_000 };
            let cpu = (at - T0 + 20 * S) * per_second / S;
            let rss = 100 << 20;
            let bump = if at == T0 + 2 * S + 300_000 {
                50 << 20
            } else {
                0
            };
            one.daemon_samples.push(sample(pid, at, cpu, rss + bump));
        }
    }
    send(&publisher, one).await.unwrap();
    // A second agent on the same host saw the same daemons: the keys are equal, the instants differ.
    let other = mesh.store.publisher(agent, host, "net:2".to_owned());
    let mut again = batch("t", 1);
    again.daemons = vec![seen(1, "ceph-osd", T0)];
    again.daemon_samples = (0..4)
        .map(|second| {
            sample(
                1,
                T0 + second * S + 600_000,
                (20 * S + second * S + 600_000) / 10,
                100 << 20,
            )
        })
        .collect();
    send(&other, again).await.unwrap();
    mesh.finish(step, T0 + 5 * S).await;
    (agent, step, tasks[0])
}

#[tokio::test]
async fn daemons_are_counted_once_from_the_samples_at_start_and_end() {
    let mesh = Mesh::new().await;
    soak(&mesh).await;
    let rows = sqlx::query("SELECT * FROM v_daemon_usage ORDER BY pid")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(rows.len(), 2);
    for (row, percent) in rows.iter().zip([10.0, 50.0]) {
        assert_eq!(row.get::<f64, _>("sampled_s"), 4.0);
        assert!((row.get::<f64, _>("cpu_percent") - percent).abs() < 1e-9);
        assert!((row.get::<f64, _>("cpu_s") - percent * 0.04).abs() < 1e-9);
        assert_eq!(row.get::<f64, _>("rss_first_mib"), 100.0);
        assert_eq!(row.get::<f64, _>("rss_max_mib"), 150.0);
        assert_eq!(row.get::<Option<f64>, _>("written_mib"), None);
        assert_eq!(row.get::<String, _>("host"), "host-a");
    }
    let cost = sqlx::query("SELECT * FROM v_cost")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(cost.len(), 1);
    assert_eq!(cost[0].get::<i64, _>("daemons"), 2);
    // 2.4 s of CPU for 400 operations of 4 KiB.
    assert!((cost[0].get::<f64, _>("cpu_us_per_op") - 6000.0).abs() < 1e-6);
    let gib = 400.0 * 4096.0 / f64::from(1 << 30);
    assert!((cost[0].get::<f64, _>("cpu_s_per_gib") - 2.4 / gib).abs() < 1e-6);
    let of_each: Vec<(i64, String, f64)> = sqlx::query_as(
        "SELECT pid, host, round(cpu_us_per_op, 6) FROM v_cost_by_daemon ORDER BY pid",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let host = || "host-a".to_owned();
    assert_eq!(of_each, [(1, host(), 1000.0), (2, host(), 5000.0)]);
}

#[tokio::test]
async fn a_restarted_daemon_is_a_new_one_and_no_counter_goes_backwards() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut one = batch("s", 1);
    one.op_intervals = vec![interval(tasks[0], T0, "create", 10, 1000)];
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    let mut before = seen(1, "ceph-osd", T0);
    before.ended = true;
    let mut after = seen(1, "ceph-osd", T0 + 2 * S);
    after.process.start_ticks = 9999;
    one.daemons = vec![before, after];
    one.daemon_samples = vec![sample(1, T0, 900_000, 1), sample(1, T0 + S, 1_000_000, 1)];
    for (at, cpu) in [(2, 0), (4, 200_000)] {
        let mut reborn = sample(1, T0 + at * S, cpu, 1);
        reborn.process.start_ticks = 9999;
        one.daemon_samples.push(reborn);
    }
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let used: Vec<f64> = sqlx::query_scalar("SELECT cpu_s FROM v_daemon_usage ORDER BY daemon_id")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(used, [0.1, 0.2]);
}

#[tokio::test]
async fn a_step_shorter_than_the_beat_has_its_daemons_use() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    // Each case has one sample within the step, and one after the end or before the start. The part of the line
    // between them that lies within the step counts.
    for (ordinal, beats, expected) in [
        (0, vec![(100_000, 10_000), (1_100_000, 110_000)], Some(0.04)),
        (1, vec![(-900_000, 10_000), (100_000, 60_000)], Some(0.005)),
        (2, vec![(100_000, 10_000)], None),
        // A sample at the very end: later work does not belong to the step.
        (3, vec![(500_000, 10_000), (1_500_000, 210_000)], None),
        // A counter that went backwards: usage and cost are unknown.
        (4, vec![(-100_000, 90_000), (500_000, 10_000)], None),
    ] {
        let start = T0 + i64::from(ordinal) * 100 * S;
        let (step, tasks) = mesh
            .step(run, new_step(ordinal, "files", "create"), &[agent])
            .await;
        let change = crate::rows::StepChange {
            state: benchmesh_model::mesh::StepState::Running,
            at: benchmesh_model::mesh::MeshMicros(start),
            start: Some(benchmesh_model::mesh::MeshMicros(start)),
            ended: None,
            reason: None,
        };
        mesh.store.set_step_state(step, change).await.unwrap();
        let pid = i32::try_from(ordinal).unwrap() + 1;
        let mut one = batch("s", u64::from(ordinal) + 1);
        let mut short = interval(tasks[0], start, "create", 10, 1000);
        short.span_us = 500_000;
        one.op_intervals = vec![short];
        one.task_ends = vec![task_end(tasks[0], 0, start + 500_000)];
        one.task_ends[0].start = Some(benchmesh_model::mesh::MeshMicros(start));
        one.daemons = vec![seen(pid, "ceph-osd", start - S)];
        one.daemon_samples = beats
            .into_iter()
            .map(|(after, cpu)| sample(pid, start + after, cpu, 1))
            .collect();
        send(&publisher, one).await.unwrap();
        mesh.finish(step, start + 500_000).await;
        for (view, column) in [("v_daemon_usage", "cpu_s"), ("v_cost", "cpu_s")] {
            let sql = format!("SELECT {column} FROM {view} WHERE step_id = {step}");
            let used: Option<f64> = sqlx::query_scalar::<_, Option<f64>>(sqlx::AssertSqlSafe(sql))
                .fetch_optional(mesh.store.reader())
                .await
                .unwrap()
                .flatten();
            assert_eq!(used, expected, "{view} of {ordinal}");
        }
    }
}

#[tokio::test]
async fn a_step_that_failed_when_it_was_begun_anew_is_not_done() {
    let mesh = Mesh::new().await;
    let (_, step, _) = soak(&mesh).await;
    let done = "SELECT steps_done FROM v_runs";
    assert_eq!(mesh.number(done).await, 1);
    let run = mesh.store.step(step).await.unwrap().run;
    let mut again = new_step(0, "files", "create");
    again.attempt = 2;
    mesh.store.create_steps(run, vec![again]).await.unwrap();
    assert_eq!(mesh.number(done).await, 0);
    assert_eq!(mesh.number("SELECT steps FROM v_runs").await, 1);
}

#[tokio::test]
async fn each_second_of_a_client_has_its_own_percentiles() {
    let mesh = Mesh::new().await;
    let (publisher, a, _) = mesh.publisher("a").await;
    let (second_publisher, b, _) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[a, b])
        .await;
    let mut fast = batch("s", 1);
    fast.op_intervals = (0..2)
        .map(|second| interval(tasks[0], T0 + second * S + 15, "create", 100, 1_000_000))
        .collect();
    send(&publisher, fast).await.unwrap();
    // Slower, with its clock 20 us ahead; it ends 0.4 s into its second second.
    let mut slow = batch("t", 1);
    let mut service = Histogram::new();
    service.record_many(2_000_000, 50);
    service.record_many(9_000_000, 2);
    let mut first = interval(tasks[1], T0 - 20, "create", 52, 1);
    first.service = Distribution::from(&service);
    first.response = Some(Distribution::from(&service));
    slow.op_intervals = vec![
        first,
        interval(tasks[1], T0 + S - 20, "create", 4, 3_000_000),
    ];
    slow.task_ends = vec![task_end(tasks[1], 0, T0 + S + 400_000)];
    send(&second_publisher, slow).await.unwrap();
    mesh.store.flush().await;
    type ClientSecond = (
        String,
        f64,
        f64,
        Option<f64>,
        Option<f64>,
        f64,
        f64,
        f64,
        Option<f64>,
    );
    let rows: Vec<ClientSecond> = sqlx::query_as(
        "SELECT client, second, span_s, ops_per_s, mib_per_s, p50_ms, p99_ms, max_ms, response_p99_ms
         FROM v_client_timeline WHERE run_id = ? AND step_id = ? ORDER BY client, second",
    )
    .bind(run.0)
    .bind(step.0)
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let mib = |ops: f64| Some(ops * 4096.0 / 1_048_576.0);
    let name = |name: &str| name.to_owned();
    // Percentiles are upper ends of slots, within the exact minimum and maximum.
    let p50 = service.quantile(0.5) as f64 / 1e6;
    assert_eq!(
        rows,
        [
            (
                name("a"),
                0.0,
                1.0,
                Some(100.0),
                mib(100.0),
                1.0,
                1.0,
                1.0,
                None
            ),
            (
                name("a"),
                1.0,
                1.0,
                Some(100.0),
                mib(100.0),
                1.0,
                1.0,
                1.0,
                None
            ),
            (
                name("b"),
                0.0,
                1.0,
                Some(52.0),
                mib(52.0),
                p50,
                9.0,
                9.0,
                Some(9.0)
            ),
            (name("b"), 1.0, 0.40002, None, None, 3.0, 3.0, 3.0, None),
        ]
    );
}

#[tokio::test]
async fn results_and_timeline_are_in_people_s_units() {
    let mesh = Mesh::new().await;
    let (_, step, _) = soak(&mesh).await;
    let row = sqlx::query("SELECT * FROM v_results")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(row.get::<i64, _>("step_id"), step.0);
    assert_eq!(row.get::<String, _>("run"), "run u");
    assert_eq!(row.get::<String, _>("headline"), "window");
    let per_s: f64 = row.get("ops_per_s");
    assert!((per_s - 100.0).abs() < 0.1, "{per_s}");
    let mib: f64 = row.get("mib_per_s");
    assert!((mib - per_s * 4096.0 / 1_048_576.0).abs() < 1e-9);
    for column in ["mean_ms", "p50_ms", "p99_ms", "max_ms"] {
        assert!((row.get::<f64, _>(column) - 1.0).abs() < 0.01, "{column}");
    }
    assert_eq!(row.get::<f64, _>("max_skew_ms"), 0.1);
    assert_eq!(row.get::<String, _>("flags"), "[]");
    let seconds: Vec<(f64, f64)> =
        sqlx::query_as("SELECT second, ops_per_s FROM v_timeline ORDER BY second")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(
        seconds,
        [(0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 100.0)]
    );
}

/// A load of 2 s whose last operations ended 120 us later: no rate exceeds that of a whole second.
#[tokio::test]
async fn a_fragment_of_a_second_has_no_rate() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mesh.begun(step).await;
    let mut one = batch("s", 1);
    let mut fragment = interval(tasks[0], T0 + 2 * S, "create", 4, 1000);
    fragment.span_us = 120;
    one.op_intervals = vec![
        interval(tasks[0], T0, "create", 100, 1000),
        interval(tasks[0], T0 + S, "create", 110, 1000),
        fragment,
    ];
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 2 * S + 120)];
    super::send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 2 * S + 120).await;
    let rows: Vec<(i64, Option<f64>)> =
        sqlx::query_as("SELECT ops, ops_per_s FROM v_timeline ORDER BY at_us")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(rows, [(100, Some(100.0)), (110, Some(110.0)), (4, None)]);
    let found: (i64, f64, f64, i64) =
        sqlx::query_as("SELECT seconds, ops_per_s_min, ops_per_s_max, ops FROM v_results")
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(found, (2, 100.0, 110.0, 214));
}

#[tokio::test]
async fn earlier_attempts_are_outside_the_results() {
    let mesh = Mesh::new().await;
    let (_, step, _) = soak(&mesh).await;
    let run = mesh.store.step(step).await.unwrap().run;
    let mut again = new_step(0, "files", "create");
    again.attempt = 2;
    mesh.store.create_steps(run, vec![again]).await.unwrap();
    assert_eq!(mesh.number("SELECT count(*) FROM v_results").await, 0);
    assert_eq!(mesh.number("SELECT count(*) FROM v_cost").await, 0);
    assert_eq!(mesh.number("SELECT count(*) FROM v_timeline").await, 4);
}

#[tokio::test]
async fn agents_and_runs_are_listed() {
    let mesh = Mesh::new().await;
    soak(&mesh).await;
    let (agent, host, gib): (String, String, f64) =
        sqlx::query_as("SELECT agent, host, memory_gib FROM v_agents")
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!((agent.as_str(), host.as_str(), gib), ("a", "host-a", 8.0));
    let (run, steps, done, created): (String, i64, i64, String) =
        sqlx::query_as("SELECT run, steps, steps_done, created FROM v_runs")
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!((run.as_str(), steps, done), ("run u", 1, 1));
    assert_eq!(created, "2025-06-15T15:06:40Z");
}

/// Samples of days may only be reached through their keys.
#[tokio::test]
async fn no_view_scans_what_grows_with_time() {
    let mesh = Mesh::new().await;
    soak(&mesh).await;
    let views: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    assert!(views.len() >= 7, "{views:?}");
    for view in views {
        let filter = match view.as_str() {
            "v_timeline" => " WHERE step_id = 1",
            _ => "",
        };
        let plan = sqlx::query(sqlx::AssertSqlSafe(format!(
            "EXPLAIN QUERY PLAN SELECT * FROM {view}{filter}"
        )))
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
        for line in plan {
            let detail: String = line.get("detail");
            // By the aliases that the views give the tables: samples x, f, u; intervals i; clock offsets o within
            // agents.
            let scans = [
                "SCAN x",
                "SCAN f",
                "SCAN u",
                "SCAN i",
                "SCAN daemon_samples",
            ];
            let scanned = scans
                .iter()
                .any(|scan| detail == *scan || detail.starts_with(&format!("{scan} ")));
            assert!(!scanned, "{view}: {detail}");
        }
    }
}

/// A step of up to eight minutes has a row per sample. A longer one has 480 spans, which add up to the same bytes and
/// time.
#[test]
fn the_timeline_of_hosts_is_bounded_in_a_long_step() {
    const HOSTS: i64 = 2;
    let directory = tempfile::tempdir().unwrap();
    for soak_seconds in [480, 1500, 7250] {
        let path = directory.path().join(format!("{soak_seconds}.db"));
        let shape = benchmesh_synthetic::Shape {
            hosts: 2,
            daemons_per_host: 1,
            clients: 1,
            targets: 2,
            runs: 1,
            repeats: 1,
            step_seconds: 4,
            gap_seconds: 1,
            soak_seconds,
        };
        benchmesh_synthetic::generate(&path, &shape).unwrap();
        let file = rusqlite::Connection::open(&path).unwrap();
        let kinds: Vec<(String, i64, f64, f64, f64, f64)> = file
            .prepare(
                "SELECT kind, count(*), max(span_s) - min(span_s), sum(span_s), max(second), total(in_mib_per_s * span_s)
                 FROM v_host_timeline WHERE run_id = 2 GROUP BY kind ORDER BY kind",
            )
            .unwrap()
            .query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(kinds.len(), 3);
        let seconds = f64::from(soak_seconds);
        let spans = i64::from(soak_seconds.min(480));
        for (kind, rows, spread, covered, last, in_mib) in kinds {
            // A short step also has the sample of the second before it, if there is one.
            assert!(
                (HOSTS * spans..=HOSTS * (spans + 1)).contains(&rows),
                "{kind}: {rows}"
            );
            assert!(spread <= 1.0, "{kind}: {spread}");
            let hosts = f64::from(2);
            assert!(
                (covered - hosts * seconds).abs() <= hosts,
                "{kind}: {covered}"
            );
            assert_eq!(last, seconds, "{kind}");
            // Per second, 1 MiB is read from each disk and 10 MiB arrive over each interface.
            let rate = match kind.as_str() {
                "disk" => 1.0,
                "interface" => 10.0,
                _ => 0.0,
            };
            assert!((in_mib - rate * covered).abs() < 1e-6, "{kind}: {in_mib}");
        }
    }
}

/// The number of the timeline's parts is bounded per run: its long steps share them by their lengths, and each has
/// some.
#[test]
fn the_long_steps_of_a_run_share_the_parts_of_the_timeline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.db");
    let shape = benchmesh_synthetic::Shape {
        hosts: 2,
        daemons_per_host: 1,
        clients: 1,
        targets: 2,
        runs: 1,
        repeats: 1,
        step_seconds: 4,
        gap_seconds: 1,
        soak_seconds: 7250,
    };
    benchmesh_synthetic::generate(&path, &shape).unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    for (ordinal, seconds) in [(91, 7250), (92, 7250), (93, 481), (94, 480)] {
        file.execute(
            "INSERT INTO steps (run_id, ordinal, repeat, phase, cell, workload, mode, clients, cache, state, start_us,
                 last_done_us, ended_us)
             SELECT run_id, ?1, repeat, phase, cell, workload, mode, clients, cache, state, start_us,
                 start_us + ?2 * 1000000, ended_us
             FROM steps WHERE run_id = 2 ORDER BY last_done_us - start_us DESC LIMIT 1",
            [ordinal, seconds],
        )
        .unwrap();
    }
    let rows: Vec<(i64, f64, f64)> = file
        .prepare(
            "SELECT count(*), (last_done_us - t.start_us) / 1e6, max(second) FROM v_host_timeline AS v
             JOIN steps AS t ON t.id = v.step_id
             WHERE v.run_id = 2 AND host = (SELECT min(name) FROM hosts) AND kind = 'cpu'
             GROUP BY v.step_id ORDER BY v.step_id",
        )
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    // 480 * 7250 / 22231 is 156; the sample of the second before a short step, if there is one, has a row too.
    let spans: Vec<i64> = rows.iter().map(|row| row.0).collect();
    assert!(
        spans == [156, 156, 156, 24, 480] || spans == [156, 156, 156, 24, 481],
        "{spans:?}"
    );
    for (_, length, last) in rows {
        assert_eq!(last, length);
    }
    file.execute_batch(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 284)
         INSERT INTO steps (run_id, ordinal, repeat, phase, cell, workload, mode, clients, cache, state, start_us,
             last_done_us, ended_us)
         SELECT run_id, 100 + n, repeat, phase, cell, workload, mode, clients, cache, state, start_us, last_done_us,
             ended_us
         FROM steps CROSS JOIN n WHERE ordinal = 93",
    )
    .unwrap();
    let of_hundreds: i64 = file
        .query_row(
            "SELECT count(*) FROM v_host_timeline AS v JOIN steps AS t ON t.id = v.step_id
             WHERE t.ordinal = 93 AND host = (SELECT min(name) FROM hosts) AND kind = 'cpu'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(of_hundreds, 3, "960 / 288 steps");
}
