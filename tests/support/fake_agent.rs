//! A simulated agent: it uses the wire protocol directly, so that a test decides each message, valid or not.
//!
//! Used honestly, it completes a run: it accepts every command and publishes the test's rows as the measurements of its
//! task.

use super::command::credentials_directory;
use super::process::Process;
use benchmesh_proto::v1 as wire;
use benchmesh_proto::v1::command::Body as Asked;
use benchmesh_proto::v1::mesh_client::MeshClient;
use benchmesh_proto::v1::{agent_message, collector_message, reply};
use benchmesh_trust::{
    Credentials, DialError, EnrolError, Evidence, JoinToken, NewKey, Role, Security, TcpConnection,
    credentials, enrol,
};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// Time limit for any answer of the collector.
pub const ANSWER: Duration = Duration::from_secs(20);

/// One attached session with both of its streams.
#[derive(Debug)]
pub struct FakeAgent {
    pub welcome: wire::Welcome,
    pub spool_id: String,
    pub sequence: u64,
    send: mpsc::Sender<wire::AgentMessage>,
    receive: Streaming<wire::CollectorMessage>,
    publish: mpsc::Sender<wire::Batch>,
    acks: Streaming<wire::Ack>,
}

/// The first message of an honest agent of this name.
pub fn hello(name: &str) -> wire::Hello {
    let workload = |name: &str| wire::WorkloadRevision {
        name: name.to_owned(),
        revision: 1,
    };
    wire::Hello {
        wire_version: benchmesh_proto::WIRE_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent_uid: format!("fake-{name}-{}", std::process::id()),
        name: name.to_owned(),
        host: Some(wire::Host {
            boot_id: format!("boot-of-{name}"),
            pid_namespace: "pid:[1]".to_owned(),
            name: format!("host-of-{name}"),
            kernel: "6.0".to_owned(),
            cpus: 2,
            memory_bytes: 1 << 30,
        }),
        net_namespace: "net:[1]".to_owned(),
        workloads: ["files", "io", "copy", "network", "null"]
            .map(workload)
            .to_vec(),
        spool_ids: vec![spool_of(name)],
        ..wire::Hello::default()
    }
}

fn spool_of(name: &str) -> String {
    format!("spool-{name}-{}", std::process::id())
}

/// Mesh time on the collector's machine.
pub fn now_us() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "mesh time begins as the wall clock's"
    )]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_micros()).unwrap()
}

/// Runs a test's conversation, and fails if it hangs.
pub fn converse<T>(limit: Duration, conversation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(limit, conversation)
            .await
            .unwrap_or_else(|_| panic!("the conversation hangs after {} s", limit.as_secs()))
    })
}

/// The credentials that the collector at the address has written for its user.
pub fn owner(address: SocketAddr) -> Credentials {
    let file = credentials::file_for(&credentials_directory(), &address.to_string());
    Credentials::load(&file).unwrap().unwrap()
}

/// A certificate for an agent, as issued to an agent of the same user.
pub async fn certified(address: SocketAddr, name: &str) -> Credentials {
    let owner = owner(address);
    let ca = owner.ca_fingerprint().unwrap();
    let channel = dial_as(address, &owner).await.unwrap();
    let key = NewKey::make().unwrap();
    enrol(channel, &key, Role::Agent, name, ca, Evidence::default())
        .await
        .unwrap()
}

/// The same with a join token, for an agent with this uid in its state directory.
pub async fn joined(
    address: SocketAddr,
    name: &str,
    token: &JoinToken,
    agent_uid: &str,
) -> Result<Credentials, EnrolError> {
    joined_as(address, Role::Agent, name, token, agent_uid).await
}

/// The same for this role; an operator has no uid.
pub async fn joined_as(
    address: SocketAddr,
    role: Role,
    name: &str,
    token: &JoinToken,
    agent_uid: &str,
) -> Result<Credentials, EnrolError> {
    let connection = TcpConnection::at(&address.to_string()).await.unwrap();
    let security = Security::pinned(token.ca()).unwrap();
    let channel = connection.dial(security).await.unwrap();
    let evidence = Evidence {
        token: Some(token),
        agent_uid,
    };
    let key = NewKey::make().unwrap();
    enrol(channel, &key, role, name, token.ca(), evidence).await
}

