//! A message and its answer, one exchange at a time on a connection, for the runtime or until there were enough.
//!
//! A ping is the smallest of them: its answer is as large. It knows nothing of how the connection came to be, and of the
//! other end only how many bytes it answers with. Invariant: an operation ends with the last byte of its answer.

use super::keys::{Exchange, Wait};
use super::link::{Link, Trouble, look_up};
use super::socket::is_pause;
use crate::files::data::Data;
use crate::recorder::{OpError, Recorder};
use crate::workload::Worker;
use std::io::{self, Write};

/// Asks, and waits for each answer.
pub(super) struct Asker {
    link: Link,
    exchange: Exchange,
    request: Vec<u8>,
    response: Vec<u8>,
    /// Exchanges that are still to be done; beyond all numbers where time alone ends them.
    left: u64,
}

impl Asker {
    pub(super) fn new(link: Link, exchange: Exchange, index: u32) -> io::Result<Self> {
        link.stream.set_nonblocking(exchange.wait == Wait::Busy)?;
        Ok(Self {
            link,
            exchange,
            // Random, so that a path that compresses carries no more than others.
            request: Data::new(exchange.request_bytes, u64::from(index)).into_bytes(),
            response: vec![1; exchange.response_bytes],
            left: u64::MAX,
        })
    }

    pub(super) fn ending_after(self, exchanges: Option<u64>) -> Self {
        let left = exchanges.unwrap_or(u64::MAX);
        Self { left, ..self }
    }

    fn exchange(&mut self, recorder: &Recorder) -> Result<(), Trouble> {
        let mut rest = self.request.as_slice();
        while !rest.is_empty() {
            match (&self.link.stream).write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if is_pause(&error) => look_up(recorder)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.link.receive(&mut self.response, recorder)
    }

    /// All that was answered is what the other end has counted.
    fn agree(&self, counted: u64, recorder: &Recorder) -> Result<(), Trouble> {
        self.link.stream.set_nonblocking(false)?;
        self.link.agree(counted, &|| recorder.is_stopped())
    }
}

impl Worker for Asker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let Exchange { op, bytes, .. } = self.exchange;
        let mut counted = 0;
        recorder.place(0);
        while self.left > 0
            && let Some(began) = recorder.next(op, bytes)
        {
            match self.exchange(recorder) {
                Ok(()) => {
                    recorder.end(op, began, bytes);
                    counted += bytes;
                    self.left -= 1;
                }
                Err(trouble) => return self.link.report(trouble, op, began, recorder),
            }
        }
        if recorder.is_stopped() {
            return Ok(());
        }
        let (began, agreed) = recorder.on_the_way_since(op, || self.agree(counted, recorder));
        agreed.or_else(|trouble| self.link.report(trouble, op, began, recorder))
    }
}
