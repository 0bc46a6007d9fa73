//! The end of a step: whether its tasks succeeded, the removal of its data, its results, and the consequences for its
//! cell.

use super::{
    effect::{Effect, Show},
    ended::NOBODY_LEFT,
    next::Next,
    run::Run,
    stage::{Stage, StepEnd},
    tasks::TaskHandle,
    waiting::Waiting,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, StepId, StepState, TaskState};
use benchmesh_plan::PlannedStep;
use benchmesh_store::rows::FinishedStep;

impl Run {
    /// Concludes the step once all tasks have ended and their rows are stored.
    pub(super) fn conclude(&mut self) -> Option<Next> {
        self.conclude_steadiness();
        let apart = self.check_starts();
        let Some(step) = &self.step else {
            return Some(Next::FindStep);
        };
        let index = step.index;
        let failed = step.tasks.outcomes().find(|(task, outcome)| {
            outcome.state == TaskState::Failed && !step.tasks.is_lost(task.task)
        });
        let failed = failed.map(|(task, outcome)| (task.agent, outcome.error.clone()));
        let after = match apart.or(failed) {
            Some((agent, error)) => StepEnd::Failed {
                reason: format!("agent `{}`: {error}", self.agents.name(agent)),
            },
            None if step.tasks.all_are_lost() => StepEnd::Failed {
                reason: self.nobody_left(),
            },
            None => StepEnd::Done,
        };
        let is_last = index + 1 == self.cell(index).end;
        let has_data = self.active_plan().is_some_and(|step| !step.path.is_empty());
        self.stage = Stage::Cleaning(after);
        if is_last && has_data {
            self.enter(StepState::Cleaning, None);
            self.clean_cell(index);
        }
        None
    }

    /// Computes the step's results, after its data were removed or kept.
    pub(super) fn finish(&mut self, after: StepEnd) -> Option<Next> {
        self.removal_is_over();
        match &after {
            StepEnd::Failed { reason } => self.record_failure(reason),
            StepEnd::Done | StepEnd::Abort { .. } | StepEnd::Stop { .. } => {}
        }
        if !matches!(after, StepEnd::Abort { .. } | StepEnd::Stop { .. }) {
            self.record_stopped_tasks();
        }
        let Some(step) = &self.step else {
            return Some(Next::FindStep);
        };
        let incomplete = step
            .tasks
            .outcomes()
            .any(|(_, outcome)| outcome.state != TaskState::Done)
            || step.tasks.has_live();
        let (id, index) = (step.id, step.index);
        let (state, reason, partial) = match &after {
            StepEnd::Done => (StepState::Done, None, incomplete),
            StepEnd::Failed { reason } | StepEnd::Abort { reason } => {
                (StepState::Failed, Some(reason.clone()), incomplete)
            }
            StepEnd::Stop { whole: true } => (StepState::Done, self.stop.clone(), false),
            StepEnd::Stop { whole: false } => (StepState::Stopped, self.stop.clone(), true),
        };
        self.partial |= partial;
        if matches!(after, StepEnd::Done) && !partial {
            self.note_kept_whole();
        }
        if let Some(facts) = self.facts.get_mut(index) {
            facts.partial = partial;
            facts.reason = reason.clone();
            facts.state = state;
        }
        let token = self.wait_for(Waiting::Finished);
        self.then(Effect::Finish {
            token,
            run: self.row.id,
            index,
            step: id,
            finished: FinishedStep {
                state,
                partial,
                ended: self.now,
                reason,
            },
        });
        self.stage = Stage::Finishing(after);
        None
    }

    /// Records which clients are missing from the step, and fails the step if most of its operations failed.
    pub(super) fn on_finished(&mut self, without: Option<String>, failed: Option<String>) {
        if let (Some(reason), Stage::Finishing(after @ StepEnd::Done)) = (failed, &mut self.stage) {
            *after = StepEnd::Failed {
                reason: reason.clone(),
            };
            let index = self.step.as_ref().map(|step| step.index);
            if let Some(facts) = index.and_then(|index| self.facts.get_mut(index)) {
                facts.state = StepState::Failed;
                facts.reason = Some(reason.clone());
            }
            self.record_failure(&reason);
        }
        if let Some(without) = without {
            let title = self.active_plan().map(PlannedStep::title);
            let message = format!("{} is partial: {without}", title.unwrap_or_default());
            self.record_event(None, EventKind::StepPartial, message);
        }
    }

    /// Handles the stored results; agents may forget the step.
    pub(super) fn finished(&mut self, after: StepEnd) -> Option<Next> {
        if !matches!(after, StepEnd::Stop { .. }) {
            self.forget_all();
        }
        let Some(step) = self.step.take() else {
            return Some(Next::FindStep);
        };
        let index = step.index;
        match after {
            StepEnd::Done => {
                self.show(Show::StepDone);
                self.stage = Stage::Between;
                None
            }
            StepEnd::Failed { reason } => {
                let is_last = index + 1 == self.cell(index).end;
                // A mode that the target does not support says nothing about the other modes: each lays out the data
                // that it does not find.
                if step.unsupported && !is_last {
                    self.skip_mode(index, step.id);
                    self.stage = Stage::Between;
                    return None;
                }
                let cleaned = is_last && step.measured;
                Some(Next::FailCell {
                    index,
                    reason,
                    cleaned,
                })
            }
            StepEnd::Abort { .. } => Some(Next::RemoveDirectories),
            StepEnd::Stop { .. } => Some(Next::ConcludeRun),
        }
    }

