//! The connection to the collector and its two streams, in the agent's own types.
//!
//! Keep-alive is on, so that a dead peer ends a stream within seconds; message sizes are bounded both ways; small
//! messages are sent without delay.

use super::WireError;
use super::batch;
use super::command::Incoming;
use super::reply::Outgoing;
use crate::envelope::{Envelope, Sequence, SpoolId};
use crate::identity::IdentityError;
use benchmesh_proto::v1;
use benchmesh_proto::v1::mesh_client::MeshClient;
use futures::StreamExt;
use prost::bytes::BufMut;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstDecoder;
use uuid::Uuid;

/// Why the agent cannot talk to the collector.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error(transparent)]
    Identity(Box<IdentityError>),
    #[error("the collector refused: {message}")]
    Refused { code: RejectCode, message: String },
    #[error("the connection broke: {message}")]
    Broken { message: String },
    #[error("invalid message from the collector")]
    Message {
        #[source]
        source: WireError,
    },
}

/// The category of a refusal, as far as the agent reacts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectCode {
    /// Another agent already uses the name or the uid.
    AlreadyThere,
    /// The wire versions differ, or a message of this agent was invalid.
    NotUnderstood,
    /// The agent is not admitted.
    NotPermitted,
}

impl ConnectionError {
    /// Classifies a status by the agent's possible reaction.
    fn from_status(status: &Status) -> Self {
        // A transport error's cause is more precise than the status' own text.
        let message = std::error::Error::source(status).map_or_else(
            || status.message().to_owned(),
            benchmesh_workloads::error_chain,
        );
        let code = match status.code() {
            Code::AlreadyExists => RejectCode::AlreadyThere,
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::OutOfRange => RejectCode::NotUnderstood,
            Code::PermissionDenied | Code::Unauthenticated => RejectCode::NotPermitted,
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
pub struct Connection {
    channel: Channel,
    client: MeshClient<Channel>,
}

/// The collector's messages after Attach.
#[derive(Debug)]
pub struct IncomingStream(Streaming<v1::CollectorMessage>);

/// The collector's acks of committed batches.
#[derive(Debug)]
pub struct AckStream(Streaming<v1::Ack>);

const PUBLISH: &str = "/benchmesh.v1.Mesh/Publish";

/// The codec of Publish: sends batches as the spool stores them, without decoding and encoding them again.
#[derive(Clone, Copy, Debug, Default)]
struct SpooledBatches;

impl Codec for SpooledBatches {
    type Encode = Envelope;
    type Decode = v1::Ack;
    type Encoder = Self;
    type Decoder = ProstDecoder<v1::Ack>;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for SpooledBatches {
    type Item = Envelope;
    type Error = Status;

    fn encode(&mut self, envelope: Envelope, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let header = batch::header(&envelope);
        out.reserve(header.len() + envelope.body.len());
        out.put_slice(&header);
        out.put_slice(&envelope.body);
        Ok(())
    }
}

impl Connection {
    /// Uses an existing channel to the collector.
    pub fn over(channel: Channel) -> Self {
        let client = MeshClient::new(channel.clone())
            .max_decoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES);
        Self { channel, client }
    }

    /// Opens the control stream; the agent's messages are taken from `outgoing`.
    ///
    /// # Errors
    /// If the collector refuses the stream or the connection breaks.
    pub async fn attach(
        &mut self,
        outgoing: mpsc::Receiver<Outgoing>,
    ) -> Result<IncomingStream, ConnectionError> {
        let up = ReceiverStream::new(outgoing).map(v1::AgentMessage::from);
        let answer = self
            .client
            .attach(up)
            .await
            .map_err(|status| ConnectionError::from_status(&status))?;
        Ok(IncomingStream(answer.into_inner()))
    }

    /// Opens the telemetry stream of a session.
    ///
    /// # Errors
    /// When the collector refuses it or the connection breaks.
    pub async fn publish(
        &mut self,
        session: &str,
        envelopes: mpsc::Receiver<Envelope>,
    ) -> Result<AckStream, ConnectionError> {
        let token: MetadataValue<Ascii> =
            session.parse().map_err(|_| ConnectionError::Message {
                source: WireError::Bad {
                    field: "welcome.session",
                    found: format!("{session:?}"),
                    problem: "which cannot be sent as metadata",
                },
            })?;
        let up = ReceiverStream::new(envelopes);
        let mut request = Request::new(up);
        request
            .metadata_mut()
            .insert(benchmesh_proto::SESSION_KEY, token);
        let mut client = Grpc::new(self.channel.clone())
            .max_decoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES);
        client
            .ready()
            .await
            .map_err(|error| ConnectionError::Broken {
                message: error.to_string(),
            })?;
        let answer = client
            .streaming(request, PathAndQuery::from_static(PUBLISH), SpooledBatches)
            .await
            .map_err(|status| ConnectionError::from_status(&status))?;
        Ok(AckStream(answer.into_inner()))
    }
}

impl IncomingStream {
    /// The next message; `None` when the collector has closed the stream. Cancel-safe.
    ///
    /// # Errors
    /// When the collector ends the session, the connection breaks, or a message is invalid.
    pub async fn next(&mut self) -> Result<Option<Incoming>, ConnectionError> {
        match self.0.message().await {
            Ok(Some(message)) => Incoming::try_from(message)
                .map(Some)
                .map_err(|source| ConnectionError::Message { source }),
            Ok(None) => Ok(None),
            Err(status) => Err(ConnectionError::from_status(&status)),
        }
    }
}

impl AckStream {
    /// The next ack: all batches up to that sequence are stored. `None` when the stream is closed. Cancel-safe.
    ///
    /// # Errors
    /// When the collector refuses a batch, the connection breaks, or an ack is invalid.
    pub async fn next(&mut self) -> Result<Option<(SpoolId, Sequence)>, ConnectionError> {
        match self.0.message().await {
            Ok(Some(ack)) => match Uuid::parse_str(&ack.spool_id) {
                Ok(spool) => Ok(Some((SpoolId(spool), Sequence(ack.sequence)))),
                Err(_) => Err(ConnectionError::Message {
                    source: WireError::Bad {
                        field: "ack.spool_id",
                        found: format!("{:?}", ack.spool_id),
                        problem: "which is no spool",
                    },
                }),
            },
            Ok(None) => Ok(None),
            Err(status) => Err(ConnectionError::from_status(&status)),
        }
    }
}
