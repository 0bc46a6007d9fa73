//! The members as plain maps: sessions by agent and token, and the appointed samplers.

use super::{
    appoint::{self, Candidate, Claim},
    command::{Command, HostSampling, Sampling},
    hello::Hello,
    hourly_bytes::HourlyBytes,
    member::{Member, Outgoing, Session},
    recent::Recent,
    samplers::{SampledPlace, Samplers},
};
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId};
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::Instant;

/// Maximum number of attached and detached agents. A detached member takes a kilobyte or two, and `hello::MAX_BYTES` at
/// most.
const MAX_MEMBERS: usize = 12_000;

/// Sampling period of a host between runs, if one of its agents wants it; the agent's own period overrides it.
const PERIOD_BETWEEN_RUNS_US: i64 = 1_000_000;
/// Limit of the rules of all agents of one host.
const MAX_RULES: usize = 1024;
/// Time that a host goes without a sampler before another agent stands in: an agent without a connection tries again
/// within this time.
const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// The collector's own host, in the form that agents report; `None` if the kernel does not report it.
fn own_host_key() -> Option<String> {
    static KEY: OnceLock<Option<String>> = OnceLock::new();
    KEY.get_or_init(|| {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
        Some(format!(
            "{}/{}",
            boot_id.trim(),
            namespace.to_string_lossy()
        ))
    })
    .clone()
}

#[derive(Debug, Default)]
pub(super) struct FleetState {
    pub members: BTreeMap<AgentId, Member>,
    /// Session token -> agent.
    pub tokens: HashMap<String, AgentId>,
    pub period_us: i64,
    /// The run that is sampled.
    pub run: Option<RunId>,
    /// Time without contact after which the current run counts an agent as lost.
    pub loss_after: Option<Duration>,
    pub recent: Recent,
    pub hourly_bytes: HourlyBytes,
    pub samplers: Samplers,
    /// Whether an agent waits to be appointed, in case the former sampler comes back.
    pub is_sampler_awaited: bool,
}

/// A change of a sampler's appointment.
#[derive(Debug)]
pub(super) struct SamplerChange {
    pub host: HostId,
    pub host_name: String,
    /// Appointment for its interfaces; `None`: for everything else.
    pub net_namespace: Option<String>,
    pub agent: AgentId,
    pub name: String,
    /// `None` if the place had no agent before.
    pub former: Option<String>,
    pub at: MeshMicros,
}

impl FleetState {
    pub fn insert(
        &mut self,
        agent: AgentId,
        host: HostId,
        hello: Arc<Hello>,
        from: Option<IpAddr>,
        session: Session,
        at: MeshMicros,
    ) {
        self.tokens.insert(session.token.clone(), agent);
        let old = self.members.remove(&agent);
        let (sampling, clock_error_us, round_trip_us) =
            old.as_ref().map_or_else(Default::default, |old| {
                (old.sampling.clone(), old.clock_error_us, old.round_trip_us)
            });
        let was_ahead = old.as_ref().is_some_and(|old| old.was_ahead);
        let spool_blocked_ns = old.as_ref().and_then(|old| old.spool_blocked_ns);
        if let Some(old) = old.and_then(|old| old.session) {
            self.tokens.remove(&old.token);
            old.cancel.cancel();
        }
        self.drop_longest_away();
        self.members.insert(
            agent,
            Member {
                id: agent,
                host,
                hello,
                seen_at: from,
                session: Some(session),
                sampling,
                last_contact: Instant::now(),
                last_seen: at,
                clock_error_us,
                round_trip_us,
                was_ahead,
                spool_blocked_ns,
            },
        );
    }

    /// Makes room for one more member by forgetting those that have been detached for longest. Their rows stay.
    fn drop_longest_away(&mut self) {
        while self.members.len() >= MAX_MEMBERS {
            let away = self
                .members
                .values()
                .filter(|member| member.session.is_none())
                .min_by_key(|member| member.last_contact)
                .map(|member| member.id);
            let Some(away) = away else { return };
            self.members.remove(&away);
        }
    }

    /// The host sampling requested from the samplers of hosts, and whether it is wanted between runs: by themselves and
    /// by agents that connect from the same address. An agent that claims this host from another address does not
    /// count.
    fn hosts(&self, samplers: &[AgentId]) -> HashMap<String, (HostSampling, bool)> {
        let attached = || {
            let members = self.members.values();
            members.filter(|member| member.session.is_some())
        };
        let sampled_from: HashMap<String, Option<IpAddr>> = attached()
            .filter(|member| samplers.contains(&member.id))
            .map(|member| (member.hello.host_key(), member.seen_at))
            .collect();
        let mut of_hosts: Vec<&Hello> = attached()
            .filter(|member| sampled_from.get(&member.hello.host_key()) == Some(&member.seen_at))
            .map(|member| &*member.hello)
            .collect();
        of_hosts.sort_by(|a, b| a.name.cmp(&b.name));
        let mut hosts: HashMap<String, (HostSampling, bool)> = HashMap::new();
        for hello in of_hosts {
            let (host, always) = hosts.entry(hello.host_key()).or_default();
            *always |= hello.sample_always;
            if hello.pid > 0 {
                host.mesh_pids.insert(hello.pid);
            }
            for rule in &hello.daemon_rules {
                if !host.daemon_rules.contains(rule) && host.daemon_rules.len() < MAX_RULES {
                    host.daemon_rules.push(rule.clone());
                }
            }
        }
        if let Some((host, _)) = own_host_key().and_then(|key| hosts.get_mut(&key)) {
            host.mesh_pids
                .extend(i32::try_from(std::process::id()).ok());
        }
        hosts
    }

