//! The members and their sessions: attaching, leaving, being looked after.
//!
//! One lock over plain maps, held for short moments and never across an await. A session ends when its stream does,
//! when the same agent attaches anew, or when nothing has been heard from it for too long (`silence`).

mod silence;

use super::{
    command::Sampling,
    handle::SessionHandle,
    hello::{BadField, Hello},
    member::{Live, Member, MemberFacts, Outgoing},
    state::State,
};
use crate::{
    clock::MeshClock,
    model::{AgentId, HostId},
    store::{
        Store, StoreError,
        rows::{AgentRow, NewAgent, NewHost},
    },
};
use benchmesh_proto::WIRE_VERSION;
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Messages that wait for one agent's stream. The scheduler has a handful open per agent; when it is full, commands wait
/// and clock replies are dropped (the agent probes again).
const OUTGOING: usize = 64;
/// Who was heard so lately lives. A session whose agent has died ends sooner.
const LIVELY: Duration = Duration::from_secs(5);
const MAX_SESSIONS: usize = 10_000;

/// Why an agent is turned away.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(
        "this agent speaks version {agent} of the wire (benchmesh {agent_version}), this collector version {collector} (benchmesh {}): update benchmesh on the {}",
        env!("CARGO_PKG_VERSION"),
        if agent < collector { "agent's host" } else { "collector's host" }
    )]
    WireVersion {
        agent: u32,
        collector: u32,
        agent_version: String,
    },
    #[error(transparent)]
    BadField(BadField),
    #[error(
        "the name `{name}` is used by another agent that is attached now (host {host}); start this one with another --name"
    )]
    NameInUse { name: String, host: String },
    #[error(
        "an agent with the same identity is attached and speaks (`{name}`, host {host}): the state directory of one was copied from the other; give this one an empty --state-dir, and it makes an identity of its own"
    )]
    IdentityInUse { name: String, host: String },
    #[error("{MAX_SESSIONS} agents are attached, which is as many as this collector takes")]
    Full,
    #[error("the collector could not store the agent")]
    Store { source: StoreError },
}

/// Answer to a Hello.
#[derive(Clone, Debug)]
pub struct Welcome {
    pub agent: AgentId,
    pub mesh_uid: String,
    pub session: String,
    pub spools: Vec<(String, u64)>,
    pub sampling: Sampling,
}

/// What a stream of batches may do: whose it is, and for how long.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub agent: AgentId,
    pub host: HostId,
    pub net_namespace: String,
    /// Those that the hello announced; no other has a position that both sides agree on.
    pub spools: BTreeSet<String>,
    pub ended: CancellationToken,
}

/// A new session.
#[derive(Debug)]
pub struct Attached {
    pub welcome: Welcome,
    pub handle: SessionHandle,
    pub outgoing: mpsc::Receiver<Outgoing>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<MeshClock>,
    state: Mutex<State>,
    /// Counts attachments and detachments.
    changes: watch::Sender<u64>,
    numbers: AtomicU64,
}

/// All agents that have attached since the collector started.
#[derive(Clone, Debug)]
pub struct Fleet(Arc<Inner>);

impl Fleet {
    pub fn new(store: Store, clock: Arc<MeshClock>) -> Self {
        Self(Arc::new(Inner {
            store,
            clock,
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            numbers: AtomicU64::new(1),
        }))
    }

