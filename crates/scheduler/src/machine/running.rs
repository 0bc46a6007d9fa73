//! The running load: awaits the end of each task, closes a hanging step, and detects agents that confirmed their start
//! but did not begin.

use super::{
    effect::{Effect, Lookup, Show, Within},
    event::Begun,
    loss::FORGET_TIMEOUT,
    next::Next,
    run::{ActiveStep, Run, after, between},
    stage::{Goal, Stage},
    stop::STOP_TIMEOUT,
    tasks::{TaskHandle, TaskOutcome, TaskSet, has_ended, is_undecided},
    waiting::{Waiting, WaitingScope},
};
use crate::sessions::command::{AgentAnswer, CallError, Command, End, RefusalKind};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, StepState, TaskId, TaskState};
use benchmesh_plan::PlannedLoad;
use benchmesh_store::rows::{Row, TaskRow};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A step bounded in time is hung once it takes longer by this much, or by a tenth.
const OVERTIME: Duration = Duration::from_secs(30);
/// An agent that has begun sends rows at least every few seconds, even for operations that do not end.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

impl Run {
    /// Starts the load once every task has confirmed the instant.
    pub(super) fn start_running(&mut self, start: MeshMicros) {
        let live = self.live();
        for task in &live {
            self.set_task(task.task, TaskState::Running, None);
        }
        self.enter(StepState::Running, Some(start));
        self.run_load();
    }

    /// Waits for the end of every task that has not ended.
    fn run_load(&mut self) {
        let Some(step) = &mut self.step else { return };
        step.measured = true;
        step.may_start.clear();
        let start = step.start.unwrap_or(self.now);
        self.stage = Stage::Running;
        for task in self.live() {
            self.await_end(Waiting::Ended { task }, task, Within::Contact);
        }
        self.watch_receivers();
        self.watch_steadiness(start, start);
        self.adopt_parts();
        let Some((expected, stagger)) =
            self.active_plan().map(|plan| (plan.expected, plan.stagger))
        else {
            return;
        };
        if let Some(expected) = expected {
            let late = OVERTIME.max(expected / 10);
            let longest = expected.saturating_add(late);
            self.wait_until(Waiting::Overtime, after(start.max(self.now), longest));
        }
        if !self.unpaced().is_empty() {
            let tasks = self.active_plan().map_or(0, |plan| plan.tasks.len());
            let last =
                stagger.saturating_mul(u32::try_from(tasks.saturating_sub(1)).unwrap_or(u32::MAX));
            self.wait_until(Waiting::BeginningDue, after(start, last));
        }
        let lost: Vec<(TaskHandle, TaskState)> = self.step.as_ref().map_or_else(Vec::new, |step| {
            let lost = step.tasks.lost();
            lost.map(|(task, outcome)| (task, outcome.state)).collect()
        });
        for (task, state) in lost {
            match state {
                TaskState::Lost => self.replace_in_rate(task),
                // Its agent has reported its end.
                _ => self.on_lease_over(task.task),
            }
        }
    }

    /// Watches the receivers of links. The sender reports the end of a task, and does not notice a receiver that
    /// stalls.
    fn watch_receivers(&mut self) {
        let live = self.live();
        let receivers: BTreeSet<AgentId> = live.iter().filter_map(|task| task.peer).collect();
        for receiver in receivers {
            // Sent at once: a loss counts even while the database cannot be written.
            let token = self.wait_for(Waiting::ReceiverLost { receiver });
            let lookup = Lookup::Loss {
                agent: receiver,
                loss_after: self.policy.loss_after,
            };
            self.at_once(Effect::Lookup { token, lookup });
        }
    }

    pub(super) fn await_end(&mut self, waiting: Waiting, task: TaskHandle, within: Within) {
        let command = Command::AwaitEnd { task: task.task };
        self.ask_at_once(waiting, task.agent, command, within);
    }

    pub(super) fn on_ended(&mut self, task: TaskHandle, answer: Result<AgentAnswer, CallError>) {
        let name = self.agents.name(task.agent);
        let why = match answer {
            Ok(AgentAnswer::End(end)) => {
                match &end.last_batch {
                    // Its rows decide how `on-stall` and `on-loss` apply.
                    Some(last)
                        if end.state == TaskState::Failed || self.is_own_stop(task, &end) =>
                    {
                        let lookup = self.rows_until(task, last);
                        self.note_end_session(task);
                        let token = self.wait_for(Waiting::EndStored { task, end });
                        self.at_once(Effect::Lookup { token, lookup });
                    }
                    _ => self.store_outcome(task, TaskOutcome::from_end(end)),
                }
                return self.on_load_over(task.task);
            }
            Ok(_) => format!("agent `{name}` sent the answer to another command"),
            Err(CallError::Refused {
                agent,
                kind: RefusalKind::UnknownTask,
                ..
            }) => {
                let why = format!("agent `{agent}` restarted and lost its task");
                self.note_restart(task);
                return self.read_end(task, None, why);
            }
            Err(error) => error.to_string(),
        };
        // The end may be stored although the agent can no longer report it.
        self.read_end(task, None, why);
    }

