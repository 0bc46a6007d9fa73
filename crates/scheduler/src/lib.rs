//! Takes runs through their steps, one run at a time, oldest first; other runs wait in the queue.
//!
//! `machine` decides, as a state machine without I/O; `driver` carries its decisions out. Every transition is persisted
//! before it takes effect, so a killed collector continues where it was. Agents keep their tasks while the collector is
//! away. After a restart, the agents of a running step are asked for them; if no agent holds one, the cell is repeated
//! as its next attempt. This crate does not know TOML, gRPC or SQL.

pub mod admission;
mod agents;
pub mod cut;
mod driver;
mod environment;
#[cfg(test)]
mod hostile;
mod links;
pub mod live;
mod machine;
pub mod progress;
mod resume;
pub mod sessions;
#[cfg(test)]
mod simulation;
pub mod snapshot;
mod survey;

pub use admission::{StartError, StartRequest, Started};
pub use progress::{RunProgress, WatchedRuns, WatcherPosition};
pub use resume::{ChangedTargets, ResumeError, Resumed};

use crate::sessions::Fleet;
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{MeshMicros, RunId, RunState};
use benchmesh_store::{
    Store, StoreError,
    clock::MeshClock,
    rows::{NewEvent, RunRow},
};
use driver::Driver;
use machine::event::Event;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Requests to the driver, which takes each at once. A sender waits when the queue is full.
const REQUESTS: usize = 64;

/// The scheduler; cheap to clone.
#[derive(Clone, Debug)]
pub struct Scheduler(Arc<Inner>);

/// Number of plans expanded at once: one of a hundred thousand steps takes some 100 MB.
const EXPANSIONS: usize = 2;

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<MeshClock>,
    fleet: Fleet,
    progress: WatchedRuns,
    requests: mpsc::Sender<Event>,
    expansions: Arc<Semaphore>,
    /// Held while the plan of a request is read.
    parsing: Arc<Semaphore>,
    /// Held until the driver takes it.
    requested: Mutex<Option<mpsc::Receiver<Event>>>,
    /// Reason and instant of the first request to stop each run; later requests do not count.
    stops: Mutex<HashMap<RunId, (String, MeshMicros)>>,
    /// Held while a run is queued again, so that the state of its end is forgotten once.
    resuming: tokio::sync::Mutex<()>,
}

impl Scheduler {
    pub fn new(store: &Store, clock: Arc<MeshClock>, fleet: Fleet) -> Self {
        let (requests, requested) = mpsc::channel(REQUESTS);
        Self(Arc::new(Inner {
            store: store.for_scheduler(),
            clock,
            fleet,
            progress: WatchedRuns::default(),
            requests,
            expansions: Arc::new(Semaphore::new(EXPANSIONS)),
            parsing: Arc::new(Semaphore::new(1)),
            requested: Mutex::new(Some(requested)),
            stops: Mutex::default(),
            resuming: tokio::sync::Mutex::default(),
        }))
    }

    /// The progress of runs since the collector started.
    pub fn progress(&self) -> &WatchedRuns {
        &self.0.progress
    }

    /// Requests the stop of a run; a queued one is stopped at once. Returns the run's state.
    #[boxed]
    #[inline(never)]
    pub async fn stop(&self, run: &RunRow, reason: &str) -> Result<RunState, StoreError> {
        let requested_at = self.0.clock.now();
        let row = self.0.store.run(run.id).await?;
        if row.state.is_end() {
            return Ok(row.state);
        }
        let (reason, at) = self.first_stop_request(run.id, reason, requested_at);
        // Its tasks are stopped at once. The answer waits until the request is stored, so that a restarted collector
        // knows it.
        self.request(Event::Stop {
            run: run.id,
            reason: reason.clone(),
            at,
        })
        .await;
        tokio::select! {
            biased;
            kept = self.0.store.store_stop_request(run.id, reason, at) => kept?,
            // The write continues in the background; the caller does not wait for it.
            blocked = self.0.store.is_blocked() => {
                return Err(StoreError::CannotWrite {
                    meanwhile: "the load is stopped, and the run ends as soon as the collector can store its end",
                    blocked,
                });
            }
        }
        if row.state == RunState::Queued {
            self.stopped_or_driven(run.id).await;
        }
        let row = self.0.store.run(run.id).await?;
        Ok(row.state)
    }

    /// Lets a run end after its loop in progress; a queued one after its first. `request`: the event that records it,
    /// from which a restarted collector knows it. Returns the run's state.
    pub async fn end_after_loop(
        &self,
        run: &RunRow,
        request: NewEvent,
    ) -> Result<RunState, StoreError> {
        self.refuse_while_blocked("the run continues")?;
        let row = self.0.store.run(run.id).await?;
        if !row.state.is_end() {
            self.0.store.add_event(request).await?;
            self.request(Event::EndAfterLoop { run: run.id }).await;
        }
        Ok(row.state)
    }

    /// Ends a run that is under way as failed. The driver stores the reason while its tasks are already being stopped.
    pub async fn abort(&self, run: RunId, reason: String) {
        self.request(Event::Abort { run, reason }).await;
    }

    fn first_stop_request(&self, run: RunId, reason: &str, at: MeshMicros) -> (String, MeshMicros) {
        let mut stops = self.0.stops.lock().unwrap_or_else(PoisonError::into_inner);
        stops.retain(|run, _| !self.0.progress.has_ended(*run));
        let reason = match reason {
            "" => "stopped on request",
            reason => reason,
        };
        stops.entry(run).or_insert((reason.to_owned(), at)).clone()
    }

    fn forget_stop(&self, run: RunId) {
        let mut stops = self.0.stops.lock().unwrap_or_else(PoisonError::into_inner);
        stops.remove(&run);
    }

    /// Refuses a request that a blocked database would store only after its client has given up.
    fn refuse_while_blocked(&self, meanwhile: &'static str) -> Result<(), StoreError> {
        match self.0.store.blocked().borrow().clone() {
            Some(blocked) => Err(StoreError::CannotWrite { meanwhile, blocked }),
            None => Ok(()),
        }
    }

    /// Returns once a queued run has ended, or is being driven because its turn has just come.
    async fn stopped_or_driven(&self, run: RunId) {
        let Some(progress) = self.0.progress.run(run) else {
            return;
        };
        let mut changes = progress.changes();
        while progress.look(|view| !view.driven && !view.state.is_end()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Drives runs until `closing`; then leaves the current one as it is.
    #[boxed]
    #[inline(never)]
    pub async fn run(&self, closing: CancellationToken) {
        let requested = self
            .0
            .requested
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(requested) = requested {
            Driver::new(Arc::clone(&self.0))
                .run(requested, closing)
                .await;
        }
    }

    /// Handles a new mark on a run: if the run is under way, all samplers and facts of clusters are read now. Does not
    /// block.
    pub fn read_at_mark(&self, run: RunId) {
        let progress = self.0.progress.run(run);
        let is_driven =
            |run: Arc<RunProgress>| run.look(|view| view.driven && !view.state.is_end());
        if !progress.is_some_and(is_driven) {
            return;
        }
        for mark in driver::agents::marks(&self.0.fleet, &self.0.clock, run, None) {
            tokio::spawn(mark);
        }
    }

    async fn request(&self, event: Event) {
        // The send fails only while the collector is closing; the next one reads the request from the database.
        let _ = self.0.requests.send(event).await;
    }
}

#[cfg(test)]
benchmesh_testing::counts_memory!();
