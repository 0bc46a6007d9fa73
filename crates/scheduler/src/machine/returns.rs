//! Decides which lost clients rejoin the running step. Each continues as a further task of the same client, its next
//! part (`parts`), for the rest of the step's time.
//!
//! A client gets a part only if its previous part has ended on its agent, only time ends the load, and enough time is
//! left. Other clients take part in the next step.

use super::{
    departures::{Departure, Rejoin},
    members::Members,
    run::{Run, after, between},
    stage::Stage,
    tasks::{ClientPart, TaskHandle},
    waiting::Waiting,
};
use benchmesh_model::events::LEASE_IS_OVER;
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_store::rows::Row;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A client comes back only if at least this much time is left to measure, ...
const MIN_LEFT: Duration = Duration::from_secs(10);
/// ... and this many times the duration of its preparation.
const PREPARATIONS: u32 = 2;
/// Sessions are counted from 1.
const NO_SESSION: u64 = 0;
/// Maximum number of parts of one client in one step.
const MAX_PARTS: u32 = 1000;
/// The second return follows this long after the loss, each further one twice as long, ...
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// ... and this long at most.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

impl Run {
    /// Notes the last contact of agents whose sessions have ended.
    pub(super) fn note_departures(&mut self, before: &Members) {
        let Some(step) = &mut self.step else { return };
        for was in before.all().filter(|was| was.attached) {
            let Some(is) = self.members.get(was.id) else {
                continue;
            };
            if !is.attached {
                step.returns.last_contact.insert(was.id, is.last_seen);
            } else if is.session != was.session {
                step.returns.last_contact.insert(was.id, self.now);
            }
        }
    }

    /// An agent has answered that it does not know its task: it was restarted.
    pub(super) fn note_restart(&mut self, task: TaskHandle) {
        if let Some(step) = &mut self.step {
            step.returns.unknown.insert(task.task);
        }
    }

    /// Marks an ended task as no longer carrying load.
    pub(super) fn mark_gone(&mut self, task: TaskHandle) {
        if let Some(step) = &mut self.step {
            step.returns.gone.insert(task.task);
        }
    }

    /// Notes the tasks that are lost to the step.
    pub(super) fn note_lost(&mut self, lost: &[TaskHandle]) {
        let agents: BTreeSet<AgentId> = lost.iter().map(|task| task.agent).collect();
        for agent in agents {
            let session = self.session_of(agent);
            let is_attached = self.members.is_attached(agent);
            let now = self.now;
            let Some(step) = &mut self.step else { return };
            let begun = self.facts.get(step.index).and_then(|facts| facts.start);
            let returns = &mut step.returns;
            let own = || lost.iter().filter(|task| task.agent == agent);
            let is_restarted = own().any(|task| returns.unknown.contains(&task.task));
            let contact = returns.last_contact.get(&agent).copied();
            let contact = contact.filter(|_| is_restarted || !is_attached);
            let rejoin = match is_restarted {
                true => Rejoin::Restarted,
                false => Rejoin::NewSession,
            };
            if is_restarted {
                // The agent has lost all of its tasks.
                returns.gone.extend(own().map(|task| task.task));
            }
            let from = contact.unwrap_or(now);
            if is_restarted && begun.is_some_and(|start| start <= now) {
                self.out.rows.push(Row::Unreported {
                    agent,
                    from,
                    until: now,
                });
            }
            self.note_departure(agent, from, session, rejoin);
        }
    }

    /// Notes a task that its agent stopped before its time.
    pub(super) fn note_stopped(&mut self, task: TaskHandle, error: &str) {
        let (now, here) = (self.now, self.session_of(task.agent));
        self.mark_gone(task);
        let Some(step) = &self.step else { return };
        let session = step.returns.ended_in.get(&task.task).copied();
        let contact = step.returns.last_contact.get(&task.agent).copied();
        let (rejoin, since) = match error.ends_with(LEASE_IS_OVER) {
            true => (Rejoin::LeaseOver, contact.unwrap_or(now)),
            false => (Rejoin::NewSession, now),
        };
        self.note_departure(task.agent, since, session.unwrap_or(here), rejoin);
    }