    /// Whether an agent has stopped its task by itself and may come back; the reason is in its rows.
    fn is_own_stop(&self, task: TaskHandle, end: &End) -> bool {
        let may_rejoin = self.load_of(task).is_some_and(PlannedLoad::may_rejoin);
        end.state == TaskState::Stopped && !self.is_steady() && may_rejoin
    }

    /// Called when the rows of a failed task are stored, or will not come.
    pub(super) fn on_end_stored(&mut self, task: TaskHandle, end: End, missing: Option<String>) {
        let name = self.agents.name(task.agent);
        let why = missing.unwrap_or_else(|| {
            format!("agent `{name}` reported the end of its task but sent no row of it")
        });
        self.read_end(task, Some(end), why);
    }

    /// `why`: the reason of the loss if the end of the task is not stored.
    fn read_end(&mut self, task: TaskHandle, end: Option<End>, why: String) {
        if let Some(step) = self.step.as_ref().map(|step| step.id) {
            // Sent at once: a loss counts even while the database cannot be written.
            let token = self.wait_for(Waiting::EndRead { task, end, why });
            let lookup = Lookup::Tasks(step);
            self.at_once(Effect::Lookup { token, lookup });
        }
    }

    /// Handles the stored state of a task that has failed, or whose agent does not answer: it has ended, or it is lost.
    pub(super) fn on_end_read(
        &mut self,
        task: TaskHandle,
        end: Option<End>,
        why: &str,
        rows: &[TaskRow],
    ) {
        let Some(step) = &self.step else { return };
        let stalled = end.as_ref().is_some_and(|end| end.stalled);
        let stopped = end.clone().filter(|end| end.state == TaskState::Stopped);
        // If the agent does not answer, all of its tasks are read.
        let is_read = |row: &&TaskRow| match end {
            Some(_) => row.id == task.task,
            None => row.agent == task.agent,
        };
        let ended: Vec<(TaskHandle, TaskOutcome)> = rows
            .iter()
            .filter(is_read)
            .filter_map(|row| {
                let live = step
                    .tasks
                    .get(row.id)
                    .filter(|_| step.tasks.is_live(row.id));
                live.zip(TaskOutcome::from_row(row))
            })
            .collect();
        let last_batch = end.and_then(|end| end.last_batch);
        for (task, mut outcome) in ended {
            let error = outcome.error.clone();
            outcome.last_batch.clone_from(&last_batch);
            self.store_outcome(task, outcome);
            self.cancel(|waiting| waiting.task() == Some(task));
            if self.step.as_ref().is_some_and(|step| {
                let mut outcomes = step.tasks.outcomes();
                outcomes.any(|(other, it)| other == task && it.state == TaskState::Stopped)
            }) {
                self.note_stopped(task, &error);
            }
            let is_lost = |step: &ActiveStep| step.tasks.is_lost(task.task);
            if stalled {
                self.stalled = true;
                self.abort(format!("agent `{}`: {error}", self.agents.name(task.agent)));
            } else if self.step.as_ref().is_some_and(is_lost) {
                self.on_task_failed(task, &error);
            }
        }
        let is_live = |step: &ActiveStep| step.tasks.is_live(task.task);
        if self.step.as_ref().is_some_and(is_live) {
            if let Some(end) = stopped {
                self.store_outcome(task, TaskOutcome::from_end(end));
                return self.note_stopped(task, "");
            }
            self.lose(task.agent, why);
            if stalled {
                self.stalled = true;
                self.abort(format!("{why}; an operation of its task had not ended"));
            }
        }
    }

    pub(super) fn store_outcome(&mut self, task: TaskHandle, outcome: TaskOutcome) {
        let error = (!outcome.error.is_empty()).then(|| outcome.error.clone());
        // Stored with the position of its last rows, because a restarted collector has to wait for them too.
        self.out.rows.push(Row::Task {
            task: task.task,
            state: outcome.state,
            error,
            last_batch: outcome.last_batch.clone(),
        });
        if let Some(step) = &mut self.step {
            step.tasks.set(task.task, outcome);
        }
    }

