//! Rows that are merged, thinned and deleted: which figures must stay the same, and which change.

use super::{Mesh, S, T0, batch, interval, new_step, running, send, task_end};
use crate::Store;
use crate::distribution::Distribution;
use crate::maintain::prunable;
use crate::prune::Resolution;
use crate::retention::{KeepFor, MaxSize, PruneProgress, Request, Retainer, Retention};
use benchmesh_model::mesh::{MeshMicros, RunState, StepId};
use benchmesh_workloads::histogram::Histogram;
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;

pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const HOUR_US: i64 = 3_600_000_000;

const SHAPE: benchmesh_synthetic::Shape = benchmesh_synthetic::Shape {
    hosts: 2,
    daemons_per_host: 3,
    clients: 2,
    targets: 2,
    runs: 2,
    repeats: 1,
    step_seconds: 65,
    gap_seconds: 4,
    soak_seconds: 1200,
};

/// A generated database, and the end of its last run.
pub(super) async fn generated() -> (TempDir, Store, i64) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("mesh.db");
    std::thread::scope(|scope| {
        let made = scope.spawn(|| benchmesh_synthetic::generate(&path, &SHAPE));
        made.join().unwrap().unwrap();
    });
    let store = Store::open(&path).await.unwrap();
    (
        directory,
        store,
        benchmesh_synthetic::T0_US + i64::from(SHAPE.seconds()) * S,
    )
}

pub(super) fn keeping(seconds: Duration, tens: Duration) -> Retention {
    Retention {
        keep_seconds: KeepFor::Span(seconds),
        keep_10s: KeepFor::Span(tens),
        max_size: MaxSize::Unlimited,
        keep_tags: Vec::new(),
        min_rows: 0,
    }
}

/// The answer to a query as one text.
pub(super) fn answer(path: &Path, sql: &str) -> String {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        (0..columns)
            .map(|column| row.get::<_, rusqlite::types::Value>(column))
            .collect::<rusqlite::Result<Vec<_>>>()
    });
    let rows: Vec<String> = rows
        .unwrap()
        .map(|row| format!("{:?}", row.unwrap()))
        .collect();
    rows.join("\n")
}

pub(super) fn number(path: &Path, sql: &str) -> i64 {
    Connection::open(path)
        .unwrap()
        .query_row(sql, [], |row| row.get(0))
        .unwrap()
}

/// Figures of each task, step and series that merging must not change.
const CONSERVED: [&str; 6] = [
    "SELECT task_id, op, ramp, sum(ops), sum(bytes), sum(undated_bytes), sum(errors), sum(span_us), min(at_us),
            max(at_us + span_us), sum(service_count), round(sum(service_sum_ns)), min(service_min_ns), max(service_max_ns),
            sum(service_saturated)
     FROM op_intervals GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "SELECT step_id, op, ramp, sum(ops), sum(bytes), sum(errors), sum(span_us), min(at_us), max(at_us + span_us), max(max_ns),
            max(tasks), round(sum(mean_ns * ops) / 1e6)
     FROM step_intervals GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "SELECT * FROM step_results ORDER BY id",
    "SELECT * FROM task_results ORDER BY id",
    "SELECT * FROM step_daemons ORDER BY step_id, daemon_id",
    "SELECT daemon_id, min(at_us), max(at_us), max(cpu_user_us), min(rss_bytes), max(rss_bytes), max(threads)
     FROM daemon_samples GROUP BY 1 ORDER BY 1",
];

/// The percentiles of each row of a task are those of the histogram beside them.
fn check_percentiles(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let mut checked = 0;
    for columns in ["service_p99_ns, service_p50_ns", "response_p99_ns, NULL"] {
        let kind = columns.split('_').next().unwrap();
        let sql = format!(
            "SELECT {kind}_histogram, {kind}_min_ns, {kind}_max_ns, {columns} FROM op_intervals
             WHERE {kind}_count > 0"
        );
        let mut statement = connection.prepare(&sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let packed: Vec<u8> = row.get(0).unwrap();
            let counts = Histogram::from_v2_deflate(&packed).unwrap();
            let (min, max): (i64, i64) = (row.get(1).unwrap(), row.get(2).unwrap());
            let expected = |q| i64::try_from(counts.quantile(q)).unwrap().clamp(min, max);
            assert_eq!(row.get::<_, i64>(3).unwrap(), expected(0.99), "{kind}");
            if kind == "service" {
                assert_eq!(row.get::<_, i64>(4).unwrap(), expected(0.5));
            }
            checked += 1;
        }
    }
    assert!(checked > 0);
}

