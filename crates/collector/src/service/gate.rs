//! Who comes in: the TLS handshake of each connection, and which calls its certificate is good for.
//!
//! A client that shows no certificate, a revoked one or a forgotten one is let in as far as to be told so; only
//! [`trust`](super::trust) answers it. One whose certificate the CA did not sign, or has expired, fails in its handshake.
//! Each refusal is logged once a minute for each client, however often it comes.

use super::connection::Peer;
use crate::trust::{Authority, CertificateStatus, Holder, TrustError};
use benchmesh_trust::{Role, dial::TLS_ALERT};
use rustls::Error as TlsError;
use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};
use tracing::{debug, info};

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;
/// A fatal alert of TLS, `protocol_version`: what a client without TLS gets.
const NO_PLAIN_TEXT: [u8; 7] = [TLS_ALERT, 3, 3, 0, 2, 2, 70];

/// How much and for how long a client without TLS is listened to after it was answered.
const MAX_DRAINED_BYTES: u64 = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two lines of the log on the same refusal of the same client.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Clients and refusals that are remembered; beyond it all are forgotten.
const MAX_REFUSALS: usize = 1024;

/// Whose connection it is.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    /// Nobody can tell: `--insecure`.
    Plain,
    /// No certificate.
    Stranger,
    Known {
        holder: Holder,
        revoked: CancellationToken,
    },
    Revoked(Holder),
    /// The CA signed the certificate, and the registry has no such.
    Forgotten,
}

/// For the log.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("somebody without TLS"),
            Self::Stranger | Self::Forgotten => f.write_str("nobody"),
            Self::Known { holder, .. } | Self::Revoked(holder) => {
                write!(f, "{} {}", holder.role, holder.name)
            }
        }
    }
}

/// What bytes go over.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Lets connections in.
#[derive(Debug)]
pub(super) struct Gate {
    tls: Option<Tls>,
    refusals: Refusals,
}

struct Tls {
    acceptor: TlsAcceptor,
    authority: Arc<Authority>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Gate {
    /// `None`: everyone, without TLS.
    pub fn new(authority: Option<Arc<Authority>>) -> Result<Self, TrustError> {
        let tls = match authority {
            None => None,
            Some(authority) => Some(Tls {
                acceptor: TlsAcceptor::from(Arc::new(authority.server_config()?)),
                authority,
            }),
        };
        Ok(Self {
            tls,
            refusals: Refusals::default(),
        })
    }

    /// The connection and whose it is; `None`: it is closed.
    pub async fn admit(
        &self,
        stream: TcpStream,
        address: Option<SocketAddr>,
        limit: Duration,
    ) -> Option<(Transport, Identity)> {
        let Some(tls) = &self.tls else {
            return Some((Transport::Plain(stream), Identity::Plain));
        };
        let Ok(handshake) = timeout(limit, tls.shake_hands(stream)).await else {
            debug!(?address, "a connection did not begin TLS in time");
            return None;
        };
        match handshake {
            Ok(stream) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let certificate = certificates.and_then(<[_]>::first);
                let identity = certificate.map_or(Identity::Stranger, |certificate| {
                    match tls.authority.status(certificate) {
                        CertificateStatus::Good { holder, revoked } => {
                            Identity::Known { holder, revoked }
                        }
                        CertificateStatus::Revoked(holder) => Identity::Revoked(holder),
                        CertificateStatus::Unknown => Identity::Forgotten,
                    }
                });
                Some((Transport::Tls(Box::new(stream)), identity))
            }
            Err(problem) => {
                let address = address.map(|address| address.ip());
                match problem {
                    Some(problem) => self.refusals.log(address, &problem),
                    None => debug!(?address, "a connection ended before TLS began"),
                }
                None
            }
        }
    }

    /// Whether a call by a holder of the right role may be made.
    pub fn check<T>(&self, request: &Request<T>, needed: Needed) -> Result<(), Status> {
        let identity = Peer::identity(request);
        let refusal = match &identity {
            Identity::Plain => return Ok(()),
            Identity::Known { holder, revoked } if !revoked.is_cancelled() => {
                match needed.is_met_by(holder.role) {
                    true => return Ok(()),
                    false => Status::permission_denied(format!(
                        "the certificate of the {} `{}` is not good for this: it takes {}",
                        holder.role,
                        holder.name,
                        needed.words(),
                    )),
                }
            }
            Identity::Known { holder, .. } | Identity::Revoked(holder) => {
                Status::unauthenticated(format!(
                    "the certificate of the {} `{}` is revoked: join again with a token of `benchmesh collector token`",
                    holder.role, holder.name
                ))
            }
            Identity::Forgotten => Status::unauthenticated(
                "this collector does not know the certificate, though it is of its CA: join again with a token of `benchmesh collector token`",
            ),
            Identity::Stranger => Status::unauthenticated(
                "no certificate was shown: join with a token of `benchmesh collector token`",
            ),
        };
        self.refusals.log(Peer::address(request), refusal.message());
        Err(refusal)
    }

