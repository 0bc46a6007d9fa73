//! Samples that arrive after the end of their step: who waits for them, and when usage contains them.

use super::{Finished, check, finished, newest_run, seconds, step_of_four_seconds, usage};
use crate::ingest::batch::Batch;
use crate::tests::{Mesh, S, T0, batch, host_sample, sample, seen, send};
use std::time::Duration;

/// A step whose daemon was sampled until a second before its end, and the batch with the sample of its end.
async fn finished_before_the_last_sample() -> (Finished, Batch) {
    let samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 3 * S, 300_000, 1)];
    let done = finished(vec![seen(1, "ceph-osd", T0 - S)], samples).await;
    let late = Batch {
        daemon_samples: vec![sample(1, T0 + 4 * S, 500_000, 1)],
        ..batch("s", 2)
    };
    (done, late)
}

#[tokio::test]
async fn late_samples_change_the_usage() {
    let (Finished { mesh, publisher }, late) = finished_before_the_last_sample().await;
    check(&mesh, &[&[("cpu_s", Some(0.3))]]).await;
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

/// A report at a run's end waits for these samples.
#[tokio::test]
async fn the_samples_of_a_run_are_complete_when_one_of_its_end_is_here() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let run = newest_run(&mesh).await;
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
    let run = newest_run(&mesh).await;
    one.host_samples = vec![host_sample(T0 - S)];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    assert!(mesh.store.hosts_awaited(run).await.unwrap().is_empty());
}

/// A report does not wait for a quiet time: stored rows are included at once.
#[tokio::test]
async fn late_samples_are_worked_in_when_they_are_asked_for() {
    let (Finished { mesh, publisher }, late) = finished_before_the_last_sample().await;
    let mut arrived = mesh.store.late_data();
    arrived.mark_unchanged();
    send(&publisher, late).await.unwrap();
    assert!(arrived.has_changed().unwrap());
    let run = newest_run(&mesh).await;
    mesh.store.compute_stale(run).await.unwrap();
    check(&mesh, &[&[("cpu_s", Some(0.5))]]).await;
}