    /// The workers of a task have ended. The agent reports its end after the workload's finishing work.
    pub(super) fn on_load_over(&mut self, task: TaskId) {
        if let Some(step) = &mut self.step {
            step.tasks.set_load_over(task);
        }
        self.mark_end();
    }

    /// Has the end of the step sampled, once, as soon as no task has workers left.
    fn mark_end(&mut self) {
        let Some(step) = &mut self.step else { return };
        if !step.end_marked && !step.tasks.has_load() {
            step.end_marked = true;
            let run = self.row.id;
            self.at_once(Effect::Mark { run, at: None });
        }
    }

    /// All tasks have ended.
    pub(super) fn load_is_over(&mut self) -> Next {
        self.abandon_returning("the step ended before the agent could begin again");
        self.cancel(|waiting| waiting.scope() == WaitingScope::Load);
        self.mark_end();
        self.show_took();
        Next::StoreRows(Goal::Conclude)
    }

    fn show_took(&mut self) {
        let Some(step) = &self.step else { return };
        let took = between(step.start.unwrap_or(self.now), self.now);
        let show = Show::Took {
            index: step.index,
            took,
        };
        self.show(show);
    }

    // Agents that have not begun.

    /// The tasks that have rows soon after their start: those without widely spaced operations by design.
    fn unpaced(&self) -> Vec<TaskHandle> {
        let is_paced = |task: &TaskHandle| {
            let index = self.step.as_ref()?.tasks.index(task.task)?;
            let planned = self.active_plan()?;
            let load = planned.loads.get(planned.tasks.get(index)?.load)?;
            Some(load.params.contains_key("rate") || load.params.contains_key("rate_iops"))
        };
        let running = self.step.as_ref().map(|step| step.tasks.running());
        let mut tasks: Vec<TaskHandle> = running.into_iter().flatten().collect();
        tasks.retain(|task| is_paced(task) != Some(true));
        tasks
    }

    pub(super) fn check_begun(&mut self, waiting: Waiting) {
        let Some(step) = self.step.as_ref().map(|step| step.id) else {
            return;
        };
        let agents = self.unpaced().into_iter().map(|task| task.agent).collect();
        self.lookup(waiting, Lookup::Begun { step, agents });
    }

    pub(super) fn on_begun_before(&mut self, begun: Begun) {
        let timeout = self.begin_timeout();
        let before = begun.positions;
        self.wait(Waiting::BeginTimeout { before }, timeout);
    }

    fn begin_timeout(&self) -> Duration {
        BEGIN_TIMEOUT.max(self.policy.loss_after * 2)
    }

    /// Whether a client had time to begin. One that came back late gets as much time as the others had.
    fn had_time_to_begin(&self, task: TaskHandle) -> bool {
        let start = self.own_start(task.task);
        start.is_none_or(|start| after(start, self.begin_timeout()) <= self.now)
    }

    /// Removes tasks from the step that have confirmed their start but have not begun.
    pub(super) fn on_begun_after(
        &mut self,
        before: &BTreeMap<AgentId, Vec<(String, u64)>>,
        begun: &Begun,
    ) {
        let silent = |task: &TaskHandle| {
            begun.without_rows.contains(&task.task) && self.had_time_to_begin(*task)
        };
        let silent: Vec<TaskHandle> = self.unpaced().into_iter().filter(silent).collect();
        if silent.is_empty() {
            return;
        }
        // An agent that still sends older rows will send these too. A detached agent is handled as a loss.
        let is_stuck = |task: &&TaskHandle| {
            self.members.is_attached(task.agent)
                && before.get(&task.agent) == begun.positions.get(&task.agent)
        };
        let stuck: Vec<AgentId> = silent
            .iter()
            .filter(is_stuck)
            .map(|task| task.agent)
            .collect();
        if silent.iter().any(|task| !stuck.contains(&task.agent)) {
            self.check_begun(Waiting::BegunBefore);
        }
        for agent in stuck {
            let why = format!(
                "agent `{}` confirmed its start but has not begun: it has sent no rows of its task",
                self.agents.name(agent)
            );
            self.lose(agent, &why);
        }
    }

    // After a restart of the collector.

