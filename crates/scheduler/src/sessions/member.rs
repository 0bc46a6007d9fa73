//! One agent in the collector's view, attached or not.

use super::{
    command::{AgentAnswer, CallError, Command, CommandProgress, RefusalKind, Sampling},
    hello::Hello,
    samplers::SampledPlace,
};
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId};
use benchmesh_store::rows::AgentRow;
use std::{collections::HashMap, net::IpAddr, sync::Arc};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// A message to an agent, on its Attach stream.
#[derive(Debug)]
pub enum Outgoing {
    /// The stream adds the instant of sending.
    Clock {
        agent_sent_ns: i64,
        received_ns: i64,
    },
    Command {
        id: u64,
        run: Option<RunId>,
        command: Box<Command>,
    },
}

/// An agent's answer, before it is matched to a call.
pub(super) type Reply = Result<AgentAnswer, (RefusalKind, String)>;

/// An open call.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub reply: oneshot::Sender<Reply>,
    pub progress: Option<watch::Sender<CommandProgress>>,
}

/// A current session.
#[derive(Debug)]
pub(super) struct Session {
    /// Distinguishes this session from earlier ones of the same agent.
    pub number: u64,
    pub token: String,
    pub outgoing: mpsc::Sender<Outgoing>,
    pub cancel: CancellationToken,
    pub waiting: HashMap<u64, PendingReply>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub id: AgentId,
    pub host: HostId,
    pub hello: Arc<Hello>,
    /// The address of its connection.
    pub seen_at: Option<IpAddr>,
    pub session: Option<Session>,
    pub sampling: Sampling,
    pub last_contact: Instant,
    pub last_seen: MeshMicros,
    pub clock_error_us: i64,
    pub round_trip_us: i64,
    /// Whether, since the collector's start, it has attached with newer positions than the database has, and has
    /// dropped its tasks.
    pub was_ahead: bool,
    /// Since when its disk has refused writes, by its own clock, as last reported.
    pub spool_blocked_ns: Option<i64>,
}

impl Member {
    /// An agent from the database that is not attached now.
    pub fn known(row: AgentRow) -> Self {
        Self {
            id: row.id,
            host: row.host,
            hello: Arc::new(Hello {
                uid: row.uid,
                name: row.name,
                version: row.version,
                labels: serde_json::from_str(&row.labels_json).unwrap_or_default(),
                boot_id: row.on.boot_id,
                pid_namespace: row.on.pid_namespace,
                host_name: row.on.name,
                kernel: row.on.kernel,
                cpus: row.on.cpus,
                memory_bytes: row.on.memory_bytes,
                ..Hello::default()
            }),
            seen_at: None,
            session: None,
            sampling: Sampling::default(),
            last_contact: Instant::now(),
            last_seen: row.last_seen,
            clock_error_us: 0,
            round_trip_us: 0,
            was_ahead: false,
            spool_blocked_ns: None,
        }
    }

    /// Whether an attachment with this hello leaves the stored description of the agent unchanged.
    pub fn is_described_by(&self, hello: &Hello) -> bool {
        fn texts(hello: &Hello) -> [&str; 7] {
            [
                &hello.uid,
                &hello.name,
                &hello.version,
                &hello.boot_id,
                &hello.pid_namespace,
                &hello.host_name,
                &hello.kernel,
            ]
        }
        let known = &self.hello;
        texts(known) == texts(hello)
            && known.labels == hello.labels
            && (known.cpus, known.memory_bytes) == (hello.cpus, hello.memory_bytes)
    }

    /// Whether a hello from the same host describes it identically: agents share the row of their host.
    pub fn agrees_on_host(&self, hello: &Hello) -> bool {
        let known = &self.hello;
        let is_same = known.boot_id == hello.boot_id && known.pid_namespace == hello.pid_namespace;
        !is_same
            || (known.host_name == hello.host_name
                && known.kernel == hello.kernel
                && (known.cpus, known.memory_bytes) == (hello.cpus, hello.memory_bytes))
    }

    /// The address at which peers reach it.
    pub fn address(&self) -> String {
        if !self.hello.advertised.is_empty() {
            return self.hello.advertised.clone();
        }
        self.seen_at.map_or_else(String::new, |ip| ip.to_string())
    }

    /// Its host, as a sampling place.
    pub fn host_place(&self) -> SampledPlace {
        SampledPlace::Host(self.hello.host_key())
    }

    /// The network namespace that it sees.
    pub fn net_place(&self) -> SampledPlace {
        SampledPlace::Interfaces(self.hello.net_key())
    }

    /// Ends its session, and drops everything that only a session needs.
    pub fn leave(&mut self) -> Option<Session> {
        self.hello = Arc::new(self.hello.for_absence());
        self.session.take()
    }

    pub fn lost(&self) -> CallError {
        CallError::Lost {
            agent: self.hello.name.clone(),
            silent_s: self.last_contact.elapsed().as_secs(),
        }
    }

    pub fn facts(&self) -> MemberFacts {
        MemberFacts {
            id: self.id,
            host: self.host,
            hello: Arc::clone(&self.hello),
            attached: self.session.is_some(),
            session: self.session.as_ref().map_or(0, |session| session.number),
            last_seen: self.last_seen,
            clock_error_us: self.clock_error_us,
            round_trip_us: self.round_trip_us,
            sampling: self.sampling.clone(),
            address: self.address(),
        }
    }
}

/// The public facts of a member.
#[derive(Clone, Debug)]
pub struct MemberFacts {
    pub id: AgentId,
    pub host: HostId,
    pub hello: Arc<Hello>,
    pub attached: bool,
    /// Distinguishes its session from earlier ones; 0 if not attached.
    pub session: u64,
    pub last_seen: MeshMicros,
    /// 0: unknown.
    pub clock_error_us: i64,
    /// 0: unknown.
    pub round_trip_us: i64,
    pub sampling: Sampling,
    /// The address at which peers reach it, without a port.
    pub address: String,
}

impl MemberFacts {
    /// Whether it runs on a storage host.
    pub fn is_storage(&self) -> bool {
        self.hello
            .labels
            .get("role")
            .is_some_and(|role| role == "storage")
    }
}
