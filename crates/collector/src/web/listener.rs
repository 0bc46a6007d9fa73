//! A bounded number of connections; one is closed when its client stops reading or stays idle.

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};
use tracing::debug;

/// Maximum number of open connections; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 512;
/// A client that reads nothing for this long has disconnected or is hostile.
const WRITE_STALL: Duration = Duration::from_secs(20);
/// Time limit of a connection without traffic in either direction. Longer than any query.
const IDLE: Duration = Duration::from_secs(180);
/// Time limit from a connection's beginning to the end of its first request's head, however slowly it arrives.
const FIRST_HEAD: Duration = Duration::from_secs(10);
/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The listener of the page.
#[derive(Debug)]
pub struct Connections {
    listener: TcpListener,
    room: Arc<Semaphore>,
    write_stall: Duration,
}

impl Connections {
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            write_stall: WRITE_STALL,
        }
    }

    #[cfg(test)]
    pub fn cut_after(self, write_stall: Duration) -> Self {
        Self {
            write_stall,
            ..self
        }
    }
}

impl Listener for Connections {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let room = Arc::clone(&self.room).acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // Sends small events at once.
                    if let Err(error) = stream.set_nodelay(true) {
                        debug!(%error, "cannot set TCP_NODELAY");
                    }
                    let connection =
                        Connection::new(stream, room, self.write_stall, IDLE, FIRST_HEAD);
                    return (connection, address);
                }
                Err(error) => {
                    debug!(%error, "cannot accept a connection to the page");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// The address of a request.
#[derive(Clone, Copy, Debug)]
pub struct Client(pub IpAddr);

impl Connected<IncomingStream<'_, Connections>> for Client {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        Self(stream.remote_addr().ip())
    }
}

/// One connection with its deadlines.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    write_stall: Duration,
    idle: Duration,
    /// Set while a write waits for its client.
    stalled: Option<Pin<Box<Sleep>>>,
    quiet: Pin<Box<Sleep>>,
    /// `None` once the first request's head has arrived.
    first_head: Option<FirstHead>,
    _room: Option<OwnedSemaphorePermit>,
}

/// A head that has not ended.
#[derive(Debug)]
struct FirstHead {
    /// Number of bytes of [`HEAD_END`] at the end of the received data.
    matched: usize,
    due: Pin<Box<Sleep>>,
}

impl FirstHead {
    /// Whether the head ends in these bytes.
    fn ends_in(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            self.matched = match HEAD_END.get(self.matched) == Some(byte) {
                true => self.matched + 1,
                false => usize::from(*byte == b'\r'),
            };
            if self.matched == HEAD_END.len() {
                return true;
            }
        }
        false
    }
}

impl<S> Connection<S> {
    fn new(
        stream: S,
        room: Option<OwnedSemaphorePermit>,
        write_stall: Duration,
        idle: Duration,
        first_head: Duration,
    ) -> Self {
        Self {
            stream,
            write_stall,
            idle,
            stalled: None,
            quiet: Box::pin(sleep(idle)),
            first_head: Some(FirstHead {
                matched: 0,
                due: Box::pin(sleep(first_head)),
            }),
            _room: room,
        }
    }

    /// Resets the idle deadline after traffic.
    fn moved(&mut self) {
        let until = Instant::now() + self.idle;
        self.quiet.as_mut().reset(until);
    }

    /// Whether a deadline has passed. Reads poll it too, because a server always has one pending. A write that waits
    /// for its client is therefore cut without another attempt to write.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let is_stalled = self
            .stalled
            .as_mut()
            .is_some_and(|stalled| stalled.as_mut().poll(context).is_ready());
        let is_without_request = self
            .first_head
            .as_mut()
            .is_some_and(|head| head.due.as_mut().poll(context).is_ready());
        if is_stalled || is_without_request || self.quiet.as_mut().poll(context).is_ready() {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                let came = buffer.filled().get(before..).unwrap_or_default();
                if let Some(head) = &mut this.first_head
                    && head.ends_in(came)
                {
                    this.first_head = None;
                } else if let Poll::Ready(late) = this.poll_late(context) {
                    return Poll::Ready(Err(late));
                }
                this.moved();
                Poll::Ready(result)
            }
            Poll::Pending => this.poll_late(context).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> Connection<S> {
    fn poll_written(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(result) => {
                self.stalled = None;
                self.moved();
                Poll::Ready(result)
            }
            Poll::Pending => {
                let limit = self.write_stall;
                self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
                self.poll_late(context).map(Err)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.poll_written(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.poll_written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const STALL: Duration = Duration::from_millis(300);
    const QUIET: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut() {
        let (ours, _theirs) = duplex(1024);
        let mut connection = Connection::new(ours, None, STALL, QUIET, QUIET);
        let began = Instant::now();
        let error = connection.write_all(&[0; 4096]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL && began.elapsed() < QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_kept() {
        let (ours, mut theirs) = duplex(1024);
        let mut connection = Connection::new(ours, None, STALL, QUIET, QUIET);
        let reader = tokio::spawn(async move {
            let mut taken = vec![0; 1024];
            for _ in 0..4 {
                sleep(STALL / 6).await;
                theirs.read_exact(&mut taken).await.unwrap();
            }
        });
        connection.write_all(&[0; 4096]).await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_never_ends_is_cut_though_it_moves() {
        let (ours, mut theirs) = duplex(1024);
        let mut connection = Connection::new(ours, None, QUIET, QUIET, STALL);
        let dripping = tokio::spawn(async move {
            theirs.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            while theirs.write_all(b"x: y\r\n").await.is_ok() {
                sleep(STALL / 10).await;
            }
        });
        let mut head = Vec::new();
        let error = connection.read_to_end(&mut head).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(connection);
        dripping.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_ends_wherever_it_is_cut() {
        let head = b"GET / HTTP/1.1\r\nHost: x\r\r\n\r\n";
        for cut in 0..head.len() {
            let (first, rest) = head.split_at(cut);
            let mut found = FirstHead {
                matched: 0,
                due: Box::pin(sleep(QUIET)),
            };
            assert!(!found.ends_in(first) && found.ends_in(rest), "{cut}");
        }
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_moves_is_cut() {
        let (ours, _theirs) = duplex(1024);
        let mut connection = Connection::new(ours, None, QUIET, STALL, QUIET);
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
