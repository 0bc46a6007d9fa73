//! The handle to the spools, for the session and the tasks.

use super::actor::SpoolActor;
use super::requests::{Acked, Attached, SpoolEntry, SpoolRequest};
use super::set::SpoolSet;
use super::{Samples, SpoolError};
use crate::clock::Dating;
use crate::envelope::{Announced, Envelope, Sequence, SpoolId};
use crate::state::StateDir;
use benchmesh_workloads::clock::MonoNanos;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Capacity for rows from the tasks: a second of many tasks. When it is full, the tasks' own threads wait, but never
/// the workers.
const ENTRIES: usize = 64;
/// Capacity for requests of the session, which are answered at once.
const REQUESTS: usize = 64;

/// Handle to the spools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool {
    entries: mpsc::Sender<SpoolEntry>,
    requests: mpsc::Sender<SpoolRequest>,
    acked: Acked,
    blocked: watch::Receiver<Option<MonoNanos>>,
}

impl Spool {
    /// Creates a spool in the state directory and starts its actor. The disk has been full since `blocked_since`, if
    /// set.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub async fn open(
        state: Arc<StateDir>,
        limit_bytes: u64,
        samples: Samples,
        dating: Dating,
        blocked_since: Option<Instant>,
    ) -> Result<(Self, JoinHandle<()>), SpoolError> {
        let set = SpoolSet::open(state, limit_bytes).await?;
        let (entries, entries_in) = mpsc::channel(ENTRIES);
        let (requests, requests_in) = mpsc::channel(REQUESTS);
        let acked = Acked::default();
        let (blocked_now, blocked) = watch::channel(None);
        let actor = SpoolActor::new(
            set,
            samples,
            dating,
            acked.clone(),
            blocked_since,
            blocked_now,
        );
        let task = tokio::spawn(actor.run(entries_in, requests_in));
        let spool = Self {
            entries,
            requests,
            acked,
            blocked,
        };
        Ok((spool, task))
    }

    /// The channel for rows of operations. A sender waits while it is full.
    #[must_use]
    pub fn entries(&self) -> mpsc::Sender<SpoolEntry> {
        self.entries.clone()
    }

    /// How much of the written spool the collector has.
    #[must_use]
    pub fn acked(&self) -> Acked {
        self.acked.clone()
    }

    /// Start of the time during which the disk has refused writes; `None` while it accepts them.
    #[must_use]
    pub fn blocked(&self) -> watch::Receiver<Option<MonoNanos>> {
        self.blocked.clone()
    }

    /// The spools, oldest first; the one being written is last.
    ///
    /// # Errors
    /// When the spool's actor has ended.
    pub async fn announce(&self) -> Result<Vec<Announced>, SpoolError> {
        let (reply, answer) = oneshot::channel();
        self.request(SpoolRequest::Announce(reply)).await?;
        answer.await.map_err(|_| SpoolError::Closed)
    }

    /// Detects that the collector has `stored` less than it had acked, because its database was restored from an older
    /// copy. Returns its position in the written spool in that case.
    ///
    /// # Errors
    /// When the spool has ended.
    pub async fn is_ahead_of(
        &self,
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
    ) -> Result<Option<Sequence>, SpoolError> {
        let (reply, answer) = oneshot::channel();
        self.request(SpoolRequest::IsAhead {
            mesh,
            stored,
            reply,
        })
        .await?;
        answer.await.map_err(|_| SpoolError::Closed)
    }

    /// Sends everything after the collector's `stored` positions into `out`, which needs room for
    /// [`WINDOW_BATCHES`](super::WINDOW_BATCHES).
    ///
    /// # Errors
    /// If the spools cannot be read.
    pub async fn attach(
        &self,
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Envelope>,
    ) -> Result<Attached, SpoolError> {
        let (done, answer) = oneshot::channel();
        self.request(SpoolRequest::Attach {
            mesh,
            stored,
            out,
            done,
        })
        .await?;
        answer.await.map_err(|_| SpoolError::Closed)?
    }

    /// Ends the session; sending pauses until the next one.
    pub async fn detach(&self) {
        // A closed spool does not send anyway.
        let _ = self.request(SpoolRequest::Detach).await;
    }

    /// Records that the collector has committed everything up to `sequence`.
    ///
    /// # Errors
    /// When the spool has ended.
    pub async fn ack(&self, spool: SpoolId, sequence: Sequence) -> Result<(), SpoolError> {
        self.request(SpoolRequest::Ack(spool, sequence)).await
    }

    /// Records that the collector has refused the oldest batch that is not acked.
    pub async fn refused(&self, message: String) {
        let _ = self.request(SpoolRequest::Refused(message)).await;
    }

    /// Sends everything, including the rows in memory, and then ends the session's stream of batches: the collector
    /// commits and acknowledges what it has as soon as a stream ends.
    pub async fn finish(&self) {
        // A closed spool has nothing to send.
        let _ = self.request(SpoolRequest::Finish).await;
    }

    /// Appends the rows in memory and closes the files.
    ///
    /// # Errors
    /// If the disk refuses the remaining rows.
    pub async fn close(&self) -> Result<(), SpoolError> {
        let (done, answer) = oneshot::channel();
        self.request(SpoolRequest::Close(done)).await?;
        answer.await.map_err(|_| SpoolError::Closed)?
    }

    /// Makes the disk appear full at this number of pages.
    #[cfg(test)]
    pub(super) async fn limit_pages(&self, pages: u32) {
        let (done, answer) = oneshot::channel();
        self.request(SpoolRequest::LimitPages(pages, done))
            .await
            .expect("the actor lives");
        answer.await.expect("the actor answers");
    }

    async fn request(&self, request: SpoolRequest) -> Result<(), SpoolError> {
        self.requests
            .send(request)
            .await
            .map_err(|_| SpoolError::Closed)
    }
}
