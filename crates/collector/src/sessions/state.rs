//! The members as plain maps: sessions by agent and token, and the appointed samplers.

use super::{
    appoint,
    command::{Command, HostSampling, Sampling},
    hello::Hello,
    member::{Member, Outgoing, Session},
    recent::Recent,
};
use crate::model::{AgentId, HostId, MeshMicros};
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::Instant;

/// Agents that are attached or were. A member that is away takes a kilobyte or two, and `hello::MAX_BYTES` at most.
const MAX_MEMBERS: usize = 12_000;

/// How often a host is sampled between runs, where one of its agents wants that; the agent's own period takes its
/// place.
const PERIOD_BETWEEN_RUNS_US: i64 = 1_000_000;
/// Rules of all agents of one host.
const MOST_RULES: usize = 1024;

/// The collector's own host, in the form that agents report; `None`: the kernel does not tell.
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
pub(super) struct State {
    pub members: BTreeMap<AgentId, Member>,
    /// Session token -> agent.
    pub tokens: HashMap<String, AgentId>,
    pub period_us: i64,
    /// After how long without contact the run under way takes an agent for lost.
    pub loss_after: Option<Duration>,
    pub recent: Recent,
}

impl State {
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

    /// Makes room for one more by forgetting those away for longest. Their rows stay.
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

    /// The host sampling that the attached agents of each host ask for, and whether one of them wants it between runs.
    fn hosts(&self) -> HashMap<String, (HostSampling, bool)> {
        let mut attached: Vec<&Hello> = self
            .members
            .values()
            .filter(|member| member.session.is_some())
            .map(|member| &*member.hello)
            .collect();
        attached.sort_by(|a, b| a.name.cmp(&b.name));
        let mut hosts: HashMap<String, (HostSampling, bool)> = HashMap::new();
        for hello in attached {
            let (host, always) = hosts.entry(hello.host_key()).or_default();
            *always |= hello.sample_always;
            if hello.pid > 0 {
                host.mesh_pids.insert(hello.pid);
            }
            for rule in &hello.daemon_rules {
                if !host.daemon_rules.contains(rule) && host.daemon_rules.len() < MOST_RULES {
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

    /// Appoints samplers again, and sends each agent its new part; the agent `welcomed` gets it with its Welcome.
    pub fn appoint(&mut self, welcomed: Option<AgentId>) {
        let candidates: Vec<_> = self
            .members
            .values()
            .filter(|member| member.session.is_some())
            .map(Member::candidate)
            .collect();
        let mut hosts = self.hosts();
        let mut number = u64::MAX;
        for appointed in appoint::appoint(&candidates) {
            let Some(member) = self.members.get_mut(&appointed.agent) else {
                continue;
            };
            let (host, always) = match appointed.host_wide {
                true => hosts.remove(&appointed.host).unwrap_or_default(),
                false => Default::default(),
            };
            let sampling = Sampling {
                host_wide: appointed.host_wide,
                interfaces: appointed.interfaces,
                period_us: match self.period_us {
                    0 if always => PERIOD_BETWEEN_RUNS_US,
                    period_us => period_us,
                },
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
                // Ids from the top: the answers are not awaited. A full queue belongs to a stuck agent, whose session
                // ends; its next Welcome has the sampling.
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
    }
}
