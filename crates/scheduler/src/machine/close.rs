//! Closes a step whose agents may still hold tasks: stops the tasks, awaits and stores their ends, then decides how the
//! step ends.
//!
//! All ends take this path: a stop on request, an abort by the policy, a failure, an unconfirmed start, a load that
//! does not end, and the normal end, which has no task to stop.

use super::{
    effect::Lookup,
    lead::ARM_TRIES,
    members::Members,
    next::Next,
    run::Run,
    stage::{Goal, Stage, StepEnd},
    tasks::{TaskHandle, TaskOutcome, TaskSet},
    waiting::{Waiting, WaitingScope},
};
use crate::sessions::command::{AgentAnswer, CallError, Command, RefusalKind};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{StepState, TaskState};
use benchmesh_store::rows::{Row, SpoolPosition, TaskRow};

impl Run {
    pub(super) fn closing_goal(&self) -> Option<&Goal> {
        match &self.stage {
            Stage::Closing(goal)
            | Stage::StoringRows(goal)
            | Stage::ReadingTasks(goal)
            | Stage::Closed(goal) => Some(goal),
            _ => None,
        }
    }

    /// The stop reason given to the agents.
    fn reason_for_agents(&self, goal: &Goal) -> String {
        match goal {
            Goal::Conclude => String::from("the step is over"),
            Goal::CutOff => String::from("it has not ended in time"),
            Goal::Retry { .. } => String::from("the step was not armed in time"),
            Goal::Again { reason } | Goal::Fail { reason } | Goal::Abort { reason } => {
                reason.clone()
            }
            Goal::Stop => self.stop.clone().unwrap_or_default(),
        }
    }

    pub(super) fn record_was_over(&mut self) {
        if let Some(step) = &mut self.step {
            let stopped = |outcome: &TaskOutcome| outcome.state == TaskState::Stopped;
            step.was_over =
                !step.tasks.has_live() && !step.tasks.outcomes().any(|(_, it)| stopped(it));
        }
    }

    /// Stops every task of the step that an agent may hold.
    pub(super) fn close(&mut self, goal: Goal) {
        let keep = |waiting: &Waiting| {
            waiting.scope() == WaitingScope::Cleanup || waiting.must_be_awaited()
        };
        self.cancel(|waiting| !keep(waiting));
        let reason = self.reason_for_agents(&goal);
        let tasks = self.live();
        let armed = self
            .active_facts()
            .is_some_and(|facts| facts.state == StepState::Armed);
        if let Some(step) = self.step.as_mut().filter(|_| armed) {
            // Tasks that were given a start may have begun.
            let ends_run = matches!(goal, Goal::Stop | Goal::Abort { .. });
            step.measured |= ends_run && step.start.is_some();
        }
        self.record_was_over();
        self.stage = Stage::Closing(goal);
        for task in tasks {
            let command = Command::StopTask {
                task: task.task,
                reason: reason.clone(),
            };
            let within = self.stop_within();
            self.ask_at_once(Waiting::Stopped { task }, task.agent, command, within);
        }
    }

    pub(super) fn on_stopped(&mut self, task: TaskHandle, answer: &Result<AgentAnswer, CallError>) {
        let unknown = |error: &CallError| error.refusal() == Some(RefusalKind::UnknownTask);
        let there = match answer {
            Ok(_) => true,
            Err(error) if unknown(error) => false,
            // No answer: the state of the task is unknown.
            Err(_) => return,
        };
        if let Some(step) = self.step.as_mut().filter(|_| !there) {
            step.confirmed_stops.insert(task.task);
            if step.start.is_none_or(|start| self.now < start) {
                step.may_start.remove(&task.task);
            }
        }
        if there {
            let within = self.stop_within();
            self.await_end(Waiting::EndedAfterStop { task }, task, within);
        }
    }

    pub(super) fn on_ended_after_stop(
        &mut self,
        task: TaskHandle,
        answer: Result<AgentAnswer, CallError>,
    ) {
        let Ok(AgentAnswer::End(end)) = answer else {
            return;
        };
        if let Some(step) = &mut self.step {
            step.confirmed_stops.insert(task.task);
            // Without rows the task never began; otherwise its row decides.
            match end.last_batch {
                Some(_) => step.may_start.insert(task.task),
                None => step.may_start.remove(&task.task),
            };
        }
        if self.step.as_ref().is_some_and(|step| step.measured) {
            return self.store_outcome(task, TaskOutcome::from_end(end));
        }
        let retries = matches!(self.closing_goal(), Some(Goal::Retry { .. }));
        if let Some(step) = self.step.as_mut().filter(|_| retries) {
            let position = end.last_batch.map(|last| (task, last));
            step.stopped_at.extend(position);
        }
    }

