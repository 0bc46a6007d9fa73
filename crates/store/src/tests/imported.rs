//! Imported runs are stored once, listed and compared like measured ones.

use super::Mesh;
use crate::import::{ImportedRun, StoreImportError};
use benchmesh_answers::compare::{Request, Subject, Verdict, compare};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_results::import::{Hints, ImportedSecond, ImportedStep, Tool, parse};

fn log(seconds: &str) -> String {
    format!(
        "1000+0 records in\n1000+0 records out\n1048576000 bytes (1.0 GB, 1000 MiB) copied, {seconds} s, 1 MB/s\n"
    )
}

fn run(name: &str, seconds: &[&str]) -> ImportedRun {
    let hints = Hints {
        mode: "write".into(),
        written_us: super::T0,
    };
    let logs = seconds.iter().map(|seconds| {
        let text = log(seconds);
        (parse(Tool::Dd, &text, &hints).unwrap(), text)
    });
    ImportedRun {
        name: name.into(),
        target: "cephfs".into(),
        system: String::new(),
        logs: logs.collect(),
    }
}

#[tokio::test]
async fn imported_runs_are_stored_once_and_compared() {
    let mesh = Mesh::new().await;
    let before = run("before", &["10.0", "10.1", "9.9"]);
    let id = mesh.store.import_run(before.clone()).await.unwrap();
    mesh.store
        .import_run(run("after", &["12.0", "12.1", "11.9"]))
        .await
        .unwrap();
    let again = mesh.store.import_run(before).await;
    assert!(
        matches!(again, Err(StoreImportError::Known { run }) if run == id),
        "{again:?}"
    );
    let empty = mesh.store.import_run(run("empty", &[])).await;
    assert!(matches!(empty, Err(StoreImportError::Wrong(_))));
    assert_eq!(mesh.number("SELECT count(*) FROM runs").await, 2);
    assert_eq!(
        mesh.number("SELECT count(*) FROM v_results WHERE run = 'before' AND target = 'cephfs'")
            .await,
        3
    );
    assert_eq!(
        mesh.number(
            "SELECT CAST(ops_per_s AS INTEGER) FROM v_results WHERE run = 'before' AND repeat = 1"
        )
        .await,
        100
    );
    let request = Request::from(Subject::Runs {
        a: "before".into(),
        b: "after".into(),
    });
    let answer = compare(mesh.store.reader(), &request).await.unwrap();
    let row = &answer.comparisons[0].rows[0];
    assert_eq!(
        (row.verdict, row.a.repeats),
        (Verdict::Slower, 3),
        "{row:#?}"
    );
    assert_eq!(
        answer.comparisons[0].notes.last().map(String::as_str),
        Some("Run 2 was imported from dd.")
    );
    mesh.assert_sound().await;
}

/// The sender of an import is not trusted: it may send values that no parser returns.
#[tokio::test]
async fn a_run_that_no_log_tells_of_is_refused() {
    let mesh = Mesh::new().await;
    let check = async |change: &dyn Fn(&mut ImportedRun), part: &str| {
        let mut run = run("a", &["10.0"]);
        change(&mut run);
        match mesh.store.import_run(run).await {
            Err(StoreImportError::Wrong(why)) => assert!(why.contains(part), "{why} is not {part}"),
            other => panic!("{part}: {other:?}"),
        }
    };
    let step = |change: fn(&mut ImportedStep)| {
        move |run: &mut ImportedRun| change(&mut run.logs[0].0.steps[0])
    };
    check(&|run| run.name = "n".repeat(2000), "name").await;
    check(&|run| run.name = "a\nb".into(), "name").await;
    check(&|run| run.target = "\u{1b}[2J".into(), "target").await;
    check(&|run| run.system = "s".repeat(2000), "system").await;
    check(&|run| run.logs[0].0.tool.clear(), "tool").await;
    // The year 2300.
    let far = 10_413_792_000_000_000;
    check(&|run| run.logs[0].0.started_us = far, "date").await;
    check(&|run| run.logs[0].0.started_us = -1, "date").await;
    check(&|run| run.logs[0].0.steps.clear(), "no result").await;
    check(&step(|step| step.phase.clear()), "phase").await;
    check(&step(|step| step.workload.clear()), "workload").await;
    check(&step(|step| step.mode = "m".repeat(300)), "mode").await;
    check(&step(|step| step.at_us = -1), "start").await;
    check(&step(|step| step.lasted_us = i64::MAX), "time").await;
    check(&step(|step| step.ops[0].op.clear()), "operation").await;
    check(&step(|step| step.ops[0].bytes = Some(-1)), "bytes").await;
    check(
        &step(|step| step.ops[0].ops_per_s = Some(f64::INFINITY)),
        "rate",
    )
    .await;
    check(
        &step(|step| {
            step.seconds = vec![ImportedSecond {
                op: "write".into(),
                ..ImportedSecond::default()
            }]
        }),
        "second",
    )
    .await;
    assert_eq!(mesh.number("SELECT count(*) FROM runs").await, 0);
}

/// Samples of this mesh at the time of a log do not belong to the hosts where the log was written.
#[tokio::test]
async fn an_imported_run_has_no_daemons_and_no_hosts() {
    use super::{S, T0, batch, sample, seen, send};
    let mesh = Mesh::new().await;
    mesh.store
        .import_run(run("rados", &["10.0"]))
        .await
        .unwrap();
    let (publisher, ..) = mesh.publisher("a").await;
    let mut samples = batch("s", 1);
    samples.daemons = vec![seen(1, "ceph-osd", T0 - 20 * S)];
    for beat in -15..15 {
        let at = T0 + beat * S;
        samples
            .daemon_samples
            .push(sample(1, at, beat * S / 2 + 8 * S, 1));
        samples.host_samples.push(super::host_sample(at));
    }
    send(&publisher, samples).await.unwrap();
    assert_eq!(mesh.number("SELECT sum(stale_samples) FROM steps").await, 0);
    for rows in [
        "SELECT count(*) FROM v_cost",
        "SELECT count(*) FROM v_daemon_usage",
        "SELECT count(*) FROM v_host_usage",
        "SELECT count(*) FROM v_host_timeline",
    ] {
        assert_eq!(mesh.number(rows).await, 0, "{rows}");
    }
}

/// A log written under a wrong clock must not prevent the collector from starting after the next boot.
#[tokio::test]
async fn imported_instants_are_none_of_the_collectors_clock() {
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    let mut ahead = run("ahead", &["10.0"]);
    // The year 2199.
    ahead.logs[0].0.started_us = 7_226_582_400_000_000;
    mesh.store.import_run(ahead).await.unwrap();
    let own = Some(MeshMicros(super::T0));
    assert_eq!(mesh.store.newest_instant().await.unwrap(), own);
    let run = mesh.run("u").await;
    let (agent, _) = mesh.agent("a").await;
    let (step, _) = mesh
        .step(run, super::new_step(0, "files", "create"), &[agent])
        .await;
    mesh.finish(step, super::T0 + 9).await;
    let own = Some(MeshMicros(super::T0 + 9));
    assert_eq!(mesh.store.newest_instant().await.unwrap(), own);
}
