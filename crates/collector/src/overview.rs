//! What goes on in the mesh, computed once per second for all who look: the live page, `watch` and `/metrics`.
//!
//! One task computes a [`Snapshot`] while somebody looks and none otherwise. A snapshot is handed out in parts
//! (topics), each with a version and its JSON text, so that a viewer is sent what has changed and nothing is written as
//! JSON twice. A viewer that falls behind misses snapshots, never parts: it compares versions. Nothing here is a
//! result.

mod compute;
pub(crate) mod read;

use benchmesh_model::mesh::MeshMicros;
use benchmesh_scheduler::{
    Scheduler, live,
    sessions::Fleet,
    snapshot::{DaemonNow, Snapshot},
};
use benchmesh_store::{Store, StoreError, clock::MeshClock};
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

/// How often a snapshot is computed while somebody looks.
const PERIOD: Duration = Duration::from_secs(1);
/// A single look, such as a scrape of `/metrics`, keeps the snapshots coming for so long, so that the next one finds
/// latencies.
const INTEREST: Duration = Duration::from_secs(60);
/// An older snapshot is not handed out.
const FRESH: Duration = Duration::from_secs(3);
/// How long a look waits for the first snapshot.
const FIRST: Duration = Duration::from_secs(5);

/// The parts of a snapshot, in the order in which they are sent.
pub const TOPICS: [&str; 7] = [
    "health", "run", "agents", "daemons", "hosts", "events", "runs",
];

/// One part of a snapshot as JSON.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: &'static str,
    /// Grows whenever the text changes.
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

/// Hands out snapshots; cheap to clone.
#[derive(Clone, Debug)]
pub struct Overview(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    published: watch::Sender<Option<Published>>,
    wanted: Notify,
    /// Until when single looks want snapshots.
    interest: Mutex<Option<Instant>>,
}

/// Somebody who looks, for as long as this exists.
#[derive(Debug)]
pub struct Viewer {
    published: watch::Receiver<Option<Published>>,
}

impl Viewer {
    /// The next snapshot; `None`: the collector is closing.
    pub async fn next(&mut self) -> Option<Published> {
        loop {
            self.published.changed().await.ok()?;
            if let Some(published) = self.published.borrow_and_update().clone() {
                return Some(published);
            }
        }
    }
}

/// The daemons that are sampled now, the busiest first.
pub(crate) async fn sampled_daemons(
    store: &Store,
    now: MeshMicros,
) -> Result<Vec<DaemonNow>, StoreError> {
    let daemons = read::daemons(store.reader(), store.live().samples(), now.0).await;
    daemons.map_err(StoreError::sql("look for the daemons that are sampled"))
}

impl Overview {
    /// Nothing is computed before [`Overview::run`].
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            published: watch::Sender::new(None),
            wanted: Notify::new(),
            interest: Mutex::new(None),
        }))
    }

    /// Snapshots from now on, the newest first.
    pub fn viewer(&self) -> Viewer {
        let mut published = self.0.published.subscribe();
        if self.fresh().is_some() {
            published.mark_changed();
        }
        self.0.wanted.notify_one();
        Viewer { published }
    }

    /// How many look at once.
    pub fn viewers(&self) -> usize {
        self.0.published.receiver_count()
    }

    /// The state now; `None`: it could not be computed in time.
    pub async fn look(&self) -> Option<Published> {
        *self.interest() = Some(Instant::now() + INTEREST);
        if let Some(fresh) = self.fresh() {
            return Some(fresh);
        }
        let mut viewer = self.viewer();
        timeout(FIRST, viewer.next()).await.ok().flatten()
    }

    /// The newest snapshot, unless it is old.
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

    /// Hands out parts that a test made.
    #[cfg(test)]
    pub(crate) fn publish(&self, topics: Vec<Topic>) {
        self.0.published.send_replace(Some(Published {
            snapshot: Arc::default(),
            topics: topics.into(),
            at: Instant::now(),
        }));
    }

    /// Computes snapshots while somebody looks, until `closing`.
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
        let mut computer = Computer::new(scheduler, fleet, store, clock, security_warning);
        loop {
            while !self.is_wanted() {
                tokio::select! {
                    () = closing.cancelled() => return,
                    () = self.0.wanted.notified() => {}
                }
            }
            // Latencies are decoded for as long as somebody looks.
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

impl Default for Overview {
    fn default() -> Self {
        Self::new()
    }
}
