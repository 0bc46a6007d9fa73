//! Lost clients that come back into the running step: each goes on as a further task of the same client, its next part,
//! for what is left of the step's time.
//!
//! A part is prepared as the first one was, and has a start of its own: the others do not wait for it. It is made only
//! when the part before it has ended on its agent, and where time alone ends the load and enough of it is left. Whatever
//! cannot come back takes part in the next step.

use super::{
    effect::{Show, Within},
    members::Members,
    run::{Run, after, between, micros},
    stage::Stage,
    tasks::{ClientPart, TaskHandle},
    waiting::Waiting,
};
use crate::{
    model::{AgentId, MeshMicros, Severity, TaskId, TaskState},
    sessions::command::{Answer, CallError, Command, RefusalKind},
    store::rows::{NewPart, NewTask, Row},
};
use benchmesh_model::events::LEASE_IS_OVER;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A client comes back only if this much is left to measure, ...
const MIN_LEFT: Duration = Duration::from_secs(10);
/// ... and this many times what its preparation took.
const PREPARATIONS: u32 = 2;
/// A part that is prepared begins only if this much is left.
const MIN_RUN: Duration = Duration::from_secs(5);
/// How far ahead the start of a part is chosen; twice as far after each start that came too late.
const LEAD: Duration = Duration::from_secs(1);
const ARM_TRIES: u32 = 5;
/// No start is confirmed later than this before it.
const GUARD: Duration = Duration::from_millis(20);
/// Parts of one client in one step.
const MAX_PARTS: u32 = 1000;
/// The second return follows this long after the loss, each further one twice as long, ...
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// ... and this long at most.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Why an agent may come back in the session in which its task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejoin {
    /// It was started again, and holds no task of before.
    Restarted,
    /// It has stopped its load without contact.
    LeaseOver,
    /// Only in a later session: it hung, or cannot do its task.
    NewSession,
}

/// An agent whose task of the running step has ended early.
#[derive(Clone, Debug)]
struct Departure {
    /// The last that is known of it.
    since: MeshMicros,
    noticed: MeshMicros,
    session: u64,
    rejoin: Rejoin,
    /// That it is back has an event.
    is_told: bool,
}

/// What is known of the clients that left the step under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns {
    departures: BTreeMap<AgentId, Departure>,
    /// The last contact of agents whose session has ended.
    last_contact: BTreeMap<AgentId, MeshMicros>,
    /// Tasks that their agents do not know any more.
    unknown: BTreeSet<TaskId>,
    /// The session in which an agent has reported the end of a task.
    ended_in: BTreeMap<TaskId, u64>,
    /// Ended tasks that their agents do not load any more.
    gone: BTreeSet<TaskId>,
    /// How long an agent's preparation took.
    prepared_within: BTreeMap<AgentId, Duration>,
    /// Of parts that are being prepared: since when.
    preparing_since: BTreeMap<TaskId, MeshMicros>,
    /// Of parts: their own start, and how often it was chosen.
    starts: BTreeMap<TaskId, (MeshMicros, u32)>,
}

impl Returns {
    pub fn prepared_within(&mut self, agent: AgentId, took: Duration) {
        self.prepared_within.insert(agent, took);
    }
}

impl Run {
    /// Notes when agents were seen last whose sessions have ended.
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

    /// An agent has answered that it does not know its task: it was started again.
    pub(super) fn was_restarted(&mut self, task: TaskHandle) {
        if let Some(step) = &mut self.step {
            step.returns.unknown.insert(task.task);
        }
    }

    /// An ended task does not load any more.
    pub(super) fn is_gone(&mut self, task: TaskHandle) {
        if let Some(step) = &mut self.step {
            step.returns.gone.insert(task.task);
        }
    }

