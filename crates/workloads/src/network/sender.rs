//! The sending end of a link: one connection per worker, opened before the start, agreed upon at the end.
//!
//! It knows nothing of addresses' meaning or of other streams. Invariants: a blocked call looks up ten times a second
//! for a stop; a peer that takes nothing for `STALL_AFTER` is an error; a run that came to its end has the receiving
//! end's word on how much arrived.

use super::hello;
use super::socket::{self, is_pause};
use crate::clock::MonoNanos;
use crate::files::data::Data;
use crate::op::Op;
use crate::recorder::{Began, ErrorFacts, OpError, Recorder};
use crate::task::{PeerEnd, TaskError};
use crate::workload::Worker;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A peer on any path that is worth measuring answers within this time.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A peer that takes nothing and sends nothing for so long is gone, or as good as gone.
const STALL_AFTER: Duration = Duration::from_secs(10);
/// How many bytes are sent between two questions how many have been acknowledged: rare enough to cost nothing with
/// small blocks, often enough (20 ms at 100 Mbit/s) to put the bytes into the second in which they arrived.
const ASK_EVERY: u64 = 256 << 10;
/// The end of the runtime as the recorder sees it comes this little after we look: then the block is the last one.
const AT_THE_END: Duration = Duration::from_micros(20);

/// Why a link does not go on.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Somebody stopped the load.
    Stopped,
    Broken(io::Error),
    Stalled,
    Disagreed {
        sent: u64,
        arrived: u64,
    },
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One connection that the receiving end has welcomed.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    peer: String,
    pub(super) stall_after: Duration,
    /// When something last went through, as far as a blocked call has to know.
    moved: Option<MonoNanos>,
}

impl Link {
    pub(super) fn open(peer: &PeerEnd, index: u32) -> Result<Self, TaskError> {
        let address = peer.address;
        let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN).map_err(|error| {
            TaskError::io(
                format!("connect to the receiving end at {address} (its agent opens a port for each step)"),
                error,
            )
        })?;
        let introduced = introduce(&stream, index, &peer.token);
        introduced.map_err(|error| {
            TaskError::io(
                format!("introduce stream {index} to the receiving end at {address}, which expects one peer and its token"),
                error,
            )
        })?;
        Ok(Self {
            stream,
            peer: address.to_string(),
            stall_after: STALL_AFTER,
            moved: None,
        })
    }

    /// After a call that did not do all: whether there is a reason not to call again.
    fn look_up(&mut self, recorder: &Recorder, has_moved: bool) -> Result<MonoNanos, Trouble> {
        let now = MonoNanos::now();
        if has_moved {
            self.moved = Some(now);
        }
        if recorder.should_stop() {
            return Err(Trouble::Stopped);
        }
        let since = *self.moved.get_or_insert(now);
        if now.since(since) >= self.stall_after {
            return Err(Trouble::Stalled);
        }
        Ok(now)
    }

    /// Fills the buffer from the peer. An end before that is an error.
    fn receive(&mut self, buffer: &mut [u8], recorder: &Recorder) -> Result<(), Trouble> {
        let mut have = 0;
        self.moved = None;
        while let Some(rest) = buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match (&self.stream).read(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => {
                    have += count;
                    self.moved = None;
                }
                Err(error) if is_pause(&error) => {
                    self.look_up(recorder, false)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Says that nothing more comes, and waits until the receiving end has it all: `sent` bytes.
    pub(super) fn agree(&mut self, sent: u64, stop: &dyn Fn() -> bool) -> Result<(), Trouble> {
        self.stream.shutdown(Shutdown::Write)?;
        let mut count = [0_u8; 8];
        let mut have = 0;
        let mut waiting = (socket::unacknowledged(&self.stream)?, MonoNanos::now());
        while let Some(rest) = count.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match (&self.stream).read(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(more) => have += more,
                Err(error) if is_pause(&error) => {
                    let (left, now) = (socket::unacknowledged(&self.stream)?, MonoNanos::now());
                    if left != waiting.0 {
                        waiting = (left, now);
                    }
                    if stop() {
                        return Err(Trouble::Stopped);
                    }
                    if now.since(waiting.1) >= self.stall_after {
                        return Err(Trouble::Stalled);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        match u64::from_le_bytes(count) {
            arrived if arrived == sent => Ok(()),
            arrived => Err(Trouble::Disagreed { sent, arrived }),
        }
    }

    /// What a trouble means for the task: nothing when it was stopped, otherwise an error that is counted and ends it.
    #[cold]
    fn report(
        &self,
        trouble: Trouble,
        op: Op,
        began: Began,
        recorder: &mut Recorder,
    ) -> Result<(), OpError> {
        let peer = &self.peer;
        let (what, errno) = match trouble {
            Trouble::Stopped => {
                recorder.idle();
                return Ok(());
            }
            Trouble::Broken(error) => (
                format!("the link to {peer} broke: {error}; look at the agent there"),
                error.raw_os_error().unwrap_or(libc::ECONNRESET),
            ),
            Trouble::Stalled => (
                format!(
                    "the link to {peer} stalled: nothing went through for {} s; look at the agent and the path there",
                    self.stall_after.as_secs_f32()
                ),
                libc::ETIMEDOUT,
            ),
            Trouble::Disagreed { sent, arrived } => (
                format!(
                    "{sent} bytes were sent to {peer}, and {arrived} arrived there; the result cannot be used"
                ),
                libc::EPROTO,
            ),
        };
        let facts = ErrorFacts {
            errno,
            path: peer,
            offset: None,
        };
        recorder.error(op, began, &facts)?;
        Err(OpError::Broken { what })
    }
}

fn introduce(stream: &TcpStream, index: u32, token: &str) -> io::Result<()> {
    socket::prepare(stream)?;
    stream.set_read_timeout(Some(CONNECT_WITHIN))?;
    let hello = hello::encode(index, token)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the token is too long"))?;
    let mut both_ways = stream;
    both_ways.write_all(&hello)?;
    let mut answer = [0_u8; 1];
    both_ways
        .read_exact(&mut answer)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                io::Error::new(io::ErrorKind::ConnectionRefused, "it hung up")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(io::ErrorKind::TimedOut, "it did not answer within 5 s")
            }
            _ => error,
        })?;
    if answer != [hello::WELCOME] {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it answered in another protocol",
        ));
    }
    stream.set_read_timeout(Some(socket::BLOCK_AT_MOST))
}

