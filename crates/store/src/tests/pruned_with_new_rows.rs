//! Old rows that are pruned in the transactions of new ones.

use super::gathered::calm;
use super::pruned::{HOUR, HOUR_US, answer, conserved, generated, keeping, number};
use super::{S, T0, batch};
use crate::ingest::batch::ClockOffset;
use crate::prune::Resolution;
use crate::retention::{PruneProgress, Request, Retainer};
use crate::{Publisher, Store};
use benchmesh_model::mesh::MeshMicros;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

const SIZES: &str = "SELECT (SELECT count(*) FROM op_intervals), (SELECT count(*) FROM step_intervals),
    (SELECT count(*) FROM daemon_samples), (SELECT count(*) FROM host_samples), (SELECT count(*) FROM disk_samples),
    (SELECT count(*) FROM steps WHERE merging), (SELECT min(resolution_s) FROM steps)";

/// A generated database without requests for rows for a long time, and an agent that sends.
struct Sending {
    _directory: TempDir,
    path: PathBuf,
    store: Store,
    publisher: Publisher,
    sequence: u64,
    /// An instant at which all of its rows are old.
    later: MeshMicros,
}

impl Sending {
    async fn begin() -> Self {
        let (directory, store, end) = generated().await;
        let path = store.path().to_owned();
        let (agent, host) = store.attach_agent(super::new_agent("new")).await.unwrap();
        store.close().await;
        let store = calm(&path).await;
        let publisher = store.publisher(agent, host, "net:1".to_owned());
        let mut sending = Self {
            _directory: directory,
            path,
            store,
            publisher,
            sequence: 0,
            later: MeshMicros(end + 2 * HOUR_US),
        };
        sending.commit().await;
        sending
    }

    /// Stores a batch that does not change merged rows.
    async fn commit(&mut self) {
        self.sequence += 1;
        let at = T0 + i64::try_from(self.sequence).unwrap() * S;
        let mut one = batch("s", self.sequence);
        one.newest_us = at;
        one.clock_offsets = vec![ClockOffset {
            at: MeshMicros(at),
            offset_us: 1,
            error_us: 100,
            round_trip_us: 200,
        }];
        let receipt = self.publisher.submit(one).await.unwrap();
        self.store.flush().await;
        receipt.await.unwrap();
    }

    fn retainer(&self) -> Retainer {
        Retainer::new(self.store.clone(), keeping(HOUR, 10 * HOUR))
    }

    fn intervals(&self) -> i64 {
        number(&self.path, "SELECT count(*) FROM op_intervals")
    }
}

#[tokio::test]
async fn old_rows_go_with_new_ones_whatever_is_cut_off() {
    let mut sending = Sending::begin().await;
    let (before, raw) = (conserved(&sending.path), sending.intervals());
    let retainer = sending.retainer();
    let mut cuts = 0;
    loop {
        let pass = retainer.pass(sending.later);
        tokio::pin!(pass);
        if cuts == 0 {
            let waits = timeout(Duration::from_millis(300), &mut pass).await;
            assert!(waits.is_err(), "nothing is stored, and old rows are gone");
            assert_eq!(sending.intervals(), raw);
        }
        let mut commits = 0;
        let is_done = loop {
            if let Ok(done) = timeout(Duration::from_millis(50), &mut pass).await {
                done.unwrap();
                break true;
            }
            if commits > cuts {
                break false;
            }
            sending.commit().await;
            commits += 1;
        };
        assert_eq!(conserved(&sending.path), before, "after {cuts} cuts");
        if is_done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 0);
    sending.store.close().await;
    assert!(crate::maintain::check(&sending.path).unwrap().is_empty());

    let (_directory, store, _) = generated().await;
    let alone = Retainer::new(store.clone(), keeping(HOUR, 10 * HOUR));
    alone.pass(sending.later).await.unwrap();
    assert_eq!(
        answer(&sending.path, SIZES),
        answer(store.path(), SIZES),
        "not as without new rows"
    );
    store.close().await;
}

#[tokio::test]
async fn an_operator_does_not_wait_for_new_rows() {
    let sending = Sending::begin().await;
    let raw = sending.intervals();
    let retainer = sending.retainer();
    let pass = tokio::spawn({
        let (retainer, later) = (retainer.clone(), sending.later);
        async move { retainer.pass(later).await }
    });
    let request = Request {
        older: HOUR,
        to: Resolution::Minute,
        keep_tags: Vec::new(),
        dry_run: false,
    };
    let told = watch::Sender::new(PruneProgress::default());
    let by_hand = retainer.by_hand(&request, sending.later, &told);
    timeout(Duration::from_secs(60), by_hand)
        .await
        .expect("old rows wait for new ones, and the operator for both")
        .unwrap();
    assert!(sending.intervals() * 9 < raw);
    pass.abort();
    sending.store.close().await;
}
