//! The connection to the collector and its two streams, in the agent's own types.
//!
//! Keep-alive is on, so that a dead peer ends a stream within seconds; message sizes are bounded both ways; small
//! messages leave at once.

use super::WireError;
use super::batch;
use super::command::Heard;
use super::reply::Said;
use crate::spool::{Parcel, Sequence, SpoolId};
use benchmesh_proto::v1;
use benchmesh_proto::v1::mesh_client::MeshClient;
use futures::StreamExt;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use uuid::Uuid;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the collector cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("`{address}` is not an address that can be dialled")]
    Address {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("nothing answers at {address}")]
    Dial {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("the collector refused: {message}")]
    Refused { code: Refusal, message: String },
    #[error("the connection broke: {message}")]
    Broken { message: String },
    #[error("the collector's message cannot be")]
    Message {
        #[source]
        source: WireError,
    },
}

/// What a refusal means to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another agent has the name or the uid.
    AlreadyThere,
    /// The two do not speak the same wire, or this agent's words are not accepted.
    NotUnderstood,
    /// The agent is not let in.
    NotPermitted,
}

impl LinkError {
    /// Sorts a status by what can be done about it.
    fn from_status(status: &Status) -> Self {
        let message = status.message().to_owned();
        let code = match status.code() {
            Code::AlreadyExists => Refusal::AlreadyThere,
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::OutOfRange => Refusal::NotUnderstood,
            Code::PermissionDenied | Code::Unauthenticated => Refusal::NotPermitted,
            code => {
                let message = if message.is_empty() {
                    code.description().to_owned()
                } else {
                    message
                };
                return Self::Broken { message };
            }
        };
        Self::Refused { code, message }
    }
}

/// A connection, not yet attached.
#[derive(Clone, Debug)]
pub struct Link {
    client: MeshClient<Channel>,
}

/// What the collector says on Attach.
#[derive(Debug)]
pub struct HeardStream(Streaming<v1::CollectorMessage>);

/// What the collector has committed.
#[derive(Debug)]
pub struct AckStream(Streaming<v1::Ack>);

impl Link {
    /// Dials `host:port`.
    ///
    /// # Errors
    /// When nothing answers there within 5 s.
    pub async fn dial(address: &str) -> Result<Self, LinkError> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|source| LinkError::Address {
                address: address.to_owned(),
                source,
            })?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(benchmesh_proto::KEEPALIVE_INTERVAL_S))
            .keep_alive_timeout(Duration::from_secs(benchmesh_proto::KEEPALIVE_TIMEOUT_S))
            .keep_alive_while_idle(true);
        let channel = endpoint.connect().await.map_err(|source| LinkError::Dial {
            address: address.to_owned(),
            source,
        })?;
        let client = MeshClient::new(channel)
            .max_decoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES);
        Ok(Self { client })
    }

    /// Opens the control stream; what is sent to the other end of `said` goes up.
    ///
    /// # Errors
    /// When the collector refuses it or the connection breaks.
    pub async fn attach(&mut self, said: mpsc::Receiver<Said>) -> Result<HeardStream, LinkError> {
        let up = ReceiverStream::new(said).map(v1::AgentMessage::from);
        let answer = self
            .client
            .attach(up)
            .await
            .map_err(|status| LinkError::from_status(&status))?;
        Ok(HeardStream(answer.into_inner()))
    }

    /// Opens the telemetry stream of a session.
    ///
    /// # Errors
    /// When the collector refuses it or the connection breaks.
    pub async fn publish(
        &mut self,
        session: &str,
        parcels: mpsc::Receiver<Parcel>,
    ) -> Result<AckStream, LinkError> {
        let token: MetadataValue<Ascii> = session.parse().map_err(|_| LinkError::Message {
            source: WireError::Bad {
                field: "welcome.session",
                found: format!("{session:?}"),
                problem: "which cannot be sent as metadata",
            },
        })?;
        // The spool has checked the body; one that does not decode all the same ends the stream, never the agent.
        let up = ReceiverStream::new(parcels)
            .map(|parcel| batch::message(&parcel))
            .scan((), |(), it| {
                let it = it
                    .inspect_err(|error| tracing::error!(%error, "a spooled batch cannot be read"))
                    .ok();
                futures::future::ready(it)
            });
        let mut request = Request::new(up);
        request
            .metadata_mut()
            .insert(benchmesh_proto::SESSION_KEY, token);
        let answer = self
            .client
            .publish(request)
            .await
            .map_err(|status| LinkError::from_status(&status))?;
        Ok(AckStream(answer.into_inner()))
    }
}

impl HeardStream {
    /// The next message; `None` when the collector has closed the stream. Cancel-safe.
    ///
    /// # Errors
    /// When the collector ends the session, the connection breaks, or a message cannot be.
    pub async fn next(&mut self) -> Result<Option<Heard>, LinkError> {
        match self.0.message().await {
            Ok(Some(message)) => Heard::try_from(message)
                .map(Some)
                .map_err(|source| LinkError::Message { source }),
            Ok(None) => Ok(None),
            Err(status) => Err(LinkError::from_status(&status)),
        }
    }
}

impl AckStream {
    /// The next ack: everything up to that sequence is stored. `None` when the stream is closed. Cancel-safe.
    ///
    /// # Errors
    /// When the collector refuses a batch, the connection breaks, or an ack cannot be.
    pub async fn next(&mut self) -> Result<Option<(SpoolId, Sequence)>, LinkError> {
        match self.0.message().await {
            Ok(Some(ack)) => match Uuid::parse_str(&ack.spool_id) {
                Ok(spool) => Ok(Some((SpoolId(spool), Sequence(ack.sequence)))),
                Err(_) => Err(LinkError::Message {
                    source: WireError::Bad {
                        field: "ack.spool_id",
                        found: format!("{:?}", ack.spool_id),
                        problem: "which is no spool",
                    },
                }),
            },
            Ok(None) => Ok(None),
            Err(status) => Err(LinkError::from_status(&status)),
        }
    }
}