    /// Logs a refusal that was decided elsewhere.
    pub fn log_refusal(&self, address: Option<IpAddr>, problem: &str) {
        self.refusals.log(address, problem);
    }
}

impl Tls {
    /// The error is what to log; `None`: nothing came.
    async fn shake_hands(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, Option<String>> {
        let mut first = [0; 1];
        match stream.peek(&mut first).await {
            Ok(1..) if first == [TLS_HANDSHAKE] => {}
            Ok(1..) => {
                refuse_plain_text(stream).await;
                return Err(Some(
                    "it speaks without TLS: leave --insecure out there, or start the collector with it too".to_owned(),
                ));
            }
            _ => return Err(None),
        }
        self.acceptor.accept(stream).await.map_err(|error| {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
            tls.map(|error| match error {
                TlsError::AlertReceived(_) => {
                    format!("it does not accept this collector's certificate ({error})")
                }
                TlsError::InvalidCertificate(_) => {
                    format!("its certificate is not good ({error})")
                }
                _ => format!("no TLS handshake ({error})"),
            })
        })
    }
}

/// Says that there is TLS alone. What the client still sends is read, within limits: closing with bytes unread would reset
/// the connection, and the answer would be lost.
async fn refuse_plain_text(mut stream: TcpStream) {
    let answer = async {
        stream.write_all(&NO_PLAIN_TEXT).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MAX_DRAINED_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(DRAIN_TIMEOUT, answer).await;
}

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    Agent,
    Operator,
    Owner,
}

impl Needed {
    fn is_met_by(self, role: Role) -> bool {
        match self {
            Self::Agent => role == Role::Agent,
            Self::Operator => matches!(role, Role::Operator | Role::Owner),
            Self::Owner => role == Role::Owner,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Agent => "an agent's",
            Self::Operator => "an operator's",
            Self::Owner => "the credentials of the user that the collector runs as",
        }
    }
}

/// What has been logged of late.
#[derive(Debug, Default)]
struct Refusals(Mutex<HashMap<(Option<IpAddr>, String), Instant>>);

impl Refusals {
    fn log(&self, address: Option<IpAddr>, problem: &str) {
        if self.is_new(address, problem, Instant::now()) {
            let address = address.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
            info!(%address, %problem, "a client is refused");
        }
    }

    fn is_new(&self, address: Option<IpAddr>, problem: &str, now: Instant) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_REFUSALS {
            logged.clear();
        }
        let key = (address, problem.to_owned());
        let last = logged.get(&key);
        let is_new = last.is_none_or(|last| now.duration_since(*last) >= LOG_INTERVAL);
        if is_new {
            logged.insert(key, now);
        }
        is_new
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_its_calls() {
        for (role, agent, operator, owner) in [
            (Role::Agent, true, false, false),
            (Role::Operator, false, true, false),
            (Role::Owner, false, true, true),
        ] {
            assert_eq!(Needed::Agent.is_met_by(role), agent, "{role}");
            assert_eq!(Needed::Operator.is_met_by(role), operator, "{role}");
            assert_eq!(Needed::Owner.is_met_by(role), owner, "{role}");
        }
    }

    #[test]
    fn a_refusal_is_logged_once_a_minute_for_each_client() {
        let refusals = Refusals::default();
        let (here, there) = (
            Some(IpAddr::from([10, 0, 0, 1])),
            Some(IpAddr::from([10, 0, 0, 2])),
        );
        let now = Instant::now();
        assert!(refusals.is_new(here, "a", now));
        assert!(!refusals.is_new(here, "a", now + LOG_INTERVAL / 2));
        assert!(refusals.is_new(here, "b", now) && refusals.is_new(there, "a", now));
        assert!(refusals.is_new(here, "a", now + LOG_INTERVAL));
    }
}