    /// Waits until the rows of all tasks are stored, so that results are complete.
    pub(super) fn store_rows(&mut self, goal: Goal) {
        self.stage = Stage::StoringRows(goal);
        let Some(step) = &mut self.step else { return };
        let mut last = std::mem::take(&mut step.stopped_at);
        let outcomes = step
            .tasks
            .outcomes()
            .filter_map(|(task, outcome)| Some((task, outcome.last_batch.clone()?)));
        last.extend(outcomes);
        for (task, last) in last {
            let lookup = self.rows_until(task, &last);
            self.lookup(Waiting::RowsStored { task }, lookup);
        }
    }

    pub(super) fn rows_until(&self, task: TaskHandle, last: &SpoolPosition) -> Lookup {
        Lookup::Rows {
            agent: task.agent,
            spool: last.spool_id.clone(),
            sequence: last.sequence,
            loss_after: self.policy.loss_after,
        }
    }

    pub(super) fn on_rows_stored(&mut self, task: TaskHandle, missing: Option<String>) {
        let measured = self.step.as_ref().is_some_and(|step| step.measured);
        if let Some(step) = &mut self.step {
            step.tasks.stored(task.task);
        }
        let Some(why) = missing.filter(|_| measured) else {
            return;
        };
        self.partial = true;
        let why = format!(
            "rows of agent `{}` are missing: {why}",
            self.agents.name(task.agent)
        );
        self.decide_about_rows(task.agent, &why);
        let message = format!("{why}; the results are computed again when they arrive");
        let agent = Some(task.agent);
        self.record_event(agent, EventKind::RowsMissing, message);
    }

    /// Reads back the ends that agents reported.
    pub(super) fn read_tasks(&mut self, goal: Goal) {
        self.stage = Stage::ReadingTasks(goal);
        if let Some(step) = self.step.as_ref().map(|step| step.id) {
            self.lookup(Waiting::TasksRead, Lookup::Tasks(step));
        }
    }

    pub(super) fn on_tasks_read(&mut self, rows: Vec<TaskRow>) {
        // A task that was stopped before its start takes part in the next attempt.
        let retries = matches!(self.closing_goal(), Some(Goal::Retry { .. }));
        if let Some(step) = &mut self.step {
            if !retries {
                step.tasks = TaskSet::of_rows(&rows);
            }
            step.rows = rows;
        }
    }

    /// Ends the step or tries it again, now that the rows of its tasks are final.
    pub(super) fn finish_closing(&mut self, goal: Goal) -> Option<Next> {
        let goal = match (goal, self.aborted.clone()) {
            (Goal::Retry { .. } | Goal::Again { .. } | Goal::Fail { .. }, Some(reason)) => {
                Goal::Abort { reason }
            }
            (goal, _) => goal,
        };
        self.clear_starts();
        match goal {
            Goal::Conclude => Some(Next::Conclude),
            Goal::CutOff => self.lose_hanging(),
            Goal::Retry { reason } => self.retry(reason),
            Goal::Again { reason } => {
                let resumed = self.step.as_ref().is_some_and(|step| step.resumed);
                match resumed {
                    // Tasks that agents still held have ended by now; the others are lost with their agents.
                    true => self.end_live(TaskState::Lost, Some(&reason)),
                    false => self.end_live(TaskState::Stopped, None),
                }
                Some(Next::RepeatCell { reason })
            }
            Goal::Fail { reason } => {
                self.end_live(TaskState::Stopped, None);
                Some(Next::Finish(StepEnd::Failed { reason }))
            }
            Goal::Abort { reason } => {
                let measured = self.step.as_ref().is_some_and(|step| step.measured);
                match measured {
                    true => {
                        self.end_live(TaskState::Lost, Some("its agent did not report its end"))
                    }
                    false => self.end_live(TaskState::Stopped, None),
                }
                if measured {
                    self.record_halt();
                } else {
                    self.record_failure(&reason);
                }
                Some(Next::Finish(StepEnd::Abort { reason }))
            }
            Goal::Stop => {
                let reason = self.stop.clone().unwrap_or_default();
                Some(Next::StopStep { reason })
            }
        }
    }