    /// Records that only this mode of its cell is left out.
    fn skip_mode(&mut self, index: usize, id: StepId) {
        let Some(step) = self.steps.get(index) else {
            return;
        };
        let message = format!(
            "{} cannot run there and is skipped; the other modes of its cell continue",
            step.title()
        );
        self.show_message(message.clone());
        self.record_event_of(Some(id), None, EventKind::ModeLeftOut, message, None);
    }

    /// Asks agents to forget the ended tasks of the step. A lost agent is asked when it attaches again.
    pub(super) fn forget_all(&mut self) {
        let Some(step) = &self.step else { return };
        let over: Vec<TaskHandle> = step
            .tasks
            .outcomes()
            .filter(|(task, outcome)| {
                let is_there = task.ends().any(|agent| self.members.is_attached(agent));
                (outcome.state != TaskState::Lost || is_there) && !self.is_being_stopped(*task)
            })
            .map(|(task, _)| task)
            .collect();
        for task in over {
            self.forget(task);
        }
    }

    pub(super) fn record_failure(&mut self, reason: &str) {
        let failed = self.step.as_ref().and_then(|step| {
            let mut outcomes = step.tasks.outcomes();
            let failed = outcomes.find(|(_, outcome)| outcome.state == TaskState::Failed);
            failed.map(|(task, _)| task.agent)
        });
        let title = self.active_plan().map(PlannedStep::title);
        let message = format!("{} failed: {reason}", title.unwrap_or_default());
        self.record_event(failed, EventKind::StepFailed, message);
    }

    fn record_stopped_tasks(&mut self) {
        let Some(step) = &self.step else { return };
        let measured = step.measured;
        let stopped: Vec<(AgentId, String)> = step
            .tasks
            .outcomes()
            .filter(|(_, outcome)| measured && outcome.state == TaskState::Stopped)
            .map(|(task, outcome)| (task.agent, outcome.error.clone()))
            .collect();
        for (agent, error) in stopped {
            let message = format!(
                "agent `{}` stopped its task early: {error}",
                self.agents.name(agent)
            );
            self.record_event(Some(agent), EventKind::TaskStopped, message);
        }
    }

    /// Why the step failed although none of its tasks did. Includes the first task that its agent ended, if any.
    fn nobody_left(&self) -> String {
        let step = self.step.as_ref();
        let ended = step.and_then(|step| {
            let mut lost = step.tasks.lost();
            lost.find(|(_, outcome)| outcome.state == TaskState::Failed)
        });
        match ended {
            Some((task, outcome)) => format!(
                "{NOBODY_LEFT}: agent `{}`: {}",
                self.agents.name(task.agent),
                outcome.error
            ),
            None => String::from(NOBODY_LEFT),
        }
    }

    /// Fails the tasks that began at another instant than the one they were armed for, because they were not measured
    /// together with the others. Returns the first one.
    pub(super) fn check_starts(&mut self) -> Option<(AgentId, String)> {
        let (step, start) = self
            .step
            .as_ref()
            .and_then(|step| Some((step, step.start?)))?;
        let mut wrong = Vec::new();
        for (task, outcome) in step.tasks.outcomes() {
            let ended = matches!(outcome.state, TaskState::Done | TaskState::Stopped);
            let row = step.rows.iter().find(|row| row.id == task.task);
            let Some(row) = row.filter(|_| ended) else {
                continue;
            };
            let at = self.start_of(task, start);
            wrong.extend(wrong_start(row.start, row.skew_us, at).map(|why| (task, why)));
        }
        for (task, why) in &wrong {
            self.set_task(task.task, TaskState::Failed, Some(why.clone()));
            if let Some(step) = &mut self.step {
                step.tasks.end(task.task, TaskState::Failed, why);
            }
        }
        let (task, why) = wrong.into_iter().next()?;
        Some((task.agent, why))
    }
}

/// Why a task did not start at the instant that it had confirmed. `None` if its agent reports that it did.
fn wrong_start(
    start: Option<MeshMicros>,
    skew_us: Option<i64>,
    confirmed: MeshMicros,
) -> Option<String> {
    let early = skew_us.unwrap_or(0).saturating_neg();
    match start {
        Some(at) if at != confirmed => Some(format!(
            "it started {} us away from the instant that it had confirmed",
            at.0.saturating_sub(confirmed.0)
        )),
        _ if early > 0 => Some(format!(
            "it started {early} us before the instant that it had confirmed"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_at_another_instant_has_a_reason() {
        let check = |start: Option<i64>, skew_us, expected: Option<&str>| {
            let why = wrong_start(start.map(MeshMicros), skew_us, MeshMicros(5_000_000));
            assert_eq!(why.as_deref(), expected);
        };
        let confirmed = Some(5_000_000);
        check(None, None, None);
        check(confirmed, Some(0), None);
        check(confirmed, Some(90_000), None);
        check(
            confirmed,
            Some(-300_000),
            Some("it started 300000 us before the instant that it had confirmed"),
        );
        check(
            Some(3_000_000),
            Some(10),
            Some("it started -2000000 us away from the instant that it had confirmed"),
        );
    }
}
