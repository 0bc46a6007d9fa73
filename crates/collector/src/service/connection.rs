//! Limits of connections: their number, their owners, and their closing.
//!
//! HTTP/2 keepalive detects a dead peer. This module closes the connections that keepalive does not detect: one that
//! never speaks TLS or HTTP/2, one that answers pings but makes no calls, and one with a revoked certificate.

use super::{
    control::MAX_QUERIES_OF_OPERATOR,
    gate::{Gate, Transport},
    limits::{ConnectionLimits, MAX_CALLS_OF_AGENT, MAX_OF_AGENT, MAX_OF_OPERATOR},
    peer::{Peer, PeerIdentity},
    places::{OwnerLimits, Place, Places},
};
use benchmesh_trust::Role;
use futures::{Stream, StreamExt, future};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;
use tracing::debug;

/// Time limit for a new connection to begin HTTP/2.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first bytes of an HTTP/2 client.
const PREFACE_BYTES: u64 = 24;
/// A connection with less traffic than this in [`IDLE_WINDOW`] and no open call is idle: an attached agent and a
/// watcher of a run receive a message per second, pings alone are 4 KiB.
const IDLE_BYTES: u64 = 8 << 10;
const IDLE_WINDOW: Duration = Duration::from_secs(600);
/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Limits of a connection's idle time.
#[derive(Clone, Copy, Debug)]
struct IdleLimits {
    handshake: Duration,
    window: Duration,
    /// It is closed after one window, whatever its traffic.
    has_one_window: bool,
}

const IDLE_LIMITS: IdleLimits = IdleLimits {
    handshake: HANDSHAKE_TIMEOUT,
    window: IDLE_WINDOW,
    has_one_window: false,
};

/// Limits of a connection without a valid certificate.
fn newcomer_limits(timeout: Duration) -> IdleLimits {
    IdleLimits {
        handshake: timeout / 3,
        window: timeout,
        has_one_window: true,
    }
}

/// The incoming connections, within the limits, each admitted by the gate and watched for idleness. Connections over
/// the limits are closed at once.
pub(super) fn admitted(
    incoming: impl Stream<Item = io::Result<TcpStream>>,
    gate: Arc<Gate>,
    limits: ConnectionLimits,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Places::default());
    let of_newcomers = newcomer_limits(limits.newcomer_timeout);
    limited(incoming, limits.connections, Arc::clone(&gate))
        .map(move |(stream, permit)| {
            let (places, gate) = (Arc::clone(&places), Arc::clone(&gate));
            admit(stream, permit, places, gate, limits.newcomers, of_newcomers)
        })
        // A slow handshake delays no other connection.
        .buffer_unordered(limits.connections.max(1))
        .filter_map(future::ready)
}

async fn admit(
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    places: Arc<Places>,
    gate: Arc<Gate>,
    most_newcomers: usize,
    of_newcomers: IdleLimits,
) -> Option<io::Result<Connection>> {
    let address = stream.peer_addr().ok();
    let ip = address.map(|address| address.ip());
    let strangers = OwnerLimits {
        connections: most_newcomers,
        calls: 0,
    };
    let (place, is_full) = places.enter(None, strangers, CancellationToken::new());
    if is_full {
        gate.log_refusal(
            ip,
            "too many connections without a certificate are open: the collector closes the oldest",
        );
    }
    let (stream, identity) = tokio::select! {
        () = place.ended.cancelled() => return None,
        admitted = gate.admit(stream, address, of_newcomers.handshake) => admitted?,
    };
    let (place, limits) = match &identity {
        // Without TLS nobody has a name.
        PeerIdentity::Plain => (None, IDLE_LIMITS),
        PeerIdentity::Known { holder, revoked } => {
            let own = match holder.role {
                Role::Agent => OwnerLimits {
                    connections: MAX_OF_AGENT,
                    calls: MAX_CALLS_OF_AGENT,
                },
                _ => OwnerLimits {
                    connections: MAX_OF_OPERATOR,
                    calls: MAX_QUERIES_OF_OPERATOR,
                },
            };
            let (place, is_full) = places.enter(Some(holder.clone()), own, revoked.child_token());
            if is_full {
                gate.log_refusal_of(
                    &identity.to_string(),
                    &format!(
                        "it has more than {} connections: the collector closes its oldest",
                        own.connections
                    ),
                );
            }
            (Some(place), IDLE_LIMITS)
        }
        PeerIdentity::Stranger | PeerIdentity::Revoked(_) | PeerIdentity::Forgotten => {
            (Some(place), of_newcomers)
        }
    };
    // Without TLS each connection counts alone.
    let of_connection = || Arc::new(Semaphore::new(MAX_CALLS_OF_AGENT));
    let calls = place
        .as_ref()
        .map_or_else(of_connection, |place| Arc::clone(&place.calls));
    let peer = Peer::new(address, identity, calls);
    Some(Ok(Connection::new(stream, peer, limits, place, permit)))
}

