//! The members and their sessions: attaching, leaving, asking, appointing samplers.
//!
//! One lock over plain maps, held for short moments and never across an await. A session ends when its stream does,
//! when the same agent attaches anew, or when nothing has been heard from it for `SILENCE`.

use super::{
    appoint,
    command::{Answer, CallError, Command, Progress, Sampling},
    hello::{BadField, Hello},
    member::{Live, Member, MemberFacts, Outgoing, Reply, Waiting},
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
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Messages that wait for one agent's stream. The scheduler has a handful open per agent; when it is full, commands wait
/// and clock replies are dropped (the agent probes again).
const OUTGOING: usize = 64;
/// An attached agent probes the clock every few seconds; one that says nothing for so long has a dead session.
const SILENCE: Duration = Duration::from_secs(15);
/// How often sessions are looked at, and members' last contact is written down.
const LOOK: Duration = Duration::from_secs(1);
const SEEN_EVERY_LOOKS: u32 = 15;
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

/// A new session.
#[derive(Debug)]
pub struct Attached {
    pub welcome: Welcome,
    pub handle: SessionHandle,
    pub outgoing: mpsc::Receiver<Outgoing>,
}

/// What a stream holds of its session; dropping it ends the session.
#[derive(Debug)]
pub struct SessionHandle {
    fleet: Fleet,
    agent: AgentId,
    number: u64,
    pub cancel: CancellationToken,
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.fleet.detach(self.agent, self.number);
    }
}

/// One question to one agent.
#[derive(Debug)]
pub struct Call {
    pub agent: AgentId,
    pub command: Command,
    /// An agent without contact for so long is lost.
    pub loss_after: Duration,
    /// From now; `None`: as long as the agent is not lost.
    pub deadline: Option<Duration>,
    pub progress: Option<watch::Sender<Progress>>,
}

/// A question that is asked until the agent is lost.
pub fn fleet_call(agent: AgentId, command: Command, loss_after: Duration) -> Call {
    Call {
        agent,
        command,
        loss_after,
        deadline: None,
        progress: None,
    }
}

