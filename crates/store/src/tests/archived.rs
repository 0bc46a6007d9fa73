//! Which runs are due for the archive: what changes the signature of a run, and what does not.

use super::annotations::run_of;
use super::pruned::{HOUR, HOUR_US, generated, keeping};
use super::{Mesh, S, T0};
use crate::Store;
use crate::annotate::Annotation;
use crate::archived::RunsToArchive;
use crate::maintain::delete;
use crate::retention::Retainer;
use crate::rows::{NewEvent, Row};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{FindingVerdict, MeshMicros, RunId, Severity};
use benchmesh_results::{Finding, FindingKind};
use std::collections::BTreeSet;

const NOW: MeshMicros = MeshMicros(T0 + 3600 * S);

async fn look(store: &Store) -> RunsToArchive {
    store
        .runs_to_archive(RunId(0), &BTreeSet::new())
        .await
        .unwrap()
}

/// Notes every run that is due as archived; returns which those were.
async fn archive_all(store: &Store) -> Vec<i64> {
    let due = look(store).await.due;
    for run in &due {
        store
            .set_archived(run.run, run.signature.clone(), NOW)
            .await
            .unwrap();
    }
    assert_eq!(look(store).await.due, []);
    due.iter().map(|run| run.run.0).collect()
}

fn finding(sentence: &str) -> Finding {
    Finding::new(
        Severity::Info,
        FindingKind::Leak,
        FindingVerdict::Steady,
        "all",
        sentence.to_owned(),
    )
}

#[tokio::test]
async fn ended_runs_are_due_oldest_first_until_they_are_noted() {
    let mesh = Mesh::new().await;
    let going = mesh.run("going").await;
    let a = run_of(&mesh, "a", 50).await;
    let b = run_of(&mesh, "b", 50).await;
    let found = look(&mesh.store).await;
    let due: Vec<RunId> = found.due.iter().map(|run| run.run).collect();
    assert_eq!(due, [a, b], "and not {going}");
    assert_eq!(
        (found.missing, found.oldest_missing),
        (2, Some(found.due[0].ended))
    );
    assert!(
        found
            .due
            .iter()
            .all(|run| !run.is_archived && !run.has_findings)
    );
    assert_eq!(archive_all(&mesh.store).await, [a.0, b.0]);
    let found = look(&mesh.store).await;
    assert_eq!((found.missing, found.oldest_missing), (0, None));
    assert_eq!(found.compared_until, RunId(0), "all were compared");
}

#[tokio::test]
async fn whatever_changes_a_run_makes_it_due_again() {
    let mut mesh = Mesh::new().await;
    let run = run_of(&mesh, "a", 50).await;
    run_of(&mesh, "b", 50).await;
    archive_all(&mesh.store).await;
    let annotate = async |annotation| {
        mesh.store.annotate("a", annotation, NOW).await.unwrap();
        assert_eq!(archive_all(&mesh.store).await, [run.0]);
    };
    let tag = |value: &str| Annotation::Tag {
        set: [("pool".to_owned(), value.to_owned())].into(),
        remove: Vec::new(),
    };
    annotate(tag("ssd")).await;
    annotate(tag("hdd")).await;
    annotate(Annotation::Note("slow".to_owned())).await;
    let mark = Annotation::Mark {
        text: "begin".to_owned(),
        at: Some(MeshMicros(T0)),
    };
    annotate(mark).await;
    let judged = [["one"].as_slice(), &["one"], &["other"], &[]];
    for subjects in judged {
        let findings = subjects.iter().map(|subject| finding(subject)).collect();
        mesh.store.store_findings(run, findings).await.unwrap();
        let due = look(&mesh.store).await.due;
        assert!(due.iter().all(|run| run.is_archived), "{due:?}");
        assert_eq!(archive_all(&mesh.store).await, [run.0]);
    }
    let event = NewEvent {
        run: Some(run),
        ..NewEvent::new(NOW, EventKind::RowsMissing, "late".to_owned())
    };
    mesh.store.apply(vec![Row::Event(event)]).await.unwrap();
    assert_eq!(archive_all(&mesh.store).await, [run.0]);
    // An archive that lacks it, such as one that was made anew.
    let uids: Vec<String> = sqlx::query_scalar("SELECT uid FROM runs")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
    mesh.store.forget_archived_except(&uids).await.unwrap();
    assert_eq!(archive_all(&mesh.store).await, Vec::<i64>::new());
    mesh.store.forget_archived_except(&[]).await.unwrap();
    assert_eq!(archive_all(&mesh.store).await, [1, 2]);
    // As after late data.
    mesh.store.close().await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    let late = "UPDATE step_results SET ops = ops + 1 WHERE step_id = (SELECT min(id) FROM steps)";
    assert_eq!(file.execute(late, []).unwrap(), 1);
    drop(file);
    mesh.reopen().await;
    assert_eq!(archive_all(&mesh.store).await, [run.0]);
}