fn limited(
    incoming: impl Stream<Item = io::Result<TcpStream>>,
    most: usize,
    gate: Arc<Gate>,
) -> impl Stream<Item = (TcpStream, OwnedSemaphorePermit)> {
    let room = Arc::new(Semaphore::new(most));
    incoming.filter_map(move |stream| {
        let (room, gate) = (Arc::clone(&room), Arc::clone(&gate));
        async move {
            match stream {
                Ok(stream) => {
                    let permit = room.try_acquire_owned();
                    if permit.is_err() {
                        let address = stream.peer_addr().ok().map(|address| address.ip());
                        gate.log_refusal(
                            address,
                            &format!(
                                "the limit of {most} connections is reached: new ones are closed"
                            ),
                        );
                    }
                    Some((stream, permit.ok()?))
                }
                Err(error) => {
                    debug!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    None
                }
            }
        }
    })
}

/// A connection that ends when it is idle, and when its certificate is revoked.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Transport,
    peer: Peer,
    idle: IdleCheck,
    /// Signals that its certificate was revoked, or that its owner's newer connections took its place.
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _place: Option<Place>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(
        stream: Transport,
        peer: Peer,
        limits: IdleLimits,
        place: Option<Place>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let ended = place.as_ref().map(|place| place.ended.clone());
        let ended = ended.map(|ended| Box::pin(ended.cancelled_owned()));
        Self {
            stream,
            peer,
            idle: IdleCheck::new(limits),
            ended,
            _place: place,
            _permit: permit,
        }
    }

    /// Fails once the connection is to end, in reads and writes alike: a peer that takes nothing keeps its connection
    /// writing, and that is never read again.
    fn check_ended(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(ended) = &mut self.ended else {
            return Ok(());
        };
        match ended.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::PermissionDenied.into()),
            Poll::Pending => Ok(()),
        }
    }
}

/// Bytes transferred since the last check.
#[derive(Debug)]
struct IdleCheck {
    limits: IdleLimits,
    read: u64,
    written: u64,
    /// The client has begun HTTP/2. Before that, sent bytes (the server's settings) do not count.
    begun: bool,
    next: Pin<Box<Sleep>>,
}

impl IdleCheck {
    fn new(limits: IdleLimits) -> Self {
        Self {
            limits,
            read: 0,
            written: 0,
            begun: false,
            next: Box::pin(sleep(limits.handshake)),
        }
    }

    fn does_something(&self) -> bool {
        match self.begun {
            false => self.read >= PREFACE_BYTES,
            true => self.read.saturating_add(self.written) >= IDLE_BYTES,
        }
    }