/// The sums of all histograms: values, and the bounds of their slots.
fn histograms(path: &Path) -> Vec<Conserved> {
    let connection = Connection::open(path).unwrap();
    let sums = [
        "SELECT service_histogram FROM op_intervals WHERE service_histogram IS NOT NULL",
        "SELECT histogram FROM step_intervals WHERE histogram IS NOT NULL",
    ]
    .map(|sql| {
        let mut sum = Histogram::new();
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement
            .query_map([], |row| row.get::<_, Vec<u8>>(0))
            .unwrap();
        for packed in rows {
            sum.add(&Histogram::from_v2_deflate(&packed.unwrap()).unwrap());
        }
        (
            sum.count(),
            sum.quantile(0.5),
            sum.quantile(0.99),
            sum.max_ns(),
        )
    });
    sums.to_vec()
}

/// Count, median, p99 and maximum of a sum of histograms.
pub(super) type Conserved = (u64, u64, u64, u64);

pub(super) fn conserved(path: &Path) -> (Vec<String>, Vec<Conserved>) {
    let answers = CONSERVED.iter().map(|sql| answer(path, sql)).collect();
    check_percentiles(path);
    (answers, histograms(path))
}

#[tokio::test]
async fn sums_histograms_counters_and_extremes_stay_what_they_are() {
    let (_directory, store, end) = generated().await;
    let path = store.path().to_owned();
    let before = conserved(&path);
    let usage = "SELECT run_id, step_id, host, sampled_s, user_s, idle_s, busy_percent, disk_written_mib_per_s,
                        received_mib_per_s FROM v_host_usage ORDER BY 1, 2, 3";
    let hosts = answer(&path, usage);
    let rows = |table: &str| number(&path, &format!("SELECT count(*) FROM {table}"));
    let raw = ["op_intervals", "step_intervals", "daemon_samples"].map(rows);

    // Nothing is old enough yet, and a clock that goes back makes nothing older.
    let retainer = Retainer::new(store.clone(), keeping(HOUR, 10 * HOUR));
    for now in [end + HOUR_US / 6, end - 100 * HOUR_US] {
        retainer.pass(MeshMicros(now)).await.unwrap();
        assert_eq!(["op_intervals", "step_intervals"].map(rows), raw[..2]);
    }

    retainer.pass(MeshMicros(end + 2 * HOUR_US)).await.unwrap();
    assert_eq!(conserved(&path), before);
    assert_eq!(answer(&path, usage), hosts);
    let tens = ["op_intervals", "step_intervals", "daemon_samples"].map(rows);
    // 65 s are seven buckets; samples at the edges of each step are kept, too.
    assert!(
        tens[0] * 9 < raw[0] && tens[1] * 9 < raw[1],
        "{raw:?} -> {tens:?}"
    );
    assert!(tens[2] * 4 < raw[2], "{raw:?} -> {tens:?}");
    assert_eq!(
        number(
            &path,
            "SELECT count(*) FROM steps WHERE resolution_s <> 10 OR merging"
        ),
        0
    );

    let again = retainer.pass(MeshMicros(end + 2 * HOUR_US)).await.unwrap();
    assert_eq!((again.steps, again.rows), (0, 0));

    retainer.pass(MeshMicros(end + 11 * HOUR_US)).await.unwrap();
    assert_eq!(conserved(&path), before);
    assert_eq!(answer(&path, usage), hosts);
    let minutes = ["op_intervals", "step_intervals", "daemon_samples"].map(rows);
    assert!(minutes[0] * 2 < tens[0] && minutes[1] * 2 < tens[1] && minutes[2] < tens[2]);
    assert_eq!(
        number(
            &path,
            "SELECT count(*) FROM steps WHERE resolution_s <> 60 OR merging"
        ),
        0
    );
    store.close().await;
    assert!(crate::maintain::check(&path).unwrap().is_empty());
}

