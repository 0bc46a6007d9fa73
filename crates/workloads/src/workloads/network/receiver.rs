//! The receiving end of a link: a port that is open for one step, to one peer.
//!
//! One thread accepts until each stream has been claimed by a connection from the expected address with the right
//! token, then closes the port. One thread per stream receives data or sends answers. It measures nothing. Invariants:
//! connections of other hosts or without the token are closed unanswered; when `stop` has returned, no thread and no
//! port is left.

use super::hello::{self, HelloVerdict};
use super::keys::Traffic;
use super::socket;
use super::stream;
use super::udp::{self, Tally};
use crate::engine::author::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Deadline for a connection to present its token.
const HELLO_DEADLINE: Duration = Duration::from_secs(2);
/// Limit on connections with an incomplete hello, in addition to one per stream. Further ones are closed at once, so
/// that a stranger on the peer's host cannot use up memory and descriptors.
const MAX_EXTRA_PENDING: usize = 16;

/// Rules for accepting connections.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// Address of the peer, if known.
    pub peer: Option<IpAddr>,
    /// Networks that an unknown peer must be in.
    pub networks: Vec<Cidr>,
    pub token: String,
    pub traffic: Traffic,
    pub streams: u32,
}

impl Admission {
    fn expects(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        match self.peer {
            Some(peer) => from == peer.to_canonical(),
            None => self.networks.iter().any(|network| network.contains(from)),
        }
    }
}

#[derive(Debug)]
pub(super) struct OpenPort {
    pub(super) address: SocketAddr,
    seen: Arc<ReceivedTotals>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OpenPort {
    /// Opens a free port on `address` and, for datagrams, one more per stream; all within `ports`.
    pub(super) fn open(
        address: IpAddr,
        ports: Option<PortRange>,
        admission: Admission,
    ) -> Result<Self, TaskError> {
        if admission.token.is_empty() {
            let why = "a link without a token would let in anybody".to_owned();
            return Err(TaskError::Unsupported { why });
        }
        let sockets = match admission.traffic {
            Traffic::Blocks(_) | Traffic::Exchanges(_) => 0,
            Traffic::Datagrams(_) | Traffic::Requests(_) => {
                usize::try_from(admission.streams).unwrap_or(usize::MAX)
            }
        };
        let sockets = socket::bind(address, ports, ("UDP", sockets), UdpSocket::bind)?;
        let listeners = socket::bind(address, ports, ("TCP", 1), TcpListener::bind)?;
        Self::serve(listeners, sockets, admission)
            .map_err(|error| TaskError::io(format!("serve a peer on {address}"), error))
    }

    fn serve(
        listeners: Vec<TcpListener>,
        sockets: Vec<UdpSocket>,
        admission: Admission,
    ) -> io::Result<Self> {
        let listener = listeners.into_iter().next();
        let listener = listener.ok_or(io::ErrorKind::AddrNotAvailable)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let seen = Arc::new(ReceivedTotals::default());
        let seeing = Arc::clone(&seen);
        let thread = thread::Builder::new()
            .name("link-accept".into())
            .spawn(move || serve((listener, address), sockets, &admission, &seeing, &stopped))?;
        Ok(Self {
            address,
            seen,
            stop,
            thread: Some(thread),
        })
    }

    /// Totals of the streams that have ended.
    pub(super) fn received(&self) -> Received {
        Received {
            connections: self.seen.connections.load(Ordering::Relaxed),
            bytes: self.seen.tally.bytes.load(Ordering::Relaxed),
            strangers: self.seen.tally.strangers.load(Ordering::Relaxed),
        }
    }

    /// Closes everything; returns when all threads have ended.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the receiving end of a link panicked; its step has no result");
        }
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Totals received.
#[derive(Debug, Default)]
struct ReceivedTotals {
    connections: AtomicU64,
    tally: Tally,
}

/// A connection with an incomplete hello.
struct Pending {
    stream: TcpStream,
    received: Vec<u8>,
    until: Instant,
}

/// Refused connections. Any host that reaches the port can cause some, so only the first one is logged.
struct RefusedConnections {
    /// Address of our port.
    address: SocketAddr,
    count: u64,
}

impl RefusedConnections {
    fn refuse(&mut self, peer: Option<SocketAddr>, why: &str) {
        self.count += 1;
        if self.count == 1 {
            tracing::warn!(
                address = %self.address,
                ?peer,
                "the receiving end of a link refused a connection {why}; further ones are counted"
            );
        }
    }
}

impl Drop for RefusedConnections {
    fn drop(&mut self) {
        if self.count > 1 {
            tracing::warn!(
                address = %self.address,
                refused = self.count,
                "the receiving end of a link refused connections without its token or of other hosts"
            );
        }
    }
}

fn serve(
    (listener, address): (TcpListener, SocketAddr),
    sockets: Vec<UdpSocket>,
    admission: &Admission,
    seen: &ReceivedTotals,
    stop: &AtomicBool,
) {
    let mut sockets = sockets.into_iter();
    let admitted = admit_all(listener, address, admission, stop);
    thread::scope(|scope| {
        for connection in admitted {
            seen.connections.fetch_add(1, Ordering::Relaxed);
            let socket = sockets.next();
            let take = move || {
                let socket = || socket.ok_or(io::Error::from(io::ErrorKind::NotConnected));
                let (mut taken, tally) = (0, &seen.tally);
                let result = match &admission.traffic {
                    Traffic::Blocks(_) => stream::absorb(&connection, &mut taken, stop),
                    Traffic::Exchanges(exchange) => {
                        stream::answer(&connection, exchange, &mut taken, stop)
                    }
                    Traffic::Datagrams(datagrams) => {
                        udp::receive(&connection, socket()?, datagrams.buffer_bytes, tally, stop)
                    }
                    Traffic::Requests(requests) => {
                        udp::respond(&connection, socket()?, requests, tally, stop)
                    }
                };
                tally.bytes.fetch_add(taken, Ordering::Relaxed);
                result
            };
            let spawned = thread::Builder::new()
                .name("link-receive".into())
                .spawn_scoped(scope, move || {
                    if let Err(error) = take() {
                        // The sending end sees the same broken connection and reports the step's error.
                        tracing::debug!(%error, "a link's stream ended early");
                    }
                });
            if let Err(error) = spawned {
                tracing::warn!(%error, "a link's stream has no thread to receive on; the step will fail");
            }
        }
    });
    let strangers = seen.tally.strangers.load(Ordering::Relaxed);
    if strangers > 0 {
        tracing::warn!(
            strangers,
            "datagrams without the key of their stream were dropped"
        );
    }
}

/// Accepts until every stream is claimed or `stop` is set. Closes the port before it returns.
fn admit_all(
    listener: TcpListener,
    address: SocketAddr,
    admission: &Admission,
    stop: &AtomicBool,
) -> Vec<TcpStream> {
    let mut pending: Vec<Pending> = Vec::new();
    let mut admitted: Vec<Option<TcpStream>> = Vec::new();
    let mut refused = RefusedConnections { address, count: 0 };
    admitted.resize_with(usize::try_from(admission.streams).unwrap_or(0), || None);
    while !stop.load(Ordering::Relaxed) && admitted.iter().any(Option::is_none) {
        wait(&listener, &pending);
        accept_new(&listener, admission, &mut pending, &mut refused);
        let now = Instant::now();
        pending.retain_mut(|connection| match read_hello(connection, admission) {
            HelloVerdict::More(_) => now < connection.until,
            HelloVerdict::Stranger => {
                refused.refuse(connection.stream.peer_addr().ok(), "without its token");
                false
            }
            HelloVerdict::Stream(index) => {
                let place = usize::try_from(index)
                    .ok()
                    .and_then(|i| admitted.get_mut(i));
                if let Some(place @ None) = place {
                    *place = welcome(&connection.stream);
                }
                false
            }
        });
    }
    admitted.into_iter().flatten().collect()
}

/// Waits for input, at most as long as a stop may go unnoticed.
fn wait(listener: &TcpListener, pending: &[Pending]) {
    let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
    fds.extend(
        pending
            .iter()
            .map(|p| PollFd::new(&p.stream, PollFlags::IN)),
    );
    let limit = Timespec::try_from(socket::MAX_BLOCKED).ok();
    if let Err(error) = poll(&mut fds, limit.as_ref())
        && error != rustix::io::Errno::INTR
    {
        tracing::warn!(%error, "waiting for a link's connections failed");
        pause();
    }
}

fn pause() {
    #[expect(
        clippy::disallowed_methods,
        reason = "what fails at once must not become a busy loop; nothing is measured here"
    )]
    thread::sleep(socket::MAX_BLOCKED);
}

