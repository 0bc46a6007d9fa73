//! The `Mesh` service for agents: Attach and Publish. An invalid message ends only its own stream, with the field's
//! name.

use super::{
    gate::Gate,
    limits::MAX_CALLS_OF_AGENT,
    peer::{Peer, PeerIdentity},
    wire::ingest_status,
};
use benchmesh_model::mesh::AgentId;
use benchmesh_proto::{SESSION_KEY, v1, v1::mesh_server::Mesh};
use benchmesh_scheduler::{
    cut::printable,
    sessions::{
        AttachError, Fleet, Hello, NameProof, Outgoing, PublishSession, SessionHandle,
        hello::BadField,
        wire::{Incoming, outgoing},
    },
};
use benchmesh_store::{
    MAX_WINDOW, Store,
    clock::MeshClock,
    ingest::{Batch, Receipt, batch::BatchError},
    off_runtime,
};
use futures::{Stream, StreamExt, stream};
use prost::Message;
use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

/// Maximum number of logged characters of an unchecked name.
const MAX_LOGGED_NAME_CHARS: usize = 64;
/// Time limit for the Hello of a new stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Debug)]
pub(super) struct MeshService {
    fleet: Fleet,
    store: Store,
    clock: Arc<MeshClock>,
    tasks: TaskTracker,
    closing: CancellationToken,
    gate: Arc<Gate>,
}

impl MeshService {
    pub fn new(
        fleet: Fleet,
        store: Store,
        clock: Arc<MeshClock>,
        tasks: TaskTracker,
        closing: CancellationToken,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            fleet,
            store,
            clock,
            tasks,
            closing,
            gate,
        }
    }

    /// The session that a request's token belongs to.
    fn session_of<T>(&self, request: &Request<T>) -> Result<PublishSession, Status> {
        let token = request
            .metadata()
            .get(SESSION_KEY)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| {
                Status::unauthenticated(format!("the metadata key {SESSION_KEY} is missing"))
            })?;
        self.fleet
            .session(token)
            .ok_or_else(|| Status::unauthenticated("this session is not attached: attach first"))
    }

    /// One of the open calls of an agent, until it is dropped.
    fn take_call<T>(&self, request: &Request<T>) -> Result<OwnedSemaphorePermit, Status> {
        Peer::take_large_call(request).ok_or_else(|| {
            let status = Status::resource_exhausted(format!(
                "this agent has {MAX_CALLS_OF_AGENT} open calls already: end one of them first"
            ));
            self.gate
                .log_refusal(Peer::address(request), status.message());
            status
        })
    }
}

fn bad_field_status(error: &BadField) -> Status {
    Status::invalid_argument(error.to_string())
}

fn attach_status(error: &AttachError) -> Status {
    let message = error.to_string();
    match error {
        AttachError::WireVersion { .. } => Status::failed_precondition(message),
        AttachError::BadField(_) => Status::invalid_argument(message),
        AttachError::UidBound { .. } => Status::permission_denied(message),
        AttachError::NameInUse { .. } | AttachError::IdentityInUse { .. } => {
            Status::already_exists(message)
        }
        AttachError::EarlierStart { .. } | AttachError::NameHeld { .. } => {
            Status::unavailable(message)
        }
        AttachError::Full
        | AttachError::TooOften { .. }
        | AttachError::ChangesTooOften { .. }
        | AttachError::Flood(_) => Status::resource_exhausted(message),
        AttachError::Store { source } => Status::unavailable(format!("{message}: {source}")),
    }
}

/// An unchecked text in printable form, for one line of the log.
fn shown(name: &str) -> String {
    printable(MAX_LOGGED_NAME_CHARS, name)
}