#[tokio::test]
async fn usage_computed_from_thinned_samples_is_the_same() {
    let (_directory, store, end) = generated().await;
    let path = store.path().to_owned();
    let of_daemons = "SELECT step_id, daemon_id, from_us, until_us, cpu_user_us, cpu_system_us, cpu_error_us, rss_first_bytes,
         rss_min_bytes, rss_max_bytes, rss_last_bytes, read_bytes, write_bytes, vol_ctx, minor_faults, threads, fds
         FROM step_daemons ORDER BY 1, 2";
    let computed = async || {
        for step in 1..=number(&path, "SELECT max(id) FROM steps") {
            store.compute_usage(StepId(step)).await.unwrap();
        }
        answer(&path, of_daemons)
    };
    let before = computed().await;
    let retainer = Retainer::new(store.clone(), keeping(HOUR, HOUR));
    retainer.pass(MeshMicros(end + 2 * HOUR_US)).await.unwrap();
    assert_eq!(computed().await, before);
    store.close().await;
}

#[tokio::test]
async fn a_pruning_that_is_cut_off_again_and_again_ends_as_one_that_is_not() {
    let request = Request {
        older: HOUR,
        to: Resolution::TenSeconds,
        keep_tags: Vec::new(),
        dry_run: false,
    };
    let mut ends = Vec::new();
    for patience in [Duration::from_secs(600), Duration::from_millis(40)] {
        let (_directory, store, end) = generated().await;
        let path = store.path().to_owned();
        let before = conserved(&path);
        let retainer = Retainer::new(store.clone(), keeping(100 * HOUR, 100 * HOUR));
        let mut cuts = 0;
        loop {
            let told = watch::Sender::new(PruneProgress::default());
            let pruning = retainer.by_hand(&request, MeshMicros(end + 2 * HOUR_US), &told);
            // Longer at each attempt, because the samples are scanned from the beginning.
            let cut = tokio::time::timeout(patience + Duration::from_millis(20 * cuts), pruning);
            if let Ok(done) = cut.await {
                done.unwrap();
                break;
            }
            cuts += 1;
            assert_eq!(conserved(&path), before, "after {cuts} cuts");
        }
        assert_eq!(conserved(&path), before);
        let sizes = "SELECT (SELECT count(*) FROM op_intervals), (SELECT count(*) FROM step_intervals),
                            (SELECT count(*) FROM steps WHERE merging), (SELECT min(resolution_s) FROM steps)";
        ends.push(answer(&path, sizes));
        store.close().await;
        assert!(crate::maintain::check(&path).unwrap().is_empty());
    }
    assert_eq!(ends[0], ends[1]);
}

/// The coarsest resolution of each run.
const COARSEST: &str = "SELECT run_id, max(resolution_s) FROM steps GROUP BY 1 ORDER BY 1";

fn tag_to_keep(path: &Path, run: i64) {
    let connection = Connection::open(path).unwrap();
    let sql = "INSERT INTO run_tags VALUES (?, 'keep', 'yes')";
    connection.execute(sql, [run]).unwrap();
}

