//! Imported runs are stored once, listed and compared like measured ones.

use super::Mesh;
use crate::compare::{Request, Verdict, compare};
use crate::import::{Hints, Tool, parse};
use crate::store::import::{ImportedRun, StoreImportError};

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
    let request = Request::Runs {
        a: "before".into(),
        b: "after".into(),
    };
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
