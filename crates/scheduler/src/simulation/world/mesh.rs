//! The agents of a schedule and their connections: commands, replies and spools, with their delays.

use super::{
    super::{
        agent::{Later, Reply, SimTaskState},
        plans::name,
    },
    FaultMode, MS, World, micros,
    sim_event::SimEvent,
};
use crate::{
    machine::{
        event::{Event, Token},
        members::Presence,
    },
    sessions::command::{CallError, Command},
};
use benchmesh_model::events::LEASE_IS_OVER;
use benchmesh_model::mesh::{HostId, MeshMicros, TaskId};

impl World {
    pub(super) fn arrives(&mut self, token: Token, agent: usize, session: u64, command: &Command) {
        let there = self.agents[agent].session;
        // A command in transit may have arrived before the connection broke; its answer has not.
        let got_there = there == 0 && self.random.below(2) == 0;
        if there != session && !got_there {
            return;
        }
        self.log(|| {
            let mut asked = format!("{command:?}");
            asked.truncate(80);
            format!("agent {} is asked: {asked} ({token:?})", name(agent))
        });
        self.check_arrival(agent, command);
        let now = self.mesh_now();
        let (replies, later) =
            self.agents[agent].command(token, command, now, &self.faults, &mut self.random);
        for (time, later) in later {
            self.after(time, SimEvent::Later { agent, later });
        }
        if got_there {
            // Nobody is left to answer.
            self.agents[agent].session_over();
        }
        self.reply(agent, replies);
    }

    pub(super) fn reply(&mut self, agent: usize, replies: Vec<(Token, Reply)>) {
        let session = self.agents[agent].session;
        for (token, reply) in replies {
            let delay = self.delay();
            let replied = |doubled| SimEvent::Replied {
                token,
                agent,
                session,
                reply: Box::new(reply.clone()),
                doubled,
            };
            let (first, second) = (replied(false), replied(true));
            self.after(delay, first);
            if self.fault_mode == FaultMode::All && self.random.below(10) == 0 {
                let delay = self.delay() * 3;
                self.after(delay, second);
            }
        }
        self.send_spool(agent);
    }

    pub(super) fn replied(
        &mut self,
        token: Token,
        agent: usize,
        session: u64,
        reply: Reply,
        doubled: bool,
    ) {
        if session == 0 || self.agents[agent].session != session || self.machine.is_none() {
            return;
        }
        // A duplicate also reaches the machine, which ignores it.
        if self.calls.remove(&token).is_none() && !doubled {
            return;
        }
        let answer = reply.map_err(|(kind, message)| CallError::Refused {
            agent: name(agent),
            kind,
            message,
        });
        self.log(|| format!("agent {} answers {token:?}: {answer:?}", name(agent)));
        self.handle(Event::Answered { token, answer });
    }

    pub(super) fn later(&mut self, agent: usize, later: &Later) {
        let now = self.mesh_now();
        let (faults, random) = (&self.faults, &mut self.random);
        let one = &mut self.agents[agent];
        let (replies, next) = match later {
            Later::Directory(path) => one.directory(path, now, &mut self.disks, faults, random),
            later => (one.later(later, now, faults, random), Vec::new()),
        };
        for (time, later) in next {
            self.after(time, SimEvent::Later { agent, later });
        }
        self.reply(agent, replies);
    }

    pub(super) fn send_spool(&mut self, agent: usize) {
        let one = &self.agents[agent];
        if !one.spool.is_empty() && one.session != 0 {
            let (session, delay) = (one.session, self.delay());
            self.after(delay, SimEvent::SpoolStored { agent, session });
        }
    }

    pub(super) fn spool_stored(&mut self, agent: usize, session: u64) {
        if self.agents[agent].session != session || session == 0 || self.machine.is_none() {
            return;
        }
        if self.agents[agent].spool.is_empty() {
            return self.rows_may_be_there();
        }
        if self.blocked {
            return self.when_unblocked(SimEvent::SpoolStored { agent, session });
        }
        let id = self.agents[agent].id;
        for batch in std::mem::take(&mut self.agents[agent].spool) {
            self.store.ingest(id, batch);
        }
        self.rows_may_be_there();
    }

