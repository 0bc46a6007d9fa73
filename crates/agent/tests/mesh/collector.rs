//! A collector in memory behind a real gRPC server: it enforces the contract's rule of sequences, and fails on demand.
//!
//! It has its own runtime, so that killing it cuts every connection at once, as for a killed process.

mod service;

use benchmesh_proto::v1;
use benchmesh_proto::v1::mesh_server::{Mesh, MeshServer};
use service::Service;
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

const DEADLINE: Duration = Duration::from_secs(60);

type Down<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Its received and stored messages; survives a kill, as a database does.
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
    /// Every batch that ever arrived, to check that none changes.
    seen: HashMap<(String, u64), v1::Batch>,
    pub repeats: u32,
    /// Breaches of the protocol by the agent.
    pub violations: Vec<String>,
    pub faults: Faults,
    command: Option<mpsc::Sender<Result<v1::CollectorMessage, Status>>>,
    next_id: u64,
}

/// Deliberate faults.
#[derive(Default)]
pub struct Faults {
    /// Attach is refused with this.
    pub refuse: Option<(Code, &'static str)>,
    /// Batches are stored and never acked.
    pub withhold_acks: bool,
    /// The clock is ahead of true time by this many nanoseconds. To its agents, a jump looks like a pause of their own.
    pub clock_ahead_ns: i64,
    /// The publish stream breaks after this number of batches.
    pub break_after: Option<u32>,
    /// Batches with rows of this task are refused permanently.
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

    /// Listens again at the same address, with its stored data.
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

    /// Waits until `found` returns a value.
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

    /// Sends any message down the control stream.
    pub fn send(&self, message: v1::CollectorMessage) {
        let sender = self.wait("an attached agent", |state| state.command.clone());
        // A session that has just ended does not receive it.
        let _ = sender.blocking_send(Ok(message));
    }

    /// Sends a command and returns its id.
    pub fn ask(&self, body: Option<v1::command::Body>) -> u64 {
        let id = self.with(|state| {
            state.next_id += 1;
            state.next_id
        });
        let command = v1::collector_message::Body::Command(v1::Command {
            id,
            run_id: 0,
            body,
        });
        self.send(v1::CollectorMessage {
            body: Some(command),
        });
        id
    }

    pub fn reply(&self, id: u64) -> v1::Reply {
        self.wait(&format!("a reply to command {id}"), |state| {
            state.replies.get(&id).cloned()
        })
    }

    /// Executes a command. If the session ends before the reply, it is sent again, as a scheduler does.
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

    /// Executes a command that must succeed.
    pub fn done(&self, body: v1::command::Body) -> v1::Reply {
        let reply = self.outcome(&body);
        assert_eq!(reply.error, "", "{body:?}");
        reply
    }

    /// Executes a command that must be refused. Returns the kind and the message.
    pub fn refused(&self, body: v1::command::Body) -> (String, String) {
        let reply = self.outcome(&body);
        assert_ne!(reply.error, "", "{body:?}");
        (reply.error_kind, reply.error)
    }

    pub fn now_us(&self) -> i64 {
        i64::try_from(now_ns() / 1000).unwrap()
    }

    /// Number of operations of the task that have arrived.
    pub fn ops(&self, task: i64) -> u64 {
        self.with(|state| {
            let intervals = state.batches.iter().flat_map(|batch| &batch.op_intervals);
            intervals
                .filter(|row| row.task_id == task)
                .map(|row| row.ops)
                .sum()
        })
    }

    /// Waits for the first event of that kind.
    pub fn event(&self, kind: &str) -> v1::Event {
        self.wait(kind, |state| {
            let mut events = state.batches.iter().flat_map(|batch| &batch.events);
            events.find(|event| event.kind == kind).cloned()
        })
    }

    /// Checks that the agent has not breached the protocol.
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
