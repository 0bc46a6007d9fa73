//! One connection of the sending end: opened and introduced before the start, agreed upon at the end.
//!
//! It knows nothing of addresses' meaning, of other streams, or of what goes over it. Invariants: a blocked call looks up
//! ten times a second for a stop; a peer that takes nothing for `STALL_AFTER` is an error; a run that came to its end has
//! the receiving end's word on how much arrived.

use super::hello;
use super::socket::{self, is_pause};
use crate::clock::MonoNanos;
use crate::op::Op;
use crate::recorder::{Began, ErrorFacts, OpError, Recorder};
use crate::task::{PeerEnd, TaskError};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A peer on any path that is worth measuring answers within this time.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A peer that takes nothing and sends nothing for so long is gone, or as good as gone.
const STALL_AFTER: Duration = Duration::from_secs(10);

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
    pub(super) stream: TcpStream,
    peer: String,
    pub(super) stall_after: Duration,
    /// When something last went through, as far as a blocked call has to know.
    pub(super) moved: Option<MonoNanos>,
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
    pub(super) fn look_up(
        &mut self,
        recorder: &Recorder,
        has_moved: bool,
    ) -> Result<MonoNanos, Trouble> {
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
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        recorder: &Recorder,
    ) -> Result<(), Trouble> {
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
    pub(super) fn report(
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