    pub fn attach(&mut self, agent: usize) {
        if self.agents[agent].session != 0 {
            return;
        }
        if self.generation > 0 && self.machine.is_none() {
            // The collector is away.
            return self.after(100 * MS, SimEvent::Attach { agent });
        }
        self.sessions += 1;
        let now = self.now;
        let one = &mut self.agents[agent];
        one.session = self.sessions;
        one.last_contact = now;
        one.held_at_hello = one.tasks.keys().chain(&one.receivers).copied().collect();
        self.log(|| {
            format!(
                "agent {} attaches, with {:?}",
                name(agent),
                self.agents[agent].held_at_hello
            )
        });
        let generation = self.generation;
        let waiting: Vec<Token> = self
            .calls
            .iter()
            .filter(|(_, call)| call.agent == agent)
            .map(|(token, _)| *token)
            .collect();
        for token in waiting {
            self.send(token);
        }
        self.send_spool(agent);
        let delay = self.delay() / 10;
        self.after(delay, SimEvent::AgentsChanged { generation });
    }

    pub fn detach(&mut self, agent: usize) {
        if self.agents[agent].session == 0 {
            return;
        }
        self.log(|| format!("agent {} is cut off", name(agent)));
        self.agents[agent].session_over();
        self.agents[agent].last_contact = self.now;
        let generation = self.generation;
        let waiting: Vec<(Token, i64)> = self
            .calls
            .iter()
            .filter(|(_, call)| call.agent == agent)
            .map(|(token, call)| (*token, call.loss_after))
            .collect();
        for (token, loss_after) in waiting {
            self.after(loss_after, SimEvent::LostCheck { token });
        }
        let loss_after = micros(self.policy.loss_after);
        let rows: Vec<Token> = self
            .row_lookups
            .iter()
            .filter(|(_, (of, _))| *of == agent)
            .map(|(token, _)| *token)
            .collect();
        for token in rows {
            self.after(loss_after, SimEvent::LostCheck { token });
        }
        let lease = micros(self.policy.lease);
        self.after(lease, SimEvent::LeaseOver { agent });
        let delay = self.delay() / 10;
        self.after(delay, SimEvent::AgentsChanged { generation });
    }

    pub(super) fn lease_over(&mut self, agent: usize) {
        let one = &self.agents[agent];
        if one.session != 0 || self.now - one.last_contact < micros(self.policy.lease) {
            return;
        }
        let loads: Vec<TaskId> = one.loads().collect();
        self.agents[agent].receivers.clear();
        for task in loads {
            let now = self.mesh_now();
            let Some(held) = self.agents[agent].tasks.get_mut(&task) else {
                continue;
            };
            held.stop(now, &format!("no contact {LEASE_IS_OVER}"));
            let later = match held.state {
                SimTaskState::Running { start, .. } => Later::Over(task, start),
                _ => Later::Prepared(task),
            };
            self.after(MS, SimEvent::Later { agent, later });
        }
    }

    pub(super) fn presences(&self) -> Vec<Presence> {
        (0..self.agents.len())
            .map(|agent| {
                let one = &self.agents[agent];
                Presence {
                    id: one.id,
                    name: name(agent),
                    attached: one.session != 0,
                    session: one.session,
                    held_tasks: match one.session {
                        0 => Vec::new(),
                        _ => one.held_at_hello.clone(),
                    },
                    was_ahead: one.was_ahead,
                    boot_id: format!("boot-{agent}"),
                    host: HostId(one.id.0),
                    host_name: format!("host-{agent}"),
                    address: String::from("10.0.0.1"),
                    is_storage: agent == 0,
                    samples_host: true,
                    samples_interfaces: true,
                    last_seen: MeshMicros(one.last_contact),
                }
            })
            .collect()
    }
}
