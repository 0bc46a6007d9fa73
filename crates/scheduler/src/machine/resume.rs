//! Resumes an ended run: completed work stays, and each incomplete cell is made again as its next attempt.
//!
//! The old steps end and the new ones are made in the transaction in which the run begins again. A collector that
//! restarts at any moment therefore finds the run queued or running.

use super::{
    cell::failed_row,
    effect::Show,
    run::{Run, StepFacts, between},
    stage::Stage,
    step_rows::new_steps,
    waiting::Waiting,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, StepId, StepState};
use benchmesh_store::rows::Row;
use benchmesh_workloads::figures;
use std::{collections::BTreeSet, ops::Range};

const WHY: &str = "the run ended before the cell was done";

impl Run {
    /// Continues with the loop that was under way at the end of the run. `left_out`: steps that cannot be done.
    pub(super) fn take_up_again(
        &mut self,
        paused_from: Option<MeshMicros>,
        left_out: &BTreeSet<StepId>,
    ) {
        self.fail_open_steps();
        let done = self
            .facts
            .iter()
            .filter(|facts| facts.state == StepState::Done);
        let (done, steps) = (done.count(), self.facts.len());
        let (mut undone, mut repeated) = (0, 0);
        let mut index = 0;
        while index < steps {
            let cell = self.cell(index);
            index = cell.end.max(index + 1);
            for again in self.steps_to_repeat(cell.clone(), left_out) {
                repeated += again.len();
                undone += self.repeat_steps(cell.clone(), again);
            }
        }
        let paused = paused_from.map(|from| between(from, self.now));
        let after = paused.map_or_else(String::new, |paused| {
            format!(" after a pause of {}", figures::span(paused))
        });
        let message = format!(
            "the run continues{after}: {} of the {steps} steps of this loop are kept, {repeated} are repeated",
            done - undone,
        );
        self.record_event_of(None, None, EventKind::RunResumed, message, None);
        if undone > 0 {
            self.show(Show::StepsUndone(undone));
        }
        if repeated > 0 {
            self.stage = Stage::RepeatingCell;
        }
    }

    /// Fails the steps that are still open: a run that could not be driven may have ended with one under way.
    fn fail_open_steps(&mut self) {
        if !self.facts.iter().any(StepFacts::is_open) {
            return;
        }
        for facts in self.facts.iter_mut().filter(|facts| facts.is_open()) {
            facts.state = StepState::Failed;
        }
        self.out.rows.push(Row::OpenFailed {
            run: self.row.id,
            reason: WHY.to_owned(),
            at: self.now,
        });
    }

    /// The steps of a cell that are made again, grouped by shared attempt. Steps that share data form one group,
    /// because the data are gone since the end of the run; other steps are repeated one by one.
    fn steps_to_repeat(&self, cell: Range<usize>, left_out: &BTreeSet<StepId>) -> Vec<Vec<usize>> {
        let is_planned = |facts: &StepFacts| facts.state == StepState::Planned;
        let is_finished =
            |facts: &StepFacts| facts.state == StepState::Done || left_out.contains(&facts.id);
        let facts = |index: &usize| self.facts.get(*index);
        let shares_data = self
            .steps
            .get(cell.start)
            .is_some_and(|step| !step.path.is_empty());
        if !shares_data {
            let failed = |facts: &StepFacts| !is_finished(facts) && !is_planned(facts);
            let again = cell.filter(|index| facts(index).is_some_and(failed));
            return again.map(|index| vec![index]).collect();
        }
        let all = || cell.clone().filter_map(|index| self.facts.get(index));
        match all().all(is_planned) || all().all(is_finished) {
            true => Vec::new(),
            false => vec![cell.collect()],
        }
    }

    /// Makes the next attempt of these steps. Returns how many of them were done before.
    fn repeat_steps(&mut self, cell: Range<usize>, only: Vec<usize>) -> usize {
        let known = || only.iter().filter_map(|index| self.facts.get(*index));
        let attempt = known().map(|facts| facts.attempt).max().unwrap_or(1) + 1;
        let undone = known()
            .filter(|facts| facts.state == StepState::Done)
            .count();
        let open: Vec<StepId> = known()
            .filter(|facts| !facts.state.is_end())
            .map(|facts| facts.id)
            .collect();
        for step in open {
            let why = format!("{WHY}; repeated as attempt {attempt}");
            self.out.rows.push(failed_row(step, self.now, why));
        }
        let planned = only.iter().filter_map(|index| self.steps.get(*index));
        let steps = new_steps(planned, attempt);
        self.out.rows.push(Row::Steps {
            run: self.row.id,
            steps,
        });
        let token = self.wait_for(Waiting::StepsMade {
            range: cell,
            only,
            attempt,
        });
        self.out.made.push(token);
        undone
    }
}
