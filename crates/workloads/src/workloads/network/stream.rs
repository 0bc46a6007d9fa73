//! One stream of a receiving end: receives data or answers requests, and reports the total at the end.
//!
//! It does not handle ports or admission, and measures nothing. Invariant: `stop` is noticed within `MAX_BLOCKED`.

use super::keys::{Exchange, Wait};
use super::socket::{self, is_pause};
use crate::engine::author::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes per receive call. Larger buffers leave the cache before they are reused.
const RECEIVE_BYTES: usize = 256 << 10;

/// Receives and discards all data.
pub(super) fn absorb(
    mut stream: &TcpStream,
    received: &mut u64,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = AlignedBytes::new(1, RECEIVE_BYTES);
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return stream.write_all(&received.to_le_bytes()),
            Ok(count) => *received += u64::try_from(count).unwrap_or(0),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Answers each complete request.
pub(super) fn answer(
    mut stream: &TcpStream,
    exchange: &Exchange,
    counted: &mut u64,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut request = AlignedBytes::new(1, exchange.request_bytes);
    let response = WriteBuffer::new(exchange.response_bytes, 0).into_bytes();
    if exchange.wait == Wait::Busy {
        // Do not poll before the step begins, to save CPU.
        until_it_begins(stream, stop)?;
        stream.set_nonblocking(true)?;
    }
    while !stop.load(Ordering::Relaxed) {
        match fill(stream, &mut request, stop)? {
            BufferFillResult::Whole => {}
            BufferFillResult::Ended => {
                stream.set_nonblocking(false)?;
                return stream.write_all(&counted.to_le_bytes());
            }
            BufferFillResult::Stopped => return Ok(()),
        }
        let mut rest = response.as_slice();
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if is_pause(&error) => {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        *counted += exchange.bytes;
    }
    Ok(())
}

fn until_it_begins(stream: &TcpStream, stop: &AtomicBool) -> io::Result<()> {
    let limit = Timespec::try_from(socket::MAX_BLOCKED).ok();
    while !stop.load(Ordering::Relaxed) {
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], limit.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

enum BufferFillResult {
    Whole,
    Ended,
    Stopped,
}

fn fill(
    mut stream: &TcpStream,
    buffer: &mut [u8],
    stop: &AtomicBool,
) -> io::Result<BufferFillResult> {
    let mut have = 0;
    while let Some(rest) = buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) if have == 0 => return Ok(BufferFillResult::Ended),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(error) if is_pause(&error) => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(BufferFillResult::Stopped);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(BufferFillResult::Whole)
}