/// A connection with these credentials.
pub async fn dial_as(address: SocketAddr, credentials: &Credentials) -> Result<Channel, DialError> {
    let connection = TcpConnection::at(&address.to_string()).await?;
    connection.dial(Security::of(credentials).unwrap()).await
}

/// A connection as an agent of this name.
pub async fn dial(address: SocketAddr, name: &str) -> Channel {
    let credentials = certified(address, name).await;
    dial_as(address, &credentials).await.unwrap()
}

/// The name in a first message, if a certificate can have that name.
fn name_in(first: &wire::AgentMessage) -> &str {
    match &first.body {
        Some(agent_message::Body::Hello(hello))
            if (1..=128).contains(&hello.name.len())
                && !hello
                    .name
                    .contains(|c: char| c.is_control() || c.is_whitespace()) =>
        {
            &hello.name
        }
        _ => "liar",
    }
}

/// Opens Attach with a first message; returns the collector's first answer, or its refusal.
pub async fn greet_on(
    channel: Channel,
    first: wire::AgentMessage,
) -> Result<
    (
        mpsc::Sender<wire::AgentMessage>,
        Streaming<wire::CollectorMessage>,
        wire::Welcome,
    ),
    Status,
> {
    let (send, messages) = mpsc::channel(64);
    send.send(first).await.unwrap();
    let mut client = MeshClient::new(channel);
    let mut receive = client
        .attach(ReceiverStream::new(messages))
        .await?
        .into_inner();
    let answer = receive.message().await?;
    match answer.and_then(|message| message.body) {
        Some(collector_message::Body::Welcome(welcome)) => Ok((send, receive, welcome)),
        other => panic!("no welcome but {other:?}"),
    }
}

pub fn say(body: agent_message::Body) -> wire::AgentMessage {
    wire::AgentMessage { body: Some(body) }
}

/// Opens Publish for a session, with the certificate of this name.
pub async fn open_publish(
    address: SocketAddr,
    name: &str,
    session: Option<&str>,
    batches: mpsc::Receiver<wire::Batch>,
) -> Result<Streaming<wire::Ack>, Status> {
    open_publish_on(dial(address, name).await, session, batches).await
}

/// The same on an existing connection.
pub async fn open_publish_on(
    channel: Channel,
    session: Option<&str>,
    batches: mpsc::Receiver<wire::Batch>,
) -> Result<Streaming<wire::Ack>, Status> {
    let mut request = Request::new(ReceiverStream::new(batches));
    if let Some(session) = session {
        let key = benchmesh_proto::SESSION_KEY;
        request.metadata_mut().insert(key, session.parse().unwrap());
    }
    let mut client = MeshClient::new(channel);
    Ok(client.publish(request).await?.into_inner())
}

impl FakeAgent {
    pub async fn attach(address: SocketAddr, hello: wire::Hello) -> Result<Self, Status> {
        let first = say(agent_message::Body::Hello(hello.clone()));
        Self::attach_on(dial(address, name_in(&first)).await, hello).await
    }

    /// The same on an existing connection.
    pub async fn attach_on(channel: Channel, hello: wire::Hello) -> Result<Self, Status> {
        let spool_id = hello.spool_ids.last().cloned().unwrap_or_default();
        let first = say(agent_message::Body::Hello(hello));
        let (send, receive, welcome) = greet_on(channel.clone(), first).await?;
        let (publish, batches) = mpsc::channel(64);
        let acks = open_publish_on(channel, Some(&welcome.session), batches).await?;
        let agent = Self {
            welcome,
            spool_id,
            sequence: 0,
            send,
            receive,
            publish,
            acks,
        };
        agent.probe_clock().await;
        Ok(agent)
    }

    async fn probe_clock(&self) {
        let probe = wire::ClockProbe { agent_sent_ns: 1 };
        let _ = self
            .send
            .send(say(agent_message::Body::ClockProbe(probe)))
            .await;
    }

    /// Sends any message on the control stream.
    pub async fn send(&self, message: wire::AgentMessage) {
        let _ = self.send.send(message).await;
    }

    /// Returns when the collector has handled everything sent on the control stream.
    pub async fn exchange_clocks(&mut self) {
        const STAMP: i64 = 42;
        let probe = wire::ClockProbe {
            agent_sent_ns: STAMP,
        };
        self.send(say(agent_message::Body::ClockProbe(probe))).await;
        loop {
            let message = self.receive.message().await.unwrap().unwrap();
            match message.body {
                Some(collector_message::Body::ClockReply(reply))
                    if reply.agent_sent_ns == STAMP =>
                {
                    return;
                }
                _ => {}
            }
        }
    }

