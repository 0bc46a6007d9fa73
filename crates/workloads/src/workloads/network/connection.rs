//! One connection of the sending end: opened and authenticated before the start, reconciled at the end.
//!
//! It does not depend on the meaning of addresses, on other streams, or on the traffic. Invariants: a blocked call
//! checks for a stop ten times a second; the plan sets how long a silent peer is waited for, as for any operation that
//! hangs; a run that has ended normally has the receiving end's count of the bytes that arrived.

use super::hello;
use super::socket::{self, is_pause};
use crate::engine::author::*;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Deadline to connect: a peer on any path worth measuring answers within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a link ended.
#[derive(Debug)]
pub(super) enum ConnectionError {
    /// The load was stopped.
    Stopped,
    Broken(io::Error),
    Disagreed {
        sent: u64,
        arrived: u64,
    },
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One connection that the receiving end has accepted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    peer: String,
}

impl Connection {
    pub(super) fn open(peer: &PeerEnd, index: u32) -> Result<Self, TaskError> {
        let address = peer.address;
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| {
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
        })
    }

    /// Fills the buffer from the peer, and calls `reached` with its length while it is not full. An end of the stream
    /// before that is an error.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        recorder: &mut Recorder,
        reached: impl Fn(&mut Recorder, usize),
    ) -> Result<(), ConnectionError> {
        let mut have = 0;
        while let Some(rest) = buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match (&self.stream).read(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => {
                    have += count;
                    if have < buffer.len() {
                        reached(recorder, have);
                    }
                }
                Err(error) if is_pause(&error) => check_stop(recorder)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Signals the end of the data, and waits until the receiving end has all `sent` bytes.
    pub(super) fn confirm_received(
        &self,
        sent: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), ConnectionError> {
        self.stream.shutdown(Shutdown::Write)?;
        let mut count = [0_u8; 8];
        let mut have = 0;
        while let Some(rest) = count.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match (&self.stream).read(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(more) => have += more,
                Err(error) if is_pause(&error) => {
                    if stop() {
                        return Err(ConnectionError::Stopped);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        match u64::from_le_bytes(count) {
            arrived if arrived == sent => Ok(()),
            arrived => Err(ConnectionError::Disagreed { sent, arrived }),
        }
    }

    /// Counts a transient failure of the path as an error of the operation; the load goes on.
    #[cold]
    pub(super) fn count(
        &self,
        error: &io::Error,
        op: Op,
        began: Began,
        recorder: &mut Recorder,
    ) -> Result<(), OpError> {
        let facts = ErrorFacts {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            path: &self.peer,
            offset: None,
        };
        recorder.error(op, began, &facts)
    }

    /// Ends the task: without an error if it was stopped, otherwise with an error that is counted.
    #[cold]
    pub(super) fn report(
        &self,
        trouble: ConnectionError,
        op: Op,
        began: Began,
        recorder: &mut Recorder,
    ) -> Result<(), OpError> {
        let peer = &self.peer;
        let (what, errno) = match trouble {
            ConnectionError::Stopped => {
                recorder.idle();
                return Ok(());
            }
            ConnectionError::Broken(error) => (
                format!("the link to {peer} broke: {error}; look at the agent there"),
                error.raw_os_error().unwrap_or(libc::ECONNRESET),
            ),
            ConnectionError::Disagreed { sent, arrived } => (
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

/// Checks for a stop after an incomplete call.
pub(super) fn check_stop(recorder: &Recorder) -> Result<(), ConnectionError> {
    match recorder.should_stop() {
        true => Err(ConnectionError::Stopped),
        false => Ok(()),
    }
}

fn introduce(stream: &TcpStream, index: u32, token: &str) -> io::Result<()> {
    socket::prepare(stream)?;
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
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
    stream.set_read_timeout(Some(socket::MAX_BLOCKED))
}
