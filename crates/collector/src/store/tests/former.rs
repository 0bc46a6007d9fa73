//! Hosts and agents as they were: samples that come late, and a merge with a file that knows them otherwise.

use super::{
    Mesh, S, T0, batch, interval, new_agent, new_step, running, sample, seen, send, task_end,
};
use crate::ingest::batch::Batch;
use crate::model::{MeshMicros, RunId, RunState};
use crate::store::maintain::merge;
use crate::store::rows::NewAgent;
use std::time::{Duration, Instant};

/// Host `host-a` of two CPUs, on which a step of four seconds ran; it serves the step's target by its agent's label.
async fn measured(mesh: &Mesh) -> (crate::store::Publisher, Batch) {
    let mut serving = new_agent("a");
    serving.labels_json = r#"{"serves":"cephfs"}"#.to_owned();
    serving.at = MeshMicros(T0 - 9 * S);
    let (agent, host) = mesh.store.attach_agent(serving).await.unwrap();
    let publisher = mesh.store.publisher(agent, host, "net:1".to_owned());
    let run = mesh.run("u").await;
    mesh.store
        .set_run_state(run, running(T0 - S))
        .await
        .unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
        .collect();
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    one.daemons = vec![seen(1, "shardd", T0 - 9 * S)];
    one.daemon_samples = (-1..6)
        .map(|beat| sample(1, T0 + beat * S, 10 * S + beat * S / 2, 1))
        .collect();
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    // Late: another sample of the step's time makes its usage anew.
    let late = Batch {
        daemon_samples: vec![sample(1, T0 + S / 2, 10 * S + S / 4, 1)],
        ..batch("s", 2)
    };
    (publisher, late)
}

fn changed() -> NewAgent {
    let mut agent = new_agent("a");
    agent.name = "renamed".to_owned();
    agent.may_rename = true;
    agent.host.name = "renamed".to_owned();
    agent.host.cpus = 64;
    agent.labels_json = r#"{"serves":"another"}"#.to_owned();
    agent.at = MeshMicros(T0 + 60 * S);
    agent
}

async fn usage(mesh: &Mesh) -> (String, Option<bool>, i64) {
    sqlx::query_as("SELECT u.host, u.serves_target, d.samples FROM v_daemon_usage AS u JOIN step_daemons AS d USING (step_id, daemon_id)")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap()
}

#[tokio::test]
async fn late_samples_do_not_bring_todays_labels_and_names_into_an_old_step() {
    let mesh = Mesh::new().await;
    let (publisher, late) = measured(&mesh).await;
    let (host, serves, samples) = usage(&mesh).await;
    assert_eq!((host.as_str(), serves, samples), ("host-a", Some(true), 5));
    mesh.store.attach_agent(changed()).await.unwrap();
    // Another agent that serves the target came after the step.
    let mut other = new_agent("b");
    other.labels_json = r#"{"serves":"cephfs"}"#.to_owned();
    other.at = MeshMicros(T0 + 61 * S);
    mesh.store.attach_agent(other).await.unwrap();
    send(&publisher, late).await.unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while usage(&mesh).await.2 == samples {
        assert!(Instant::now() < limit, "the usage is made anew");
        tokio::task::yield_now().await;
    }
    let (host, serves, samples) = usage(&mesh).await;
    assert_eq!((host.as_str(), serves, samples), ("host-a", Some(true), 6));
}

#[tokio::test]
async fn a_merged_file_keeps_the_hosts_of_its_own_runs() {
    let old = Mesh::new().await;
    measured(&old).await;
    let mut ended = running(T0 + 5 * S);
    ended.state = RunState::Done;
    old.store.set_run_state(RunId(1), ended).await.unwrap();
    old.store.close().await;
    let mut new = Mesh::new().await;
    let mut rebooted = changed();
    rebooted.host.boot_id = "rebooted".to_owned();
    new.store.attach_agent(rebooted).await.unwrap();
    new.store.close().await;
    merge(&new.path(), &old.path()).await.unwrap();
    new.reopen().await;
    let agent: (String, i64, String) = sqlx::query_as(
        "SELECT f.name, f.until_us, h.name FROM former_agents AS f JOIN hosts AS h ON h.id = f.host_id ORDER BY until_us LIMIT 1",
    )
    .fetch_one(new.store.reader())
    .await
    .unwrap();
    assert_eq!(agent.0, "a");
    assert_eq!(agent.2, "host-a");
    assert!(agent.1 > T0 - 9 * S, "{}", agent.1);
    assert_eq!(usage(&new).await.0, "host-a");
}
