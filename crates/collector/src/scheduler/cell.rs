//! One cell: its modes in order on its own data, begun anew as the next attempt where that is the only honest way.

use super::{
    admission::rows,
    drive::{Drive, Fact},
    step::StepEnd,
};
use crate::{
    model::{Severity, StepState},
    plan::PlannedStep,
    store::{
        StoreError,
        rows::{StepChange, StepRow},
    },
};

/// How often a cell is begun anew because its tasks did not start together.
const MAX_ATTEMPTS: u32 = 5;

/// How a cell ended.
#[derive(Debug)]
pub(super) enum CellEnd {
    Done,
    /// The run goes on with the next cell.
    Failed {
        reason: String,
    },
    /// The run ends.
    Aborted {
        reason: String,
    },
}

impl Drive {
    pub(super) async fn run_cell(
        &self,
        planned: &[PlannedStep],
        rows: Vec<StepRow>,
    ) -> Result<CellEnd, StoreError> {
        let mut rows = match self.recovered(planned, rows).await? {
            Ok(rows) => rows,
            Err(end) => return Ok(end),
        };
        loop {
            match self.run_modes(planned, &rows).await? {
                ModesEnd::Cell(end) => return Ok(end),
                ModesEnd::Again { reason } => {
                    let attempts = rows.first().map_or(1, |row| row.attempt);
                    if attempts >= MAX_ATTEMPTS {
                        let reason = format!("{reason}; given up after {attempts} attempts");
                        self.fail_rest(&rows, &reason).await?;
                        return Ok(CellEnd::Failed { reason });
                    }
                    rows = self.begin_anew(planned, &rows, &reason).await?;
                }
            }
        }
    }

    async fn run_modes(
        &self,
        planned: &[PlannedStep],
        rows: &[StepRow],
    ) -> Result<ModesEnd, StoreError> {
        for (index, (step, row)) in planned.iter().zip(rows).enumerate() {
            if row.state.is_end() {
                continue;
            }
            let last = index + 1 == planned.len();
            let end = self.run_step(step, row, last).await?;
            self.board.change(|view| view.steps_done += 1);
            match end {
                StepEnd::Done => {}
                StepEnd::Again { reason } => {
                    self.board.change(|view| view.steps_done -= 1);
                    return Ok(ModesEnd::Again { reason });
                }
                StepEnd::Failed { reason } => {
                    let rest = rows.get(index + 1..).unwrap_or_default();
                    self.fail_rest(rest, "an earlier mode of the cell failed")
                        .await?;
                    self.clean_cell(step, row.attempt).await?;
                    return Ok(ModesEnd::Cell(CellEnd::Failed { reason }));
                }
                StepEnd::Aborted { reason } => {
                    self.clean_cell(step, row.attempt).await?;
                    return Ok(ModesEnd::Cell(CellEnd::Aborted { reason }));
                }
            }
        }
        Ok(ModesEnd::Cell(CellEnd::Done))
    }

    /// Ends the steps of a cell that will not run.
    pub(super) async fn fail_rest(&self, rows: &[StepRow], reason: &str) -> Result<(), StoreError> {
        for row in rows.iter().filter(|row| !row.state.is_end()) {
            let change = StepChange {
                state: StepState::Failed,
                start: None,
                ended: Some(self.clock.now()),
                reason: Some(reason.to_owned()),
            };
            self.store.set_step_state(row.id, change).await?;
            self.board.change(|view| view.steps_done += 1);
        }
        Ok(())
    }

    /// Gives the cell up as it is and makes its steps once more.
    pub(super) async fn begin_anew(
        &self,
        planned: &[PlannedStep],
        old: &[StepRow],
        reason: &str,
    ) -> Result<Vec<StepRow>, StoreError> {
        let attempt = old.iter().map(|row| row.attempt).max().unwrap_or(1) + 1;
        let what = planned.first().map_or_else(String::new, PlannedStep::title);
        self.event(Fact {
            step: None,
            agent: None,
            severity: Severity::Warning,
            kind: "cell-begun-anew",
            message: format!("{what}: attempt {attempt}, because {reason}"),
        })
        .await?;
        for row in old.iter().filter(|row| !row.state.is_end()) {
            let change = StepChange {
                state: StepState::Failed,
                start: None,
                ended: Some(self.clock.now()),
                reason: Some(format!(
                    "{reason}; the cell was begun anew as attempt {attempt}"
                )),
            };
            self.store.set_step_state(row.id, change).await?;
        }
        if let Some(step) = planned.first() {
            self.clean_cell(step, attempt - 1).await?;
        }
        let done_before = old
            .iter()
            .filter(|row| row.state == StepState::Done)
            .count();
        self.board
            .change(|view| view.steps_done = view.steps_done.saturating_sub(done_before));
        self.store
            .create_steps(self.row.id, rows(planned, attempt))
            .await?;
        let first = planned.first().map_or(0, |step| step.ordinal);
        let known = self.store.steps(self.row.id).await?;
        Ok(known
            .into_iter()
            .filter(|row| row.ordinal >= first)
            .take(planned.len())
            .collect())
    }
}

#[derive(Debug)]
enum ModesEnd {
    Cell(CellEnd),
    Again { reason: String },
}
