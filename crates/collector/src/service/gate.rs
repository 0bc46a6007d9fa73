//! Admission of connections: the TLS handshake, and the calls that a certificate permits.
//!
//! A client without a certificate, or with a revoked or forgotten one, is admitted only to receive an error; only
//! [`trust`](super::trust) answers it. A certificate that the CA did not sign, or that has expired, fails in the
//! handshake. Each refusal is logged once a minute for each client, however often it comes.

use super::peer::{Peer, PeerIdentity};
use crate::refusals::Refusals;
use crate::trust::{Authority, CertificateStatus, TrustError};
use benchmesh_trust::{Role, dial::TLS_ALERT};
use rustls::Error as TlsError;
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::{Request, Status, codegen::http};
use tracing::debug;

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;
/// A fatal alert of TLS, `protocol_version`: the answer to a client without TLS.
const NO_PLAIN_TEXT: [u8; 7] = [TLS_ALERT, 3, 3, 0, 2, 2, 70];

/// The one call that is open to clients without a certificate.
const ENROL: &str = "/benchmesh.v1.Trust/Enrol";

/// After the answer to a client without TLS, at most this many further bytes are read, within a time limit.
const MAX_DRAINED_BYTES: u64 = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The transport of a connection.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Admits connections.
#[derive(Debug)]
pub(super) struct Gate {
    tls: Option<Tls>,
    refusals: Arc<Refusals>,
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
    /// `None`: admits everyone, without TLS.
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
            refusals: Arc::default(),
        })
    }

    /// The connection and its owner; `None` if it was closed.
    pub async fn admit(
        &self,
        stream: TcpStream,
        address: Option<SocketAddr>,
        limit: Duration,
    ) -> Option<(Transport, PeerIdentity)> {
        let Some(tls) = &self.tls else {
            return Some((Transport::Plain(stream), PeerIdentity::Plain));
        };
        let Ok(handshake) = timeout(limit, tls.shake_hands(stream)).await else {
            debug!(?address, "a connection did not begin TLS in time");
            return None;
        };
        match handshake {
            Ok(stream) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let certificate = certificates.and_then(<[_]>::first);
                let identity = certificate.map_or(PeerIdentity::Stranger, |certificate| match tls
                    .authority
                    .status(certificate)
                {
                    CertificateStatus::Good { holder, revoked } => {
                        PeerIdentity::Known { holder, revoked }
                    }
                    CertificateStatus::Revoked(holder) => PeerIdentity::Revoked(holder),
                    CertificateStatus::Unknown => PeerIdentity::Forgotten,
                });
                Some((Transport::Tls(Box::new(stream)), identity))
            }
            Err(problem) => {
                let address = address.map(|address| address.ip());
                match problem {
                    Some(problem) => self.log_refusal(address, &problem),
                    None => debug!(?address, "a connection ended before TLS began"),
                }
                None
            }
        }
    }

    /// The answer to a call of a client without a valid certificate, whatever its path; `None` if the call is allowed.
    pub fn refuse_stranger<B>(&self, request: &http::Request<B>) -> Option<Status> {
        let peer = request.extensions().get::<Peer>();
        let refusal = peer
            .map_or(&PeerIdentity::Stranger, |peer| &peer.identity)
            .refusal()?;
        if request.uri().path() == ENROL {
            return None;
        }
        self.log_refusal(peer.and_then(Peer::ip), refusal.message());
        Some(refusal)
    }

    /// Whether the requester's role allows the call.
    pub fn check<T>(&self, request: &Request<T>, needed: Needed) -> Result<(), Status> {
        let identity = Peer::identity(request);
        let refusal = match (identity.refusal(), &identity) {
            (Some(refusal), _) => refusal,
            (None, PeerIdentity::Known { holder, .. }) if !needed.is_met_by(holder.role) => {
                Status::permission_denied(format!(
                    "the certificate of the {} `{}` does not permit this call, which requires {}",
                    holder.role,
                    holder.name,
                    needed.words(),
                ))
            }
            (None, _) => return Ok(()),
        };
        self.log_refusal(Peer::address(request), refusal.message());
        Err(refusal)
    }

    /// The recently logged refusals; the page's refusals count too.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// Logs a refusal of a client at this address.
    pub fn log_refusal(&self, address: Option<IpAddr>, problem: &str) {
        self.refusals.log(address, problem);
    }

    /// Logs a refusal of a known client.
    pub fn log_refusal_of(&self, client: &str, problem: &str) {
        self.refusals.log_of(client, problem);
    }

    /// Logs a fault of an attached agent, which may leave gaps in a result.
    pub fn log_fault_of(&self, agent: &str, what: &'static str, problem: &str) {
        self.refusals.log_fault_of(agent, what, problem);
    }
}

impl Tls {
    /// The error is for the log; `None` if no data arrived.
    async fn shake_hands(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, Option<String>> {
        let mut first = [0; 1];
        match stream.peek(&mut first).await {
            Ok(1..) if first == [TLS_HANDSHAKE] => {}
            Ok(1..) => {
                refuse_plain_text(stream).await;
                return Err(Some(
                    "the client does not use TLS: start it without --insecure, or start the collector with \
                    --insecure too"
                        .to_owned(),
                ));
            }
            _ => return Err(None),
        }
        self.acceptor.accept(stream).await.map_err(|error| {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
            tls.map(|error| match error {
                TlsError::AlertReceived(_) => {
                    format!("the client rejected this collector's certificate ({error})")
                }
                TlsError::InvalidCertificate(_) => {
                    format!("the client's certificate is invalid ({error})")
                }
                _ => format!("the TLS handshake failed ({error})"),
            })
        })
    }
}

/// Answers that only TLS is served. The client's remaining bytes are read, within limits: closing with unread bytes
/// would reset the connection, and the answer would be lost.
async fn refuse_plain_text(mut stream: TcpStream) {
    let answer = async {
        stream.write_all(&NO_PLAIN_TEXT).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MAX_DRAINED_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(DRAIN_TIMEOUT, answer).await;
}

/// Roles that may make a call.
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
            Self::Agent => "an agent's certificate",
            Self::Operator => "an operator's certificate",
            Self::Owner => "the credentials of the user that the collector runs as",
        }
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
}