/// The Hello that a stream begins with.
async fn first_hello(inbound: &mut Streaming<v1::AgentMessage>) -> Result<Box<Hello>, Status> {
    let first = timeout(HELLO_TIMEOUT, inbound.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no hello arrived within 10 s"))??
        .ok_or_else(|| Status::invalid_argument("the stream ended before its hello"))?;
    match Incoming::try_from(first).map_err(|error| bad_field_status(&error))? {
        Incoming::Hello(hello) => Ok(hello),
        _ => Err(Status::invalid_argument("the first message is not a hello")),
    }
}

#[tonic::async_trait]
impl Mesh for MeshService {
    type AttachStream = ResponseStream<v1::CollectorMessage>;
    type PublishStream = ResponseStream<v1::Ack>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let call = self.take_call(&request)?;
        let from = Peer::address(&request);
        let identity = Peer::identity(&request);
        let mut inbound = request.into_inner();
        let hello = first_hello(&mut inbound).await.inspect_err(|status| {
            // Otherwise the stream broke.
            if is_fault(status) {
                self.gate.log_refusal(from, status.message());
            }
        })?;
        if let PeerIdentity::Known { holder, .. } = &identity
            && holder.name != hello.name
        {
            let status = Status::permission_denied(format!(
                "this agent's certificate is for the name `{}`, but the agent attaches as `{}`: start it with the \
                name of its certificate, or join again with a token",
                holder.name,
                shown(&hello.name),
            ));
            self.gate.log_refusal(from, status.message());
            return Err(status);
        }
        // Unchecked: its content must fit one line of the log.
        let name = shown(&hello.name);
        let proof = match identity {
            PeerIdentity::Plain => NameProof::None,
            _ => NameProof::Certificate,
        };
        let attached = self
            .fleet
            .attach(*hello, from, proof)
            .await
            .map_err(|error| {
                self.gate
                    .log_fault_of(&name, "an agent is refused", &error.to_string());
                attach_status(&error)
            })?;
        let ended = attached.handle.cancel.clone();
        let (end_status, end_status_receiver) = oneshot::channel();
        let listener = Listener {
            handle: attached.handle,
            name,
            gate: Arc::clone(&self.gate),
            _call: call,
        };
        self.tasks
            .spawn(listener.run(inbound, end_status, self.closing.clone()));
        let clock = Arc::clone(&self.clock);
        let welcome = stream::once(async { Ok(attached.welcome.into()) });
        let rest = outgoing_messages(attached.outgoing, ended, end_status_receiver)
            .map(move |message| message.map(|message| outgoing(message, &clock)));
        Ok(Response::new(Box::pin(welcome.chain(rest))))
    }

    async fn publish(
        &self,
        request: Request<Streaming<v1::Batch>>,
    ) -> Result<Response<Self::PublishStream>, Status> {
        let call = self.take_call(&request)?;
        let session = self.session_of(&request).inspect_err(|status| {
            self.gate
                .log_refusal(Peer::address(&request), status.message());
        })?;
        if let PeerIdentity::Known { holder, .. } = Peer::identity(&request)
            && holder.name != session.name
        {
            let status = Status::permission_denied(format!(
                "this agent's certificate is for the name `{}`, but the session belongs to `{}`: an agent can only \
                publish in its own session",
                holder.name, session.name,
            ));
            self.gate
                .log_refusal(Peer::address(&request), status.message());
            return Err(status);
        }
        let agent = session.agent;
        let publisher = self
            .store
            .publisher(agent, session.host, session.net_namespace)
            .with_window(session.window_batches);
        let (receipts, receiver) = mpsc::channel(MAX_WINDOW);
        let reader = BatchReader {
            fleet: self.fleet.clone(),
            agent,
            name: session.name.clone(),
            spools: session.spools,
            publisher,
            store: self.store.clone(),
            receipts,
            has_submitted: false,
            _call: call,
        };
        self.tasks
            .spawn(reader.run(request.into_inner(), session.ended, self.closing.clone()));
        let gate = Arc::clone(&self.gate);
        Ok(Response::new(Box::pin(acks(session.name, receiver, gate))))
    }
}

/// Reads an agent's messages.
struct Listener {
    handle: SessionHandle,
    name: String,
    gate: Arc<Gate>,
    _call: OwnedSemaphorePermit,
}