#[tokio::test]
async fn the_size_limit_takes_the_oldest_runs_first_and_says_so() {
    let (_directory, store, end) = generated().await;
    let path = store.path().to_owned();
    let results = answer(&path, CONSERVED[2]);
    let now = MeshMicros(end + HOUR_US);
    let used = store.size().await.unwrap().used_bytes();
    let limited = |bytes: i64| {
        let retention = Retention {
            max_size: MaxSize::Bytes(u64::try_from(bytes).unwrap()),
            keep_tags: vec![(String::from("keep"), String::from("yes"))],
            ..keeping(100 * HOUR, 100 * HOUR)
        };
        Retainer::new(store.clone(), retention)
    };
    limited(used * 95 / 100).pass(now).await.unwrap();
    assert!(store.size().await.unwrap().used_bytes() <= used * 95 / 100);
    let told = "SELECT run_id, kind FROM events WHERE kind LIKE 'size-limit%' ORDER BY id";
    assert_eq!(answer(&path, told), "[Integer(1), Text(\"size-limit\")]");
    assert_eq!(
        answer(&path, COARSEST),
        "[Integer(1), Integer(10)]\n[Integer(2), Integer(1)]\n[Integer(3), Integer(1)]"
    );

    // The second run is kept. The limit cannot be met, which is logged once.
    tag_to_keep(&path, 2);
    let retainer = limited(1);
    for _ in 0..3 {
        retainer.pass(now).await.unwrap();
    }
    let exceeded = "SELECT count(*) FROM events WHERE kind = 'size-limit-exceeded'";
    assert_eq!(number(&path, exceeded), 1);
    assert_eq!(
        answer(&path, COARSEST),
        "[Integer(1), Integer(0)]\n[Integer(2), Integer(1)]\n[Integer(3), Integer(0)]"
    );
    let left = "SELECT DISTINCT s.run_id FROM op_intervals AS i JOIN tasks AS t ON t.id = i.task_id JOIN steps AS s ON s.id = t.step_id";
    assert_eq!(answer(&path, left), "[Integer(2)]");
    let outside = format!(
        "SELECT count(*) FROM daemon_samples WHERE at_us > (SELECT ended_us + 120000000 FROM runs WHERE id = 2) AND at_us < {}",
        end - 60 * S
    );
    assert_eq!(number(&path, &outside), 0);
    assert_eq!(answer(&path, CONSERVED[2]), results);
    store.close().await;
}

#[tokio::test]
async fn a_run_that_gets_a_tag_to_keep_during_a_pass_is_kept() {
    let (_directory, store, end) = generated().await;
    let path = store.path().to_owned();
    let retention = Retention {
        keep_tags: vec![(String::from("keep"), String::from("yes"))],
        ..keeping(HOUR, 100 * HOUR)
    };
    let retainer = Retainer::new(store.clone(), retention);
    let passing = retainer.clone();
    let pass = tokio::spawn(async move { passing.pass(MeshMicros(end + 2 * HOUR_US)).await });
    let merged = "SELECT count(*) FROM steps WHERE resolution_s > 1";
    loop {
        let _turn = retainer.turn().await;
        if number(&path, merged) > 0 {
            tag_to_keep(&path, 2);
            break;
        }
        tokio::task::yield_now().await;
    }
    pass.await.unwrap().unwrap();
    assert_eq!(
        answer(&path, COARSEST),
        "[Integer(1), Integer(10)]\n[Integer(2), Integer(1)]\n[Integer(3), Integer(10)]"
    );
    store.close().await;
}

#[tokio::test]
async fn a_run_that_gets_a_tag_to_keep_during_a_request_is_kept() {
    let (_directory, store, end) = generated().await;
    let path = store.path().to_owned();
    let retainer = Retainer::new(store.clone(), keeping(100 * HOUR, 100 * HOUR));
    let request = Request {
        older: Duration::from_secs(60),
        to: Resolution::TenSeconds,
        keep_tags: vec![(String::from("keep"), String::from("yes"))],
        dry_run: false,
    };
    let (told, mut progress) = watch::channel(PruneProgress::default());
    let pruning = retainer.by_hand(&request, MeshMicros(end + HOUR_US), &told);
    let tagging = async {
        progress.wait_for(|so_far| so_far.steps > 0).await.unwrap();
        tag_to_keep(&path, 3);
    };
    let (pruned, ()) = tokio::join!(pruning, tagging);
    pruned.unwrap();
    assert_eq!(
        answer(&path, COARSEST),
        "[Integer(1), Integer(10)]\n[Integer(2), Integer(10)]\n[Integer(3), Integer(1)]"
    );
    store.close().await;
}

