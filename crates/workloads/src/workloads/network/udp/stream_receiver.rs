//! The receiving end of a stream of datagrams: counts arrivals, and reports ten times a second.
//!
//! It measures on its own clock, independent of the sending end's. Invariants: a datagram without the key changes only
//! the count of strangers; the last report is sent once all datagrams have arrived, or none for `QUIET`.

use super::super::datagram::{Header, PROBE, StreamKey};
use super::super::socket::is_pause;
use super::arrivals::Arrivals;
use super::channel::{self, Inbox, OPEN, OpenedSocket, Report};
use super::socket::{self, Intake};
use std::collections::VecDeque;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval between reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// A datagram is lost if it has not arrived this number of reports after a later one: 0.5 s.
const LOST_AFTER: usize = 5;
/// After the end of the stream, missing datagrams are lost once none has arrived for this time.
const QUIET: Duration = Duration::from_millis(500);
/// Timeout of a receive call, so that reports are sent in time.
const WAIT: Duration = Duration::from_millis(20);

/// Totals of a stream, for the receiving end's own counts.
#[derive(Debug, Default)]
pub(in super::super) struct Tally {
    pub bytes: AtomicU64,
    /// Datagrams that came without the key.
    pub strangers: AtomicU64,
}

/// Sets up the stream's socket, sends its port over `control`, and reads the key. `None`: stopped.
pub(super) fn open(
    control: &TcpStream,
    socket: &UdpSocket,
    (buffer_bytes, wait): (u64, Duration),
    stop: &AtomicBool,
) -> io::Result<Option<StreamKey>> {
    socket::set_up(socket, buffer_bytes, wait)?;
    let opened = OpenedSocket {
        port: socket.local_addr()?.port(),
        buffer_bytes: socket::receive_buffer(socket)?,
    };
    let mut inbox = Inbox::<8>::new();
    let key = loop {
        match inbox.take(control)? {
            Some(key) => break StreamKey(key),
            None if stop.load(Ordering::Relaxed) => return Ok(None),
            None => {}
        }
    };
    channel::write_all(control, &opened.encode(), &|| stop.load(Ordering::Relaxed))?;
    Ok(Some(key))
}

/// Receives a stream until its end or `stop`.
pub(in super::super) fn receive(
    control: &TcpStream,
    socket: UdpSocket,
    buffer_bytes: u64,
    tally: &Tally,
    stop: &AtomicBool,
) -> io::Result<()> {
    let Some(key) = open(control, &socket, (buffer_bytes, WAIT), stop)? else {
        return Ok(());
    };
    let mut stream = ReceivedStream {
        control,
        key,
        arrivals: Arrivals::new(),
        before: VecDeque::from([0; LOST_AFTER]),
        is_open: false,
        strangers: 0,
    };
    let result = stream.run(&socket, stop);
    let received = stream.arrivals.counts().bytes;
    tally.bytes.fetch_add(received, Ordering::Relaxed);
    tally
        .strangers
        .fetch_add(stream.strangers, Ordering::Relaxed);
    result
}

struct ReceivedStream<'a> {
    control: &'a TcpStream,
    key: StreamKey,
    arrivals: Arrivals,
    /// One more than the highest sequence number at each of the last reports, oldest first.
    before: VecDeque<u64>,
    /// A probe has arrived and was answered.
    is_open: bool,
    strangers: u64,
}

impl ReceivedStream<'_> {
    fn run(&mut self, socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
        let stopped = || stop.load(Ordering::Relaxed);
        let mut intake = Intake::new(socket);
        let mut inbox = Inbox::<8>::new();
        self.control.set_nonblocking(true)?;
        let mut now = Instant::now();
        let (mut report_at, mut came_at) = (now + REPORT_INTERVAL, now);
        let mut sent: Option<u64> = None;
        while !stopped() {
            let came = self.take(&mut intake, socket)?;
            now = Instant::now();
            if came {
                came_at = now;
            }
            if sent.is_none() && now >= report_at {
                self.report(&stopped)?;
                report_at = now + REPORT_INTERVAL;
                sent = inbox.take(self.control)?.map(u64::from_le_bytes);
                // Datagrams in flight get the whole time from now on.
                came_at = now;
            }
            if let Some(sent) = sent {
                let counts = self.arrivals.counts();
                let is_whole = counts.received + counts.lost >= sent;
                if is_whole || now.duration_since(came_at) >= QUIET {
                    // Take datagrams that have arrived and were not read yet.
                    while self.take(&mut intake, socket)? && !stopped() {}
                    self.arrivals.settle(sent);
                    return self.send_report(true, &stopped);
                }
            }
        }
        Ok(())
    }

    /// Whether a datagram of the stream arrived.
    fn take(&mut self, intake: &mut Intake, socket: &UdpSocket) -> io::Result<bool> {
        let (key, arrivals) = (self.key, &mut self.arrivals);
        let (mut came, mut probed, mut strangers) = (false, false, 0);
        let received = intake.receive(socket, |arrived| match Header::read(key, arrived.bytes) {
            None => strangers += 1,
            Some(header) if header.sequence == PROBE => probed = true,
            Some(header) => {
                came = true;
                let bytes = arrived.bytes.len() as u64;
                arrivals.arrived(header.sequence, bytes, header.sent_ns, arrived.at_ns);
            }
        });
        self.strangers += strangers;
        match received {
            Ok(_) => {}
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        if probed && !self.is_open {
            self.is_open = true;
            channel::write_all(self.control, &[OPEN], &|| false)?;
        }
        Ok(came)
    }

    fn report(&mut self, stopped: &dyn Fn() -> bool) -> io::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        self.before.push_back(self.arrivals.next());
        if let Some(settled) = self.before.pop_front() {
            self.arrivals.settle(settled);
        }
        self.send_report(false, stopped)
    }

    fn send_report(&self, is_last: bool, stopped: &dyn Fn() -> bool) -> io::Result<()> {
        let report = Report {
            counts: self.arrivals.counts(),
            jitter_ns: self.arrivals.jitter_ns().unwrap_or(0),
            is_last,
        };
        channel::write_all(self.control, &report.encode(), stopped)
    }
}