impl Listener {
    /// Runs until its stream or session ends, or the collector closes. The agent's fault, if there is one, is sent to
    /// `end_status`.
    async fn run(
        self,
        mut inbound: Streaming<v1::AgentMessage>,
        end_status: oneshot::Sender<Status>,
        closing: CancellationToken,
    ) {
        let handle = &self.handle;
        let cancel = handle.cancel.clone();
        loop {
            let message = tokio::select! {
                () = closing.cancelled() => {
                    let _ = end_status.send(Status::unavailable("the collector is closing"));
                    return;
                }
                () = cancel.cancelled() => {
                    let _ = end_status.send(Status::aborted("the session ended: attach again"));
                    return;
                }
                message = inbound.message() => message,
            };
            let heard = match message {
                Ok(Some(message)) => Incoming::try_from(message),
                Ok(None) => return,
                Err(status) if is_refusal(&status) => return self.refuse(status, end_status),
                Err(status) => {
                    debug!(agent = %handle.agent(), %status, "stream broke");
                    return;
                }
            };
            match heard {
                Ok(Incoming::Probe { agent_sent_ns }) => handle.answer_probe(agent_sent_ns),
                Ok(Incoming::SpoolBlocked { since_ns, for_ns }) => {
                    handle.note_spool_blocked(since_ns, for_ns);
                }
                Ok(Incoming::Reply { id, reply }) => handle.deliver_reply(id, reply),
                Ok(Incoming::Progress { id, progress }) => handle.deliver_progress(id, progress),
                Ok(Incoming::Hello(_)) => {
                    return self.refuse(
                        Status::invalid_argument("a second hello: send one per stream"),
                        end_status,
                    );
                }
                Err(error) => return self.refuse(bad_field_status(&error), end_status),
            }
        }
    }
}

impl Listener {
    /// Ends the stream because of an invalid message of the agent.
    fn refuse(&self, status: Status, end_status: oneshot::Sender<Status>) {
        let what = "an agent sent an invalid message; its session ends";
        self.gate.log_fault_of(&self.name, what, status.message());
        let _ = end_status.send(status);
    }
}

/// Messages to the agent, then the status that ends the stream.
fn outgoing_messages(
    outgoing: mpsc::Receiver<Outgoing>,
    ended: CancellationToken,
    end_status: oneshot::Receiver<Status>,
) -> impl Stream<Item = Result<Outgoing, Status>> {
    stream::unfold(Some((outgoing, ended, end_status)), |state| async {
        let (mut outgoing, ended, end_status) = state?;
        let message = tokio::select! {
            biased;
            () = ended.cancelled() => None,
            message = outgoing.recv() => message,
        };
        match message {
            Some(message) => Some((Ok(message), Some((outgoing, ended, end_status)))),
            // The listener sends its reason before it drops the sender; if it sends none, the agent itself has left.
            None => end_status.await.ok().map(|status| (Err(status), None)),
        }
    })
}

/// Reads batches from a Publish stream.
struct BatchReader {
    fleet: Fleet,
    agent: AgentId,
    name: String,
    spools: BTreeSet<String>,
    publisher: benchmesh_store::Publisher,
    store: Store,
    receipts: mpsc::Sender<Result<Receipt, Status>>,
    /// Whether a batch of this stream has been submitted.
    has_submitted: bool,
    _call: OwnedSemaphorePermit,
}

impl BatchReader {
    async fn run(
        mut self,
        inbound: Streaming<v1::Batch>,
        ended: CancellationToken,
        closing: CancellationToken,
    ) {
        let status = self.read(inbound, ended, closing).await;
        // Batches already sent are acknowledged before the stream ends. A stream without any must not have the rows of
        // others committed.
        if self.has_submitted {
            self.store.flush().await;
        }
        if let Some(status) = status {
            let _ = self.receipts.send(Err(status)).await;
        }
    }