    /// Notes in which session an agent reports the end of a task.
    pub(super) fn note_end_session(&mut self, task: TaskHandle) {
        let session = self.session_of(task.agent);
        if let Some(step) = &mut self.step {
            step.returns.ended_in.insert(task.task, session);
        }
    }

    fn note_departure(&mut self, agent: AgentId, since: MeshMicros, session: u64, rejoin: Rejoin) {
        let noticed = self.now;
        if let Some(step) = &mut self.step {
            let since = since.max(step.start.unwrap_or(since)).min(noticed);
            let departure = Departure {
                since,
                noticed,
                session,
                rejoin,
                is_reported: false,
            };
            step.returns.departures.insert(agent, departure);
        }
    }

    pub(super) fn session_of(&self, agent: AgentId) -> u64 {
        self.members
            .get(agent)
            .map_or(NO_SESSION, |member| member.session)
    }

    /// The start of a client that came back; `None` if it started with the others.
    pub(super) fn own_start(&self, task: TaskId) -> Option<MeshMicros> {
        let starts = &self.step.as_ref()?.returns.starts;
        starts.get(&task).map(|(start, _)| *start)
    }

    /// After a restart of the collector: earlier parts keep their starts.
    pub(super) fn adopt_parts(&mut self) {
        let Some(step) = &mut self.step else { return };
        for row in step.rows.iter().filter(|row| row.part > 1) {
            if let Some(start) = row.start {
                step.returns.starts.entry(row.id).or_insert((start, 0));
            }
        }
    }

    /// After a restart of the collector: clients that were lost before may come back in any session from now on.
    pub(super) fn adopt_departures(&mut self) {
        let Some(step) = &self.step else { return };
        let lost = step.rows.iter().filter(|row| row.state == TaskState::Lost);
        let lost: BTreeMap<AgentId, Option<MeshMicros>> =
            lost.map(|row| (row.agent, row.ended)).collect();
        for (agent, ended) in lost {
            let seen = self.members.get(agent).map(|member| member.last_seen);
            let since = ended.or(seen).unwrap_or(self.now);
            self.note_departure(agent, since, NO_SESSION, Rejoin::NewSession);
        }
    }

    /// Gives further tasks to agents that came back.
    pub(super) fn return_clients(&mut self) {
        let step = self
            .step
            .as_ref()
            .filter(|_| matches!(self.stage, Stage::Running));
        let Some(step) = step else { return };
        let agents: Vec<AgentId> = step.returns.departures.keys().copied().collect();
        for agent in agents {
            let is_under_way = self.waiting.values().any(|waiting| {
                matches!(
                    waiting,
                    Waiting::PartsMade { agent: other, .. } | Waiting::ReturnDue { agent: other }
                        if *other == agent
                )
            });
            let parts = self.returnable(agent);
            if is_under_way || parts.is_empty() {
                continue;
            }
            match self.return_due(agent, &parts) {
                due if due > self.now => {
                    self.wait_until(Waiting::ReturnDue { agent }, due);
                }
                _ => self.make_parts(agent, parts),
            }
        }
    }

    /// Whether a lost agent is about to come back.
    pub(super) fn awaits_return(&self, agent: AgentId) -> bool {
        !self.returnable(agent).is_empty()
    }

    /// Whether all clients have left the running step, and some of them are about to come back.
    pub(super) fn awaits_returns(&self) -> bool {
        let step = self
            .step
            .as_ref()
            .filter(|_| matches!(self.stage, Stage::Running));
        step.is_some_and(|step| {
            let mut waiting = self.waiting.values();
            let is_due = |waiting: &Waiting| matches!(waiting, Waiting::ReturnDue { .. });
            let comes = step.tasks.returning().next().is_some() || waiting.any(is_due);
            comes && step.tasks.outcomes().all(|(_, it)| it.has_left_early())
        })
    }

