//! After a start of the collector: what a cell was doing, and whether its agents still do it.

use super::{
    cell::CellEnd,
    drive::{Drive, Held},
    ends::TaskOutcome,
    step::StepEnd,
};
use crate::{
    model::StepState,
    plan::PlannedStep,
    store::{StoreError, rows::StepRow},
};

impl Drive {
    /// Rows to go on with. Planned steps only: nothing was under way. A step that was running and is still held by its
    /// agents is waited for; anything else is begun anew.
    pub(super) async fn recovered(
        &self,
        planned: &[PlannedStep],
        rows: Vec<StepRow>,
    ) -> Result<Result<Vec<StepRow>, CellEnd>, StoreError> {
        let open = rows
            .iter()
            .position(|row| !row.state.is_end() && row.state != StepState::Planned);
        let Some(index) = open else {
            return Ok(Ok(rows));
        };
        let (Some(step), Some(row)) = (planned.get(index), rows.get(index)) else {
            return Ok(Ok(rows));
        };
        let tasks = self.store.tasks(row.id).await?;
        let held: Vec<Held> = tasks
            .iter()
            .map(|task| Held {
                task: task.id,
                agent: task.agent,
                peer: task.peer,
            })
            .collect();
        self.hold(row.id, &held);
        let last = index + 1 == planned.len();
        let ended = match row.state {
            StepState::Running => {
                self.show_step(step, row, &held);
                self.board.change_step(row.id, |view| {
                    view.start = row.start;
                    view.state = StepState::Running;
                });
                self.resumed(step, row, &tasks, last).await?
            }
            // All tasks had ended, and what they measured is stored.
            StepState::Cleaning => {
                let outcomes: Vec<TaskOutcome> = tasks.iter().map(TaskOutcome::of_row).collect();
                Some(self.conclude(step, row, &outcomes, last).await?)
            }
            _ => None,
        };
        match ended {
            Some(StepEnd::Done) => {
                self.board.change(|view| view.steps_done += 1);
                let known = self.store.steps(self.row.id).await?;
                let first = planned.first().map_or(0, |step| step.ordinal);
                let rows = known
                    .into_iter()
                    .filter(|row| row.ordinal >= first)
                    .take(planned.len())
                    .collect();
                Ok(Ok(rows))
            }
            Some(StepEnd::Failed { reason }) => {
                self.fail_rest(
                    rows.get(index + 1..).unwrap_or_default(),
                    "an earlier mode of the cell failed",
                )
                .await?;
                self.clean_cell(step, row.attempt).await?;
                Ok(Err(CellEnd::Failed { reason }))
            }
            Some(StepEnd::Aborted { reason }) => {
                self.clean_cell(step, row.attempt).await?;
                Ok(Err(CellEnd::Aborted { reason }))
            }
            Some(StepEnd::Again { .. }) | None => {
                self.let_go(&held, "the collector was started again").await;
                let reason = "the collector was started again";
                Ok(Ok(self.begin_anew(planned, &rows, reason).await?))
            }
        }
    }
}