    /// Clears the start instants of a step that was armed but is not measured, or with no task that can have begun.
    fn clear_starts(&mut self) {
        let armed = self
            .active_facts()
            .is_some_and(|facts| facts.state == StepState::Armed);
        let Some(step) = self.step.as_mut().filter(|_| armed) else {
            return;
        };
        // Its agent reported an end before the first operation.
        for row in &step.rows {
            if row.ended.is_some() && row.last_begun.is_none() {
                step.may_start.remove(&row.id);
            }
        }
        step.measured &= !step.may_start.is_empty();
        if step.measured {
            return;
        }
        step.start = None;
        let (id, index) = (step.id, step.index);
        if let Some(facts) = self.facts.get_mut(index) {
            facts.start = None;
        }
        self.out.rows.push(Row::StartsCleared { step: id });
    }

    /// Ends the tasks that have not ended. Asks an attached agent once more if it has not confirmed the stop of its
    /// task, because it may have attached again after its loss.
    pub(super) fn end_live(&mut self, state: TaskState, error: Option<&str>) {
        for task in self.live() {
            self.set_task(task.task, state, error.map(str::to_owned));
            let Some(step) = &mut self.step else { continue };
            step.tasks.end(task.task, state, error.unwrap_or_default());
            if !step.confirmed_stops.contains(&task.task) {
                self.stop_lost(task);
            }
        }
    }

    /// Stops tasks that are over or being stopped on agents that have attached with them again. `orphan_cleanup` does
    /// so too, but it reads the database first, and a stop must not wait for a database that cannot be written.
    pub(super) fn stop_on_returned_agents(&mut self, before: &Members) {
        let Some(step) = &self.step else { return };
        let closes = self.closing_goal().is_some();
        let is_back = |task: &TaskHandle| {
            let there = self.members.get(task.agent).filter(|there| there.attached);
            there.is_some_and(|there| {
                let session = before.get(task.agent).map(|before| before.session);
                session != Some(there.session) && there.held_tasks.contains(&task.task)
            })
        };
        let over = step.tasks.outcomes().filter(|(task, outcome)| {
            matches!(outcome.state, TaskState::Lost | TaskState::Stopped) && is_back(task)
        });
        let over: Vec<TaskHandle> = over.map(|(task, _)| task).collect();
        let live = step.tasks.live().filter(|task| closes && is_back(task));
        let live: Vec<TaskHandle> = live.collect();
        for task in over {
            if !self.is_being_stopped(task) {
                self.stop_lost(task);
            }
        }
        let reason = self.closing_goal().map(|goal| self.reason_for_agents(goal));
        for task in live {
            let is_asked = self.waiting.values().any(|waiting| {
                matches!(waiting, Waiting::Stopped { task: other } | Waiting::EndedAfterStop { task: other } if *other == task)
            });
            if is_asked {
                continue;
            }
            let waiting = match self.stage {
                Stage::Closing(_) => Waiting::Stopped { task },
                // The stage continues without the answer; `end_live` handles the rest.
                _ => Waiting::StoppedAgain,
            };
            let command = Command::StopTask {
                task: task.task,
                reason: reason.clone().unwrap_or_default(),
            };
            let within = self.stop_within();
            self.ask_at_once(waiting, task.agent, command, within);
        }
    }

    /// Loses the agent of a task that did not end after its stop. Other agents are not affected.
    fn lose_hanging(&mut self) -> Option<Next> {
        for task in self.live() {
            let why = format!(
                "the task of agent `{}` does not end: it hangs",
                self.agents.name(task.agent)
            );
            self.lose(task.agent, &why);
        }
        match self.aborted.clone() {
            Some(reason) => self.finish_closing(Goal::Abort { reason }),
            None => Some(Next::Conclude),
        }
    }

    /// Prepares the same tasks once more, if none of them can have started.
    fn retry(&mut self, reason: String) -> Option<Next> {
        let Some(step) = &mut self.step else {
            return Some(Next::FindStep);
        };
        if !step.may_start.is_empty() {
            self.end_live(TaskState::Stopped, None);
            let reason = format!("its tasks may not have started together ({reason})");
            return Some(Next::RepeatCell { reason });
        }
        if !self.may_arm_again() {
            let reason = format!(
                "its agents did not confirm its start in time, {ARM_TRIES} times: {reason}"
            );
            return self.finish_closing(Goal::Fail { reason });
        }
        for task in self.live() {
            self.forget_for_retry(task);
            // Without this row a restarted collector would assume that the task has ended.
            self.out.rows.push(Row::TaskAgain { task: task.task });
        }
        if let Some(step) = &mut self.step {
            step.arm_try += 1;
            step.links.clear();
            step.start = None;
            step.confirmed_stops.clear();
        }
        self.enter(StepState::Prepare, None);
        self.stage = Stage::MakingTasks;
        None
    }
}
