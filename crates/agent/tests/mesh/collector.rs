//! A collector in memory behind a real gRPC server: it keeps the contract's rule of sequences, and fails on demand.
//!
//! It has a runtime of its own, so that killing it cuts every connection at once, as a killed process does.

use benchmesh_proto::v1;
use benchmesh_proto::v1::mesh_server::{Mesh, MeshServer};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

const DEADLINE: Duration = Duration::from_secs(20);

type Down<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What it has heard and stored; survives a kill, as a database does.
#[derive(Default)]
pub struct State {
    pub mesh_uid: String,
    pub wire_version: u32,
    pub sampling: v1::Sampling,
    pub hellos: Vec<v1::Hello>,
    pub replies: HashMap<u64, v1::Reply>,
    pub progress: Vec<v1::Progress>,
    pub probes: u64,
    pub batches: Vec<v1::Batch>,
    pub positions: HashMap<String, u64>,
    /// Every batch that ever came, to see that none changes.
    seen: HashMap<(String, u64), v1::Batch>,
    pub repeats: u32,
    /// What the agent must never do.
    pub violations: Vec<String>,
    pub faults: Faults,
    command: Option<mpsc::Sender<Result<v1::CollectorMessage, Status>>>,
    next_id: u64,
}

/// What goes wrong on purpose.
#[derive(Default)]
pub struct Faults {
    /// Attach is answered with this.
    pub refuse: Option<(Code, &'static str)>,
    /// Batches are stored and never acked.
    pub withhold_acks: bool,
    /// The publish stream breaks after so many batches.
    pub break_after: Option<u32>,
    /// Batches with rows of this task are refused for good.
    pub refuse_task: Option<i64>,
}

pub struct Collector {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let out = change(&mut state);
        self.changed.notify_all();
        out
    }
}

impl Collector {
    pub fn start() -> Self {
        let state = State {
            mesh_uid: "mesh-1".to_owned(),
            wire_version: benchmesh_proto::WIRE_VERSION,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut collector = Self {
            address: ([127, 0, 0, 1], 0).into(),
            shared,
            runtime: None,
        };
        collector.restart();
        collector
    }

    /// Cuts every connection and stops listening.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.with(|state| state.command = None);
    }

    /// Listens again, at the same address, with what it has stored.
    pub fn restart(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let address = self.address;
        let listener = runtime.block_on(async {
            let deadline = Instant::now() + DEADLINE;
            loop {
                match tokio::net::TcpListener::bind(address).await {
                    Ok(listener) => break listener,
                    Err(error) if Instant::now() > deadline => panic!("{error}"),
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        self.address = listener.local_addr().unwrap();
        let service = MeshServer::new(Service(Arc::clone(&self.shared)))
            .max_decoding_message_size(benchmesh_proto::MAX_MESSAGE_BYTES);
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
        });
        self.runtime = Some(runtime);
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.shared.with(change)
    }

    /// Waits until `found` is something.
    pub fn wait<T>(&self, what: &str, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(out) = found(&mut state) {
                return out;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain: {what}");
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Waits for the agent to be attached for the `times`th time.
    pub fn attached(&self, times: usize) -> v1::Hello {
        self.wait("an agent attaches", |state| {
            let attached = state.hellos.len() >= times && state.command.is_some();
            attached.then(|| state.hellos.last().cloned().unwrap())
        })
    }

    /// Sends anything down the control stream.
    pub fn say(&self, message: v1::CollectorMessage) {
        let sender = self.wait("an attached agent", |state| state.command.clone());
        // A session that has just ended does not hear it.
        let _ = sender.blocking_send(Ok(message));
    }

    /// Sends a command; its id.
    pub fn ask(&self, body: Option<v1::command::Body>) -> u64 {
        let id = self.with(|state| {
            state.next_id += 1;
            state.next_id
        });
        let command = v1::collector_message::Body::Command(v1::Command { id, body });
        self.say(v1::CollectorMessage {
            body: Some(command),
        });
        id
    }

    pub fn reply(&self, id: u64) -> v1::Reply {
        self.wait(&format!("a reply to command {id}"), |state| {
            state.replies.get(&id).cloned()
        })
    }

    /// Does a command. When the session ends before the reply, it is asked again, as a scheduler does.
    pub fn outcome(&self, body: &v1::command::Body) -> v1::Reply {
        loop {
            let sessions = self.with(|state| state.hellos.len());
            let id = self.ask(Some(body.clone()));
            let reply = self.wait("a reply, or a new session", |state| {
                match state.replies.get(&id) {
                    Some(reply) => Some(Some(reply.clone())),
                    None => (state.hellos.len() > sessions).then_some(None),
                }
            });
            if let Some(reply) = reply {
                return reply;
            }
        }
    }

    /// Does a command that must work.
    pub fn done(&self, body: v1::command::Body) -> v1::Reply {
        let reply = self.outcome(&body);
        assert_eq!(reply.error, "", "{body:?}");
        reply
    }

    /// Does a command that must be refused; the kind and the words.
    pub fn refused(&self, body: v1::command::Body) -> (String, String) {
        let reply = self.outcome(&body);
        assert_ne!(reply.error, "", "{body:?}");
        (reply.error_kind, reply.error)
    }

    pub fn now_us(&self) -> i64 {
        i64::try_from(now_ns() / 1000).unwrap()
    }

    /// Every operation that has arrived for the task.
    pub fn ops(&self, task: i64) -> u64 {
        self.with(|state| {
            let intervals = state.batches.iter().flat_map(|batch| &batch.op_intervals);
            intervals
                .filter(|row| row.task_id == task)
                .map(|row| row.ops)
                .sum()
        })
    }

    /// The first event of that kind, when it has come.
    pub fn event(&self, kind: &str) -> v1::Event {
        self.wait(kind, |state| {
            let mut events = state.batches.iter().flat_map(|batch| &batch.events);
            events.find(|event| event.kind == kind).cloned()
        })
    }

    /// Nothing happened that must not.
    pub fn assert_no_violation(&self) {
        self.with(|state| assert!(state.violations.is_empty(), "{:?}", state.violations));
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.kill();
    }
}

fn now_ns() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u128::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u128::try_from(now.tv_nsec).unwrap()
}

struct Service(Arc<Shared>);

#[tonic::async_trait]
impl Mesh for Service {
    type AttachStream = Down<v1::CollectorMessage>;
    type PublishStream = Down<v1::Ack>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        if let Some((code, message)) = self.0.with(|state| state.faults.refuse) {
            return Err(Status::new(code, message));
        }
        let mut heard = request.into_inner();
        let first = heard.message().await?.and_then(|message| message.body);
        let Some(v1::agent_message::Body::Hello(hello)) = first else {
            return Err(Status::invalid_argument("it does not begin with a hello"));
        };
        let (down, out) = mpsc::channel(256);
        self.0.with(|state| {
            let welcome = v1::collector_message::Body::Welcome(welcome(state, hello));
            down.try_send(Ok(message(welcome))).unwrap();
            state.command = Some(down.clone());
        });
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(Some(message)) = heard.message().await {
                hear(&shared, message, &down).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(out))))
    }

