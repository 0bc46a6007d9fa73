//! Sends requests one at a time on a connection and waits for each response, for the runtime or a number of exchanges.
//!
//! A ping is an exchange with a response as large as the request. This module does not open the connection, and knows
//! only the response size of the other end. Invariant: an operation ends with the last byte of its response.

use super::connection::{Connection, ConnectionError, check_stop};
use super::keys::{Exchange, Wait};
use super::socket::is_pause;
use crate::engine::author::*;
use std::io::{self, Write};

/// Sends requests, and waits for each response.
pub(super) struct Requester {
    connection: Connection,
    exchange: Exchange,
    request: Vec<u8>,
    response: AlignedBytes,
    /// Exchanges left; `u64::MAX` if only the runtime ends them.
    left: u64,
}

impl Requester {
    pub(super) fn new(connection: Connection, exchange: Exchange, index: u32) -> io::Result<Self> {
        connection
            .stream
            .set_nonblocking(exchange.wait == Wait::Busy)?;
        Ok(Self {
            connection,
            exchange,
            // Random bytes, so that a path with compression has no advantage.
            request: WriteBuffer::new(exchange.request_bytes, u64::from(index)).into_bytes(),
            response: AlignedBytes::new(1, exchange.response_bytes),
            left: u64::MAX,
        })
    }

    pub(super) fn ending_after(self, exchanges: Option<u64>) -> Self {
        let left = exchanges.unwrap_or(u64::MAX);
        Self { left, ..self }
    }

    fn exchange(&mut self, began: Began, recorder: &mut Recorder) -> Result<(), ConnectionError> {
        let Exchange { op, bytes, .. } = self.exchange;
        let reached = |recorder: &mut Recorder, moved: usize| {
            let moved = bytes.min(u64::try_from(moved).unwrap_or(u64::MAX));
            recorder.reached(op, began, (0, moved), moved);
        };
        let request_bytes = self.request.len();
        let mut rest = self.request.as_slice();
        while !rest.is_empty() {
            match (&self.connection.stream).write(rest) {
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    if !rest.is_empty() {
                        reached(recorder, request_bytes - rest.len());
                    }
                }
                Err(error) if is_pause(&error) => check_stop(recorder)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.connection
            .receive(&mut self.response, recorder, |recorder, have| {
                reached(recorder, request_bytes + have);
            })
    }

    /// Checks that the other end has counted all exchanges that were answered.
    fn confirm_exchanges(&self, counted: u64, recorder: &Recorder) -> Result<(), ConnectionError> {
        self.connection.stream.set_nonblocking(false)?;
        self.connection
            .confirm_received(counted, &|| recorder.is_stopped())
    }
}

impl Worker for Requester {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let Exchange { op, bytes, .. } = self.exchange;
        let mut counted = 0;
        recorder.set_file(0);
        while self.left > 0
            && let Some(began) = recorder.next(op, bytes)
        {
            match self.exchange(began, recorder) {
                Ok(()) => {
                    recorder.end(op, began, bytes);
                    counted += bytes;
                    self.left -= 1;
                }
                Err(trouble) => return self.connection.report(trouble, op, began, recorder),
            }
        }
        if recorder.is_stopped() {
            return Ok(());
        }
        let (began, agreed) =
            recorder.untimed_since(op, || self.confirm_exchanges(counted, recorder));
        agreed.or_else(|trouble| self.connection.report(trouble, op, began, recorder))
    }
}