/// Sends blocks for the runtime.
pub(super) struct Sender {
    link: Link,
    block: Vec<u8>,
    written: u64,
    /// Bytes that recorded operations have counted: never more than were acknowledged.
    counted: u64,
    asked: u64,
}

/// How a block went out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Whole,
    /// The runtime was over before all of it was accepted.
    Cut,
}

impl Sender {
    pub(super) fn new(link: Link, block_bytes: usize, index: u32) -> Self {
        // Random, so that a path that compresses carries no more than others.
        let block = Data::new(block_bytes, u64::from(index)).into_bytes();
        Self {
            link,
            block,
            written: 0,
            counted: 0,
            asked: 0,
        }
    }

    fn send_block(&mut self, recorder: &Recorder) -> Result<Sent, Trouble> {
        let mut rest = self.block.as_slice();
        self.link.moved = None;
        loop {
            let has_moved = match (&self.link.stream).write(rest) {
                Ok(count) => {
                    self.written += u64::try_from(count).unwrap_or(0);
                    rest = rest.get(count..).unwrap_or_default();
                    if rest.is_empty() {
                        return Ok(Sent::Whole);
                    }
                    count > 0
                }
                Err(error) if is_pause(&error) => false,
                Err(error) => return Err(error.into()),
            };
            if self.link.look_up(recorder, has_moved)? >= recorder.until() {
                return Ok(Sent::Cut);
            }
        }
    }

    fn block_bytes(&self) -> u64 {
        u64::try_from(self.block.len()).unwrap_or(u64::MAX)
    }

    /// Bytes acknowledged since they were last counted; asked now and then only.
    fn newly_acknowledged(&mut self) -> io::Result<u64> {
        if self.written - self.asked < ASK_EVERY {
            return Ok(0);
        }
        self.asked = self.written;
        let waiting = socket::unacknowledged(&self.link.stream)?;
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
    ) -> Result<bool, Trouble> {
        let sent = self.send_block(recorder)?;
        let until = recorder.until();
        let is_over = MonoNanos::now().saturating_add(AT_THE_END) >= until
            // The schedule has no further block within the runtime: there is nothing to wait for.
            || recorder.due(self.block_bytes()).is_some_and(|due| due >= until);
        if is_last || sent == Sent::Cut || is_over {
            self.link.agree(self.written, &|| recorder.is_stopped())?;
            recorder.end(Op::Send, began, self.written - self.counted);
            self.counted = self.written;
            return Ok(true);
        }
        let bytes = self.newly_acknowledged()?;
        recorder.end(Op::Send, began, bytes);
        Ok(false)
    }
}

impl Worker for Sender {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        recorder.place(0);
        let block_bytes = self.block_bytes();
        loop {
            // The runtime may end between two of our looks at the clock; the next block is the last one then.
            let (began, is_last) = match recorder.next(Op::Send, block_bytes) {
                Some(began) => (began, false),
                None if recorder.is_stopped() => break,
                // A schedule without a single instant within the runtime; any other has ended with its last block.
                None if self.written == 0 && recorder.due(block_bytes).is_some() => {
                    let ended = Began::at(MonoNanos::now());
                    return match self.link.agree(0, &|| recorder.is_stopped()) {
                        Ok(()) => Ok(()),
                        Err(trouble) => self.link.report(trouble, Op::Send, ended, recorder),
                    };
                }
                None => (recorder.begin_as(Op::Send), true),
            };
            match self.operation(began, recorder, is_last) {
                Ok(true) => break,
                Ok(false) => {}
                Err(trouble) => return self.link.report(trouble, Op::Send, began, recorder),
            }
        }
        Ok(())
    }
}

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