    /// Continues a step after a restart of the collector. A running step is awaited if agents still hold its tasks. Any
    /// other step is repeated as the next attempt, unless the run has to end.
    pub(super) fn resume_step(&mut self, index: usize, rows: &[TaskRow]) -> Option<Next> {
        self.begin_step_of_rows(index, rows);
        let state = self.active_facts().map(|facts| facts.state)?;
        self.show_step();
        if state == StepState::Cleaning {
            // All tasks had ended, and their rows are stored.
            let goal = match self.stop {
                Some(_) => Goal::Stop,
                None => Goal::Conclude,
            };
            self.read_tasks(goal);
            return None;
        }
        if self.stop.is_some() {
            return Some(Next::Close(Goal::Stop));
        }
        if let Some(reason) = self.aborted.clone() {
            if state == StepState::Running {
                let title = self.active_plan().map(benchmesh_plan::PlannedStep::title);
                let message = format!(
                    "the restarted collector takes over {} only to stop it",
                    title.unwrap_or_default()
                );
                self.record_event(None, EventKind::StepResumed, message);
            }
            return Some(Next::Close(Goal::Abort { reason }));
        }
        if state == StepState::Running {
            self.stage = Stage::FindingTaskHolders;
            self.end_unbegun_parts();
            self.wait(Waiting::HoldersLost, self.policy.loss_after);
            self.repeat_after_restore();
            self.find_task_holders();
            None
        } else {
            Some(Self::repeat_after_restart())
        }
    }

    fn begin_step_of_rows(&mut self, index: usize, rows: &[TaskRow]) {
        self.begin_step(index);
        self.cancel(|_| true);
        let facts = self.facts.get(index).cloned();
        if let (Some(step), Some(facts)) = (&mut self.step, facts) {
            step.tasks = TaskSet::of_rows(rows);
            for row in rows.iter().filter(|row| is_undecided(row)) {
                step.tasks.await_again(row.id);
            }
            step.rows = rows.to_vec();
            step.start = facts.start;
            step.measured = facts.start.is_some()
                && matches!(facts.state, StepState::Running | StepState::Cleaning);
            step.resumed = true;
            // A task that was stopped and has no rows ended before its start.
            let unstarted = |row: &&TaskRow| {
                row.state == TaskState::Stopped && row.last_batch.is_none() && row.ended.is_none()
            };
            let may_start = rows.iter().filter(|row| !unstarted(row));
            step.may_start = may_start.map(|row| row.id).collect();
        }
        self.adopt_parts();
        self.adopt_departures();
    }

    /// Looks for an agent that has attached with its task of the step. An agent that attached without it, or did not
    /// attach, is lost to the step, and the policy decides. If no agent holds a task, the step is not awaited.
    pub(super) fn find_task_holders(&mut self) {
        if !matches!(self.stage, Stage::FindingTaskHolders) {
            return;
        }
        let Some(step) = &self.step else { return };
        let mut rows = step.rows.iter();
        let ended = rows.any(|row| has_ended(row.state) && row.state != TaskState::Lost);
        let live: Vec<TaskHandle> = step.tasks.live().collect();
        let held = live.iter().any(|task| {
            let there = self.members.get(task.agent).filter(|there| there.attached);
            there.is_some_and(|there| there.held_tasks.contains(&task.task))
        });
        if held || ended {
            self.cancel(|waiting| matches!(waiting, Waiting::HoldersLost));
            let title = self.active_plan().map(benchmesh_plan::PlannedStep::title);
            let message = format!(
                "{} continued while the collector was down",
                title.unwrap_or_default()
            );
            self.record_event(None, EventKind::StepResumed, message);
            self.run_load();
        } else if live.iter().all(|task| self.members.is_attached(task.agent)) {
            self.cancel(|waiting| matches!(waiting, Waiting::HoldersLost));
        }
    }

    /// Repeats a step that was under way when the collector ended, if one of its agents has dropped its task because
    /// the database was restored from an older copy. The agent does not count as lost.
    pub(super) fn repeat_after_restore(&mut self) {
        let is_awaited = matches!(self.stage, Stage::FindingTaskHolders | Stage::Running);
        let Some(step) = self.step.as_ref().filter(|step| step.resumed && is_awaited) else {
            return;
        };
        let was_ahead = |task: &TaskHandle| {
            let member = self.members.get(task.agent);
            member.is_some_and(|member| member.was_ahead)
        };
        if step.tasks.live().any(|task| was_ahead(&task)) {
            let reason = String::from("the collector's database was restored from an older copy");
            self.close(Goal::Again { reason });
        }
    }

    /// Used if no agent holds a task of the step that was under way when the collector ended.
    pub(super) fn repeat_after_restart() -> Next {
        let reason = String::from("the collector restarted");
        Next::Close(Goal::Again { reason })
    }

    /// Forgets a task for callers that wait for its end after a stop.
    pub(super) fn forget_for_retry(&mut self, task: TaskHandle) {
        for agent in task.ends() {
            let command = Command::ForgetTask { task: task.task };
            let within = Within::For(FORGET_TIMEOUT);
            self.ask(Waiting::ForgottenForRetry, agent, command, within);
        }
    }

    pub(super) fn stop_within(&self) -> Within {
        Within::For(STOP_TIMEOUT)
    }
}
