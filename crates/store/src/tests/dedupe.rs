//! A batch that is sent twice is stored once; a gap in the sequence is refused. The model is one number per spool.

use super::{Mesh, S, T0, batch, interval, new_step, sample, seen, send};
use crate::ingest::IngestError;
use proptest::prelude::*;

#[tokio::test]
async fn next_repeated_missing_and_overlapping_sequences() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    assert_eq!(send(&publisher, batch("s", 1)).await, Ok(1));
    assert_eq!(send(&publisher, batch("s", 1)).await, Ok(1));
    let hole = send(&publisher, batch("s", 3)).await;
    assert!(
        matches!(
            hole,
            Err(IngestError::Hole {
                last: 1,
                expected: 2,
                found: 3,
                ..
            })
        ),
        "{hole:?}"
    );
    let mut merged = batch("s", 2);
    merged.sequence = 4;
    assert_eq!(send(&publisher, merged).await, Ok(4));
    let mut overlap = batch("s", 3);
    overlap.sequence = 6;
    let refused = send(&publisher, overlap).await;
    assert!(
        matches!(refused, Err(IngestError::Overlap { last: 4, .. })),
        "{refused:?}"
    );
    let fresh = send(&publisher, batch("t", 2)).await;
    assert!(
        matches!(fresh, Err(IngestError::Hole { last: 0, .. })),
        "{fresh:?}"
    );
    let positions = mesh.store.spool_positions(agent).await.unwrap();
    assert_eq!(positions, [("s".to_owned(), 4)]);
}

#[tokio::test]
async fn spools_of_two_agents_do_not_mix() {
    let mesh = Mesh::new().await;
    let (a, ..) = mesh.publisher("a").await;
    let (b, ..) = mesh.publisher("b").await;
    assert_eq!(send(&a, batch("s", 1)).await, Ok(1));
    assert!(send(&b, batch("s", 2)).await.is_err());
    assert_eq!(send(&b, batch("s", 1)).await, Ok(1));
}

#[tokio::test]
async fn a_repeated_sample_is_stored_once_and_a_late_part_is_added() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (_, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    for sequence in 1..=2 {
        let mut one = batch("s", sequence);
        one.daemons = vec![seen(1, "ceph-osd", T0)];
        one.daemon_samples = vec![sample(1, T0, 5, 6), sample(1, T0, 7, 8)];
        one.op_intervals = vec![interval(tasks[0], T0, "create", 10, 1000)];
        send(&publisher, one).await.unwrap();
    }
    assert_eq!(mesh.number("SELECT count(*) FROM daemon_samples").await, 1);
    assert_eq!(mesh.number("SELECT rss_bytes FROM daemon_samples").await, 6);
    assert_eq!(mesh.number("SELECT count(*) FROM op_intervals").await, 1);
    assert_eq!(mesh.number("SELECT ops FROM op_intervals").await, 20);
    assert_eq!(
        mesh.number("SELECT service_count FROM op_intervals").await,
        20
    );
}

#[tokio::test]
async fn waiting_for_a_sequence_ends_with_its_commit() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let store = mesh.store.clone();
    let waiting = tokio::spawn(async move { store.stored(agent, "s", 2).await });
    send(&publisher, batch("s", 1)).await.unwrap();
    assert!(!waiting.is_finished());
    send(&publisher, batch("s", 2)).await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn committed_intervals_are_seen_live() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (_, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut live = mesh.store.live().subscribe();
    let mut one = batch("s", 1);
    one.op_intervals = vec![interval(tasks[0], T0, "create", 3, 500)];
    send(&publisher, one.clone()).await.unwrap();
    send(&publisher, one).await.unwrap();
    let seen = live.recv().await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].task, seen[0].ops), (tasks[0], 3));
    assert!(seen[0].service.is_none(), "copied for nobody");
    assert!(live.try_recv().is_err(), "the repeat was shown too");
}

#[tokio::test]
async fn latencies_are_copied_for_viewers_and_for_nobody_else() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (_, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let feed = mesh.store.live();
    assert!(
        !feed.is_followed(),
        "without a receiver nothing is published"
    );
    let mut live = feed.subscribe();
    for (sequence, is_viewed) in (1..).zip([false, true, false]) {
        let _viewer = is_viewed.then(|| feed.viewer());
        let mut one = batch("s", sequence);
        let at = T0 + S * i64::try_from(sequence).unwrap();
        one.op_intervals = vec![interval(tasks[0], at, "create", 3, 500)];
        send(&publisher, one).await.unwrap();
        let seen = live.recv().await.unwrap();
        assert_eq!(seen[0].service.is_some(), is_viewed, "batch {sequence}");
    }
    drop(live);
    assert!(!feed.is_followed());
}

