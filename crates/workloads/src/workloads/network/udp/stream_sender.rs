//! The sending end of a stream of datagrams: sends on schedule or as fast as the kernel takes them, and records what
//! the receiving end reports.
//!
//! It does not know how arrivals are counted. Invariant: each sequence number is given to one datagram that the kernel
//! has taken, so that the receiving end's losses are those of the path.

use super::super::connection::{Connection, ConnectionError};
use super::super::datagram::{Header, MIN_REQUEST_BYTES, PROBE, StreamKey};
use super::super::keys::Datagrams;
use super::super::socket::is_pause;
use super::channel::{self, Inbox, OPEN, OpenedSocket, Report};
use super::socket::{self, Batching};
use crate::engine::author::*;
use std::io;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Interval between checks for reports.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Deadline for a probe; after it the path counts as closed to UDP.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Pause when the kernel's queue is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_micros(50);

/// A socket connected to the receiving end, and the key of its stream.
#[derive(Debug)]
pub(super) struct Path {
    pub socket: UdpSocket,
    pub key: StreamKey,
    /// Size of the receiving end's socket buffer.
    pub buffer_bytes: u64,
}

impl Path {
    /// Agrees on a key, and sends probes until one has arrived. `connection` is non-blocking after this.
    pub(super) fn open(
        connection: &Connection,
        buffer_bytes: u64,
        wait: Duration,
    ) -> Result<Self, TaskError> {
        let control = &connection.stream;
        let peer = control.peer_addr();
        let open = || -> io::Result<Self> {
            let socket = socket::open(control.local_addr()?, buffer_bytes, wait)?;
            let key = channel::new_key()?;
            channel::write_all(control, &key.0, &|| false)?;
            let opened = OpenedSocket::decode(wait_for(control)?);
            socket.connect(SocketAddr::new(control.peer_addr()?.ip(), opened.port))?;
            probe(control, &socket, key)?;
            control.set_nonblocking(true)?;
            Ok(Self {
                socket,
                key,
                buffer_bytes: opened.buffer_bytes,
            })
        };
        open().map_err(|error| {
            let peer =
                peer.map_or_else(|_| "the receiving end".to_owned(), |peer| peer.to_string());
            TaskError::io(format!("open a path for UDP datagrams to {peer}"), error)
        })
    }
}