impl Call {
    /// The same, with an answer expected within `deadline`.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same, telling how far it is.
    pub fn telling(mut self, progress: watch::Sender<Progress>) -> Self {
        self.progress = Some(progress);
        self
    }
}

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<AgentId, Member>,
    /// Session token -> agent.
    tokens: HashMap<String, AgentId>,
    period_us: i64,
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

    fn state(&self) -> MutexGuard<'_, State> {
        // The maps stay whole whatever panicked: every change is one insertion or removal.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
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
        name_is_free(&self.state(), &hello)?;
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
            name_is_free(&state, &hello)?;
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

    fn detach(&self, agent: AgentId, number: u64) {
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

    /// Whose session a token is: the agent, its host, its network namespace, and the end of the session.
    pub fn session(&self, token: &str) -> Option<(AgentId, HostId, String, CancellationToken)> {
        let state = self.state();
        let member = state.members.get(state.tokens.get(token)?)?;
        let live = member.live.as_ref()?;
        Some((
            member.id,
            member.host,
            member.hello.net_namespace.clone(),
            live.cancel.clone(),
        ))
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

    /// Asks, and waits for the answer; asks again when the agent has reattached meanwhile. Cancel-safe.
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let deadline = call.deadline.map(|within| Instant::now() + within);
        let expired = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = self.ask_until_lost(&call) => answer,
            () = expired => Err(CallError::Deadline {
                agent: self.member(call.agent).map_or_else(|| call.agent.to_string(), |member| member.hello.name),
                doing: call.command.doing(),
                within_s: call.deadline.unwrap_or_default().as_secs(),
            }),
        }
    }

    async fn ask_until_lost(&self, call: &Call) -> Result<Answer, CallError> {
        let mut changes = self.changes();
        loop {
            if let Some((outgoing, cancel)) = self.outgoing(call.agent)? {
                let (pending, reply) = self.wait_for(call);
                let message = Outgoing::Command {
                    id: pending.id,
                    command: Box::new(call.command.clone()),
                };
                let sent = tokio::select! {
                    sent = outgoing.send(message) => sent.is_ok(),
                    () = cancel.cancelled() => false,
                };
                if sent && let Ok(reply) = reply.await {
                    return self.judged(call, reply);
                }
                // The session ended before it answered.
                continue;
            }
            let lost_at = self.lost_at(call)?;
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(lost_at) => {
                    let state = self.state();
                    if let Some(member) = state.members.get(&call.agent) && member.live.is_none() {
                        return Err(member.lost());
                    }
                }
            }
        }
    }

    /// Resolves once the agent is lost.
    pub async fn lost(&self, agent: AgentId, loss_after: Duration) -> CallError {
        let mut changes = self.changes();
        loop {
            let lost_at = {
                let state = self.state();
                match state.members.get(&agent) {
                    None => return CallError::Unknown { agent },
                    Some(member) if member.live.is_some() => None,
                    Some(member) if member.last_contact + loss_after <= Instant::now() => {
                        return member.lost();
                    }
                    Some(member) => Some(member.last_contact + loss_after),
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(lost_at.unwrap_or_else(Instant::now)), if lost_at.is_some() => {}
            }
        }
    }

    fn judged(&self, call: &Call, reply: Reply) -> Result<Answer, CallError> {
        reply.map_err(|(kind, message)| CallError::Refused {
            agent: self
                .member(call.agent)
                .map_or_else(|| call.agent.to_string(), |member| member.hello.name),
            kind,
            message,
        })
    }

    fn outgoing(
        &self,
        agent: AgentId,
    ) -> Result<Option<(mpsc::Sender<Outgoing>, CancellationToken)>, CallError> {
        let state = self.state();
        let member = state
            .members
            .get(&agent)
            .ok_or(CallError::Unknown { agent })?;
        Ok(member
            .live
            .as_ref()
            .map(|live| (live.outgoing.clone(), live.cancel.clone())))
    }

    fn lost_at(&self, call: &Call) -> Result<Instant, CallError> {
        let state = self.state();
        let member = state
            .members
            .get(&call.agent)
            .ok_or(CallError::Unknown { agent: call.agent })?;
        Ok(member.last_contact + call.loss_after)
    }

    /// Registers a question with the agent's session; if there is none any more, the answer never comes and says so.
    fn wait_for(&self, call: &Call) -> (Pending<'_>, oneshot::Receiver<Reply>) {
        let id = self.number();
        let (reply, receiver) = oneshot::channel();
        if let Some(live) = self
            .state()
            .members
            .get_mut(&call.agent)
            .and_then(|member| member.live.as_mut())
        {
            let progress = call.progress.clone();
            live.waiting.insert(id, Waiting { reply, progress });
        }
        let pending = Pending {
            fleet: self,
            agent: call.agent,
            id,
        };
        (pending, receiver)
    }

    /// Looks after sessions until `cancel`: ends the silent ones and writes down who was seen when.
    pub async fn watch(&self, cancel: CancellationToken) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0_u32;
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = looks.tick() => {}
            }
            self.end_silent();
            count = count.wrapping_add(1);
            if count.is_multiple_of(SEEN_EVERY_LOOKS) {
                self.write_seen().await;
            }
        }
    }

    fn end_silent(&self) {
        let state = self.state();
        for member in state.members.values() {
            if let Some(live) = &member.live
                && member.last_contact.elapsed() > SILENCE
                && !live.cancel.is_cancelled()
            {
                warn!(agent = %member.hello.name, "nothing heard for {} s, its session ends", SILENCE.as_secs());
                live.cancel.cancel();
            }
        }
    }

    async fn write_seen(&self) {
        let seen: Vec<_> = self
            .state()
            .members
            .values()
            .filter(|member| member.live.is_some())
            .map(|member| (member.id, member.last_seen))
            .collect();
        for (agent, at) in seen {
            if let Err(error) = self.0.store.agent_seen(agent, at).await {
                warn!(%agent, %error, "cannot store when the agent was seen");
            }
        }
    }
}

/// An open question; forgotten when nobody waits for its answer any more.
struct Pending<'f> {
    fleet: &'f Fleet,
    agent: AgentId,
    id: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(live) = self
            .fleet
            .state()
            .members
            .get_mut(&self.agent)
            .and_then(|member| member.live.as_mut())
        {
            live.waiting.remove(&self.id);
        }
    }
}