    /// Ready when the connection has been idle for too long.
    fn poll(&mut self, context: &mut Context<'_>, peer: &Peer) -> Poll<()> {
        loop {
            ready!(self.next.as_mut().poll(context));
            if self.begun && self.limits.has_one_window {
                return Poll::Ready(());
            }
            if !self.does_something() && !peer.has_open_call() {
                return Poll::Ready(());
            }
            (self.read, self.written, self.begun) = (0, 0, true);
            self.next
                .as_mut()
                .reset(Instant::now() + self.limits.window);
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.check_ended(context)?;
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                this.idle.read += buffer.filled().len().saturating_sub(before) as u64;
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(this.idle.poll(context, &this.peer));
                debug!(peer = ?this.peer.address, "an idle connection is closed");
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.check_ended(context)?;
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes));
        if let Ok(written) = &written {
            this.idle.written += *written as u64;
        }
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.check_ended(context)?;
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, bytes));
        if let Ok(written) = &written {
            this.idle.written += *written as u64;
        }
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_ended(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::peer::OpenCall;
    use std::future::poll_fn;
    use tokio::time::timeout;
    use tonic::Request;

    /// About a thousandth of the real limits.
    const LIMITS: IdleLimits = IdleLimits {
        handshake: Duration::from_millis(50),
        window: Duration::from_millis(400),
        has_one_window: false,
    };

    /// The time after which the connection counts as idle; `None`: not within three windows.
    async fn closed_after(idle: &mut IdleCheck, peer: &Peer) -> Option<Duration> {
        let began = Instant::now();
        let closed = poll_fn(|context| idle.poll(context, peer));
        timeout(LIMITS.window * 3, closed).await.ok()?;
        Some(began.elapsed())
    }

    fn begin_call(peer: &Peer) -> Option<OpenCall> {
        let mut request = Request::new(());
        request.extensions_mut().insert(peer.clone());
        Peer::begin_call(&request)
    }

    fn peer() -> Peer {
        Peer::new(None, PeerIdentity::Plain, Arc::new(Semaphore::new(1)))
    }

    #[test]
    fn an_idle_connection_has_ten_minutes() {
        assert_eq!(IDLE_LIMITS.handshake, Duration::from_secs(10));
        assert_eq!(IDLE_LIMITS.window, Duration::from_secs(600));
        let newcomers = newcomer_limits(crate::service::limits::NEWCOMER_TIMEOUT);
        assert_eq!(newcomers.handshake, Duration::from_secs(10));
        assert_eq!(newcomers.window, Duration::from_secs(30));
    }

    /// Waits 450 ms.
    #[tokio::test]
    async fn whoever_has_no_certificate_is_closed_though_it_speaks() {
        let limits = IdleLimits {
            has_one_window: true,
            ..LIMITS
        };
        let mut idle = IdleCheck::new(limits);
        idle.read = PREFACE_BYTES;
        let peer = peer();
        let _call = begin_call(&peer);
        let after = closed_after(&mut idle, &peer).await.unwrap_or_default();
        assert!(after >= LIMITS.handshake + LIMITS.window, "{after:?}");
    }

    /// Waits 50 ms and 450 ms.
    #[tokio::test]
    async fn a_connection_that_does_nothing_is_closed() {
        let after = closed_after(&mut IdleCheck::new(LIMITS), &peer()).await;
        let after = after.unwrap_or_default();
        assert!(
            after >= LIMITS.handshake && after < LIMITS.window,
            "{after:?} before HTTP/2 begins"
        );
        let mut idle = IdleCheck::new(LIMITS);
        idle.read = PREFACE_BYTES;
        let after = closed_after(&mut idle, &peer()).await.unwrap_or_default();
        assert!(
            after >= LIMITS.handshake + LIMITS.window,
            "{after:?} without a call"
        );
    }

    /// Waits 1.6 s at most.
    #[tokio::test]
    async fn a_connection_with_an_open_call_stays_until_the_call_is_over() {
        let (mut idle, peer) = (IdleCheck::new(LIMITS), peer());
        let call = begin_call(&peer);
        assert!(call.is_some());
        assert_eq!(closed_after(&mut idle, &peer).await, None);
        drop(call);
        assert!(closed_after(&mut idle, &peer).await.is_some());
    }
}
