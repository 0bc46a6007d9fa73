//! The way to the spools, for the session and the tasks.

use super::keeper::Keeper;
use super::set::SpoolSet;
use super::{Parcel, Position, Samples, Sequence, SpoolError, SpoolId};
use crate::clock::Estimate;
use crate::state::StateDir;
use crate::telemetry::Row;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Rows on their way from the tasks: a second of many tasks; then their threads wait, never the workers.
const ENTRIES: usize = 64;
/// Questions of the session; they are answered at once, so few wait.
const ASKS: usize = 64;

/// Something to be spooled.
#[derive(Debug)]
pub enum Entry {
    Rows(Vec<Row>),
    /// Appended at once; answered with its place when it is on disk.
    Last(Row, oneshot::Sender<Position>),
}

/// What attaching has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// Batches come.
    Sending,
    /// It is another mesh than before: the spools have changed, and the agent must attach again.
    Again,
}

#[derive(Debug)]
pub(super) enum Ask {
    Ids(oneshot::Sender<Vec<SpoolId>>),
    Attach {
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Parcel>,
        done: oneshot::Sender<Result<Attached, SpoolError>>,
    },
    Detach,
    Ack(SpoolId, Sequence),
    Refused(String),
    Drain(oneshot::Sender<()>),
    Close(oneshot::Sender<Result<(), SpoolError>>),
    /// The disk is full at so many pages.
    #[cfg(test)]
    LimitPages(u32, oneshot::Sender<()>),
}

/// The way to the spools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool {
    entries: mpsc::Sender<Entry>,
    asks: mpsc::Sender<Ask>,
}

impl Spool {
    /// Begins a spool in the state directory and starts the task that keeps it.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub async fn open(
        state: Arc<StateDir>,
        limit_bytes: u64,
        samples: Samples,
        clock: watch::Receiver<Option<Estimate>>,
    ) -> Result<(Self, JoinHandle<()>), SpoolError> {
        let set = SpoolSet::open(state, limit_bytes).await?;
        let (entries, entries_in) = mpsc::channel(ENTRIES);
        let (asks, asks_in) = mpsc::channel(ASKS);
        let keeper = Keeper::new(set, samples, clock);
        let task = tokio::spawn(keeper.run(entries_in, asks_in));
        Ok((Self { entries, asks }, task))
    }

    /// Where rows of operations go. A sender waits while it is full.
    #[must_use]
    pub fn entries(&self) -> mpsc::Sender<Entry> {
        self.entries.clone()
    }

    /// The spools' ids, oldest first, the one that is written last.
    ///
    /// # Errors
    /// When the spool has ended.
    pub async fn ids(&self) -> Result<Vec<SpoolId>, SpoolError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Ids(reply)).await?;
        answer.await.map_err(|_| SpoolError::Closed)
    }

    /// Sends everything after what the collector has `stored` into `out`, which needs room for [`WINDOW_BATCHES`](super::WINDOW_BATCHES).
    ///
    /// # Errors
    /// When the spools cannot be read.
    pub async fn attach(
        &self,
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Parcel>,
    ) -> Result<Attached, SpoolError> {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::Attach {
            mesh,
            stored,
            out,
            done,
        })
        .await?;
        answer.await.map_err(|_| SpoolError::Closed)?
    }

    /// The session is over; nothing is sent until the next one.
    pub async fn detach(&self) {
        // An ended spool sends nothing anyway.
        let _ = self.ask(Ask::Detach).await;
    }

    /// The collector has committed everything up to there.
    ///
    /// # Errors
    /// When the spool has ended.
    pub async fn ack(&self, spool: SpoolId, sequence: Sequence) -> Result<(), SpoolError> {
        self.ask(Ask::Ack(spool, sequence)).await
    }

    /// The collector has refused the oldest batch that it has not acked.
    pub async fn refused(&self, message: String) {
        let _ = self.ask(Ask::Refused(message)).await;
    }

    /// Appends what is in memory, and waits until the collector has everything or no session is left.
    pub async fn drain(&self) {
        let (done, answer) = oneshot::channel();
        if self.ask(Ask::Drain(done)).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Appends what is in memory and closes the files.
    ///
    /// # Errors
    /// When the disk does not take the rest.
    pub async fn close(&self) -> Result<(), SpoolError> {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::Close(done)).await?;
        answer.await.map_err(|_| SpoolError::Closed)?
    }

    /// Makes the disk full at so many pages.
    #[cfg(test)]
    pub(super) async fn limit_pages(&self, pages: u32) {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::LimitPages(pages, done))
            .await
            .expect("the keeper lives");
        answer.await.expect("the keeper answers");
    }

    async fn ask(&self, ask: Ask) -> Result<(), SpoolError> {
        self.asks.send(ask).await.map_err(|_| SpoolError::Closed)
    }
}