fn name_is_free(state: &State, hello: &Hello) -> Result<(), AttachError> {
    let attached = state
        .members
        .values()
        .filter(|member| member.live.is_some());
    let mut count = 0;
    for member in attached {
        count += 1;
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

impl State {
    fn insert(
        &mut self,
        agent: AgentId,
        host: HostId,
        hello: Hello,
        from: Option<IpAddr>,
        live: Live,
        at: crate::model::MeshMicros,
    ) {
        self.tokens.insert(live.token.clone(), agent);
        let old = self.members.remove(&agent);
        let (sampling, clock_error_us, round_trip_us) =
            old.as_ref().map_or_else(Default::default, |old| {
                (old.sampling, old.clock_error_us, old.round_trip_us)
            });
        if let Some(old) = old.and_then(|old| old.live) {
            self.tokens.remove(&old.token);
            old.cancel.cancel();
        }
        self.members.insert(
            agent,
            Member {
                id: agent,
                host,
                hello,
                seen_at: from,
                live: Some(live),
                sampling,
                last_contact: Instant::now(),
                last_seen: at,
                clock_error_us,
                round_trip_us,
            },
        );
    }

    /// Appoints samplers anew and tells those whose part has changed; `welcomed` learns it from its Welcome.
    fn appoint(&mut self, welcomed: Option<AgentId>) {
        let candidates: Vec<_> = self
            .members
            .values()
            .filter(|member| member.live.is_some())
            .map(Member::candidate)
            .collect();
        let mut number = u64::MAX;
        for appointed in appoint::appoint(&candidates) {
            let Some(member) = self.members.get_mut(&appointed.agent) else {
                continue;
            };
            let sampling = Sampling {
                host_wide: appointed.host_wide,
                interfaces: appointed.interfaces,
                period_us: self.period_us,
            };
            if member.sampling == sampling {
                continue;
            }
            member.sampling = sampling;
            if welcomed == Some(appointed.agent) {
                continue;
            }
            if let Some(live) = &member.live {
                // Ids from the top: nobody waits for the answer. A full queue belongs to a stuck agent, whose session
                // ends, and the next Welcome says it.
                let message = Outgoing::Command {
                    id: number,
                    command: Box::new(Command::Sampling(sampling)),
                };
                number = number.wrapping_sub(1);
                if live.outgoing.try_send(message).is_err() {
                    live.cancel.cancel();
                }
            }
        }
        for member in self
            .members
            .values_mut()
            .filter(|member| member.live.is_none())
        {
            member.sampling = Sampling::default();
        }
    }
}

/// What a stream does with what it hears.
impl SessionHandle {
    fn with_live<T>(&self, act: impl FnOnce(&mut Live) -> T) -> Option<T> {
        let mut state = self.fleet.state();
        let at = self.fleet.0.clock.now();
        let member = state.members.get_mut(&self.agent)?;
        let live = member
            .live
            .as_mut()
            .filter(|live| live.number == self.number)?;
        member.last_contact = Instant::now();
        member.last_seen = at;
        Some(act(live))
    }

    pub fn agent(&self) -> AgentId {
        self.agent
    }

    /// Answers a clock probe; dropped when the stream is behind.
    pub fn probed(&self, agent_sent_ns: i64) {
        let received_ns = self.fleet.0.clock.now_ns();
        self.with_live(|live| {
            let _ = live.outgoing.try_send(Outgoing::Clock {
                agent_sent_ns,
                received_ns,
            });
        });
    }

    /// Hands a reply to whoever waits for it.
    pub fn replied(&self, id: u64, reply: Reply) {
        let waiting = self.with_live(|live| live.waiting.remove(&id)).flatten();
        if let Some(waiting) = waiting {
            let _ = waiting.reply.send(reply);
        }
    }

    pub fn progressed(&self, id: u64, progress: Progress) {
        self.with_live(|live| {
            if let Some(sender) = live
                .waiting
                .get(&id)
                .and_then(|waiting| waiting.progress.as_ref())
            {
                sender.send_replace(progress);
            }
        });
    }
}
