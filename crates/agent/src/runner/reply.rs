//! Replies to commands: one for each command, and periodic progress.
//!
//! A reply belongs to the session of its request. It is dropped when that session is over, because the collector
//! repeats the request under a new number.

use super::denials::DenialLog;
use crate::command::{CommandResult, ProgressReport};
use crate::wire::reply::Outgoing;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Minimum interval between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Destination of the reply to one command.
#[derive(Clone, Debug)]
pub struct ReplyHandle {
    id: u64,
    outgoing: mpsc::Sender<Outgoing>,
    denials: Arc<DenialLog>,
}

impl ReplyHandle {
    /// The reply to command `id`, in the session that sends the content of `outgoing`.
    #[must_use]
    pub fn new(id: u64, outgoing: mpsc::Sender<Outgoing>) -> Self {
        Self {
            id,
            outgoing,
            denials: Arc::default(),
        }
    }

    /// The same, with a log of denials to suppress repetitions.
    pub(super) fn with_denials(self, denials: Arc<DenialLog>) -> Self {
        Self { denials, ..self }
    }

    /// Whether its session is still open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.outgoing.is_closed()
    }

    /// Reports the command's progress. Never waits: a report is dropped if the channel is full.
    pub fn progress(&self, progress: ProgressReport) {
        let _ = self.outgoing.try_send(Outgoing::Progress {
            id: self.id,
            progress,
        });
    }

    /// Replies from the runtime, without waiting for space in the session's queue.
    pub fn reply(self, outcome: CommandResult) {
        self.denials.note(&outcome);
        let outgoing = Outgoing::Reply {
            id: self.id,
            outcome,
        };
        match self.outgoing.try_send(outgoing) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(outgoing)) => {
                tokio::spawn(async move {
                    // A closed session accepts no reply.
                    let _ = self.outgoing.send(outgoing).await;
                });
            }
        }
    }

    /// Replies from a dedicated thread, and blocks until the session accepts the reply.
    pub fn reply_from_thread(self, outcome: CommandResult) {
        self.denials.note(&outcome);
        // A closed session accepts no reply.
        let _ = self.outgoing.blocking_send(Outgoing::Reply {
            id: self.id,
            outcome,
        });
    }
}

/// Reports the progress of a long command to the session that requested it last.
#[derive(Debug)]
pub struct ProgressReporter {
    state: Mutex<(ReplyHandle, Option<Instant>)>,
}

impl ProgressReporter {
    /// Reports to `reply_to`.
    #[must_use]
    pub fn new(reply_to: ReplyHandle) -> Self {
        Self {
            state: Mutex::new((reply_to, None)),
        }
    }

    /// Redirects the reports to `reply_to`, because the same command was sent again.
    pub fn turn_to(&self, reply_to: ReplyHandle) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = reply_to;
    }

    /// Reports progress at most once a second, and only if the session's queue has space. Never waits.
    pub fn report(&self, progress: ProgressReport) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state
            .1
            .is_some_and(|last| now.duration_since(last) < PROGRESS_INTERVAL)
        {
            return;
        }
        state.1 = Some(now);
        state.0.progress(progress);
    }
}
