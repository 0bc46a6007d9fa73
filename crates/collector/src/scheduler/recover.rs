//! After a start of the collector: what a cell was doing, and whether its agents still do it.

use super::{
    cell::{ModesEnd, is_open},
    drive::{Drive, Held},
    ends::TaskOutcome,
    step::StepEnd,
};
use crate::{
    model::{StepState, TaskState},
    plan::PlannedStep,
    store::{StoreError, rows::StepRow},
};

impl Drive {
    /// Takes up a step that was under way: one that was running and is still held by agents is waited for; anything
    /// else is begun anew, unless the policy had ended the run. `None`: nothing was under way.
    pub(super) async fn recovered(
        &self,
        planned: &[PlannedStep],
        rows: &[StepRow],
    ) -> Result<Option<ModesEnd>, StoreError> {
        let Some(index) = rows.iter().position(is_open) else {
            return Ok(None);
        };
        let (Some(step), Some(row)) = (planned.get(index), rows.get(index)) else {
            return Ok(None);
        };
        let last = index + 1 == planned.len();
        let rest = rows.get(index + 1..).unwrap_or_default();
        let end = self.taken_up(step, row, last).await?;
        self.after_step(step, row, rest, end).await.map(Some)
    }

    async fn taken_up(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        last: bool,
    ) -> Result<StepEnd, StoreError> {
        let tasks = self.store.tasks(row.id).await?;
        let held: Vec<Held> = tasks.iter().map(Held::of_row).collect();
        self.hold(row.id, &held);
        match row.state {
            StepState::Running => {
                self.show_step(step, row, &held);
                self.board
                    .change_step(row.id, |view| view.start = row.start);
                if let Some(end) = self.resumed(step, row, &tasks, last).await? {
                    return Ok(end);
                }
            }
            // All tasks had ended, and what they measured is stored.
            StepState::Cleaning => {
                let outcomes: Vec<TaskOutcome> = tasks.iter().map(TaskOutcome::of_row).collect();
                return self.conclude(step, row, &outcomes, last).await;
            }
            _ => {}
        }
        let reason = String::from("the collector was started again");
        self.let_go(&held, &reason).await;
        // What an agent still had has ended now, with its own word; the rest went with the agent that had it.
        for task in self.store.tasks(row.id).await? {
            if !matches!(
                task.state,
                TaskState::Done | TaskState::Stopped | TaskState::Failed | TaskState::Lost
            ) {
                self.store
                    .set_task_state(task.id, TaskState::Lost, Some(reason.clone()))
                    .await?;
            }
        }
        if let Some(reason) = self.aborted() {
            self.tell_halted(row).await?;
            self.store_results(step, row, StepState::Failed, Some(reason.clone()))
                .await?;
            return Ok(StepEnd::Aborted { reason });
        }
        Ok(StepEnd::Again { reason })
    }
}
