//! The live state of the mesh, computed once per second for all viewers: the live page, `watch` and `/metrics`.
//!
//! One task computes a [`Snapshot`] while there are viewers, and none otherwise. A snapshot is published in parts
//! (topics), each with a version and its JSON text. A viewer is sent the changed parts, and each part is written as
//! JSON once. A viewer that falls behind misses snapshots, never parts, because it compares versions. No live value is
//! a result.

pub(crate) mod compute;
pub(crate) mod read;

use benchmesh_model::mesh::MeshMicros;
use benchmesh_scheduler::{
    Scheduler, live,
    sessions::Fleet,
    snapshot::{ArchiveNow, DaemonNow, Snapshot},
};
use benchmesh_store::{Doing, Store, StoreError, clock::MeshClock};
use compute::Computer;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// Interval between snapshots while there are viewers.
const PERIOD: Duration = Duration::from_secs(1);
/// After a single request, such as a scrape of `/metrics`, snapshots are computed for this long, so that the next
/// request finds latencies.
const INTEREST: Duration = Duration::from_secs(60);
/// Maximum age of a snapshot that is returned.
const FRESH: Duration = Duration::from_secs(3);
/// How long a request waits for the first snapshot.
const FIRST: Duration = Duration::from_secs(5);

/// The parts of a snapshot, in the order in which they are sent.
pub const TOPICS: [&str; 7] = [
    "health", "run", "agents", "daemons", "hosts", "events", "runs",
];

/// One part of a snapshot as JSON.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: &'static str,
    /// Increases whenever the text changes.
    pub version: u64,
    pub json: Arc<str>,
    /// The server-sent event that carries it: written once, and shared by all viewers.
    pub event: Arc<[u8]>,
}

impl Topic {
    /// The JSON is on one line, as serde_json writes it.
    pub fn new(name: &'static str, version: u64, json: String) -> Self {
        Self {
            name,
            version,
            event: format!("event: {name}\ndata: {json}\n\n")
                .into_bytes()
                .into(),
            json: json.into(),
        }
    }
}

/// A snapshot and its parts.
#[derive(Clone, Debug)]
pub struct Published {
    pub snapshot: Arc<Snapshot>,
    pub topics: Arc<[Topic]>,
    at: Instant,
}

/// Publishes snapshots; cheap to clone.
#[derive(Clone, Debug)]
pub struct Overview(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    published: watch::Sender<Option<Published>>,
    wanted: Notify,
    archive: Option<watch::Receiver<ArchiveNow>>,
    /// Until when snapshots are computed for single requests.
    interest: Mutex<Option<Instant>>,
}

/// A viewer; snapshots are computed while it exists.
#[derive(Debug)]
pub struct Viewer {
    published: watch::Receiver<Option<Published>>,
}

impl Viewer {
    /// The next snapshot; `None` if the collector is closing.
    pub async fn next(&mut self) -> Option<Published> {
        loop {
            self.published.changed().await.ok()?;
            if let Some(published) = self.published.borrow_and_update().clone() {
                return Some(published);
            }
        }
    }
}

/// The daemons that are sampled now, busiest first.
pub(crate) async fn sampled_daemons(
    store: &Store,
    now: MeshMicros,
) -> Result<Vec<DaemonNow>, StoreError> {
    let daemons = read::daemons(store.reader(), store.live().samples(), now.0).await;
    daemons.doing("look for the daemons that are sampled")
}

impl Overview {
    /// Nothing is computed before [`Overview::run`]. `archive`: the state of the archive, if there is one.
    pub fn new(archive: Option<watch::Receiver<ArchiveNow>>) -> Self {
        Self(Arc::new(Inner {
            published: watch::Sender::new(None),
            wanted: Notify::new(),
            archive,
            interest: Mutex::new(None),
        }))
    }

    /// A viewer that receives the current snapshot, if it is fresh, and all later ones.
    pub fn viewer(&self) -> Viewer {
        let mut published = self.0.published.subscribe();
        if self.fresh().is_some() {
            published.mark_changed();
        }
        self.0.wanted.notify_one();
        Viewer { published }
    }

    /// Number of viewers.
    pub fn viewers(&self) -> usize {
        self.0.published.receiver_count()
    }

    /// The current state; `None` if it could not be computed in time.
    pub async fn look(&self) -> Option<Published> {
        *self.interest() = Some(Instant::now() + INTEREST);
        if let Some(fresh) = self.fresh() {
            return Some(fresh);
        }
        let mut viewer = self.viewer();
        timeout(FIRST, viewer.next()).await.ok().flatten()
    }

    /// The newest snapshot, unless it is too old.
    pub fn fresh(&self) -> Option<Published> {
        let published = self.0.published.borrow();
        published
            .as_ref()
            .filter(|published| published.at.elapsed() < FRESH)
            .cloned()
    }

    fn interest(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0
            .interest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        let now = Instant::now();
        self.viewers() > 0 || self.interest().is_some_and(|until| until > now)
    }

    /// Publishes parts that a test made.
    #[cfg(test)]
    pub(crate) fn publish(&self, topics: Vec<Topic>) {
        self.0.published.send_replace(Some(Published {
            snapshot: Arc::default(),
            topics: topics.into(),
            at: Instant::now(),
        }));
    }

    /// Computes snapshots while there are viewers, until `closing`.
    pub async fn run(
        self,
        scheduler: Scheduler,
        fleet: Fleet,
        store: Store,
        clock: Arc<MeshClock>,
        security_warning: Option<&'static str>,
        closing: CancellationToken,
    ) {
        let feed = store.live().clone();
        let archive = self.0.archive.clone();
        let mut computer = Computer::new(scheduler, fleet, store, clock, security_warning, archive);
        loop {
            while !self.is_wanted() {
                tokio::select! {
                    () = closing.cancelled() => return,
                    () = self.0.wanted.notified() => {}
                }
            }
            // Latencies are decoded while there are viewers.
            let _latencies: live::Viewer = feed.viewer();
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while self.is_wanted() {
                tokio::select! {
                    () = closing.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let (snapshot, topics) = computer.compute(self.viewers()).await;
                self.0.published.send_replace(Some(Published {
                    snapshot: Arc::new(snapshot),
                    topics,
                    at: Instant::now(),
                }));
            }
        }
    }
}
