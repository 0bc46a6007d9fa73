//! Processes that only put a daemon into the background are no daemons.

use super::{step_of_four_seconds, usage};
use crate::ingest::batch::{AgentEvent, Batch, DaemonSeen};
use crate::tests::{Mesh, S, T0, batch, sample, seen, send};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::MeshMicros;
use sqlx::Row;
use std::time::{Duration, Instant};

/// A process of the instance `osd.1`, found at `at`.
fn osd_1(pid: i32, at: i64, born: i64) -> DaemonSeen {
    DaemonSeen {
        instance: "osd.1".to_owned(),
        born: Some(MeshMicros(born)),
        ..seen(pid, "ceph-osd", at)
    }
}

#[tokio::test]
async fn the_parent_of_a_background_process_is_no_daemon() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    let parent = osd_1(1, T0 + S, T0 + S);
    let child = osd_1(2, T0 + S + 200_000, T0 + S + 100_000);
    let mut parent_gone = osd_1(1, T0 + S + 300_000, T0 + S);
    parent_gone.ended = true;
    one.daemons = vec![parent, child, parent_gone.clone()];
    one.daemon_samples = vec![
        sample(1, T0 + S, 10_000, 1),
        sample(1, T0 + S + 300_000, 20_000, 1),
        sample(2, T0 + 2 * S, 100_000, 1),
        sample(2, T0 + 4 * S, 300_000, 1),
    ];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    // Apparently a restarted daemon.
    assert_eq!(mesh.number("SELECT daemons FROM v_cost").await, 2);
    // The agent's next scan recognizes it as the parent.
    parent_gone.is_parent = true;
    let later = Batch {
        daemons: vec![parent_gone],
        ..batch("s", 2)
    };
    send(&publisher, later).await.unwrap();
    let limit = Instant::now() + Duration::from_secs(30);
    while mesh.number("SELECT daemons FROM v_cost").await != 1 {
        assert!(Instant::now() < limit, "it is made again");
        tokio::task::yield_now().await;
    }
    let rows = usage(&mesh).await;
    let pids: Vec<i64> = rows.iter().map(|row| row.get("pid")).collect();
    assert_eq!(pids, [2]);
}

/// The parent's end arrives in the same batch as its birth, if the daemon starts quickly, or in a later batch.
#[tokio::test]
async fn a_restart_is_told_of_the_daemon_and_not_of_the_parent_that_put_it_into_the_background() {
    for is_one_batch in [true, false] {
        let mesh = Mesh::new().await;
        let (publisher, _, mut one) = step_of_four_seconds(&mesh).await;
        let life = |pid: i32, born: i64| osd_1(pid, born, born);
        let mut former = life(1, T0 - 900 * S);
        (former.at, former.ended) = (MeshMicros(T0 + S), true);
        let (born, other) = (T0 + 2 * S, "another instance of that host");
        let (mut parent, child) = (life(2, born), life(3, born + 50_000));
        let mut bystander = life(4, born + 60_000);
        bystander.instance = other.to_owned();
        one.daemons = vec![former, parent.clone()];
        one.events = vec![AgentEvent {
            at: MeshMicros(born),
            run_uid: String::new(),
            run: None,
            step: None,
            kind: EventKind::DaemonRestarted.into(),
            message: "ceph-osd osd.1 (pid 2) was started again".to_owned(),
            detail_json: Some(
                r#"{"name": "ceph-osd", "instance": "osd.1", "pid": 2, "start_ticks": 1002}"#
                    .to_owned(),
            ),
        }];
        let mut later = batch("s", 2);
        let ends = if is_one_batch { &mut one } else { &mut later };
        (parent.at, parent.ended, parent.is_parent) = (MeshMicros(born + 100_000), true, true);
        ends.daemons.extend([parent, child, bystander]);
        send(&publisher, one).await.unwrap();
        send(&publisher, later).await.unwrap();
        let told: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT message, detail ->> 'pid', detail ->> 'start_ticks' FROM events WHERE kind = 'daemon-restarted'",
        )
        .fetch_all(mesh.store.reader())
        .await
        .unwrap();
        let message = "ceph-osd osd.1 (pid 3) was started again".to_owned();
        assert_eq!(told, [(message, 3, 1003)], "in one batch: {is_one_batch}");
    }
}
