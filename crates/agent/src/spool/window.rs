//! The window of batches that were sent to a session and are not acked yet.

use crate::clock;
use crate::envelope::{Envelope, Sequence, SpoolId, WINDOW_BATCHES};
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum unacked bytes in flight: enough to keep a slow link busy, small enough for memory.
const WINDOW_BYTES: usize = 4 << 20;

/// One batch in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) spool: SpoolId,
    pub(super) sequence: Sequence,
    bytes: usize,
}

/// One session's window.
#[derive(Debug)]
pub(super) struct SendWindow {
    pub(super) mesh: String,
    /// When the next clock offset is due.
    pub(super) offset_at: Instant,
    /// `None` once the agent has sent its last batch.
    out: Option<mpsc::Sender<Envelope>>,
    in_flight: VecDeque<Sent>,
    bytes: usize,
}

impl SendWindow {
    /// A window that sends into `out`, which has room for a whole window.
    pub(super) fn new(mesh: String, out: mpsc::Sender<Envelope>) -> Self {
        Self {
            mesh,
            offset_at: Instant::now() + clock::PROBE_INTERVAL,
            out: Some(out),
            in_flight: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < WINDOW_BATCHES && self.bytes < WINDOW_BYTES
    }

    /// Ends the stream of batches; acks of those in flight still arrive.
    pub(super) fn finish(&mut self) {
        self.out = None;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.out.is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The oldest batch that is not acked.
    pub(super) fn oldest(&self) -> Option<Sent> {
        self.in_flight.front().copied()
    }

    /// Sends the batch to the session; `false` if the session has ended.
    pub(super) fn send(&mut self, envelope: Envelope) -> bool {
        let sent = Sent {
            spool: envelope.spool,
            sequence: envelope.sequence,
            bytes: envelope.body.len(),
        };
        let given = self
            .out
            .as_ref()
            .is_some_and(|out| out.try_send(envelope).is_ok());
        if given {
            self.in_flight.push_back(sent);
            self.bytes += sent.bytes;
        }
        given
    }

    /// Removes everything up to an ack from the window and returns the last removed batch. An ack of an unsent batch
    /// removes nothing.
    pub(super) fn ack(&mut self, spool: SpoolId, sequence: Sequence) -> Option<Sent> {
        let mut last = None;
        while let Some(sent) = self.in_flight.front().copied()
            && sent.spool == spool
            && sent.sequence <= sequence
        {
            self.in_flight.pop_front();
            self.bytes -= sent.bytes;
            last = Some(sent);
        }
        last
    }
}
