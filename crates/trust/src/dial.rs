//! A connection to a collector: TCP, then TLS, then HTTP/2.
//!
//! With TLS 1.3 the client's handshake ends before the collector has checked the client's certificate. To report a
//! refusal as such, [`TcpConnection::dial`] waits for the collector's HTTP/2 settings, which it sends first.

use crate::COLLECTOR_NAME;
use crate::credentials::{Credentials, CredentialsError};
use crate::fingerprint::Fingerprint;
use crate::verify::pinned_config;
use async_recursion::async_recursion as boxed;
use benchmesh_proto::{KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

/// Timeout of the TCP connect, and again of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a collector without TLS may take to send its first byte.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(300);

/// The first byte of a TLS record that is an alert: the answer of a TLS collector to a plain client.
pub const TLS_ALERT: u8 = 21;

/// The transport security of a connection.
#[derive(Clone, Debug)]
pub enum Security {
    /// Without TLS: `--insecure`.
    Plain,
    Tls(Arc<ClientConfig>),
}

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("`{address}` is not a valid address")]
    Address {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("nothing answers at {address}")]
    Unreachable {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the server at {address} is not the collector that issued this certificate ({problem}): it is another \
         collector, or a stranger took its port; if the collector was set up anew, join it again with a token"
    )]
    Untrusted { address: String, problem: String },
    #[error(
        "the certificate of the collector at {address} is not valid by this machine's clock ({problem}): set the clocks \
         of both machines"
    )]
    Clock { address: String, problem: String },
    #[error(
        "the collector at {address} does not use TLS, so its identity is unknown: start it without --insecure, or pass \
         --insecure here too if you trust the network"
    )]
    PlainCollector { address: String },
    #[error("the collector at {address} accepts only TLS: leave --insecure out")]
    TlsCollector { address: String },
    #[error(
        "the collector at {address} refuses this certificate ({problem}): join again with a token"
    )]
    Refused { address: String, problem: String },
    #[error("the connection to {address} broke during its setup")]
    Broken {
        address: String,
        #[source]
        source: io::Error,
    },
}

impl DialError {
    /// Whether a collector answers but trust is missing: an operator must act.
    #[must_use]
    pub fn is_distrust(&self) -> bool {
        !matches!(
            self,
            Self::Address { .. } | Self::Unreachable { .. } | Self::Broken { .. }
        )
    }

    /// Classifies a failed handshake, or a failed first read after it.
    fn of_tls(address: &str, source: io::Error) -> Self {
        let address = address.to_owned();
        let problem = source.to_string();
        let tls = source
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<TlsError>());
        match tls {
            Some(TlsError::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            )) => Self::Clock { address, problem },
            Some(TlsError::InvalidCertificate(_)) => Self::Untrusted { address, problem },
            Some(TlsError::InvalidMessage(_)) => Self::PlainCollector { address },
            Some(TlsError::AlertReceived(alert)) => Self::Refused {
                address,
                problem: alert_words(*alert),
            },
            _ => Self::Broken { address, source },
        }
    }
}

fn alert_words(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => "it has expired".to_owned(),
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it was issued by another CA".to_owned()
        }
        AlertDescription::CertificateRevoked => "it is revoked".to_owned(),
        other => format!("TLS alert {other:?}"),
    }
}

impl Security {
    /// Authenticates with these credentials.
    ///
    /// # Errors
    ///
    /// When a part of them is not usable.
    pub fn of(credentials: &Credentials) -> Result<Self, CredentialsError> {
        Ok(Self::Tls(Arc::new(credentials.client_config()?)))
    }

    /// Unauthenticated, to the collector with this CA.
    ///
    /// # Errors
    ///
    /// When TLS 1.3 cannot be configured, which does not happen.
    pub fn pinned(ca: Fingerprint) -> Result<Self, CredentialsError> {
        let config = pinned_config(ca).map_err(|error| CredentialsError::Part {
            part: "provider",
            problem: error.to_string(),
        })?;
        Ok(Self::Tls(Arc::new(config)))
    }
}

/// An open TCP connection to a collector, before TLS.
#[derive(Debug)]
pub struct TcpConnection {
    address: String,
    stream: TcpStream,
}