    /// Takes up agents of earlier times, so that those who are expected back can be waited for from now on.
    pub fn remember(&self, agents: Vec<AgentRow>) {
        let mut state = self.state();
        for row in agents {
            state
                .members
                .entry(row.id)
                .or_insert_with(|| Member::remembered(row));
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // The maps stay whole whatever panicked: every change is one insertion or removal.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn clock(&self) -> &MeshClock {
        &self.0.clock
    }

    pub(super) fn number(&self) -> u64 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn changed(&self) {
        self.0
            .changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Resolves with each attachment and detachment after this call.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Every member, by id.
    pub fn members(&self) -> Vec<MemberFacts> {
        self.state().members.values().map(Member::facts).collect()
    }

    pub fn member(&self, agent: AgentId) -> Option<MemberFacts> {
        self.state().members.get(&agent).map(Member::facts)
    }

    /// Takes an agent in, or says why not. An earlier session of the same agent ends.
    pub async fn attach(
        &self,
        hello: Hello,
        from: Option<IpAddr>,
    ) -> Result<Attached, AttachError> {
        if hello.wire_version != WIRE_VERSION {
            return Err(AttachError::WireVersion {
                agent: hello.wire_version,
                collector: WIRE_VERSION,
                agent_version: hello.version,
            });
        }
        hello.check().map_err(AttachError::BadField)?;
        is_free(&self.state(), &hello)?;
        let at = self.0.clock.now();
        let store = |source| AttachError::Store { source };
        let (agent, host) = self
            .0
            .store
            .attach_agent(new_agent(&hello, at))
            .await
            .map_err(store)?;
        let spools = self.0.store.spool_positions(agent).await.map_err(store)?;
        let (outgoing, receiver) = mpsc::channel(OUTGOING);
        let cancel = CancellationToken::new();
        let number = self.number();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let name = hello.name.clone();
        let sampling = {
            let mut state = self.state();
            // Another may have taken the name while the database was busy.
            is_free(&state, &hello)?;
            let live = Live {
                number,
                token: token.clone(),
                outgoing,
                cancel: cancel.clone(),
                waiting: HashMap::new(),
            };
            state.insert(agent, host, hello, from, live, at);
            state.appoint(Some(agent));
            state
                .members
                .get(&agent)
                .map(|member| member.sampling)
                .unwrap_or_default()
        };
        self.changed();
        info!(agent = %name, "attached");
        Ok(Attached {
            welcome: Welcome {
                agent,
                mesh_uid: self.0.store.mesh_uid().to_owned(),
                session: token,
                spools,
                sampling,
            },
            handle: SessionHandle {
                fleet: self.clone(),
                agent,
                number,
                cancel,
            },
            outgoing: receiver,
        })
    }

    pub(super) fn detach(&self, agent: AgentId, number: u64) {
        let name = {
            let mut state = self.state();
            let Some(member) = state.members.get_mut(&agent) else {
                return;
            };
            if member
                .live
                .as_ref()
                .is_none_or(|live| live.number != number)
            {
                return;
            }
            let name = member.hello.name.clone();
            if let Some(live) = member.live.take() {
                live.cancel.cancel();
                state.tokens.remove(&live.token);
            }
            state.appoint(None);
            name
        };
        self.changed();
        info!(agent = %name, "detached");
    }

    /// Whose session a token is.
    pub(crate) fn session(&self, token: &str) -> Option<Publishing> {
        let state = self.state();
        let member = state.members.get(state.tokens.get(token)?)?;
        let live = member.live.as_ref()?;
        Some(Publishing {
            agent: member.id,
            host: member.host,
            net_namespace: member.hello.net_namespace.clone(),
            spools: member.hello.spool_ids.iter().cloned().collect(),
            ended: live.cancel.clone(),
        })
    }

    /// What an agent measured of its clock.
    pub fn clock_seen(&self, agent: AgentId, error_us: i64, round_trip_us: i64) {
        if let Some(member) = self.state().members.get_mut(&agent) {
            member.clock_error_us = error_us;
            member.round_trip_us = round_trip_us;
        }
    }

    /// Samplers beat with this period from now on; 0: only at marks.
    pub fn set_period(&self, period_us: i64) {
        let mut state = self.state();
        if state.period_us != period_us {
            state.period_us = period_us;
            state.appoint(None);
        }
    }
}

fn is_free(state: &State, hello: &Hello) -> Result<(), AttachError> {
    let attached = state
        .members
        .values()
        .filter(|member| member.live.is_some());
    let mut count = 0;
    for member in attached {
        count += 1;
        // Every start of an agent has a spool of its own, so this is another process.
        if member.hello.uid == hello.uid
            && member.hello.spool_ids.last() != hello.spool_ids.last()
            && member.last_contact.elapsed() < LIVELY
        {
            return Err(AttachError::IdentityInUse {
                name: member.hello.name.clone(),
                host: member.hello.host_name.clone(),
            });
        }
        if member.hello.name == hello.name && member.hello.uid != hello.uid {
            return Err(AttachError::NameInUse {
                name: hello.name.clone(),
                host: member.hello.host_name.clone(),
            });
        }
    }
    if count >= MAX_SESSIONS {
        return Err(AttachError::Full);
    }
    Ok(())
}

fn new_agent(hello: &Hello, at: crate::model::MeshMicros) -> NewAgent {
    NewAgent {
        uid: hello.uid.clone(),
        name: hello.name.clone(),
        host: NewHost {
            boot_id: hello.boot_id.clone(),
            pid_namespace: hello.pid_namespace.clone(),
            name: hello.host_name.clone(),
            kernel: hello.kernel.clone(),
            cpus: hello.cpus,
            memory_bytes: hello.memory_bytes,
        },
        labels_json: serde_json::Value::from_iter(hello.labels.clone()).to_string(),
        version: hello.version.clone(),
        at,
    }
}
