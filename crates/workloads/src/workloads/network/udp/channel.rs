//! The control messages of the two ends, on the TCP connection beside the datagrams.
//!
//! Sending end: the key; after the datagrams, their number, and nothing more. Receiving end: its port and the size of
//! its socket's buffer; one byte once a probe has arrived; reports, of which the last one is marked. This module does
//! not handle the datagrams themselves.

use super::super::datagram::StreamKey;
use super::super::socket::is_pause;
use super::arrivals::Counts;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Sent once a probe has arrived.
pub(super) const OPEN: u8 = b'o';

/// The socket that the receiving end has opened for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenedSocket {
    pub port: u16,
    /// Size of its socket's buffer.
    pub buffer_bytes: u64,
}

impl OpenedSocket {
    pub(super) const BYTES: usize = 10;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (port, buffer) = bytes.split_at_mut(2);
        port.copy_from_slice(&self.port.to_le_bytes());
        buffer.copy_from_slice(&self.buffer_bytes.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let [p0, p1, buffer @ ..] = bytes;
        Self {
            port: u16::from_le_bytes([p0, p1]),
            buffer_bytes: u64::from_le_bytes(buffer),
        }
    }
}

/// Totals of the receiving end for a stream since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub counts: Counts,
    /// Jitter by RFC 3550 at this moment; 0 before the second datagram.
    pub jitter_ns: u64,
    /// Set in the last report.
    pub is_last: bool,
}

impl Report {
    const WORDS: usize = 8;
    pub(super) const BYTES: usize = Self::WORDS * 8;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let Counts {
            received,
            bytes,
            lost,
            reordered,
            duplicates,
            late,
        } = self.counts;
        let words: [u64; Self::WORDS] = [
            received,
            bytes,
            lost,
            reordered,
            duplicates,
            late,
            self.jitter_ns,
            u64::from(self.is_last),
        ];
        let mut encoded = [0; Self::BYTES];
        for (to, word) in encoded.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        encoded
    }

    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut words = bytes
            .chunks_exact(8)
            .filter_map(|word| word.first_chunk::<8>())
            .map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        Self {
            counts: Counts {
                received: next(),
                bytes: next(),
                lost: next(),
                reordered: next(),
                duplicates: next(),
                late: next(),
            },
            jitter_ns: next(),
            is_last: next() != 0,
        }
    }
}

/// Collects messages of one length from a non-blocking connection.
#[derive(Debug)]
pub(super) struct Inbox<const LENGTH: usize> {
    bytes: [u8; LENGTH],
    have: usize,
}

impl<const LENGTH: usize> Inbox<LENGTH> {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; LENGTH],
            have: 0,
        }
    }

    /// The next complete message, if available. The end of the connection is an error.
    pub(super) fn take(&mut self, mut stream: &TcpStream) -> io::Result<Option<[u8; LENGTH]>> {
        while let Some(rest) = self
            .bytes
            .get_mut(self.have..)
            .filter(|rest| !rest.is_empty())
        {
            match stream.read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_pause(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.have = 0;
        Ok(Some(self.bytes))
    }
}

/// Writes everything, and waits whenever the connection has no room; `stop` ends it with an error.
pub(super) fn write_all(
    mut stream: &TcpStream,
    mut bytes: &[u8],
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if is_pause(&error) => {
                if stop() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A new random key.
pub(super) fn new_key() -> io::Result<StreamKey> {
    let mut key = [0; 8];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    Ok(StreamKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let opened = OpenedSocket {
            port: 54_321,
            buffer_bytes: 1 << 33,
        };
        assert_eq!(OpenedSocket::decode(opened.encode()), opened);
        let report = Report {
            counts: Counts {
                received: 1,
                bytes: 2,
                lost: 3,
                reordered: 4,
                duplicates: 5,
                late: u64::MAX,
            },
            jitter_ns: 7,
            is_last: true,
        };
        assert_eq!(Report::decode(&report.encode()), report);
    }
}