/// Received datagrams and their jitter are no work of the sender: they neither double its rate nor enter its latencies.
#[tokio::test]
async fn what_the_other_end_observed_is_no_live_work() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (_, tasks) = mesh
        .step(run, new_step(0, "network", "udp-stream"), &[agent])
        .await;
    let feed = mesh.store.live();
    let mut live = feed.subscribe();
    let _viewer = feed.viewer();
    let mut one = batch("s", 1);
    one.op_intervals = ["send", "receive", "lost", "jitter"]
        .map(|op| interval(tasks[0], T0, op, 10, 500))
        .into();
    send(&publisher, one).await.unwrap();
    let seen = live.recv().await.unwrap();
    let work: Vec<(i64, i64, bool)> = seen
        .iter()
        .map(|one| (one.ops, one.bytes, one.service.is_some()))
        .collect();
    let none = (0, 0, false);
    assert_eq!(work, [(10, 40_960, true), none, none, none]);
}

/// An action of an agent or the network on a spool.
#[derive(Clone, Debug)]
enum SpoolAction {
    /// The next batch, which covers `width` sequences.
    Next {
        width: u64,
    },
    /// A batch that was sent before, counted from the newest.
    Again {
        back: usize,
    },
    /// A batch too far ahead.
    Ahead {
        by: u64,
    },
    Reattach,
    Reopen,
}

fn moves() -> impl Strategy<Value = Vec<SpoolAction>> {
    let one = prop_oneof![
        6 => (1..4_u64).prop_map(|width| SpoolAction::Next { width }),
        4 => (0..6_usize).prop_map(|back| SpoolAction::Again { back }),
        1 => (1..5_u64).prop_map(|by| SpoolAction::Ahead { by }),
        1 => Just(SpoolAction::Reattach),
        1 => Just(SpoolAction::Reopen),
    ];
    prop::collection::vec(one, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_batch_is_stored_once_whatever_is_repeated(moves in moves()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut mesh = Mesh::new().await;
            let (mut publisher, agent, host) = mesh.publisher("a").await;
            let mut last = 0;
            let mut sent = Vec::new();
            for one in moves {
                match one {
                    SpoolAction::Next { width } => {
                        let mut next = batch("s", last + 1);
                        next.sequence = last + width;
                        next.daemons = vec![seen(1, "ceph-osd", T0)];
                        // Its instant identifies the batch, so that a row that is stored twice or never is detected.
                        next.daemon_samples = vec![sample(1, T0 + i64::try_from(last).unwrap() * S, 1, 1)];
                        last += width;
                        assert_eq!(send(&publisher, next.clone()).await, Ok(last));
                        sent.push(next);
                    }
                    SpoolAction::Again { back } => {
                        if let Some(again) = sent.iter().rev().nth(back) {
                            assert_eq!(send(&publisher, again.clone()).await, Ok(again.sequence));
                        }
                    }
                    SpoolAction::Ahead { by } => {
                        let refused = send(&publisher, batch("s", last + 1 + by)).await;
                        let hole = matches!(refused, Err(IngestError::Hole { .. }));
                        assert!(hole, "{refused:?}");
                    }
                    SpoolAction::Reattach => publisher = mesh.store.publisher(agent, host, "net:2".to_owned()),
                    SpoolAction::Reopen => {
                        mesh.reopen().await;
                        publisher = mesh.store.publisher(agent, host, "net:2".to_owned());
                    }
                }
            }
            let stored: Vec<i64> = sqlx::query_scalar("SELECT at_us FROM daemon_samples ORDER BY at_us")
                .fetch_all(mesh.store.reader())
                .await
                .unwrap();
            let expected: Vec<i64> = sent.iter().map(|one| one.daemon_samples[0].at.0).collect();
            assert_eq!(stored, expected);
            let positions = mesh.store.spool_positions(agent).await.unwrap();
            assert_eq!(positions.first().map_or(0, |(_, last)| *last), last);
            mesh.store.close().await;
        });
    }
}