fn wait_for<const LENGTH: usize>(control: &std::net::TcpStream) -> io::Result<[u8; LENGTH]> {
    let until = Instant::now() + PROBE_TIMEOUT;
    let mut inbox = Inbox::new();
    loop {
        if let Some(message) = inbox.take(control)? {
            return Ok(message);
        }
        if Instant::now() >= until {
            let message = "the receiving end did not answer within 5 s";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
    }
}

fn probe(control: &std::net::TcpStream, socket: &UdpSocket, key: StreamKey) -> io::Result<()> {
    let mut datagram = [0; MIN_REQUEST_BYTES];
    let header = Header {
        sequence: PROBE,
        sent_ns: 0,
    };
    header.write(key, &mut datagram);
    let until = Instant::now() + PROBE_TIMEOUT;
    let mut inbox = Inbox::<1>::new();
    control.set_nonblocking(true)?;
    while Instant::now() < until {
        match socket.send(&datagram) {
            Ok(_) => {}
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
        sleep_until(MonoNanos::now().saturating_add(PROBE_INTERVAL));
        match inbox.take(control)? {
            Some([OPEN]) => return Ok(()),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => {}
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "none of 100 datagrams arrived within 5 s; look for a firewall that drops UDP",
    ))
}

/// Whether a send error is a transient condition of the path, not a fault of the socket.
pub(super) fn is_transient(error: &io::Error) -> bool {
    has_no_room(error)
        || matches!(
            error.raw_os_error(),
            Some(
                libc::ECONNREFUSED
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH
                    | libc::ENETDOWN
                    | libc::EPERM
            )
        )
}

/// Whether the kernel currently had no room for a datagram.
pub(super) fn has_no_room(error: &io::Error) -> bool {
    is_pause(error) || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Sends datagrams for the runtime or up to a number.
pub(in super::super) struct UdpSender {
    connection: Connection,
    path: Path,
    bytes: usize,
    /// Bytes of one call.
    buffer: Vec<u8>,
    batching: Batching,
    /// Datagrams that the kernel has taken.
    sent: u64,
    /// Datagrams left to send; `u64::MAX` if only the runtime ends the load.
    left: u64,
    inbox: Inbox<{ Report::BYTES }>,
    /// The receiving end's counts that have been recorded.
    recorded: Report,
    next_poll: MonoNanos,
}

impl UdpSender {
    pub(in super::super) fn open(
        connection: Connection,
        datagrams: &Datagrams,
        index: u32,
    ) -> Result<Self, TaskError> {
        let wait = Duration::from_millis(100);
        let path = Path::open(&connection, datagrams.buffer_bytes, wait)?;
        let batching = match datagrams.gso {
            true => Batching::cut(datagrams.bytes),
            false => Batching::UNCUT,
        };
        let most = batching.datagrams().max(Batching::UNCUT.datagrams());
        // Random bytes, so that a path with compression has no advantage.
        let buffer = WriteBuffer::new(datagrams.bytes * most, u64::from(index)).into_bytes();
        Ok(Self {
            connection,
            path,
            bytes: datagrams.bytes,
            buffer,
            batching,
            sent: 0,
            left: u64::MAX,
            inbox: Inbox::new(),
            recorded: Report::default(),
            next_poll: MonoNanos(0),
        })
    }

    /// Limits the number of datagrams, which all have the same size.
    pub(in super::super) fn ending_after(self, datagrams: Option<u64>) -> Self {
        let left = datagrams.unwrap_or(u64::MAX);
        Self { left, ..self }
    }

    /// Size of the receiving end's socket buffer.
    pub(in super::super) fn peer_buffer(&self) -> u64 {
        self.path.buffer_bytes
    }

    /// Writes the headers of the next `count` datagrams.
    #[inline]
    fn number(&mut self, count: usize, now: MonoNanos) {
        let datagrams = self.buffer.chunks_exact_mut(self.bytes).take(count);
        for (sequence, datagram) in (self.sent..).zip(datagrams) {
            let header = Header {
                sequence,
                sent_ns: now.0,
            };
            header.write(self.path.key, datagram);
        }
    }

    /// Sends in one call; returns how many datagrams the kernel took.
    #[inline]
    fn send(&mut self, count: usize) -> io::Result<usize> {
        let datagrams = self.buffer.get(..count * self.bytes).unwrap_or_default();
        let send = |segments| socket::send(&self.path.socket, datagrams, self.bytes, segments);
        match send(self.batching.segments) {
            // The path or the kernel refuses such messages, usually because a datagram exceeds the MTU.
            Err(error) if self.batching.segments > 1 && !is_transient(&error) => {
                self.batching = Batching::UNCUT;
                send(self.batching.segments)
            }
            sent => sent,
        }
    }

    /// Sends in one call. A datagram that is due at its own time is retried until the kernel takes it or the load must
    /// end.
    #[inline]
    fn send_or_retry(&mut self, count: usize, recorder: &mut Recorder) -> io::Result<usize> {
        let mut sent = self.send(count);
        while recorder.is_paced()
            && !recorder.should_stop()
            && sent.as_ref().is_err_and(has_no_room)
        {
            let now = recorder.now();
            recorder.advance_to(now);
            sleep_until(now.saturating_add(FULL_QUEUE_PAUSE));
            sent = self.send(count);
        }
        sent
    }

    /// Number of datagrams of the next call. A paced load sends each at its own instant.
    fn batch(&self, recorder: &Recorder) -> usize {
        let most = match recorder.is_paced() {
            true => 1,
            false => self.batching.datagrams(),
        };
        usize::try_from(self.left).map_or(most, |left| left.min(most))
    }

    fn operation(
        &mut self,
        began: Began,
        count: usize,
        recorder: &mut Recorder,
    ) -> Result<(), SendError> {
        self.number(count, began.at);
        match self.send_or_retry(count, recorder) {
            Ok(taken) => {
                let taken = taken as u64;
                self.sent += taken;
                self.left = self.left.saturating_sub(taken);
                recorder.end_batch(Op::Send, began, taken, taken * self.bytes as u64);
                Ok(())
            }
            Err(error) if has_no_room(&error) && !recorder.is_paced() => {
                recorder.idle();
                sleep_until(MonoNanos::now().saturating_add(FULL_QUEUE_PAUSE));
                Ok(())
            }
            Err(error) if is_transient(&error) => self
                .connection
                .count(&error, Op::Send, began, recorder)
                .map_err(SendError::Ended),
            Err(error) => Err(SendError::Broken(error.into())),
        }
    }

    /// Records new reports. Returns whether the last report was among them.
    fn take_reports(&mut self, recorder: &mut Recorder) -> Result<bool, ConnectionError> {
        while let Some(message) = self.inbox.take(&self.connection.stream)? {
            let report = Report::decode(&message);
            let (new, old) = (report.counts, self.recorded.counts);
            let bytes = new.bytes.saturating_sub(old.bytes);
            for (op, new, old, bytes) in [
                (Op::Receive, new.received, old.received, bytes),
                (Op::Lost, new.lost, old.lost, 0),
                (Op::Reordered, new.reordered, old.reordered, 0),
                (Op::Duplicate, new.duplicates, old.duplicates, 0),
                (Op::Late, new.late, old.late, 0),
            ] {
                recorder.observe(op, new.saturating_sub(old), bytes);
            }
            if new.received > old.received && new.received > 1 {
                recorder.observe_duration(Op::Jitter, report.jitter_ns);
            }
            self.recorded = report;
            if report.is_last {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn poll_reports(
        &mut self,
        now: MonoNanos,
        recorder: &mut Recorder,
    ) -> Result<(), ConnectionError> {
        if now >= self.next_poll {
            self.next_poll = now.saturating_add(POLL_INTERVAL);
            self.take_reports(recorder)?;
        }
        Ok(())
    }

    /// Sends the number of datagrams, and records the last report.
    fn conclude(&mut self, recorder: &mut Recorder) -> Result<(), ConnectionError> {
        let stream = self.connection.stream.try_clone()?;
        stream.set_nonblocking(false)?;
        channel::write_all(&stream, &self.sent.to_le_bytes(), &|| recorder.is_stopped())?;
        stream.shutdown(Shutdown::Write)?;
        // A report may already be there; each later call blocks for at most 0.1 s.
        while !self.take_reports(recorder)? {
            if recorder.is_stopped() {
                return Err(ConnectionError::Stopped);
            }
        }
        let counts = self.recorded.counts;
        let arrived = counts.received + counts.lost;
        match arrived == self.sent {
            true => Ok(()),
            false => Err(ConnectionError::Disagreed {
                sent: self.sent,
                arrived,
            }),
        }
    }
}

/// Why a stream ended.
enum SendError {
    Ended(OpError),
    Broken(ConnectionError),
}

impl From<ConnectionError> for SendError {
    fn from(error: ConnectionError) -> Self {
        SendError::Broken(error)
    }
}

impl Worker for UdpSender {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        recorder.set_file(0);
        while self.left > 0 {
            let count = self.batch(recorder);
            let Some(began) = recorder.next(Op::Send, (count * self.bytes) as u64) else {
                break;
            };
            let now = began.at;
            let sent = self.operation(began, count, recorder);
            let done = sent.and_then(|()| Ok(self.poll_reports(now, recorder)?));
            match done {
                Ok(()) => {}
                Err(SendError::Ended(error)) => return Err(error),
                Err(SendError::Broken(error)) => {
                    return self.connection.report(error, Op::Send, began, recorder);
                }
            }
        }
        if recorder.is_stopped() {
            return Ok(());
        }
        recorder.end_of_load();
        let began = recorder.begin_as(Op::Send);
        let concluded = self.conclude(recorder);
        recorder.idle();
        concluded.or_else(|error| self.connection.report(error, Op::Send, began, recorder))
    }
}
