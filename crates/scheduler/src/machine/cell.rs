//! The steps of one cell: the removal of its data, the end of its later modes after a failure, and its next attempt.

use super::{
    effect::Show,
    ended::{NOBODY_LEFT_BEFORE, is_nobody_left},
    next::Next,
    removal::STALLED,
    run::{Run, StepFacts},
    stage::Stage,
    step_rows::new_steps,
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, StepId, StepState};
use benchmesh_plan::PlannedStep;
use benchmesh_store::rows::{Row, StepChange};
use std::sync::Arc;

/// How often a cell is repeated because its tasks did not start together.
const MAX_ATTEMPTS: u32 = 5;

impl Run {
    /// Fails the steps of a failed cell that depend on the failed step.
    pub(super) fn fail_cell(&mut self, index: usize, reason: &str, cleaned: bool) {
        self.stage = Stage::CleaningFailed;
        let has_data = self
            .steps
            .get(index)
            .is_some_and(|step| !step.path.is_empty());
        // In a cell without data of its own (above all links), the steps do not depend on each other.
        if !has_data {
            return;
        }
        let why = match is_nobody_left(reason) {
            true => NOBODY_LEFT_BEFORE,
            false => "an earlier mode of the cell failed",
        };
        let rest = index + 1..self.cell(index).end;
        self.fail_rest(rest, why);
        if !cleaned {
            self.clean_cell(index);
        }
    }

    /// Ends the steps of a cell that will not run.
    fn fail_rest(&mut self, range: std::ops::Range<usize>, reason: &str) {
        let mut open = Vec::new();
        for index in range {
            let Some(facts) = self
                .facts
                .get_mut(index)
                .filter(|facts| !facts.state.is_end())
            else {
                continue;
            };
            facts.state = StepState::Failed;
            facts.reason = Some(reason.to_owned());
            open.push(index);
            self.out
                .rows
                .push(failed_row(facts.id, self.now, reason.to_owned()));
        }
        let ordinal = |index: &usize| self.steps.get(*index).map_or(0, |step| step.ordinal);
        let message = match (open.first().map(ordinal), open.last().map(ordinal)) {
            (Some(first), Some(last)) if first < last => {
                format!("steps {first} to {last} are not measured: {reason}")
            }
            (Some(only), _) => format!("step {only} is not measured: {reason}"),
            _ => return,
        };
        self.show_message(message);
    }

    /// Fails the cell's attempt and makes its steps again as the next attempt. Steps that share no data are repeated
    /// one by one.
    pub(super) fn repeat_cell(&mut self, reason: &str) -> Option<Next> {
        let Some(active) = self.step.as_ref().map(|step| step.index) else {
            return Some(Next::FindStep);
        };
        self.forget_all();
        self.attempts += 1;
        let cell = self.cell(active);
        if self.attempts > MAX_ATTEMPTS {
            let why = format!("its tasks did not start together in {MAX_ATTEMPTS} attempts");
            self.step = None;
            self.fail_rest(active..cell.end, &why);
            self.clean_cell(active);
            self.stage = Stage::CleaningFailed;
            return None;
        }
        let shares_data = self
            .steps
            .get(active)
            .is_some_and(|step| !step.path.is_empty());
        let only: Vec<usize> = match shares_data {
            true => cell.clone().collect(),
            false => vec![active],
        };
        let known = || only.iter().filter_map(|index| self.facts.get(*index));
        let attempt = known().map(|facts| facts.attempt).max().unwrap_or(1) + 1;
        let undone = known()
            .filter(|facts| facts.state == StepState::Done)
            .count();
        let title = self.steps.get(active).map(PlannedStep::title);
        let message = format!(
            "{}: attempt {attempt}, because {reason}",
            title.unwrap_or_default()
        );
        self.record_event_of(None, None, EventKind::CellBegunAnew, message, None);
        if let Some(first) = only.first() {
            self.clean_cell(*first);
        }
        if undone > 0 {
            self.show(Show::StepsUndone(undone));
        }
        self.show(Show::StepGone);
        // One transaction ends the old steps and makes the new ones.
        let run = self.row.id;
        let planned = only.iter().filter_map(|index| self.steps.get(*index));
        let steps = new_steps(planned, attempt);
        for index in &only {
            let open = self.facts.get(*index).filter(|facts| !facts.state.is_end());
            if let Some(facts) = open {
                let why = format!("{reason}; repeated as attempt {attempt}");
                self.out.rows.push(failed_row(facts.id, self.now, why));
            }
        }
        self.out.rows.push(Row::Steps { run, steps });
        let token = self.wait_for(Waiting::StepsMade {
            range: cell.clone(),
            only,
            attempt,
        });
        self.out.made.push(token);
        self.step = None;
        self.go_back_to(cell.start);
        self.stage = Stage::RepeatingCell;
        None
    }

    pub(super) fn on_steps_made(
        &mut self,
        range: std::ops::Range<usize>,
        only: Vec<usize>,
        attempt: u32,
        ids: &[StepId],
    ) {
        let facts = |id: &StepId| StepFacts::planned(*id, attempt);
        if only.is_empty() {
            self.facts = ids.iter().map(facts).collect();
            debug_assert_eq!(self.facts.len(), range.len(), "a row for each step");
            return;
        }
        for (index, id) in only.into_iter().zip(ids) {
            if let Some(known) = self.facts.get_mut(index) {
                *known = facts(id);
            }
        }
    }

    /// Asks each agent of a cell to remove the data of its task, unless they stay. Data that could not be removed are
    /// removed with the run's directory.
    pub(super) fn clean_cell(&mut self, index: usize) {
        let steps = Arc::clone(&self.steps);
        let goes = |step: &&PlannedStep| !step.path.is_empty() && step.kept.is_none();
        let Some(step) = steps.get(index).filter(goes) else {
            return;
        };
        // If an operation hangs, only the short attempt at the end of the run removes data.
        if self.stalled {
            return;
        }
        let attempt = self.facts.get(index).map_or(1, |facts| facts.attempt);
        for task in step.tasks.iter() {
            let Some(agent) = self.agents.id(&task.agent) else {
                continue;
            };
            if !self.directories.has(&step.path, agent) || self.known_lost.contains(&agent) {
                continue;
            }
            let command = Command::RemoveCell {
                run_uid: self.row.uid.clone(),
                path: step.path.clone(),
                cell: step.directory(task.load, attempt),
                task_index: task.index,
            };
            self.removal_begins();
            let waiting = Waiting::CellRemoved { agent, files: 0 };
            self.ask_long(waiting, agent, command, STALLED);
        }
    }

    pub(super) fn on_cell_removed(
        &mut self,
        agent: AgentId,
        answer: &Result<AgentAnswer, CallError>,
    ) {
        // The loss of an agent has its own event. Its data are removed when it attaches again, or with the directory.
        if let Err(error) = answer
            && !error.is_lost()
        {
            let title = self.active_plan().map(PlannedStep::title);
            let of = title.unwrap_or_else(|| String::from("a cell"));
            let message = format!("the data of {of} stay until the run ends: {error}");
            self.record_event_of(None, Some(agent), EventKind::CellLeft, message, None);
        }
    }
}

/// The row of a step that fails without having been measured.
pub(super) fn failed_row(step: StepId, ended: MeshMicros, reason: String) -> Row {
    Row::Step {
        step,
        change: StepChange {
            state: StepState::Failed,
            at: ended,
            start: None,
            ended: Some(ended),
            reason: Some(reason),
        },
    }
}