fn accept_new(
    listener: &TcpListener,
    admission: &Admission,
    pending: &mut Vec<Pending>,
    refused: &mut RefusedConnections,
) {
    loop {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The connection was reset before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // Usually too many open files: pending connections stay in the queue.
                tracing::warn!(%error, "a link's connection could not be accepted");
                return pause();
            }
        };
        let expected = admission.expects(from.ip());
        if !expected {
            refused.refuse(Some(from), "of another host than its sender's");
        }
        let most = usize::try_from(admission.streams).unwrap_or(0) + MAX_EXTRA_PENDING;
        if expected && pending.len() < most && stream.set_nonblocking(true).is_ok() {
            pending.push(Pending {
                stream,
                received: Vec::with_capacity(hello::MAX_BYTES),
                until: Instant::now() + HELLO_DEADLINE,
            });
        }
    }
}

/// Reads the available part of a hello, and no byte beyond it.
fn read_hello(connection: &mut Pending, admission: &Admission) -> HelloVerdict {
    loop {
        let verdict = hello::judge(&connection.received, &admission.token);
        let HelloVerdict::More(wanted) = verdict else {
            return verdict;
        };
        let limit = u64::try_from(wanted).unwrap_or(0);
        match (&connection.stream)
            .take(limit)
            .read_to_end(&mut connection.received)
        {
            Ok(0) => return HelloVerdict::Stranger,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Bytes received before the error are in `received`.
                return hello::judge(&connection.received, &admission.token);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return HelloVerdict::Stranger,
        }
    }
}

fn welcome(stream: &TcpStream) -> Option<TcpStream> {
    let accept = || {
        let stream = stream.try_clone()?;
        socket::prepare(&stream)?;
        (&stream).write_all(&[hello::WELCOME])?;
        Ok::<_, io::Error>(stream)
    };
    accept()
        .inspect_err(|error| tracing::debug!(%error, "a link's stream broke while it was welcomed"))
        .ok()
}