#[tokio::test]
async fn late_data_of_merged_rows_change_no_result_and_are_not_lost() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store.set_run_state(run, running(T0)).await.unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let paced = |second: i64, ops: u64| {
        let mut one = interval(tasks[0], T0 + second * S, "create", ops, 1000);
        let mut response = Histogram::new();
        for at in 0..ops {
            response.record((u64::try_from(second).unwrap() + 1) * 10_000 + at);
        }
        one.response = Some(Distribution::from(&response));
        one
    };
    let mut first = batch("s", 1);
    first.op_intervals = (0..30)
        .filter(|second| *second != 17)
        .map(|second| paced(second, 10))
        .collect();
    first.task_ends = vec![task_end(tasks[0], 0, T0 + 30 * S)];
    send(&publisher, first).await.unwrap();
    mesh.finish(step, T0 + 31 * S).await;
    let mut done = running(T0 + 31 * S);
    done.state = RunState::Done;
    mesh.store.set_run_state(run, done).await.unwrap();
    let before = answer(&mesh.path(), "SELECT * FROM step_results");

    let retainer = Retainer::new(mesh.store.clone(), keeping(HOUR, 10 * HOUR));
    retainer.pass(MeshMicros(T0 + 2 * HOUR_US)).await.unwrap();
    // Rows are not merged across the gap.
    let spans = "SELECT (at_us - (SELECT start_us FROM steps)) / 1000000, span_us / 1000000, ops FROM op_intervals ORDER BY at_us";
    let merged = "[Integer(0), Integer(10), Integer(100)]\n[Integer(10), Integer(7), Integer(70)]\n\
                  [Integer(18), Integer(2), Integer(20)]\n[Integer(20), Integer(10), Integer(100)]";
    assert_eq!(answer(&mesh.path(), spans), merged);
    // Percentiles of the response time come from the tasks' histograms.
    let mut sum = Histogram::new();
    for second in 0..10 {
        for at in 0..10 {
            sum.record((second + 1) * 10_000 + at);
        }
    }
    let response = number(
        &mesh.path(),
        "SELECT response_p99_ns FROM step_intervals ORDER BY at_us LIMIT 1",
    );
    assert_eq!(u64::try_from(response).unwrap(), sum.quantile(0.99));

    let mut late = batch("s", 2);
    late.op_intervals = vec![paced(17, 5), paced(20, 3)];
    send(&publisher, late).await.unwrap();
    mesh.store.flush().await;
    assert_eq!(mesh.number("SELECT sum(ops) FROM op_intervals").await, 298);
    assert_eq!(
        mesh.number("SELECT stale_batches + stale_samples FROM steps")
            .await,
        0
    );
    assert_eq!(answer(&mesh.path(), "SELECT * FROM step_results"), before);

    // The gap is filled, so that everything becomes one row.
    retainer.pass(MeshMicros(T0 + 2 * HOUR_US)).await.unwrap();
    let merged = "[Integer(0), Integer(10), Integer(100)]\n[Integer(10), Integer(10), Integer(95)]\n\
                  [Integer(20), Integer(10), Integer(103)]";
    assert_eq!(answer(&mesh.path(), spans), merged);
    check_percentiles(&mesh.path());
    let messages = "SELECT message FROM events WHERE kind = 'rows-too-late' ORDER BY id";
    let told = answer(&mesh.path(), messages);
    assert!(told.contains("they are merged too"), "{told}");

    // Deletes the rows; then more rows arrive.
    let request = Request {
        older: HOUR,
        to: Resolution::Nothing,
        keep_tags: Vec::new(),
        dry_run: false,
    };
    let (told, _) = watch::channel(PruneProgress::default());
    let now = MeshMicros(T0 + 3 * HOUR_US);
    retainer.by_hand(&request, now, &told).await.unwrap();
    let mut late = batch("s", 3);
    late.op_intervals = vec![paced(3, 5), paced(4, 3)];
    send(&publisher, late).await.unwrap();
    mesh.store.flush().await;
    retainer.pass(now).await.unwrap();
    assert_eq!(mesh.number("SELECT count(*) FROM op_intervals").await, 0);
    assert_eq!(mesh.number("SELECT sum(late_batches) FROM steps").await, 0);
    let told = answer(&mesh.path(), messages);
    assert!(told.contains("2 late rows are deleted"), "{told}");
    assert_eq!(answer(&mesh.path(), "SELECT * FROM step_results"), before);
    assert_eq!(
        mesh.number("SELECT pruned_rows FROM meta WHERE pruned_us IS NOT NULL")
            .await,
        2
    );
    mesh.assert_sound().await;
}