    /// The clients of an agent that may come back now, with their index and next part.
    fn returnable(&self, agent: AgentId) -> Vec<(usize, u32)> {
        let is_ending = self.stop.is_some()
            || self.aborted.is_some()
            || self.failing.is_some()
            || self.stalled
            || self.is_steady()
            || !matches!(self.stage, Stage::Running);
        let (Some(step), Some(plan)) = (&self.step, self.active_plan()) else {
            return Vec::new();
        };
        let member = self.members.get(agent).filter(|member| member.attached);
        let departure = step.returns.departures.get(&agent);
        let (Some(member), Some(departure)) = (member, departure) else {
            return Vec::new();
        };
        let is_new = member.session != departure.session;
        if is_ending
            || self.barred.contains_key(&agent)
            || (!is_new && departure.rejoin == Rejoin::NewSession)
        {
            return Vec::new();
        }
        let is_gone = |task: TaskHandle| {
            step.returns.gone.contains(&task.task)
                || (is_new && !member.held_tasks.contains(&task.task))
        };
        // A client whose load ended regularly soon ends those of the others.
        let has_ended = |load: usize| {
            let mut done = step.tasks.outcomes();
            done.any(|(task, outcome)| {
                let index = step.tasks.index(task.task);
                let planned = index.and_then(|index| plan.tasks.get(index));
                outcome.state == TaskState::Done && planned.is_some_and(|task| task.load == load)
            })
        };
        let may_return = |client: &ClientPart<'_>| {
            let planned = plan.tasks.get(client.index);
            if planned.is_none_or(|planned| has_ended(planned.load)) {
                return false;
            }
            let load = planned.and_then(|planned| plan.load(planned));
            let is_able = load.is_some_and(|load| {
                let has_place = !load.needs_target() || self.directories.has(&plan.path, agent);
                load.may_rejoin() && has_place
            });
            let has_left = client
                .outcome
                .is_some_and(|outcome| outcome.has_left_early());
            is_able
                && has_left
                && client.part < MAX_PARTS
                && client.handle.peer.is_none()
                && is_gone(client.handle)
                && self.has_time_for(agent, client.index)
        };
        let clients = step.tasks.clients_of(agent).into_iter();
        clients
            .filter(may_return)
            .map(|client| (client.index, client.part + 1))
            .collect()
    }

    /// When the load of a planned task ends by its runtime.
    pub(super) fn ends_at(&self, index: usize) -> Option<MeshMicros> {
        let plan = self.active_plan()?;
        let start = self.step.as_ref()?.start?;
        let runtime = plan.load(plan.tasks.get(index)?)?.footprint.runtime?;
        let turn = u32::try_from(index).unwrap_or(u32::MAX);
        let begins = after(start, plan.stagger.saturating_mul(turn));
        Some(after(begins, runtime))
    }

    fn has_time_for(&self, agent: AgentId, index: usize) -> bool {
        let Some(ends) = self.ends_at(index) else {
            return false;
        };
        let plan = self.active_plan();
        let ramp = plan.and_then(|plan| plan.load(plan.tasks.get(index)?)?.ramp_time());
        let step = self.step.as_ref();
        let took = step.and_then(|step| step.returns.took.get(&agent).copied());
        let preparing = took.unwrap_or_default().saturating_mul(PREPARATIONS);
        let needed = MIN_LEFT
            .max(preparing)
            .saturating_add(ramp.unwrap_or_default());
        between(self.now, ends) >= needed
    }

    /// The first return is immediate.
    fn return_due(&self, agent: AgentId, parts: &[(usize, u32)]) -> MeshMicros {
        let part = parts.iter().map(|(_, part)| *part).max().unwrap_or(0);
        let backoff = match part.checked_sub(3) {
            None => Duration::ZERO,
            Some(doublings) => {
                let factor = 1_u32.checked_shl(doublings.min(16)).unwrap_or(u32::MAX);
                FIRST_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF)
            }
        };
        let departure = self
            .step
            .as_ref()
            .and_then(|step| step.returns.departures.get(&agent));
        departure.map_or(self.now, |departure| after(departure.noticed, backoff))
    }
}
