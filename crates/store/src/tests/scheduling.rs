//! Rows of the scheduler are read back as written.

use super::{Mesh, S, T0, new_step, running};
use crate::StoreError;
use crate::rows::{Creation, NewCacheDrop, NewEvent, NewRun, Row, RunChange};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunId, RunState, StepId, TaskState};

#[tokio::test]
async fn a_run_started_twice_with_one_uid_is_one_run() {
    let mesh = Mesh::new().await;
    let run = NewRun {
        uid: "u".to_owned(),
        name: "first".to_owned(),
        plan_text: String::new(),
        agents_json: "[]".to_owned(),
        order_seed: None,
        created: MeshMicros(T0),
        due: None,
        version: "0".to_owned(),
    };
    let first = mesh.store.create_run(run.clone()).await.unwrap();
    assert_eq!(first.1, Creation::New);
    let again = mesh.store.create_run(run).await.unwrap();
    assert_eq!(again, (first.0, Creation::Existing));
    assert_eq!(mesh.number("SELECT count(*) FROM runs").await, 1);
}

#[tokio::test]
async fn runs_are_found_by_id_uid_name_and_as_the_newest() {
    let mesh = Mesh::new().await;
    let one = mesh.run("one").await;
    let two = mesh.run("two").await;
    for (wanted, found) in [
        (one.to_string(), one),
        ("two".to_owned(), two),
        ("run one".to_owned(), one),
        (String::new(), two),
    ] {
        let row = mesh.store.find_run(&wanted).await.unwrap();
        assert_eq!(row.id, found, "{wanted:?}");
    }
    let missing = mesh.store.find_run("three").await;
    assert!(
        matches!(missing, Err(StoreError::NoSuch { .. })),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_run_s_states_set_its_instants_once() {
    let mesh = Mesh::new().await;
    let run = mesh.run("u").await;
    assert_eq!(mesh.store.unfinished_runs().await.unwrap().len(), 1);
    mesh.store
        .set_run_state(run, running(T0 + S))
        .await
        .unwrap();
    mesh.store
        .set_run_state(run, running(T0 + 2 * S))
        .await
        .unwrap();
    let done = RunChange {
        state: RunState::Done,
        partial: true,
        reason: Some("an agent was lost".to_owned()),
        at: MeshMicros(T0 + 9 * S),
    };
    mesh.store.set_run_state(run, done).await.unwrap();
    let row = mesh.store.run(run).await.unwrap();
    assert_eq!(row.started, Some(MeshMicros(T0 + S)));
    assert_eq!(row.ended, Some(MeshMicros(T0 + 9 * S)));
    assert!(row.partial);
    assert!(mesh.store.unfinished_runs().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_newest_attempt_stands_for_a_step() {
    let mesh = Mesh::new().await;
    let run = mesh.run("u").await;
    let mut second = new_step(0, "files", "create");
    second.attempt = 2;
    let steps = vec![
        new_step(0, "files", "create"),
        new_step(1, "files", "stat"),
        second,
    ];
    let ids = mesh.store.create_steps(run, steps).await.unwrap();
    let rows = mesh.store.steps_of_loop(run, 1).await.unwrap();
    let found: Vec<StepId> = rows.iter().map(|row| row.id).collect();
    assert_eq!(found, [ids[2], ids[1]]);
}

#[tokio::test]
async fn a_write_that_fails_is_undone_whole_and_alone() {
    let mesh = Mesh::new().await;
    let run = mesh.run("u").await;
    let twice = vec![
        new_step(0, "files", "create"),
        new_step(0, "files", "create"),
    ];
    let good = vec![new_step(5, "files", "create")];
    // All three are queued before the writer has run, so they share a transaction.
    let (bad, stray, good) = tokio::join!(
        mesh.store.create_steps(run, twice),
        mesh.store
            .create_steps(RunId(999), vec![new_step(0, "files", "stat")]),
        mesh.store.create_steps(run, good),
    );
    assert!(matches!(bad, Err(StoreError::Sql { .. })), "{bad:?}");
    assert!(matches!(stray, Err(StoreError::Sql { .. })), "{stray:?}");
    good.unwrap();
    assert_eq!(mesh.number("SELECT count(*) FROM steps").await, 1);
}

#[tokio::test]
async fn a_state_of_something_unknown_is_refused() {
    let mesh = Mesh::new().await;
    let refused = mesh.store.set_run_state(RunId(7), running(T0)).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "there is no run \"7\"; `benchmesh runs` lists them"
    );
    let newest = mesh.store.find_run("").await.unwrap_err();
    assert_eq!(
        newest.to_string(),
        "there is no run yet: benchmesh run PLAN"
    );
}

#[tokio::test]
async fn a_step_that_could_not_be_armed_loses_its_start_instants() {
    let mesh = Mesh::new().await;
    let (agent, _) = mesh.agent("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent, agent])
        .await;
    let starts = tasks.iter().map(|task| (*task, MeshMicros(T0)));
    mesh.store
        .apply(vec![Row::TaskStarts(starts.collect())])
        .await
        .unwrap();
    // One has begun anyway, and has reported its end.
    let ended = "UPDATE tasks SET ended_us = start_us + 1 WHERE id = ?";
    let other = rusqlite::Connection::open(mesh.path()).unwrap();
    other.execute(ended, [tasks[1].0]).unwrap();
    mesh.store
        .apply(vec![Row::StartsCleared { step }])
        .await
        .unwrap();
    assert_eq!(mesh.store.step(step).await.unwrap().start, None);
    let starts: Vec<_> = mesh.store.tasks(step).await.unwrap();
    let starts: Vec<_> = starts.iter().map(|task| task.start).collect();
    assert_eq!(starts, [None, Some(MeshMicros(T0))]);
}

#[tokio::test]
async fn tasks_events_and_cache_drops_are_kept() {
    let mesh = Mesh::new().await;
    let (agent, _) = mesh.agent("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mesh.store
        .set_task_state(
            tasks[0],
            TaskState::Lost,
            Some("no contact for 30 s".to_owned()),
        )
        .await
        .unwrap();
    let row = &mesh.store.tasks(step).await.unwrap()[0];
    assert_eq!(row.state, TaskState::Lost);
    assert_eq!(row.error.as_deref(), Some("no contact for 30 s"));
    let event = NewEvent {
        run: Some(run),
        step: Some(step),
        agent: Some(agent),
        detail_json: Some("{\"after_s\":30}".to_owned()),
        ..NewEvent::new(
            MeshMicros(T0),
            EventKind::AgentLost,
            "a was lost".to_owned(),
        )
    };
    mesh.store.add_event(event.clone()).await.unwrap();
    let bad = NewEvent {
        detail_json: Some("{".to_owned()),
        ..event
    };
    assert!(mesh.store.add_event(bad).await.is_err());
    let drop = NewCacheDrop {
        agent,
        at: MeshMicros(T0),
        what: "page-cache".to_owned(),
        dropped: true,
        error: None,
    };
    mesh.store.add_cache_drops(step, vec![drop]).await.unwrap();
    assert_eq!(mesh.number("SELECT count(*) FROM events").await, 1);
    assert_eq!(mesh.number("SELECT sum(dropped) FROM cache_drops").await, 1);
}
