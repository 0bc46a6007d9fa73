//! The sending end of requests: keeps several in flight, and times each until its response arrives.
//!
//! It does not know how the peer makes responses. Invariant: each request ends either as complete, with its latency, or
//! as lost, without one.

use super::super::connection::{Connection, ConnectionError};
use super::super::datagram::{Header, read_response};
use super::super::keys::{Requests, Wait};
use super::channel::Inbox;
use super::requests_in_flight::RequestsInFlight;
use super::stream_sender::{Path, has_no_room, is_transient};
use crate::engine::author::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::Shutdown;
use std::time::Duration;

/// Longest wait before the next check of the clock and the stop flag.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Interval between checks of the TCP connection.
const CONNECTION_POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(in super::super) struct UdpRequester {
    connection: Connection,
    path: Path,
    requests: Requests,
    in_flight: RequestsInFlight,
    request: Vec<u8>,
    response: Vec<u8>,
    /// Requests left to send; `u64::MAX` if only the runtime ends the load.
    left: u64,
    next_poll: MonoNanos,
    inbox: Inbox<1>,
    /// No more requests are sent.
    is_over: bool,
}

/// What the worker does after it has filled the free slots.
enum RequestFillResult {
    /// Wait for a response before sending more.
    Full,
    /// Wait until the next request is due.
    Until(MonoNanos),
    /// Send no more requests.
    Last,
}

/// Why a stream ended.
enum RequestError {
    Ended(OpError),
    Broken(ConnectionError),
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        RequestError::Broken(error.into())
    }
}

impl UdpRequester {
    pub(in super::super) fn open(
        connection: Connection,
        requests: &Requests,
        index: u32,
    ) -> Result<Self, TaskError> {
        let wait = requests.timeout.min(MAX_SLEEP);
        let path = Path::open(&connection, requests.buffer_bytes, wait)?;
        let exchange = requests.exchange;
        if exchange.wait == Wait::Busy {
            let set = path.socket.set_nonblocking(true);
            set.map_err(|error| TaskError::io("set up a stream", error))?;
        }
        // Random bytes, so that a path with compression has no advantage.
        let mut request = WriteBuffer::new(exchange.request_bytes, u64::from(index)).into_bytes();
        request.truncate(exchange.request_bytes);
        Ok(Self {
            connection,
            path,
            in_flight: RequestsInFlight::new(requests.depth, requests.timeout),
            request,
            // One byte more, so that a datagram that is too long does not look right after truncation.
            response: vec![1; exchange.response_bytes + 1],
            requests: *requests,
            left: u64::MAX,
            next_poll: MonoNanos(0),
            inbox: Inbox::new(),
            is_over: false,
        })
    }

    pub(in super::super) fn ending_after(self, requests: Option<u64>) -> Self {
        let left = requests.unwrap_or(u64::MAX);
        Self { left, ..self }
    }

    /// Size of the receiving end's socket buffer.
    pub(in super::super) fn peer_buffer(&self) -> u64 {
        self.path.buffer_bytes
    }