    /// Tasks are lost to the step.
    pub(super) fn note_lost(&mut self, lost: &[TaskHandle]) {
        let agents: BTreeSet<AgentId> = lost.iter().map(|task| task.agent).collect();
        for agent in agents {
            let session = self.session_of(agent);
            let is_attached = self.members.is_attached(agent);
            let now = self.now;
            let Some(step) = &mut self.step else { return };
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
                // It has lost all of them.
                returns.gone.extend(own().map(|task| task.task));
            }
            self.note_departure(agent, contact.unwrap_or(now), session, rejoin);
        }
    }

    /// A task has ended before its time because its agent stopped it.
    pub(super) fn note_stopped(&mut self, task: TaskHandle, error: &str) {
        let (now, here) = (self.now, self.session_of(task.agent));
        self.is_gone(task);
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
                is_told: false,
            };
            step.returns.departures.insert(agent, departure);
        }
    }

    pub(super) fn session_of(&self, agent: AgentId) -> u64 {
        self.members.get(agent).map_or(0, |member| member.session)
    }

    /// The start of a client that has come back; `None`: it started with the others.
    pub(super) fn own_start(&self, task: TaskId) -> Option<MeshMicros> {
        let starts = &self.step.as_ref()?.returns.starts;
        starts.get(&task).map(|(start, _)| *start)
    }

    /// After a start of the collector: parts of before keep their starts.
    pub(super) fn adopt_parts(&mut self) {
        let Some(step) = &mut self.step else { return };
        for row in step.rows.iter().filter(|row| row.part > 1) {
            if let Some(start) = row.start {
                step.returns.starts.entry(row.id).or_insert((start, 0));
            }
        }
    }

    /// Gives further tasks to agents that are back.
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

    /// Whether all clients have left the running step, and some of them are about to go on.
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

    /// The clients of an agent that may come back now, with their place and their next part.
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
        // One whose load has ended regularly ends those of the others soon.
        let has_done = |state: TaskState| state == TaskState::Done;
        if is_ending
            || self.barred.contains_key(&agent)
            || (!is_new && departure.rejoin == Rejoin::NewSession)
            || step.tasks.outcomes().any(|(_, it)| has_done(it.state))
        {
            return Vec::new();
        }
        let is_gone = |task: TaskHandle| {
            step.returns.gone.contains(&task.task)
                || (is_new && !member.held_tasks.contains(&task.task))
        };
        let may_return = |client: &ClientPart<'_>| {
            let load = plan.tasks.get(client.index);
            let load = load.and_then(|planned| plan.load(planned));
            let is_able = load.is_some_and(|load| {
                let has_place = !load.needs_target() || self.directories.has(&plan.path, agent);
                load.may_rejoin() && has_place
            });
            let has_left = client.outcome.is_some_and(|it| it.has_left_early());
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
    fn ends_at(&self, index: usize) -> Option<MeshMicros> {
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
        let took = step.and_then(|step| step.returns.prepared_within.get(&agent).copied());
        let preparing = took.unwrap_or_default().saturating_mul(PREPARATIONS);
        let needed = MIN_LEFT
            .max(preparing)
            .saturating_add(ramp.unwrap_or_default());
        between(self.now, ends) >= needed
    }

    /// The first return is at once.
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
        departure.map_or(self.now, |it| after(it.noticed, backoff))
    }

    fn make_parts(&mut self, agent: AgentId, parts: Vec<(usize, u32)>) {
        let (Some(step), Some(plan)) = (&self.step, self.active_plan()) else {
            return;
        };
        let being_made = self.waiting.values().map(|waiting| match waiting {
            Waiting::PartsMade { parts, .. } => parts.len(),
            _ => 0,
        });
        let next = step.tasks.len() + being_made.sum::<usize>();
        let index_of = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let link_bytes_per_s = self.link_speed_of(agent, &plan.path);
        let rows = parts.iter().zip(next..);
        let rows = rows.filter_map(|((index, part), task_index)| {
            let load = plan.load(plan.tasks.get(*index)?)?;
            Some(NewPart {
                task: NewTask {
                    agent,
                    peer: None,
                    task_index: index_of(task_index),
                    group: load.group.clone(),
                    workers: load.footprint.workers,
                    link_bytes_per_s,
                },
                part: *part,
                client_index: index_of(*index),
            })
        });
        let row = Row::Parts {
            step: step.id,
            parts: rows.collect(),
        };
        let token = self.wait_for(Waiting::PartsMade { agent, parts });
        self.out.made.push(token);
        self.out.rows.push(row);
    }

    pub(super) fn on_parts_made(
        &mut self,
        agent: AgentId,
        parts: Vec<(usize, u32)>,
        ids: &[TaskId],
    ) {
        let Some(step) = &mut self.step else { return };
        let handles = ids.iter().zip(parts).map(|(task, (index, part))| {
            let handle = TaskHandle {
                task: *task,
                agent,
                peer: None,
            };
            step.tasks.add_part(handle, index, part);
            handle
        });
        let handles: Vec<TaskHandle> = handles.collect();
        let show = Show::Parts {
            step: step.id,
            tasks: ids.to_vec(),
        };
        self.show(show);
        if !matches!(self.stage, Stage::Running) {
            return self.abandon_returning("the step ended before it had begun again");
        }
        for task in handles {
            let Some(prepare) = self.prepare_command(task) else {
                continue;
            };
            if let Some(step) = &mut self.step {
                step.returns.preparing_since.insert(task.task, self.now);
            }
            let waiting = Waiting::PartPrepared { task };
            let command = Command::Prepare(prepare);
            self.ask_long(waiting, agent, command, super::prepare::PREPARE_SILENCE);
        }
    }

    pub(super) fn on_part_prepared(&mut self, task: TaskHandle, answer: Result<Answer, CallError>) {
        if let Err(error) = answer {
            return self.cannot_return(task, &error);
        }
        let now = self.now;
        if let Some(step) = &mut self.step
            && let Some(since) = step.returns.preparing_since.remove(&task.task)
        {
            let took = between(since, now);
            step.returns.prepared_within(task.agent, took);
        }
        self.arm_part(task, 0);
    }

    fn arm_part(&mut self, task: TaskHandle, tries: u32) {
        let index = self
            .step
            .as_ref()
            .and_then(|step| step.tasks.index(task.task));
        let ends = index.and_then(|index| self.ends_at(index));
        let lead = LEAD.saturating_mul(1 << tries.min(ARM_TRIES));
        let start = after(self.now, lead);
        let Some(end) = ends.filter(|end| between(start, *end) >= MIN_RUN) else {
            return self.abandon(task, "too little of the step was left when it was prepared");
        };
        self.set_task(task.task, TaskState::Armed, None);
        self.out
            .rows
            .push(Row::TaskStarts(vec![(task.task, start)]));
        if let Some(step) = &mut self.step {
            step.returns.starts.insert(task.task, (start, tries));
        }
        let command = Command::Arm {
            task: task.task,
            start,
            end: Some(end),
        };
        let until = MeshMicros(start.0.saturating_sub(micros(GUARD)));
        let waiting = Waiting::PartArmed { task, start };
        self.ask(waiting, task.agent, command, Within::Until(until));
    }

    pub(super) fn on_part_armed(
        &mut self,
        task: TaskHandle,
        start: MeshMicros,
        answer: Result<Answer, CallError>,
    ) {
        let starts = self.step.as_ref().map(|step| &step.returns.starts);
        let tries = starts.and_then(|starts| starts.get(&task.task));
        let tries = tries.map_or(0, |(_, tries)| *tries) + 1;
        let error = match answer {
            // One that did not answer in time may have its start: its end says so.
            Ok(_) | Err(CallError::Deadline { .. }) => return self.run_part(task, start),
            Err(error) => error,
        };
        let is_late = matches!(error, CallError::TooLateToAsk { .. })
            || error.refusal() == Some(RefusalKind::TooLate);
        match is_late && tries < ARM_TRIES {
            true => self.arm_part(task, tries),
            false => self.cannot_return(task, &error),
        }
    }

    fn run_part(&mut self, task: TaskHandle, start: MeshMicros) {
        let Some(step) = &mut self.step else { return };
        step.tasks.has_returned(task.task);
        let part = step.tasks.part(task.task);
        let step_start = step.start.unwrap_or(start);
        self.set_task(task.task, TaskState::Running, None);
        self.await_end(Waiting::Ended { task }, task, Within::Contact);
        self.wait_until(Waiting::BeginningDue, start.max(self.now));
        self.known_lost.remove(&task.agent);
        self.record_return(task, start, part);
        self.share_with_returned(task);
        self.watch_steadiness(step_start);
    }

    /// Once for each return of an agent, however many tasks it has.
    fn record_return(&mut self, task: TaskHandle, start: MeshMicros, part: u32) {
        let departure = self
            .step
            .as_mut()
            .and_then(|step| step.returns.departures.get_mut(&task.agent));
        let Some(departure) = departure.filter(|departure| !departure.is_told) else {
            return;
        };
        departure.is_told = true;
        let (since, gap) = (departure.since, between(departure.since, start));
        let message = format!(
            "agent `{}` is back in the step after {}: its client returned as part {part} of its load",
            self.agents.name(task.agent),
            crate::figures::span(gap)
        );
        let detail = json!({
            "task_id": task.task.0,
            "part": part,
            "gap_us": micros(gap),
            "from_us": since.0,
            "until_us": start.0,
        });
        let step = self.step.as_ref().map(|step| step.id);
        let detail = Some(detail.to_string());
        let agent = Some(task.agent);
        self.record_event_of(
            step,
            agent,
            Severity::Warning,
            "client-returned",
            message,
            detail,
        );
    }

    fn cannot_return(&mut self, task: TaskHandle, error: &CallError) {
        match error {
            CallError::Refused {
                kind: RefusalKind::Stalled,
                ..
            } => self.handle_failure(task.agent, error),
            CallError::Refused {
                kind: RefusalKind::UnknownTask,
                ..
            } => {
                self.was_restarted(task);
                self.lose(task.agent, &error.to_string());
            }
            CallError::Lost { .. } | CallError::Deadline { .. } => {
                self.lose(task.agent, &error.to_string());
            }
            _ => self.abandon(task, &error.to_string()),
        }
    }

    /// A client does not come back into this step, unless its agent attaches anew.
    fn abandon(&mut self, task: TaskHandle, why: &str) {
        self.end_returning(task, why);
        let message = format!(
            "agent `{}` does not come back into the step: {why}; it takes part in the next one",
            self.agents.name(task.agent)
        );
        let agent = Some(task.agent);
        self.record_event(agent, Severity::Warning, "prepare-failed", message);
    }

    /// No part that has not begun begins any more.
    pub(super) fn abandon_returning(&mut self, why: &str) {
        let step = self.step.as_ref();
        let returning = step.map(|step| step.tasks.returning().collect::<Vec<_>>());
        for task in returning.unwrap_or_default() {
            self.end_returning(task, why);
        }
    }

    fn end_returning(&mut self, task: TaskHandle, why: &str) {
        self.cancel(|waiting| waiting.task() == Some(task));
        self.set_task(task.task, TaskState::Lost, Some(why.to_owned()));
        if let Some(step) = &mut self.step {
            step.tasks.end(task.task, TaskState::Lost, why);
        }
        self.note_lost(&[task]);
        self.stop_lost(task);
    }
}