    /// Reads until the stream ends. Returns the reason, unless the agent ended it.
    async fn read(
        &mut self,
        mut inbound: Streaming<v1::Batch>,
        ended: CancellationToken,
        closing: CancellationToken,
    ) -> Option<Status> {
        let status = loop {
            let message = tokio::select! {
                () = closing.cancelled() => break Status::unavailable("the collector is closing"),
                () = ended.cancelled() => break Status::aborted("the session ended: attach again"),
                message = inbound.message() => message,
            };
            let batch = match message {
                Ok(Some(batch)) => batch,
                Ok(None) => return None,
                // The decoder has refused a message that is not a batch, or is too large; otherwise the stream broke.
                Err(status) if is_refusal(&status) => break status,
                Err(_) => return None,
            };
            let message_bytes = batch.encoded_len();
            let mut batch = match checked(batch).await {
                Ok(batch) => batch,
                Err(error) => break Status::invalid_argument(format!("batch: {error}")),
            };
            self.fleet.take_out_of_others(self.agent, &mut batch);
            let bytes = batch.bytes_to_store(message_bytes);
            if let Err(flood) = self.fleet.spend(self.agent, &self.name, bytes) {
                break Status::resource_exhausted(flood.to_string());
            }
            if !self.spools.contains(&batch.spool_id) {
                break Status::invalid_argument(format!(
                    "batch: the hello did not announce spool_id `{}`: attach again with it in hello.spool_ids",
                    batch.spool_id.escape_debug()
                ));
            }
            if let Some(offset) = batch.clock_offsets.last() {
                self.fleet
                    .clock_seen(self.agent, offset.error_us, offset.round_trip_us);
            }
            let receipt = match self.publisher.submit(batch).await {
                Ok(receipt) => receipt,
                Err(error) => break ingest_status(&error),
            };
            self.has_submitted = true;
            // A full channel makes the agent wait, which bounds a session.
            if self.receipts.send(Ok(receipt)).await.is_err() {
                return None;
            }
        };
        Some(status)
    }
}

/// Batches with more intervals are checked off the runtime, because the histogram of each is decompressed.
const MANY_INTERVALS: usize = 64;

async fn checked(batch: v1::Batch) -> Result<Batch, BatchError> {
    match batch.op_intervals.len() > MANY_INTERVALS {
        true => off_runtime(move || Batch::try_from(batch)).await,
        false => Batch::try_from(batch),
    }
}

/// An ack for each receipt, in order, after its commit. The first refusal ends the stream.
fn acks(
    agent: String,
    receipts: mpsc::Receiver<Result<Receipt, Status>>,
    gate: Arc<Gate>,
) -> impl Stream<Item = Result<v1::Ack, Status>> {
    stream::unfold(Some(receipts), move |state| {
        let (agent, gate) = (agent.clone(), Arc::clone(&gate));
        async move {
            let mut receipts = state?;
            let stored = match receipts.recv().await? {
                Ok(receipt) => receipt.await.map_err(|error| ingest_status(&error)),
                Err(status) => Err(status),
            };
            match stored {
                Ok(stored) => {
                    let ack = v1::Ack {
                        spool_id: stored.spool_id,
                        sequence: stored.sequence,
                    };
                    Some((Ok(ack), Some(receipts)))
                }
                Err(status) => {
                    match status.code() {
                        // Not the batch's fault: the agent sends it again.
                        Code::Unavailable | Code::Aborted => {
                            debug!(%agent, %status, "publishing ends")
                        }
                        _ => gate.log_fault_of(&agent, "a batch was refused", status.message()),
                    }
                    Some((Err(status), None))
                }
            }
        }
    })
}

/// Whether a stream without a Hello is its agent's fault.
fn is_fault(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::DeadlineExceeded
    ) || is_refusal(status)
}

/// Whether the decoder refused a message with this status.
fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::ResourceExhausted | Code::OutOfRange | Code::Internal
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_testing::beats_meanwhile;
    use benchmesh_workloads::histogram::Histogram;

    /// On a runtime with one thread, a heartbeat continues while a large batch is checked.
    #[tokio::test]
    async fn large_batches_leave_the_runtime_to_others() {
        let mut service = Histogram::new();
        service.record(5000);
        let blob = service.to_blob();
        let interval = v1::OpInterval {
            task_id: 1,
            at_us: 1_750_000_000_000_000,
            span_us: 1_000_000,
            op: "read".to_owned(),
            ops: 1,
            service: Some(v1::Distribution {
                histogram: blob.v2_deflate,
                count: blob.count,
                sum_ns: blob.sum_ns,
                sum_squares_ns2: blob.sum_squares_ns2,
                min_ns: blob.min_ns,
                max_ns: blob.max_ns,
                saturated: blob.saturated,
            }),
            ..v1::OpInterval::default()
        };
        let batch = v1::Batch {
            spool_id: "s".to_owned(),
            first_sequence: 1,
            sequence: 1,
            op_intervals: vec![interval; 2000],
            ..v1::Batch::default()
        };
        let (batch, beats) = beats_meanwhile(checked(batch)).await;
        assert_eq!(batch.unwrap().op_intervals.len(), 2000);
        assert!(beats > 0, "nothing else ran meanwhile");
    }
}
