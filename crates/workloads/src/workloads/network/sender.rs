//! Sends blocks one after the other on a connection, for the runtime or a number of bytes.
//!
//! This module does not open the connection. Invariant: operations count only bytes that the peer's kernel has
//! acknowledged, and together all bytes that the receiving end has received.

use super::connection::{Connection, ConnectionError};
use super::socket::{self, is_pause};
use crate::engine::author::*;
use std::io::{self, Write};
use std::time::Duration;

/// Bytes sent between two queries of the acknowledged bytes: rare enough to cost nothing with small blocks, frequent
/// enough (20 ms at 100 Mbit/s) to count bytes in the second in which they arrived.
const QUERY_STEP_BYTES: u64 = 256 << 10;
/// If the runtime ends within this time after a clock reading, the current block counts as the last one.
const AT_THE_END: Duration = Duration::from_micros(20);

/// Sends blocks for the runtime or a number of bytes.
pub(super) struct Sender {
    connection: Connection,
    block: Vec<u8>,
    written: u64,
    /// Bytes counted by recorded operations: never more than were acknowledged.
    counted: u64,
    asked: u64,
    /// Bytes left; `u64::MAX` if only the runtime ends the load.
    left: u64,
}

/// Outcome of sending a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Whole,
    /// The runtime ended before the kernel accepted the whole block.
    Cut,
}

impl Sender {
    pub(super) fn new(connection: Connection, block_bytes: usize, index: u32) -> Self {
        // Random bytes, so that a path with compression has no advantage.
        let block = WriteBuffer::new(block_bytes, u64::from(index)).into_bytes();
        Self {
            connection,
            block,
            written: 0,
            counted: 0,
            asked: 0,
            left: u64::MAX,
        }
    }

    /// The last block has the remaining length.
    pub(super) fn ending_after(self, bytes: Option<u64>) -> Self {
        let left = bytes.unwrap_or(u64::MAX);
        Self { left, ..self }
    }

    /// Sends a block; returns the outcome and the bytes acknowledged meanwhile.
    fn send_block(
        &mut self,
        began: Began,
        recorder: &mut Recorder,
    ) -> Result<(Sent, u64), ConnectionError> {
        let mut acknowledged = 0;
        let bytes = usize::try_from(self.block_bytes()).unwrap_or(usize::MAX);
        let mut sent = 0;
        loop {
            let rest = self.block.get(sent..bytes).unwrap_or_default();
            match (&self.connection.stream).write(rest) {
                Ok(count) => {
                    self.written += u64::try_from(count).unwrap_or(0);
                    sent += count;
                    if sent >= bytes {
                        return Ok((Sent::Whole, acknowledged));
                    }
                    acknowledged += self.newly_acknowledged()?;
                    recorder.reached(Op::Send, began, (0, acknowledged), acknowledged);
                }
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if recorder.is_stopped() {
                return Err(ConnectionError::Stopped);
            }
            if MonoNanos::now() >= recorder.until() {
                return Ok((Sent::Cut, acknowledged));
            }
        }
    }

    /// Length of the next block.
    fn block_bytes(&self) -> u64 {
        let whole = u64::try_from(self.block.len()).unwrap_or(u64::MAX);
        whole.min(self.left)
    }

    /// Bytes acknowledged since they were last counted. Queries the kernel only every `QUERY_STEP_BYTES` bytes.
    fn newly_acknowledged(&mut self) -> io::Result<u64> {
        if self.written - self.asked < QUERY_STEP_BYTES {
            return Ok(0);
        }
        self.asked = self.written;
        let waiting = socket::unacknowledged(&self.connection.stream)?;
        let acknowledged = self.written.saturating_sub(waiting);
        let newly = acknowledged.saturating_sub(self.counted);
        self.counted += newly;
        Ok(newly)
    }

    /// Sends one block; true if it was the last one. The last one ends when the receiving end has confirmed that it has
    /// everything, and so counts all bytes that were still in flight.
    fn operation(
        &mut self,
        began: Began,
        recorder: &mut Recorder,
        is_last: bool,
    ) -> Result<bool, ConnectionError> {
        let bytes = self.block_bytes();
        let (sent, acknowledged) = self.send_block(began, recorder)?;
        self.left = self.left.saturating_sub(bytes);
        let is_last = is_last || self.left == 0;
        let until = recorder.until();
        let is_over = recorder.now().saturating_add(AT_THE_END) >= until
            // The schedule has no further block within the runtime, so do not wait.
            || recorder.due(self.block_bytes()).is_some_and(|due| due >= until);
        if is_last || sent == Sent::Cut || is_over {
            self.connection
                .confirm_received(self.written, &|| recorder.is_stopped())?;
            let rest = self.written - self.counted;
            recorder.end(Op::Send, began, acknowledged + rest);
            self.counted = self.written;
            return Ok(true);
        }
        let bytes = acknowledged + self.newly_acknowledged()?;
        recorder.end(Op::Send, began, bytes);
        Ok(false)
    }
}

impl Worker for Sender {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        loop {
            recorder.set_file(0);
            let block_bytes = self.block_bytes();
            // The runtime may end between two clock readings; the next block is then the last one.
            let (began, is_last) = match recorder.next(Op::Send, block_bytes) {
                Some(began) => (began, false),
                None if recorder.is_stopped() => break,
                // The schedule has no block within the runtime. Otherwise its last block has ended the load.
                None if self.written == 0 && recorder.due(block_bytes).is_some() => {
                    let agree = || {
                        self.connection
                            .confirm_received(0, &|| recorder.is_stopped())
                    };
                    let (began, agreed) = recorder.untimed_since(Op::Send, agree);
                    return agreed.or_else(|trouble| {
                        self.connection.report(trouble, Op::Send, began, recorder)
                    });
                }
                None => (recorder.begin_as(Op::Send), true),
            };
            match self.operation(began, recorder, is_last) {
                Ok(true) => break,
                Ok(false) => {}
                Err(trouble) => return self.connection.report(trouble, Op::Send, began, recorder),
            }
        }
        Ok(())
    }
}