impl TcpConnection {
    /// Connects to `host:port`, within 5 s.
    ///
    /// # Errors
    /// When nothing answers.
    pub async fn at(address: &str) -> Result<Self, DialError> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .map_err(|source| DialError::Unreachable {
                address: address.to_owned(),
                source,
            })?;
        Ok(Self {
            address: address.to_owned(),
            stream,
        })
    }

    /// Whether the collector speaks HTTP/2 at once, as one without TLS does. Waits up to 300 ms; used only to improve
    /// an error message.
    pub async fn is_plain(&self) -> bool {
        let mut first = [0; 1];
        let peeked = timeout(FIRST_BYTE_TIMEOUT, self.stream.peek(&mut first)).await;
        matches!(peeked, Ok(Ok(1..)))
    }

    /// The error for a collector without TLS.
    #[must_use]
    pub fn plain_error(&self) -> DialError {
        DialError::PlainCollector {
            address: self.address.clone(),
        }
    }

    /// Continues with TLS and HTTP/2. The channel reconnects by itself, with the same credentials.
    ///
    /// # Errors
    ///
    /// When either side does not trust the other.
    #[boxed]
    #[inline(never)]
    pub async fn dial(self, security: Security) -> Result<Channel, DialError> {
        let Self { address, stream } = self;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|source| DialError::Address {
                address: address.clone(),
                source,
            })?
            .http2_keep_alive_interval(Duration::from_secs(KEEPALIVE_INTERVAL_S))
            .keep_alive_timeout(Duration::from_secs(KEEPALIVE_TIMEOUT_S))
            .keep_alive_while_idle(true);
        let first = secured(&address, stream, &security).await?;
        let connector = Connector {
            address: address.clone(),
            security,
            first: Arc::new(Mutex::new(Some(first))),
        };
        endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|source| DialError::Broken {
                address,
                source: io::Error::other(source),
            })
    }
}

async fn secured(address: &str, stream: TcpStream, security: &Security) -> Result<Io, DialError> {
    let config = match security {
        Security::Plain => {
            return Ok(Io {
                stream: Box::new(stream),
                first_byte: FirstByte::Pending {
                    address: address.to_owned(),
                },
            });
        }
        Security::Tls(config) => Arc::clone(config),
    };
    let name = ServerName::try_from(COLLECTOR_NAME).map_err(|error| DialError::Broken {
        address: address.to_owned(),
        source: io::Error::other(error),
    })?;
    let handshake = async {
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        let mut first = [0; 1];
        stream.read_exact(&mut first).await?;
        Ok(Io {
            stream: Box::new(stream),
            first_byte: FirstByte::Buffered(first),
        })
    };
    timeout(CONNECT_TIMEOUT, handshake)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|source| DialError::of_tls(address, source))
}

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection, and the state of its first byte.
struct Io {
    stream: Box<dyn ByteStream>,
    first_byte: FirstByte,
}

enum FirstByte {
    /// Already read; the next read returns it.
    Buffered([u8; 1]),
    /// Without TLS: checked when it arrives.
    Pending {
        address: String,
    },
    Consumed,
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let FirstByte::Buffered(first) = this.first_byte {
            buffer.put_slice(&first);
            this.first_byte = FirstByte::Consumed;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(context, buffer));
        if let FirstByte::Pending { address } = &this.first_byte
            && let Some(first) = buffer.filled().get(before)
        {
            if *first == TLS_ALERT {
                let address = address.clone();
                return Poll::Ready(Err(io::Error::other(DialError::TlsCollector { address })));
            }
            this.first_byte = FirstByte::Consumed;
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns the existing connection first, then opens new ones.
struct Connector {
    address: String,
    security: Security,
    first: Arc<Mutex<Option<Io>>>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Io>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let first = self
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (address, security) = (self.address.clone(), self.security.clone());
        Box::pin(async move {
            let io = match first {
                Some(first) => first,
                None => {
                    let connection = TcpConnection::at(&address).await?;
                    secured(&address, connection.stream, &security).await?
                }
            };
            Ok(TokioIo::new(io))
        })
    }
}