    async fn publish(
        &self,
        request: Request<Streaming<v1::Batch>>,
    ) -> Result<Response<Self::PublishStream>, Status> {
        let token = request.metadata().get(benchmesh_proto::SESSION_KEY);
        let token = token
            .and_then(|token| token.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let known = self
            .0
            .with(|state| format!("session-{}", state.hellos.len()));
        if token != known {
            return Err(Status::unauthenticated(format!(
                "token {token:?} is not {known:?}"
            )));
        }
        let shared = Arc::clone(&self.0);
        let acks = request.into_inner().map(move |batch| take(&shared, batch?));
        let acks = acks.filter_map(|ack| match ack {
            Ok(None) => None,
            Ok(Some(ack)) => Some(Ok(ack)),
            Err(status) => Some(Err(status)),
        });
        Ok(Response::new(Box::pin(acks)))
    }
}

fn message(body: v1::collector_message::Body) -> v1::CollectorMessage {
    v1::CollectorMessage { body: Some(body) }
}

fn welcome(state: &mut State, hello: v1::Hello) -> v1::Welcome {
    let spools = hello.spool_ids.iter().map(|id| v1::SpoolPosition {
        spool_id: id.clone(),
        last_sequence: state.positions.get(id).copied().unwrap_or(0),
    });
    let spools = spools.collect();
    state.hellos.push(hello);
    v1::Welcome {
        wire_version: state.wire_version,
        collector_version: "0.0.0".to_owned(),
        mesh_uid: state.mesh_uid.clone(),
        agent_id: 1,
        session: format!("session-{}", state.hellos.len()),
        spools,
        sampling: Some(state.sampling),
    }
}

async fn hear(
    shared: &Shared,
    heard: v1::AgentMessage,
    down: &mpsc::Sender<Result<v1::CollectorMessage, Status>>,
) {
    use v1::agent_message::Body;
    match heard.body {
        Some(Body::ClockProbe(probe)) => {
            let now = i64::try_from(now_ns()).unwrap();
            let reply = v1::ClockReply {
                agent_sent_ns: probe.agent_sent_ns,
                mesh_received_ns: now,
                mesh_sent_ns: now,
            };
            let _ = down
                .send(Ok(message(v1::collector_message::Body::ClockReply(reply))))
                .await;
            shared.with(|state| state.probes += 1);
        }
        Some(Body::Reply(reply)) => shared.with(|state| {
            if let Some(first) = state.replies.insert(reply.id, reply) {
                state.violations.push(format!("two replies: {first:?}"));
            }
        }),
        Some(Body::Progress(progress)) => shared.with(|state| state.progress.push(progress)),
        Some(Body::Hello(_)) | None => {
            shared.with(|state| {
                state
                    .violations
                    .push("an empty message or a second hello".to_owned())
            });
        }
    }
}

/// Stores a batch by the rule: the next one is taken, what is known is acked again, a hole is an error.
fn take(shared: &Shared, batch: v1::Batch) -> Result<Option<v1::Ack>, Status> {
    shared.with(|state| {
        match &mut state.faults.break_after {
            Some(0) => {
                state.faults.break_after = None;
                return Err(Status::unavailable("broken on purpose"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let (spool, sequence) = (batch.spool_id.clone(), batch.sequence);
        let held = state
            .seen
            .entry((spool.clone(), sequence))
            .or_insert_with(|| batch.clone());
        if *held != batch {
            state
                .violations
                .push(format!("batch {sequence} of {spool} has changed"));
        }
        let refused = state.faults.refuse_task;
        if refused.is_some()
            && batch
                .op_intervals
                .iter()
                .any(|row| Some(row.task_id) == refused)
        {
            // What was never stored may be replaced by a record of its absence.
            state.seen.remove(&(spool, sequence));
            return Err(Status::invalid_argument("task is no task of this agent"));
        }
        let last = state.positions.get(&spool).copied().unwrap_or(0);
        if sequence <= last {
            state.repeats += 1;
        } else if batch.first_sequence == last + 1 {
            state.positions.insert(spool.clone(), sequence);
            state.batches.push(batch);
        } else {
            state
                .violations
                .push(format!("{} of {spool} after {last}", batch.first_sequence));
            return Err(Status::failed_precondition("a hole"));
        }
        Ok((!state.faults.withhold_acks).then_some(v1::Ack {
            spool_id: spool,
            sequence,
        }))
    })
}