#[tokio::test]
async fn merging_and_deleting_rows_of_seconds_makes_no_run_due() {
    let (_directory, store, end) = generated().await;
    assert!(!archive_all(&store).await.is_empty());
    let rows = "SELECT (SELECT count(*) FROM op_intervals) + (SELECT count(*) FROM step_intervals)";
    let count = async || -> i64 {
        sqlx::query_scalar(rows)
            .fetch_one(store.reader())
            .await
            .unwrap()
    };
    let before = count().await;
    let retainer = Retainer::new(store.clone(), keeping(HOUR, 2 * HOUR));
    retainer.pass(MeshMicros(end + 3 * HOUR_US)).await.unwrap();
    assert!(count().await < before / 2, "nothing was pruned");
    let event = NewEvent {
        run: Some(RunId(1)),
        ..NewEvent::new(NOW, EventKind::SizeLimit, "merged".to_owned())
    };
    store.apply(vec![Row::Event(event)]).await.unwrap();
    assert_eq!(look(&store).await.due, []);
}

/// Archived runs are compared in slices; those that are known to have changed are compared again with each look.
#[tokio::test]
async fn a_change_of_an_old_run_is_found_when_the_slices_come_to_it() {
    const RUNS: i64 = 500;
    let mut mesh = Mesh::new().await;
    let run = run_of(&mesh, "a", 50).await;
    mesh.store.close().await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    file.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
         INSERT INTO runs (uid, name, plan, state, created_us, ended_us, version)
         SELECT 'u' || n, 'n', '', 'done', 1, ended_us + n, '0' FROM runs, n",
        [RUNS - 1],
    )
    .unwrap();
    drop(file);
    mesh.reopen().await;
    let store = &mesh.store;
    let mut archived = 0;
    while archived < RUNS {
        let found = look(store).await;
        assert_eq!(i64::from(found.missing), RUNS - archived);
        assert_eq!(found.due.len(), 100);
        for due in found.due {
            store
                .set_archived(due.run, due.signature, NOW)
                .await
                .unwrap();
            archived += 1;
        }
    }
    store
        .annotate("a", Annotation::Note("n".to_owned()), NOW)
        .await
        .unwrap();
    let (mut from, mut looks) = (run, 0);
    let found = loop {
        looks += 1;
        let found = store.runs_to_archive(from, &BTreeSet::new()).await.unwrap();
        from = found.compared_until;
        if !found.due.is_empty() {
            break found;
        }
    };
    assert_eq!((found.due[0].run, looks), (run, 5));
    let again = store
        .runs_to_archive(from, &BTreeSet::from([run]))
        .await
        .unwrap();
    assert_eq!(again.due, found.due);
}

#[tokio::test]
async fn a_deleted_run_is_forgotten() {
    let mesh = Mesh::new().await;
    let run = run_of(&mesh, "a", 50).await;
    archive_all(&mesh.store).await;
    mesh.store.close().await;
    delete(&mesh.path(), "a").await.unwrap();
    let left = super::pruned::number(&mesh.path(), "SELECT count(*) FROM archived_runs");
    assert_eq!(left, 0, "{run}");
    let mut mesh = mesh;
    mesh.reopen().await;
    // A run that was deleted while it was copied is not noted.
    mesh.store
        .set_archived(run, "s".to_owned(), NOW)
        .await
        .unwrap();
    assert_eq!(mesh.number("SELECT count(*) FROM archived_runs").await, 0);
}
