//! The receiving end of requests: answers each one, once, with a datagram of another size.
//!
//! Invariant: a datagram without the key is counted and never answered.

use super::super::datagram::{Header, MAX_BYTES, MIN_RESPONSE_BYTES, PROBE, write_response};
use super::super::keys::{Requests, Wait};
use super::super::socket::is_pause;
use super::channel::{self, Inbox, OPEN};
use super::stream_receiver::{Tally, open};
use crate::engine::author::*;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval between checks of the connection for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Answers requests until the sending end is done, or until `stop`.
pub(in super::super) fn respond(
    control: &TcpStream,
    socket: UdpSocket,
    requests: &Requests,
    tally: &Tally,
    stop: &AtomicBool,
) -> io::Result<()> {
    let exchange = requests.exchange;
    let set_up = (requests.buffer_bytes, POLL_INTERVAL);
    let Some(key) = open(control, &socket, set_up, stop)? else {
        return Ok(());
    };
    control.set_nonblocking(true)?;
    let mut inbox = Inbox::<8>::new();
    let mut request = vec![1_u8; MAX_BYTES];
    let bytes = exchange.response_bytes.max(MIN_RESPONSE_BYTES);
    let mut response = WriteBuffer::new(bytes, 0).into_bytes();
    response.truncate(bytes);
    let mut next_poll = Instant::now() + POLL_INTERVAL;
    let (mut is_open, mut has_begun) = (false, false);
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut request) {
            Ok((count, from)) => {
                let came = request.get(..count).unwrap_or_default();
                match Header::read(key, came) {
                    None => {
                        tally.strangers.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(header) if header.sequence == PROBE => {
                        if !is_open {
                            is_open = true;
                            channel::write_all(control, &[OPEN], &|| false)?;
                        }
                    }
                    Some(header) => {
                        write_response(key, header.sequence, &mut response);
                        // A response that cannot be sent is lost, as on the path.
                        let _ = socket.send_to(&response, from);
                        tally.bytes.fetch_add(exchange.bytes, Ordering::Relaxed);
                        if !has_begun && exchange.wait == Wait::Busy {
                            // Do not poll before the first request, to save CPU.
                            socket.set_nonblocking(true)?;
                        }
                        has_begun = true;
                        if exchange.wait == Wait::Blocking {
                            // Read the clock only when nothing arrives, or rarely.
                            continue;
                        }
                    }
                }
            }
            Err(error) if is_pause(&error) => {}
            // The peer has closed the socket that an earlier response was sent to.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        if now >= next_poll {
            next_poll = now + POLL_INTERVAL;
            match inbox.take(control) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
