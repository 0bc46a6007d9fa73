//! The members as plain maps: who takes a session, who samples.

use super::{
    appoint,
    command::{Command, Sampling},
    hello::Hello,
    member::{Live, Member, Outgoing},
};
use crate::model::{AgentId, HostId, MeshMicros};
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::Duration,
};
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct State {
    pub members: BTreeMap<AgentId, Member>,
    /// Session token -> agent.
    pub tokens: HashMap<String, AgentId>,
    pub period_us: i64,
    /// After how long without contact the run under way takes an agent for lost.
    pub patience: Option<Duration>,
}

impl State {
    pub fn insert(
        &mut self,
        agent: AgentId,
        host: HostId,
        hello: Hello,
        from: Option<IpAddr>,
        live: Live,
        at: MeshMicros,
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
    pub fn appoint(&mut self, welcomed: Option<AgentId>) {
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
