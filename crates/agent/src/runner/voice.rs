//! The way back to whoever asked: one reply for each command, and progress now and then.
//!
//! A reply belongs to the session in which it was asked for; when that is over it is dropped, because the collector asks
//! again under a new number.

use super::command::{Outcome, Progress};
use crate::wire::reply::Said;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Progress is told at most this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// One command's way back.
#[derive(Clone, Debug)]
pub struct Voice {
    id: u64,
    said: mpsc::Sender<Said>,
}

impl Voice {
    /// The way back of command `id` in the session that sends what `said` takes.
    #[must_use]
    pub fn new(id: u64, said: mpsc::Sender<Said>) -> Self {
        Self { id, said }
    }

    /// Whether its session still is.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        !self.said.is_closed()
    }

    /// Answers from the runtime, without waiting for the session to take it.
    pub fn reply(self, outcome: Outcome) {
        let said = Said::Reply {
            id: self.id,
            outcome,
        };
        match self.said.try_send(said) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(said)) => {
                tokio::spawn(async move {
                    // A closed session has nobody to tell.
                    let _ = self.said.send(said).await;
                });
            }
        }
    }

    /// Answers from a thread of its own, waiting until the session takes it.
    pub fn reply_from_thread(self, outcome: Outcome) {
        // A closed session has nobody to tell.
        let _ = self.said.blocking_send(Said::Reply {
            id: self.id,
            outcome,
        });
    }
}

/// Tells the newest asker of a long command how far it is.
#[derive(Debug)]
pub struct Teller {
    state: Mutex<(Voice, Option<Instant>)>,
}

impl Teller {
    /// Tells `voice`.
    #[must_use]
    pub fn new(voice: Voice) -> Self {
        Self {
            state: Mutex::new((voice, None)),
        }
    }

    /// From now on tells `voice`, who has asked for the same again.
    pub fn turn_to(&self, voice: Voice) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = voice;
    }

    /// Tells it, when the last time is a second ago and the session has room. Never waits.
    pub fn tell(&self, progress: Progress) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state
            .1
            .is_some_and(|last| now.duration_since(last) < PROGRESS_EVERY)
        {
            return;
        }
        state.1 = Some(now);
        let said = Said::Progress {
            id: state.0.id,
            progress,
        };
        // Progress that does not fit is overtaken by the next.
        let _ = state.0.said.try_send(said);
    }
}
