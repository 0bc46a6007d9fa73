//! A message and its echo, one round trip at a time on a connection, for the runtime.
//!
//! It knows nothing of how the connection came to be.

use super::link::{Link, Trouble};
use super::socket::is_pause;
use crate::clock::MonoNanos;
use crate::op::Op;
use crate::recorder::{Began, OpError, Recorder};
use crate::workload::Worker;
use std::io::Write;

/// Sends a message and waits for its echo, for the runtime.
pub(super) struct Pinger {
    link: Link,
    message: Vec<u8>,
    echo: Vec<u8>,
}

impl Pinger {
    pub(super) fn new(link: Link, message_bytes: usize) -> Self {
        Self {
            link,
            message: vec![b'p'; message_bytes],
            echo: vec![1; message_bytes],
        }
    }

    fn round_trip(&mut self, recorder: &Recorder) -> Result<u64, Trouble> {
        let mut rest = self.message.as_slice();
        while !rest.is_empty() {
            match (&self.link.stream).write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if is_pause(&error) => {
                    self.link.look_up(recorder, false)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut echo = std::mem::take(&mut self.echo);
        let received = self.link.receive(&mut echo, recorder);
        self.echo = echo;
        received?;
        Ok(u64::try_from(self.message.len()).unwrap_or(0))
    }
}

impl Worker for Pinger {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        recorder.place(0);
        let mut sent = 0;
        let message_bytes = u64::try_from(self.message.len()).unwrap_or(u64::MAX);
        while let Some(began) = recorder.next(Op::Ping, message_bytes) {
            match self.round_trip(recorder) {
                Ok(bytes) => {
                    recorder.end(Op::Ping, began, bytes);
                    sent += bytes;
                }
                Err(trouble) => return self.link.report(trouble, Op::Ping, began, recorder),
            }
        }
        if recorder.is_stopped() {
            return Ok(());
        }
        let ended = Began::at(MonoNanos::now());
        self.link
            .agree(sent, &|| recorder.is_stopped())
            .or_else(|trouble| self.link.report(trouble, Op::Ping, ended, recorder))
    }
}