#[tokio::test]
async fn earlier_loops_of_a_run_under_way_grow_old() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store.set_run_state(run, running(T0)).await.unwrap();
    let mut steps = Vec::new();
    for index in 0..2_i64 {
        let began = T0 + index * HOUR_US;
        let (step, tasks) = mesh
            .step(
                run,
                new_step(u32::try_from(index).unwrap(), "files", "create"),
                &[agent],
            )
            .await;
        let mut rows = batch("s", u64::try_from(index).unwrap() + 1);
        let seconds =
            (0..30).map(|second| interval(tasks[0], began + second * S, "create", 10, 1000));
        rows.op_intervals = seconds.collect();
        rows.task_ends = vec![task_end(tasks[0], 0, began + 30 * S)];
        send(&publisher, rows).await.unwrap();
        mesh.finish(step, began + 31 * S).await;
        steps.push(step);
    }
    let loop_two = format!(
        "UPDATE steps SET loop = 2, start_us = {}, ended_us = NULL, state = 'running' WHERE id = {}",
        T0 + HOUR_US,
        steps[1]
    );
    Connection::open(mesh.path())
        .unwrap()
        .execute(&loop_two, [])
        .unwrap();
    let retainer = Retainer::new(mesh.store.clone(), keeping(HOUR, 10 * HOUR));
    retainer.pass(MeshMicros(T0 + 5 * HOUR_US)).await.unwrap();
    let kept = answer(
        &mesh.path(),
        "SELECT loop, resolution_s FROM steps ORDER BY id",
    );
    assert_eq!(kept, "[Integer(1), Integer(10)]\n[Integer(2), Integer(1)]");
    let untouched = mesh
        .store
        .untouched_spans(MeshMicros(T0 + 5 * HOUR_US), Resolution::TenSeconds, &[])
        .await
        .unwrap();
    let [(from, until)] = untouched.as_slice() else {
        panic!("{untouched:?}");
    };
    assert!(*from > T0 && *until == i64::MAX, "{untouched:?}");
    mesh.assert_sound().await;
}

#[tokio::test]
async fn what_is_kept_is_in_the_file_and_a_dry_run_changes_nothing() {
    let (directory, store, ended) = generated().await;
    let path = directory.path().join("mesh.db");
    let tag = (String::from("keep"), String::from("yes"));
    let retention = Retention {
        keep_tags: vec![tag.clone()],
        ..keeping(HOUR, 2 * HOUR)
    };
    let closing = tokio_util::sync::CancellationToken::new();
    closing.cancel();
    let anchor = crate::clock::KernelClocks::take().unwrap();
    let anchor = crate::clock::choose_anchor(None, None, &anchor).unwrap();
    let clock = std::sync::Arc::new(crate::clock::MeshClock::new(anchor));
    Retainer::new(store.clone(), retention)
        .run(clock, closing)
        .await;
    assert_eq!(store.kept_tags().await.unwrap(), std::slice::from_ref(&tag));
    store.close().await;
    let before = MeshMicros(ended + HOUR_US);
    let count = |but: &[(String, String)]| {
        let counted = prunable(&path, before, Resolution::TenSeconds, but).unwrap();
        (counted.0, counted.1, counted.2.settings.keep_tags)
    };
    let (steps, runs, tags) = count(&[]);
    assert!(
        steps > 2 && runs >= 2 && tags == [tag],
        "{steps} of {runs}, {tags:?}"
    );
    let connection = Connection::open(&path).unwrap();
    let tagged =
        "INSERT INTO run_tags (run_id, key, value) SELECT min(id), 'keep', 'yes' FROM runs";
    connection.execute(tagged, []).unwrap();
    assert_eq!(count(&[]).1, runs - 1);
}