    /// Whether a detached agent may soon be back on the host.
    fn is_expected(&self, agent: AgentId, host_key: &str) -> bool {
        self.members.get(&agent).is_some_and(|member| {
            member.session.is_none()
                && member.last_contact.elapsed() < RETURN_TIMEOUT
                && member.hello.host_key() == host_key
        })
    }

    /// The reason for appointing an attached agent.
    fn claim(&self, place: &SampledPlace, member: &Member) -> Claim {
        let (Some(own), Some(last)) = (self.samplers.own(place), self.samplers.current(place))
        else {
            return Claim::Free;
        };
        let host_key = member.hello.host_key();
        if self.samplers.is_own(place, member.id, &member.hello.name) {
            Claim::Own
        } else if last.agent == member.id {
            Claim::Last
        } else if self.is_expected(own.agent, &host_key) || self.is_expected(last.agent, &host_key)
        {
            Claim::Waits
        } else {
            Claim::Free
        }
    }

    /// Records an agent's appointments; returns the changes.
    fn note_appointed(
        &mut self,
        appointed: appoint::Appointed,
        at: MeshMicros,
        changes: &mut Vec<SamplerChange>,
    ) {
        let Some(member) = self.members.get(&appointed.agent) else {
            return;
        };
        let hello = &member.hello;
        let places = [
            (appointed.host_wide, member.host_place(), None),
            (
                appointed.interfaces,
                member.net_place(),
                Some(hello.net_namespace.clone()),
            ),
        ];
        for (is_appointed, place, net_namespace) in places {
            let former = self.samplers.current(&place).map(|last| last.name.clone());
            if is_appointed && self.samplers.appoint(&place, member.id, &hello.name, at) {
                changes.push(SamplerChange {
                    host: member.host,
                    host_name: hello.host_name.clone(),
                    net_namespace,
                    agent: member.id,
                    name: hello.name.clone(),
                    former,
                    at,
                });
            }
        }
    }

    /// Appoints samplers again, and sends each agent its new part; the agent `welcomed` gets it with its Welcome.
    /// Returns the changes to store.
    #[must_use]
    pub fn appoint(&mut self, welcomed: Option<AgentId>, at: MeshMicros) -> Vec<SamplerChange> {
        let candidates: Vec<Candidate> = self
            .members
            .values()
            .filter(|member| member.session.is_some())
            .map(|member| Candidate {
                agent: member.id,
                host: (
                    member.hello.host_key(),
                    self.claim(&member.host_place(), member),
                ),
                net: (
                    member.hello.net_key(),
                    self.claim(&member.net_place(), member),
                ),
            })
            .collect();
        self.is_sampler_awaited = candidates
            .iter()
            .any(|candidate| [candidate.host.1, candidate.net.1].contains(&Claim::Waits));
        let all = appoint::appoint(&candidates);
        let samplers: Vec<AgentId> = all
            .iter()
            .filter(|appointed| appointed.host_wide)
            .map(|appointed| appointed.agent)
            .collect();
        let mut hosts = self.hosts(&samplers);
        let mut changes = Vec::new();
        let mut number = u64::MAX;
        for appointed in all {
            self.note_appointed(appointed, at, &mut changes);
            let Some(member) = self.members.get_mut(&appointed.agent) else {
                continue;
            };
            let (host, always) = match appointed.host_wide {
                true => hosts.remove(&member.hello.host_key()).unwrap_or_default(),
                false => Default::default(),
            };
            let sampling = Sampling {
                host_wide: appointed.host_wide,
                interfaces: appointed.interfaces,
                period_us: match self.period_us {
                    0 if always => PERIOD_BETWEEN_RUNS_US,
                    period_us => period_us,
                },
                run: self.run,
                host: Arc::new(host),
            };
            if member.sampling == sampling {
                continue;
            }
            member.sampling = sampling.clone();
            if welcomed == Some(appointed.agent) {
                continue;
            }
            if let Some(session) = &member.session {
                // Ids count down from the maximum: the answers are not awaited. A full queue belongs to a stuck agent,
                // and its session ends; its next Welcome has the sampling.
                let message = Outgoing::Command {
                    run: None,
                    id: number,
                    command: Box::new(Command::Sampling(sampling)),
                };
                number = number.wrapping_sub(1);
                if session.outgoing.try_send(message).is_err() {
                    session.cancel.cancel();
                }
            }
        }
        for member in self
            .members
            .values_mut()
            .filter(|member| member.session.is_none())
        {
            member.sampling = Sampling::default();
        }
        changes
    }
}
