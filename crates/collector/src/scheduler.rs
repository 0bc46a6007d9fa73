//! Takes runs through their steps, one run at a time, oldest first; others wait in the queue.
//!
//! Every transition is persisted before it takes effect, so a collector that was killed goes on where it was. What runs
//! on agents is known to the agents: after a start, a running step is asked for and waited for; where nobody holds it
//! any more, its cell is begun anew as the next attempt. Nothing here knows of TOML, gRPC or SQL.

pub mod admission;
mod arm;
mod awaiting;
mod blocked;
pub mod board;
mod caches;
mod cell;
mod clean;
mod directories;
mod drive;
mod ends;
mod links;
mod live;
mod loss;
mod prepare;
mod recover;
mod returned;
mod settle;
mod shares;
mod starts;
mod step;
mod stop;
mod tasks;
mod team;

pub use admission::{StartError, StartRequest, Started};
pub use board::{Board, RunView, StepSummary, StepView};

use crate::{
    clock::MeshClock,
    model::{MeshMicros, RunId, RunState, Severity},
    sessions::Fleet,
    store::{
        Store, StoreError,
        rows::{NewEvent, RunChange, RunRow},
    },
};
use drive::{Drive, Ending};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// Samplers beat on for so long after a run.
const SAMPLE_AFTER: Duration = Duration::from_secs(5);
/// The beat of samplers during a run.
const SAMPLE_PERIOD_US: i64 = 1_000_000;
/// When the database fails, the run is taken up again after this.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The scheduler; cheap to clone.
#[derive(Clone, Debug)]
pub struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<MeshClock>,
    fleet: Fleet,
    board: Board,
    /// A run was queued or is to stop.
    wake: Notify,
    stops: Mutex<HashMap<RunId, Stop>>,
    /// Counts runs begun: sampling ends only when no other has begun since.
    begun: AtomicU64,
}

/// The wish that a run stops.
#[derive(Clone, Debug, Default)]
struct Stop {
    wished: CancellationToken,
    /// Why, and when.
    reason: Arc<Mutex<(String, MeshMicros)>>,
}

