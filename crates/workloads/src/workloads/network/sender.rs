//! Blocks one after the other on a connection, for the runtime or until all are sent.
//!
//! It knows nothing of how the connection came to be. Invariant: operations count no byte that the peer's kernel has
//! not acknowledged, and together all that the receiving end has.

use super::connection::{Connection, ConnectionError};
use super::socket::{self, is_pause};
use crate::engine::author::*;
use std::io::{self, Write};
use std::time::Duration;

/// How many bytes are sent between two questions how many have been acknowledged: rare enough to cost nothing with
/// small blocks, often enough (20 ms at 100 Mbit/s) to put the bytes into the second in which they arrived.
const ASK_EVERY: u64 = 256 << 10;
/// The end of the runtime as the recorder sees it comes this little after we look: then the block is the last one.
const AT_THE_END: Duration = Duration::from_micros(20);

/// Sends blocks for the runtime or until all are sent.
pub(super) struct Sender {
    connection: Connection,
    block: Vec<u8>,
    written: u64,
    /// Bytes that recorded operations have counted: never more than were acknowledged.
    counted: u64,
    asked: u64,
    /// Bytes that are still to be sent; beyond all numbers where time alone ends it.
    left: u64,
}

/// How a block went out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Whole,
    /// The runtime was over before all of it was accepted.
    Cut,
}

impl Sender {
    pub(super) fn new(connection: Connection, block_bytes: usize, index: u32) -> Self {
        // Random, so that a path that compresses carries no more than others.
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

    /// The last block is as long as what is left.
    pub(super) fn ending_after(self, bytes: Option<u64>) -> Self {
        let left = bytes.unwrap_or(u64::MAX);
        Self { left, ..self }
    }

    /// How it went out, and how many bytes were acknowledged meanwhile.
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

    /// Of the next block.
    fn block_bytes(&self) -> u64 {
        let whole = u64::try_from(self.block.len()).unwrap_or(u64::MAX);
        whole.min(self.left)
    }

    /// Bytes acknowledged since they were last counted; asked now and then only.
    fn newly_acknowledged(&mut self) -> io::Result<u64> {
        if self.written - self.asked < ASK_EVERY {
            return Ok(0);
        }
        self.asked = self.written;
        let waiting = socket::unacknowledged(&self.connection.stream)?;
        let acknowledged = self.written.saturating_sub(waiting);
        let newly = acknowledged.saturating_sub(self.counted);
        self.counted += newly;
        Ok(newly)
    }

    /// One block. The last one ends when the receiving end has said that it has all, and so counts all that was still
    /// on the way. True when it was the last.
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
            // The schedule has no further block within the runtime: there is nothing to wait for.
            || recorder.due(self.block_bytes()).is_some_and(|due| due >= until);
        if is_last || sent == Sent::Cut || is_over {
            self.connection
                .agree(self.written, &|| recorder.is_stopped())?;
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
            recorder.place(0);
            let block_bytes = self.block_bytes();
            // The runtime may end between two of our looks at the clock; the next block is the last one then.
            let (began, is_last) = match recorder.next(Op::Send, block_bytes) {
                Some(began) => (began, false),
                None if recorder.is_stopped() => break,
                // A schedule without a single instant within the runtime; any other has ended with its last block.
                None if self.written == 0 && recorder.due(block_bytes).is_some() => {
                    let agree = || self.connection.agree(0, &|| recorder.is_stopped());
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
