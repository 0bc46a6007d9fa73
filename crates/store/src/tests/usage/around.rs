//! Usage before the run and after the step, which is reported separately.

use super::{check, finished, newest_run, step_of_four_seconds};
use crate::rows::StepChange;
use crate::tests::{Mesh, S, T0, new_step, sample, seen, send};
use benchmesh_model::mesh::{MeshMicros, StepState};
use sqlx::Row;

/// Work of a daemon after a step is reported separately, until the daemon is idle.
#[tokio::test]
async fn work_after_the_step_counts_until_the_daemon_is_idle() {
    // Half a CPU in the step and for 2 s after it, then nothing.
    let samples = (0..9)
        .map(|second: i64| sample(1, T0 + second * S, second.min(6) * S / 2, 1))
        .collect();
    let done = finished(vec![seen(1, "ceph-osd", T0 - S)], samples).await;
    let expected = [
        ("cpu_s", Some(2.0)),
        ("after_cpu_s", Some(1.0)),
        ("after_s", Some(2.0)),
    ];
    let rows = check(&done.mesh, &[&expected]).await;
    assert_eq!(rows[0].get::<Option<bool>, _>("after_idle"), Some(true));
    let cost: (f64, f64) =
        sqlx::query_as("SELECT cpu_us_per_op, cpu_us_per_op_until_idle FROM v_cost")
            .fetch_one(done.mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(cost, (5000.0, 7500.0));
}

#[tokio::test]
async fn work_for_the_next_step_is_not_the_last_ones() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let run = newest_run(&mesh).await;
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
    let rows = check(&mesh, &[&[("after_cpu_s", Some(0.5))]]).await;
    assert_eq!(rows[0].get::<Option<bool>, _>("after_idle"), Some(false));
}

#[tokio::test]
async fn usage_before_the_run_is_listed_separately() {
    let daemons = vec![
        seen(1, "ceph-osd", T0 - 30 * S),
        seen(2, "ceph-osd", T0 - S),
    ];
    // 5 % of a CPU before the run, which begins a second before the step; the other daemon was not sampled then.
    let samples = vec![
        sample(1, T0 - 21 * S, 0, 1),
        sample(1, T0 - S, S, 1),
        sample(1, T0, S, 1),
        sample(1, T0 + 4 * S, 3 * S, 1),
        sample(2, T0, 0, 1),
        sample(2, T0 + 4 * S, S, 1),
    ];
    let done = finished(daemons, samples).await;
    let expected: [&[_]; 2] = [
        &[("cpu_percent", Some(50.0)), ("idle_cpu_percent", Some(5.0))],
        &[("idle_cpu_percent", None)],
    ];
    check(&done.mesh, &expected).await;
    let idle: Option<f64> = sqlx::query_scalar("SELECT idle_cpu_s FROM v_cost")
        .fetch_one(done.mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(idle, None, "of one of the two it is not known");
}
