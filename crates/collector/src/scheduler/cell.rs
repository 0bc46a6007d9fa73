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
    /// Well or badly, as its steps say; the run goes on with the next one.
    Over,
    /// The run ends.
    Aborted { reason: String },
}

/// How far the modes of a cell have come.
#[derive(Debug)]
pub(super) enum ModesEnd {
    Cell(CellEnd),
    /// Nothing stands against those that have not ended yet.
    GoOn,
    Again {
        reason: String,
    },
}

impl Drive {
    pub(super) async fn run_cell(
        &self,
        planned: &[PlannedStep],
        mut rows: Vec<StepRow>,
    ) -> Result<CellEnd, StoreError> {
        match self.recovered(planned, &rows).await? {
            None => {}
            Some(ModesEnd::Cell(end)) => return Ok(end),
            Some(ModesEnd::GoOn) => rows = self.newest_rows(planned).await?,
            Some(ModesEnd::Again { reason }) => {
                rows = self.begin_anew(planned, &rows, &reason).await?;
            }
        }
        for _ in 0..MAX_ATTEMPTS {
            let reason = match self.run_modes(planned, &rows).await? {
                ModesEnd::Cell(end) => return Ok(end),
                ModesEnd::GoOn => return Ok(CellEnd::Over),
                ModesEnd::Again { reason } => reason,
            };
            let there = self.newest_rows(planned).await?;
            rows = self.begin_anew(planned, &there, &reason).await?;
        }
        let reason = format!("its tasks did not start together in {MAX_ATTEMPTS} attempts");
        self.fail_rest(&rows, &reason).await?;
        Ok(CellEnd::Over)
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
            let rest = rows.get(index + 1..).unwrap_or_default();
            match self.after_step(step, row, rest, end).await? {
                ModesEnd::GoOn => {}
                end => return Ok(end),
            }
        }
        Ok(ModesEnd::GoOn)
    }

    /// What the end of a step means for the `rest` of its cell.
    pub(super) async fn after_step(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        rest: &[StepRow],
        end: StepEnd,
    ) -> Result<ModesEnd, StoreError> {
        if let StepEnd::Again { reason } = end {
            return Ok(ModesEnd::Again { reason });
        }
        if matches!(end, StepEnd::Done) {
            self.board.change(|view| view.steps_done += 1);
        }
        let end = match end {
            StepEnd::Aborted { reason } => CellEnd::Aborted { reason },
            // Without data of its own, a cell's steps do not depend on each other: links, above all.
            StepEnd::Failed { .. } if !step.path.is_empty() => {
                self.fail_rest(rest, "an earlier mode of the cell failed")
                    .await?;
                CellEnd::Over
            }
            _ => return Ok(ModesEnd::GoOn),
        };
        self.clean_cell(step, row.attempt).await?;
        Ok(ModesEnd::Cell(end))
    }

    /// Ends the steps of a cell that will not run.
    pub(super) async fn fail_rest(&self, rows: &[StepRow], reason: &str) -> Result<(), StoreError> {
        let open: Vec<&StepRow> = rows.iter().filter(|row| !row.state.is_end()).collect();
        for row in &open {
            let change = StepChange {
                state: StepState::Failed,
                start: None,
                ended: Some(self.clock.now()),
                reason: Some(reason.to_owned()),
            };
            self.store.set_step_state(row.id, change).await?;
        }
        let said = match (open.first(), open.last()) {
            (Some(first), Some(last)) if first.ordinal < last.ordinal => format!(
                "steps {} to {} are not measured: {reason}",
                first.ordinal, last.ordinal
            ),
            (Some(only), _) => format!("step {} is not measured: {reason}", only.ordinal),
            _ => return Ok(()),
        };
        self.board.say(said);
        Ok(())
    }

    /// Gives the cell up as it is and makes its steps once more. Steps that share no data are made anew one by one.
    pub(super) async fn begin_anew(
        &self,
        planned: &[PlannedStep],
        old: &[StepRow],
        reason: &str,
    ) -> Result<Vec<StepRow>, StoreError> {
        let shares_data = planned.first().is_some_and(|step| !step.path.is_empty());
        let anew: Vec<(&PlannedStep, &StepRow)> = planned
            .iter()
            .zip(old)
            .filter(|(_, row)| shares_data || is_open(row))
            .collect();
        let attempt = anew.iter().map(|(_, row)| row.attempt).max().unwrap_or(1) + 1;
        let what = anew
            .iter()
            .find(|(_, row)| is_open(row))
            .map_or_else(String::new, |(step, _)| step.title());
        self.event(Fact {
            step: None,
            agent: None,
            severity: Severity::Warning,
            kind: "cell-begun-anew",
            message: format!("{what}: attempt {attempt}, because {reason}"),
        })
        .await?;
        if let Some((step, row)) = anew.first() {
            self.clean_cell(step, row.attempt).await?;
        }
        let undone = anew
            .iter()
            .filter(|(_, row)| row.state == StepState::Done)
            .count();
        self.board
            .change(|view| view.steps_done = view.steps_done.saturating_sub(undone));
        let steps: Vec<PlannedStep> = anew.iter().map(|(step, _)| (*step).clone()).collect();
        self.store
            .create_steps(self.row.id, rows(&steps, attempt))
            .await?;
        // After the new ones are there: if the collector ends between, nothing is taken for failed that was not tried.
        for (_, row) in anew.iter().filter(|(_, row)| !row.state.is_end()) {
            let change = StepChange {
                state: StepState::Failed,
                start: None,
                ended: Some(self.clock.now()),
                reason: Some(format!("{reason}; begun anew as attempt {attempt}")),
            };
            self.store.set_step_state(row.id, change).await?;
        }
        self.newest_rows(planned).await
    }

    /// The newest rows of a cell's steps.
    pub(super) async fn newest_rows(
        &self,
        planned: &[PlannedStep],
    ) -> Result<Vec<StepRow>, StoreError> {
        let first = planned.first().map_or(0, |step| step.ordinal);
        let known = self.store.steps(self.row.id).await?;
        Ok(known
            .into_iter()
            .filter(|row| row.ordinal >= first)
            .take(planned.len())
            .collect())
    }
}

/// Whether something of the step is under way.
pub(super) fn is_open(row: &StepRow) -> bool {
    !row.state.is_end() && row.state != StepState::Planned
}