impl Stop {
    fn reason(&self) -> (String, MeshMicros) {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Scheduler {
    pub fn new(store: Store, clock: Arc<MeshClock>, fleet: Fleet) -> Self {
        Self(Arc::new(Inner {
            store,
            clock,
            fleet,
            board: Board::default(),
            wake: Notify::new(),
            stops: Mutex::default(),
            begun: AtomicU64::new(0),
        }))
    }

    /// What is known of runs since the collector started.
    pub fn board(&self) -> &Board {
        &self.0.board
    }

    fn stops(&self) -> MutexGuard<'_, HashMap<RunId, Stop>> {
        self.0.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop_of(&self, run: RunId) -> Stop {
        self.stops().entry(run).or_default().clone()
    }

    /// Wishes that a run stops; a queued one is stopped at once. Answers with its state now.
    pub async fn stop(&self, run: &RunRow, reason: &str) -> Result<RunState, StoreError> {
        let wished = self.0.clock.now();
        let row = self.0.store.run(run.id).await?;
        if row.state.is_end() {
            return Ok(row.state);
        }
        let stop = self.stop_of(run.id);
        if !stop.wished.is_cancelled() {
            let reason = if reason.is_empty() {
                "stopped on request"
            } else {
                reason
            };
            let why = (reason.to_owned(), wished);
            *stop.reason.lock().unwrap_or_else(PoisonError::into_inner) = why;
            stop.wished.cancel();
        }
        // Its tasks are being told already; nobody is answered before a collector that starts anew would know as well.
        let (why, at) = stop.reason();
        tokio::select! {
            biased;
            kept = self.0.store.keep_stop(run.id, why, at) => kept?,
            // It waits for the database behind the caller's back, who need not.
            blocked = self.0.store.is_blocked() => {
                return Err(StoreError::CannotWrite {
                    meanwhile: "the load is stopped, and the run ends as soon as that can be kept",
                    blocked,
                });
            }
        }
        if row.state == RunState::Queued && !self.0.board.is_driven(run.id) {
            self.end(&row, RunState::Stopped, false, Some(stop.reason().0))
                .await?;
            return Ok(RunState::Stopped);
        }
        self.0.wake.notify_one();
        Ok(row.state)
    }

    /// Drives runs until `closing`; then lets go of the one under way as it is.
    pub async fn run(&self, closing: CancellationToken) {
        let tidying = tokio::spawn(returned::tidy(Arc::clone(&self.0), closing.clone()));
        let telling = tokio::spawn(blocked::tell(Arc::clone(&self.0), closing.clone()));
        self.drive_all(&closing).await;
        telling.abort();
        // It ends with `closing`, or has ended.
        let _ = tidying.await;
    }

    async fn drive_all(&self, closing: &CancellationToken) {
        loop {
            let worked = tokio::select! {
                () = closing.cancelled() => return,
                worked = self.drive_next() => worked,
            };
            match worked {
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    () = closing.cancelled() => return,
                    () = self.0.wake.notified() => {}
                },
                Err(failed) => {
                    error!(error = %crate::causes::chain(&failed), "the database failed the scheduler; it tries again");
                    tokio::select! {
                        () = closing.cancelled() => return,
                        () = sleep(RETRY_AFTER) => {}
                    }
                }
            }
        }
    }

    /// Drives the oldest run that has not ended. Whether there was one.
    async fn drive_next(&self) -> Result<bool, StoreError> {
        let unfinished = self.0.store.unfinished_runs().await?;
        for row in unfinished.iter().filter(|row| !self.0.board.has(row.id)) {
            let board = self.0.board.open(row);
            // Of a run that cannot be expanded any more it is said when its turn comes.
            if let Ok((_, _, expansion)) = admission::expanded(row) {
                board.change(|view| view.steps_total = expansion.steps.len());
            }
        }
        // One that is running goes on before those that wait.
        let next = unfinished
            .iter()
            .find(|row| row.state == RunState::Running)
            .or(unfinished.first());
        let Some(row) = next else {
            return Ok(false);
        };
        let stop = self.stop_of(row.id);
        self.0.board.driven(row.id);
        let begun = self.0.begun.fetch_add(1, Ordering::Relaxed) + 1;
        info!(run = %row.name, id = %row.id, "run begins");
        self.0.fleet.set_period(SAMPLE_PERIOD_US);
        let ending = self.drive(row, &stop).await;
        self.0.fleet.set_patience(None);
        self.sample_on(begun);
        let ending = ending?;
        info!(run = %row.name, id = %row.id, state = %ending.state, "run ended");
        self.end(row, ending.state, ending.partial, ending.reason)
            .await?;
        self.stops().remove(&row.id);
        Ok(true)
    }

    async fn drive(&self, row: &RunRow, stop: &Stop) -> Result<Ending, StoreError> {
        let drive = match Drive::begin(&self.0, row).await? {
            Ok(drive) => drive,
            Err(reason) => {
                return Ok(Ending {
                    state: RunState::Failed,
                    partial: false,
                    reason: Some(reason),
                });
            }
        };
        self.0.fleet.set_patience(Some(drive.loss_after()));
        let _live = live::follow(&self.0.store, Arc::clone(&self.0.clock), drive.board());
        if let Some(reason) = &row.stop_reason {
            let wished = row.halted.unwrap_or_else(|| self.0.clock.now());
            return drive.stop(reason, wished).await;
        }
        tokio::select! {
            ending = drive.to_end() => ending,
            () = stop.wished.cancelled() => {
                let (reason, wished) = stop.reason();
                drive.stop(&reason, wished).await
            }
        }
    }

    /// Lets samplers beat a little longer, unless another run begins.
    fn sample_on(&self, begun: u64) {
        let scheduler = self.clone();
        tokio::spawn(async move {
            sleep(SAMPLE_AFTER).await;
            if scheduler.0.begun.load(Ordering::Relaxed) == begun {
                scheduler.0.fleet.set_period(0);
            }
        });
    }

    async fn end(
        &self,
        row: &RunRow,
        state: RunState,
        partial: bool,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        let at = self.0.clock.now();
        if let Some(reason) = &reason {
            let severity = if state == RunState::Failed {
                Severity::Error
            } else {
                Severity::Info
            };
            self.0
                .store
                .add_event(NewEvent {
                    at,
                    run: Some(row.id),
                    step: None,
                    agent: None,
                    severity,
                    kind: format!("run-{state}"),
                    message: reason.clone(),
                    detail_json: None,
                })
                .await?;
        }
        let change = RunChange {
            state,
            partial,
            reason,
            at,
        };
        self.0.store.set_run_state(row.id, change.clone()).await?;
        self.0.board.ended(row.id, change);
        Ok(())
    }
}