    /// Sends requests that are due, as long as slots are free.
    #[inline]
    fn fill(&mut self, recorder: &mut Recorder) -> Result<RequestFillResult, RequestError> {
        let bytes = self.requests.exchange.bytes;
        while let Some((slot, number)) = self.in_flight.next() {
            if self.left == 0 || recorder.should_stop() {
                return Ok(RequestFillResult::Last);
            }
            match recorder.turn(bytes) {
                Turn::Now => {}
                Turn::At(due) => return Ok(RequestFillResult::Until(due)),
                Turn::Over => return Ok(RequestFillResult::Last),
            }
            let now = recorder.now();
            let header = Header {
                sequence: number,
                sent_ns: now.0,
            };
            header.write(self.path.key, &mut self.request);
            match self.path.socket.send(&self.request) {
                Ok(_) => {
                    recorder.submit(slot, Op::Request, (0, 0), bytes, now);
                    self.in_flight.sent(now);
                    self.left -= 1;
                }
                Err(error) if has_no_room(&error) => {
                    recorder.advance_to(now);
                    return Ok(RequestFillResult::Full);
                }
                Err(error) if is_transient(&error) => {
                    self.connection
                        .count(&error, Op::Request, Began::at(now), recorder)
                        .map_err(RequestError::Ended)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(RequestFillResult::Full)
    }

    /// Waits for responses until `until`, and handles the available ones.
    #[inline]
    fn receive(
        &mut self,
        until: Option<MonoNanos>,
        recorder: &mut Recorder,
    ) -> Result<(), RequestError> {
        let is_busy = self.requests.exchange.wait == Wait::Busy;
        if let (Some(until), false) = (until, is_busy) {
            let wait = until.since(recorder.now()).min(MAX_SLEEP);
            let limit = Timespec::try_from(wait).ok();
            match poll(
                &mut [PollFd::new(&self.path.socket, PollFlags::IN)],
                limit.as_ref(),
            ) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        match self.path.socket.recv(&mut self.response) {
            Ok(count) => {
                let now = recorder.now();
                let response = self.response.get(..count).unwrap_or_default();
                if count == self.requests.exchange.response_bytes
                    && let Some(number) = read_response(self.path.key, response)
                    && let Some(slot) = self.in_flight.answered(number)
                {
                    recorder.complete(slot, now, self.requests.exchange.bytes);
                    if self.is_over {
                        recorder.end_of_load();
                    }
                }
                Ok(())
            }
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn expire_late(&mut self, now: MonoNanos, recorder: &mut Recorder) {
        self.in_flight.expire(now, |slot| {
            recorder.withdraw(slot);
            recorder.observe(Op::Lost, 1, 0);
        });
    }

    /// Detects on the TCP connection that the other end is gone.
    fn poll_connection(&mut self, now: MonoNanos) -> Result<(), RequestError> {
        if now >= self.next_poll {
            self.next_poll = now.saturating_add(CONNECTION_POLL_INTERVAL);
            self.inbox.take(&self.connection.stream)?;
        }
        Ok(())
    }

    fn turn(&mut self, recorder: &mut Recorder) -> Result<RequestFillResult, RequestError> {
        let filled = self.fill(recorder)?;
        if matches!(filled, RequestFillResult::Last) && !self.is_over {
            // The wait for lost responses is no part of the load's time.
            self.is_over = true;
            recorder.end_of_load();
        }
        let waits_until = match &filled {
            RequestFillResult::Until(due) => Some(*due),
            RequestFillResult::Full | RequestFillResult::Last => None,
        };
        match (self.in_flight.is_empty(), waits_until) {
            (false, until) => self.receive(until, recorder)?,
            (true, Some(due)) => {
                let wake = recorder.now().saturating_add(MAX_SLEEP);
                sleep_until(due.min(wake));
            }
            (true, None) => {}
        }
        let now = recorder.now();
        recorder.advance_to(now);
        if now >= self.in_flight.next_expiry() {
            self.expire_late(now, recorder);
        }
        self.poll_connection(now)?;
        Ok(filled)
    }
}

impl Worker for UdpRequester {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        recorder.set_file(0);
        loop {
            match self.turn(recorder) {
                Ok(RequestFillResult::Last)
                    if self.in_flight.is_empty() || recorder.is_stopped() =>
                {
                    break;
                }
                Ok(_) => {}
                Err(RequestError::Ended(error)) => return Err(error),
                Err(RequestError::Broken(error)) => {
                    let began = Began::at(recorder.now());
                    return self.connection.report(error, Op::Request, began, recorder);
                }
            }
        }
        // Tells the other end to stop. If it is gone already, that is no longer an error.
        let _ = self.connection.stream.shutdown(Shutdown::Write);
        Ok(())
    }
}
