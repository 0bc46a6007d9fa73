//! A simulated agent: it answers every command at once, "runs" a task by waiting, and publishes one interval and the
//! task's end. Its state outlives its connections, as a real agent's tasks do.

// The fleet bench includes this file by its path, too.
#[path = "fake_agent/commands.rs"]
mod commands;
#[path = "fake_agent/connection.rs"]
mod connection;
#[path = "fake_agent/script.rs"]
mod script;
#[path = "fake_agent/spool.rs"]
mod spool;

pub use script::Script;

use benchmesh_proto::{WIRE_VERSION, v1};
use benchmesh_trust::dial::{Security, TcpConnection};
use connection::serve;
use spool::publish;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use v1::{agent_message::Body as AgentBody, mesh_client::MeshClient};

#[derive(Clone, Debug, Default)]
struct Task {
    /// The operation of its interval.
    op: &'static str,
    start_us: Option<i64>,
    ended: Option<v1::EndReply>,
}

pub struct FakeAgent {
    inner: Arc<Inner>,
    connection: Mutex<Option<JoinHandle<()>>>,
}

pub struct Inner {
    pub name: String,
    uid: String,
    pub script: Mutex<Script>,
    tasks: Mutex<BTreeMap<i64, Task>>,
    /// Increases with each change of a task.
    changes: watch::Sender<u64>,
    /// All received commands, as text.
    journal: watch::Sender<Vec<String>>,
    /// When each entry of the journal was made.
    times: Mutex<Vec<i64>>,
    sequence: Mutex<u64>,
    /// Batches that are not acked yet.
    spool: Mutex<Vec<v1::Batch>>,
    spooled: watch::Sender<u64>,
    pub sampling: Mutex<v1::Sampling>,
    security: Security,
}

/// The wall clock, from which a new database's mesh time begins.
pub fn now_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

impl FakeAgent {
    pub fn new(name: &str, script: Script) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                script: Mutex::new(script),
                tasks: Mutex::default(),
                changes: watch::Sender::new(0),
                journal: watch::Sender::new(Vec::new()),
                times: Mutex::default(),
                sequence: Mutex::new(0),
                spool: Mutex::default(),
                spooled: watch::Sender::new(0),
                sampling: Mutex::default(),
                security: Security::Plain,
            }),
            connection: Mutex::new(None),
        }
    }

    /// The same agent with another identity.
    pub fn with_uid(mut self, uid: &str) -> Self {
        Arc::get_mut(&mut self.inner).unwrap().uid = uid.to_owned();
        self
    }

    /// The same agent with a certificate.
    #[allow(dead_code, reason = "for the fleet bench, which shares this file")]
    pub fn secured(mut self, security: Security) -> Self {
        Arc::get_mut(&mut self.inner).unwrap().security = security;
        self
    }

    pub fn hello(&self) -> v1::Hello {
        self.inner.hello()
    }

    /// Connects, sends Hello, and answers from then on. The error comes from the collector.
    pub async fn attach(&self, address: SocketAddr) -> Result<v1::Welcome, Status> {
        self.attach_with(address, self.inner.hello()).await
    }

    pub async fn attach_with(
        &self,
        address: SocketAddr,
        hello: v1::Hello,
    ) -> Result<v1::Welcome, Status> {
        let dialed = async {
            let connection = TcpConnection::at(&address.to_string()).await?;
            connection.dial(self.inner.security.clone()).await
        };
        let channel = dialed
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let (said, receiver) = mpsc::channel(64);
        said.send(message(AgentBody::Hello(hello))).await.unwrap();
        let mut client = MeshClient::new(channel.clone());
        let mut heard = client
            .attach(ReceiverStream::new(receiver))
            .await?
            .into_inner();
        let Some(first) = heard.message().await? else {
            return Err(Status::unavailable("the collector ended the stream"));
        };
        let Some(v1::collector_message::Body::Welcome(welcome)) = first.body else {
            panic!("the first message is no welcome");
        };
        *self.inner.sampling.lock().unwrap() = welcome.sampling.clone().unwrap();
        let inner = Arc::clone(&self.inner);
        let publishing = tokio::spawn(publish(
            Arc::clone(&inner),
            channel,
            welcome.session.clone(),
        ));
        let connection = tokio::spawn(async move {
            // Dropping it also ends publishing.
            let _publishing = AbortOnDrop(publishing);
            serve(inner, &mut heard, said).await;
        });
        *self.connection.lock().unwrap() = Some(connection);
        Ok(welcome)
    }

    /// Cuts its connection; its tasks continue.
    pub fn cut(&self) {
        if let Some(connection) = self.connection.lock().unwrap().take() {
            connection.abort();
        }
    }

    /// Forgets all tasks, like a restarted agent.
    pub fn forget_everything(&self) {
        self.inner.tasks.lock().unwrap().clear();
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// The commands received up to now.
    pub fn journal(&self) -> Vec<String> {
        self.inner.journal.borrow().clone()
    }

    /// When it received a command that begins with `what`, in microseconds of the wall clock.
    #[allow(dead_code, reason = "for the fleet bench, which shares this file")]
    pub fn heard(&self, what: &str) -> Vec<i64> {
        let times = self.inner.times.lock().unwrap();
        let journal = self.inner.journal.borrow();
        let asked = journal.iter().zip(times.iter());
        asked
            .filter(|(entry, _)| entry.starts_with(what))
            .map(|(_, at)| *at)
            .collect()
    }

    /// Waits until it has received a command that begins with `what`.
    pub async fn until_asked(&self, what: &str) {
        let mut journal = self.inner.journal.subscribe();
        tokio::time::timeout(
            super::stage::LIMIT,
            journal.wait_for(|entries| entries.iter().any(|entry| entry.starts_with(what))),
        )
        .await
        .expect("it is asked")
        .unwrap();
    }

    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.inner.script.lock().unwrap());
    }

    pub fn sampling(&self) -> v1::Sampling {
        self.inner.sampling.lock().unwrap().clone()
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.cut();
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn message(body: AgentBody) -> v1::AgentMessage {
    v1::AgentMessage { body: Some(body) }
}

impl Inner {
    fn hello(&self) -> v1::Hello {
        let script = self.script.lock().unwrap();
        v1::Hello {
            wire_version: WIRE_VERSION,
            version: String::from("0.1.0"),
            agent_uid: self.uid.clone(),
            name: self.name.clone(),
            labels: script.labels.iter().cloned().collect(),
            host: Some(v1::Host {
                boot_id: script.host.clone(),
                pid_namespace: String::from("pid:[1]"),
                name: script.host.clone(),
                kernel: script.kernel.clone(),
                cpus: 2,
                memory_bytes: 1 << 30,
            }),
            net_namespace: String::from("net:[1]"),
            allowed_paths: vec![String::from("/mnt")],
            workloads: benchmesh_workloads::registry::all()
                .iter()
                .map(|workload| v1::WorkloadRevision {
                    name: workload.name().to_owned(),
                    revision: workload.revision(),
                })
                .collect(),
            spool_ids: vec![format!("spool-{}", self.name)],
            held_tasks: self.tasks.lock().unwrap().keys().copied().collect(),
            ..v1::Hello::default()
        }
    }

    fn note(&self, entry: String) {
        self.times.lock().unwrap().push(now_us());
        self.journal.send_modify(|journal| journal.push(entry));
    }
}