    /// Sends a batch without waiting for the ack.
    pub async fn publish_unheard(&self, batch: wire::Batch) -> bool {
        self.publish.send(batch).await.is_ok()
    }

    /// An empty batch with the next sequence number.
    pub fn next_batch(&mut self) -> wire::Batch {
        self.sequence += 1;
        wire::Batch {
            spool_id: self.spool_id.clone(),
            first_sequence: self.sequence,
            sequence: self.sequence,
            ..wire::Batch::default()
        }
    }

    /// Publishes a batch and waits for its ack, or for the end of the stream that it caused.
    pub async fn publish(&mut self, batch: wire::Batch) -> Result<(), Status> {
        let sequence = batch.sequence;
        let _ = self.publish.send(batch).await;
        loop {
            let ack = tokio::time::timeout(ANSWER, self.acks.message())
                .await
                .map_err(|_| Status::deadline_exceeded("no ack"))??;
            match ack {
                Some(ack) if ack.sequence >= sequence => return Ok(()),
                Some(_) => {}
                None => return Err(Status::aborted("the publish stream ended without an ack")),
            }
        }
    }

    /// The collector's next command.
    pub async fn command(&mut self) -> Result<wire::Command, Status> {
        loop {
            let message = self.receive.message().await?;
            let message = message.ok_or_else(|| Status::aborted("the control stream ended"))?;
            if let Some(collector_message::Body::Command(command)) = message.body {
                return Ok(command);
            }
        }
    }

    /// Accepts every command until `tasks` tasks were awaited. `measured` returns the batch rows of each task from its
    /// id and its start, and the end of the task is published after them.
    pub async fn carry_through(
        &mut self,
        tasks: usize,
        mut measured: impl FnMut(i64, i64) -> Vec<wire::OpInterval>,
    ) {
        let mut start_us = 0;
        let mut ended = 0;
        while ended < tasks {
            let command = self.command().await.unwrap();
            let body = match command.body {
                Some(Asked::Arm(arm)) => {
                    start_us = arm.start_us;
                    Some(reply::Body::Arm(wire::ArmReply { lead_us: 100_000 }))
                }
                Some(Asked::AwaitEnd(awaited)) => {
                    let rows = measured(awaited.task_id, start_us);
                    ended += 1;
                    Some(reply::Body::End(
                        self.publish_end(awaited.task_id, start_us, rows).await,
                    ))
                }
                _ => None,
            };
            self.agree(command.id, body).await;
        }
    }

    /// Accepts the commands that follow a run's tasks, such as forgetting them, until the run's command has ended.
    pub async fn agree_until_it_ends(&mut self, run: Process) -> Process {
        let ended = tokio::task::spawn_blocking(move || {
            let mut run = run;
            run.exit_within(ANSWER * 2)
                .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
            run
        });
        tokio::select! {
            () = self.carry_through(usize::MAX, |_, _| Vec::new()) => unreachable!(),
            run = ended => run.unwrap(),
        }
    }

    async fn publish_end(
        &mut self,
        task_id: i64,
        start_us: i64,
        rows: Vec<wire::OpInterval>,
    ) -> wire::EndReply {
        let ends = rows.iter().map(|row| row.at_us + row.span_us);
        let ended_us = ends.max().unwrap_or(start_us);
        let mut batch = self.next_batch();
        batch.op_intervals = rows;
        self.publish(batch).await.unwrap();
        let mut batch = self.next_batch();
        batch.task_ends.push(wire::TaskEnd {
            task_id,
            state: "done".to_owned(),
            workers: 1,
            start_us,
            first_done_us: ended_us,
            ended_us,
            ..wire::TaskEnd::default()
        });
        self.publish(batch).await.unwrap();
        wire::EndReply {
            state: "done".to_owned(),
            spool_id: self.spool_id.clone(),
            sequence: self.sequence,
            stalled: false,
        }
    }

    /// Answers a command.
    pub async fn agree(&self, id: u64, body: Option<reply::Body>) {
        let reply = wire::Reply {
            id,
            body,
            ..wire::Reply::default()
        };
        self.send(say(agent_message::Body::Reply(reply))).await;
    }
}
