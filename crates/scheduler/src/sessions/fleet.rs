//! The members and their sessions: attach, detach, forget.
//!
//! One lock over plain maps, held for short moments and never across an await. A session ends when its stream does,
//! when the same agent attaches anew, or after too long a silence (`silence`).

mod error;
mod handle;
mod intake;
mod samplers;
mod silence;
#[cfg(test)]
mod tests;

pub use error::{AttachError, ForgetError};
pub use handle::SessionHandle;

use super::{
    command::Sampling,
    hello::{Hello, Start},
    hourly_bytes::HourlyBytes,
    member::{Member, MemberFacts, Outgoing, Session},
    presence::Presence,
    state::FleetState,
};
use crate::cut::printable;
use async_recursion::async_recursion as boxed;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId};
use benchmesh_proto::WIRE_VERSION;
use benchmesh_store::{
    Store, StoreError,
    clock::MeshClock,
    rows::{AgentRow, NewAgent, NewEvent, NewHost},
};
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Capacity of the queue to one agent's stream. The scheduler has a handful of calls open per agent; when the queue is
/// full, commands wait and clock replies are dropped (the agent probes again).
const OUTGOING: usize = 64;
/// An agent with a message this recent is alive. The session of a dead agent ends sooner.
const RECENTLY_HEARD: Duration = Duration::from_secs(5);
const MAX_SESSIONS: usize = 10_000;
/// Maximum number of logged characters of a refused agent's version.
const MAX_VERSION_CHARS: usize = 64;

/// Proof of the name of an attaching agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameProof {
    /// Its uid is bound to the name.
    Certificate,
    /// `--insecure`: anyone who starts it may rename it.
    None,
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

/// The agent and the limits of a stream of batches.
#[derive(Debug)]
pub struct PublishSession {
    pub agent: AgentId,
    /// The name with which the agent attached.
    pub name: String,
    pub host: HostId,
    pub net_namespace: String,
    /// Spools that the hello announced; only these have a position on which both sides agree.
    pub spools: BTreeSet<String>,
    /// Batches that it sends ahead of their acknowledgement; 0: unknown.
    pub window_batches: u32,
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
    state: Mutex<FleetState>,
    /// Counts attachments and detachments.
    changes: watch::Sender<u64>,
    numbers: AtomicU64,
}

/// All agents that have attached since the collector started.
#[derive(Clone, Debug)]
pub struct Fleet(Arc<Inner>);

impl Fleet {
    pub fn new(store: &Store, clock: Arc<MeshClock>) -> Self {
        Self(Arc::new(Inner {
            store: store.for_scheduler(),
            clock,
            state: Mutex::new(FleetState {
                hourly_bytes: HourlyBytes::new(store.agent_bytes_per_hour()),
                ..FleetState::default()
            }),
            changes: watch::Sender::new(0),
            numbers: AtomicU64::new(1),
        }))
    }

