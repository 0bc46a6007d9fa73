//! Slow readers during a run.

use super::{Mesh, S, T0, batch, interval, new_step, send, task_end};
use crate::rows::FinishedStep;
use benchmesh_model::mesh::{MeshMicros, StepState};
use std::time::Duration;

/// More slow reports than connections, in the middle of a step.
#[tokio::test]
async fn a_step_does_not_wait_for_slow_readers() {
    let mesh = Mesh::new().await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(mesh.store.reader().acquire().await.unwrap());
    }
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let reader = mesh.store.reader().clone();
            tokio::spawn(async move { drop(reader.acquire().await) })
        })
        .collect();
    let scheduler = mesh.store.for_scheduler();
    let step = async {
        let (publisher, agent, _) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let (step, tasks) = mesh
            .step(run, new_step(0, "files", "create"), &[agent])
            .await;
        let mut rows = batch("s", 1);
        rows.op_intervals = vec![interval(tasks[0], T0, "create", 10, 1000)];
        rows.task_ends = vec![task_end(tasks[0], 0, T0 + S)];
        send(&publisher, rows).await.unwrap();
        scheduler.stored(agent, "s", 1).await.unwrap();
        assert_eq!(scheduler.tasks(step).await.unwrap().len(), 1);
        let finished = FinishedStep {
            state: StepState::Done,
            partial: false,
            ended: MeshMicros(T0 + S),
            reason: None,
        };
        scheduler.finish_step(step, finished).await.unwrap()
    };
    // A shared connection would have been waited for for 30 s, without success.
    let results = tokio::time::timeout(Duration::from_secs(20), step).await;
    assert_eq!(results.expect("it waited").ops[0].ops, 10);
    assert!(waiting.iter().all(|reader| !reader.is_finished()));
    drop(slow);
    for reader in waiting {
        reader.await.unwrap();
    }
}