    /// Adds the agents known from the database, so that the scheduler can wait for them.
    pub fn add_known(&self, agents: Vec<AgentRow>) {
        let mut state = self.state();
        for row in agents {
            state
                .members
                .entry(row.id)
                .or_insert_with(|| Member::known(row));
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FleetState> {
        // A panic leaves the maps consistent: every change is one insertion or removal.
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

    /// Every member, by id, for the scheduler.
    pub fn presences(&self) -> Vec<Presence> {
        self.state()
            .members
            .values()
            .map(Member::presence)
            .collect()
    }

    /// The round trip and the clock error of an agent, in microseconds; 0: not measured yet.
    pub fn clock_quality(&self, agent: AgentId) -> Option<(i64, i64)> {
        let state = self.state();
        let member = state.members.get(&agent)?;
        Some((member.round_trip_us, member.clock_error_us))
    }

    pub fn member(&self, agent: AgentId) -> Option<MemberFacts> {
        self.state().members.get(&agent).map(Member::facts)
    }

    /// Attaches an agent, or refuses it. An earlier session of the same agent ends.
    #[boxed]
    #[inline(never)]
    pub async fn attach(
        &self,
        mut hello: Hello,
        from: Option<IpAddr>,
        proof: NameProof,
    ) -> Result<Attached, AttachError> {
        if hello.wire_version != WIRE_VERSION {
            return Err(AttachError::WireVersion {
                agent: hello.wire_version,
                collector: WIRE_VERSION,
                // Unchecked.
                agent_version: printable(MAX_VERSION_CHARS, &hello.version),
            });
        }
        hello.check().map_err(AttachError::BadField)?;
        let (is_change, describes_host) = {
            let mut state = self.state();
            state
                .hourly_bytes
                .check(&hello.name, Instant::now())
                .map_err(AttachError::Flood)?;
            if !state.recent.attach(&hello.name, Instant::now()) {
                return Err(AttachError::TooOften { name: hello.name });
            }
            check_available(&state, &hello)?;
            let members = || state.members.values();
            let describes_host = state.describes_host(&hello);
            let is_known = members().any(|it| it.is_described_by(&hello))
                && (!describes_host || members().all(|it| it.agrees_on_host(&hello)));
            if !is_known && !state.recent.change(&hello.name, Instant::now()) {
                return Err(AttachError::ChangesTooOften { name: hello.name });
            }
            (!is_known, describes_host)
        };
        let at = self.0.clock.now();
        let store = |source| AttachError::Store { source };
        let new = NewAgent {
            describes_host,
            ..new_agent(&hello, proof, at)
        };
        let (agent, host) = match self.known(&hello) {
            Some(known) => {
                self.store_attachment(new);
                known
            }
            None => {
                let stored = self.0.store.attach_agent(new);
                stored.await.map_err(|error| {
                    if is_change {
                        // Storing failed, so the change does not count.
                        self.state().recent.undo_change(&hello.name);
                    }
                    match error {
                        StoreError::UidBound { known_as } => {
                            self.uid_bound(&hello, known_as, from, at)
                        }
                        source => store(source),
                    }
                })?
            }
        };
        let mesh_uid = self.0.store.mesh_uid();
        let spools = self.0.store.spool_positions(agent).await.map_err(store)?;
        let is_ahead = hello.is_ahead_of(mesh_uid, &spools);
        if is_ahead {
            // They belong to the lost database: here their ids are those of other tasks, or the agent is about to drop
            // them.
            hello.held_tasks.clear();
        }
        if let Some(run) = hello.newest_run_of(mesh_uid) {
            self.0.store.raise_run_ids(run).await.map_err(store)?;
        }
        let claimed = hello.held_tasks.len();
        hello.held_tasks = self
            .0
            .store
            .without_tasks_of_others(agent, std::mem::take(&mut hello.held_tasks))
            .await
            .map_err(store)?;
        if let Some(of_others) = NonZeroUsize::new(claimed - hello.held_tasks.len())
            && self
                .state()
                .recent
                .is_first_claim(&hello.name, Instant::now())
        {
            self.store_false_claim(agent, &hello.name, of_others, at);
        }
        let hello = Arc::new(hello);
        let (outgoing, receiver) = mpsc::channel(OUTGOING);
        let cancel = CancellationToken::new();
        let number = self.number();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let name = hello.name.clone();
        let (sampling, changes) = {
            let mut state = self.state();
            // Another agent may have taken the name while the database was busy.
            check_available(&state, &hello)?;
            let session = Session {
                number,
                token: token.clone(),
                outgoing,
                cancel: cancel.clone(),
                waiting: HashMap::new(),
            };
            state.insert(agent, host, hello, from, session, at);
            let changes = state.appoint(Some(agent), at);
            if let Some(member) = state.members.get_mut(&agent) {
                member.was_ahead |= is_ahead;
            }
            let sampling = state
                .members
                .get(&agent)
                .map(|member| member.sampling.clone())
                .unwrap_or_default();
            (sampling, changes)
        };
        self.store_samplers(changes);
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

    /// The ids of an agent that attached before under this name and is still on the same host. It is readmitted without
    /// waiting for the database, which may be blocked for longer than its run tolerates.
    fn known(&self, hello: &Hello) -> Option<(AgentId, HostId)> {
        let state = self.state();
        let mut members = state.members.values();
        members
            .find(|member| {
                member.hello.uid == hello.uid
                    && member.hello.name == hello.name
                    && member.hello.host_key() == hello.host_key()
            })
            .map(|member| (member.id, member.host))
    }

    /// Stores that a known agent is back, without delaying its attachment.
    fn store_attachment(&self, agent: NewAgent) {
        let store = self.0.store.clone();
        tokio::spawn(async move {
            let name = agent.name.clone();
            if let Err(error) = store.attach_agent(agent).await {
                warn!(agent = %name, %error, "cannot store that the agent is back");
            }
        });
    }

    /// Stores that an agent claimed tasks of other agents: at most one event a minute.
    fn store_false_claim(&self, agent: AgentId, name: &str, count: NonZeroUsize, at: MeshMicros) {
        let message = format!(
            "agent `{name}` claims {count} tasks of other agents; the collector ignores the claim"
        );
        warn!("{message}");
        self.store_event(NewEvent {
            agent: Some(agent),
            detail_json: Some(serde_json::json!({ "tasks": count.get() }).to_string()),
            ..NewEvent::new(at, EventKind::TasksOfOthers, message)
        });
    }

    /// Refuses an agent that presents the uid of another agent: at most one event a minute.
    fn uid_bound(
        &self,
        hello: &Hello,
        known_as: String,
        from: Option<IpAddr>,
        at: MeshMicros,
    ) -> AttachError {
        let name = hello.name.clone();
        if self
            .state()
            .recent
            .is_first_foreign_uid(&name, Instant::now())
        {
            let address = from.map(|address| address.to_string());
            let message = format!(
                "agent `{name}` presents the uid of agent `{known_as}`; the collector refuses it"
            );
            let detail = serde_json::json!({
                "name": name, "known_as": known_as, "uid": hello.uid, "address": address
            });
            self.store_event(NewEvent {
                detail_json: Some(detail.to_string()),
                ..NewEvent::new(at, EventKind::UidOfAnother, message)
            });
        }
        AttachError::UidBound { name, known_as }
    }

    pub(super) fn store_event(&self, event: NewEvent) {
        let store = self.0.store.clone();
        tokio::spawn(async move {
            let kind = event.kind;
            if let Err(error) = store.add_event(event).await {
                warn!(%error, %kind, "cannot store an event");
            }
        });
    }

    /// Binds an agent's uid to another name. Ends its session under the former one, if there is one.
    pub async fn rename(&self, uid: &str, former: &str, name: &str) -> Result<(), StoreError> {
        let at = self.0.clock.now();
        self.0.store.rename_agent(uid, former, name, at).await?;
        let mut state = self.state();
        let mut members = state.members.values_mut();
        let Some(member) = members.find(|member| member.hello.uid == uid) else {
            return Ok(());
        };
        Arc::make_mut(&mut member.hello).name = name.to_owned();
        if let Some(session) = &member.session {
            session.cancel.cancel();
        }
        let id = member.id;
        state.samplers.rename(id, name);
        Ok(())
    }

    pub(super) fn detach(&self, agent: AgentId, number: u64) {
        let at = self.0.clock.now();
        let (name, changes) = {
            let mut state = self.state();
            let Some(member) = state.members.get_mut(&agent) else {
                return;
            };
            if member
                .session
                .as_ref()
                .is_none_or(|session| session.number != number)
            {
                return;
            }
            let name = member.hello.name.clone();
            if let Some(session) = member.leave() {
                session.cancel.cancel();
                state.tokens.remove(&session.token);
            }
            (name, state.appoint(None, at))
        };
        self.store_samplers(changes);
        self.changed();
        info!(agent = %name, "detached");
    }

    /// The session of a token.
    pub fn session(&self, token: &str) -> Option<PublishSession> {
        let state = self.state();
        let member = state.members.get(state.tokens.get(token)?)?;
        let session = member.session.as_ref()?;
        Some(PublishSession {
            agent: member.id,
            name: member.hello.name.clone(),
            host: member.host,
            net_namespace: member.hello.net_namespace.clone(),
            spools: member.hello.spool_ids.iter().cloned().collect(),
            window_batches: member.hello.window_batches,
            ended: session.cancel.clone(),
        })
    }

    /// Forgets a detached agent: it is no longer listed, and its rows stay.
    pub async fn forget(&self, name: &str) -> Result<AgentId, ForgetError> {
        let name = || name.to_owned();
        let agent = {
            let state = self.state();
            let mut named: Vec<&Member> = state
                .members
                .values()
                .filter(|member| member.hello.name == name())
                .collect();
            // If several agents have this name, take the one that has been detached for longest.
            named.sort_by_key(|member| (member.session.is_some(), member.last_contact));
            match named.first() {
                None => return Err(ForgetError::Unknown { name: name() }),
                Some(member) if member.session.is_some() => {
                    return Err(ForgetError::Attached { name: name() });
                }
                Some(member) => member.id,
            }
        };
        let stored = self.0.store.forget_agent(agent, self.0.clock.now()).await;
        if !stored.map_err(|source| ForgetError::Store { source })? {
            return Err(ForgetError::InRun { name: name() });
        }
        let mut state = self.state();
        if state
            .members
            .get(&agent)
            .is_some_and(|member| member.session.is_none())
        {
            state.members.remove(&agent);
        }
        state.samplers.forget(agent);
        Ok(agent)
    }

    /// Stores an agent's own measurement of its clock.
    pub fn clock_seen(&self, agent: AgentId, error_us: i64, round_trip_us: i64) {
        if let Some(member) = self.state().members.get_mut(&agent) {
            member.clock_error_us = error_us;
            member.round_trip_us = round_trip_us;
        }
    }

    /// Sets the sampling period (0: only at marks) and the sampled run.
    pub fn set_sampling(&self, period_us: i64, run: Option<RunId>) {
        let at = self.0.clock.now();
        let changes = {
            let mut state = self.state();
            if (state.period_us, state.run) == (period_us, run) {
                return;
            }
            (state.period_us, state.run) = (period_us, run);
            state.appoint(None, at)
        };
        self.store_samplers(changes);
    }
}

fn check_available(state: &FleetState, hello: &Hello) -> Result<(), AttachError> {
    let attached = state
        .members
        .values()
        .filter(|member| member.session.is_some());
    let mut count = 0;
    for member in attached {
        count += 1;
        let is_recent = member.last_contact.elapsed() < RECENTLY_HEARD;
        let name = || member.hello.name.clone();
        if member.hello.uid == hello.uid {
            match hello.against(&member.hello) {
                Start::Same | Start::Later => {}
                Start::Earlier => return Err(AttachError::EarlierStart { name: name() }),
                Start::Unknown if !is_recent => {}
                Start::Unknown if hello.host_name == member.hello.host_name => {
                    return Err(AttachError::EarlierStart { name: name() });
                }
                Start::OfACopy if !is_recent => {}
                Start::Unknown | Start::OfACopy => {
                    return Err(AttachError::IdentityInUse {
                        name: name(),
                        host: member.hello.host_name.clone(),
                    });
                }
            }
        } else if member.hello.name == hello.name {
            return Err(match is_recent {
                true => AttachError::NameInUse {
                    name: name(),
                    host: member.hello.host_name.clone(),
                },
                false => AttachError::NameHeld { name: name() },
            });
        }
    }
    if count >= MAX_SESSIONS {
        return Err(AttachError::Full);
    }
    Ok(())
}

fn new_agent(hello: &Hello, proof: NameProof, at: MeshMicros) -> NewAgent {
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
        may_rename: proof == NameProof::None,
        describes_host: true,
        at,
    }
}
