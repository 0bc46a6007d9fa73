//! Summary of the ended steps over all loops, as far as the end of the run depends on them: what failed.

use benchmesh_model::mesh::StepState;
use benchmesh_plan::step_title;
use benchmesh_store::rows::StepRow;

/// The reason of a step that failed with no task left; the loss may be appended.
pub(super) const NOBODY_LEFT: &str = "no agent of the step is left";
/// Why the later modes of its cell are not measured after that.
pub(super) const NOBODY_LEFT_BEFORE: &str = "an earlier mode of the cell lost every agent";

/// Whether a step failed because no task of it was left.
pub(super) fn is_nobody_left(reason: &str) -> bool {
    reason.starts_with(NOBODY_LEFT) || reason == NOBODY_LEFT_BEFORE
}

/// The part of ended steps that the end of a run depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedSteps {
    pub done: usize,
    pub partial: bool,
    /// Steps with no agent left.
    failed_by_loss: Failures,
    failed_otherwise: Failures,
}

#[derive(Clone, Debug, Default)]
struct Failures {
    count: usize,
    /// The ordinal of the first failure, and a sentence about it.
    first: Option<(u32, String)>,
}

impl EndedSteps {
    /// From the number of steps that are done, and the rows of those that failed or are partial.
    pub fn of_rows(done: usize, flawed: &[StepRow]) -> Self {
        let mut ended = Self::default();
        ended.add_done(done);
        for step in flawed {
            ended.add_flawed(step);
        }
        ended
    }

    pub fn add_done(&mut self, steps: usize) {
        self.done += steps;
    }

    /// Number of all ended steps.
    pub fn count(&self) -> usize {
        self.done + self.failed_by_loss.count + self.failed_otherwise.count
    }

    /// Adds a step that failed or is partial; `add_done` counts the others.
    pub fn add_flawed(&mut self, row: &StepRow) {
        self.partial |= row.partial;
        if row.state == StepState::Failed {
            let title = step_title(row.ordinal, &row.phase, &row.mode, &row.target);
            self.add_failure(row.ordinal, &title, row.reason.as_deref());
        }
    }

    pub fn add_failure(&mut self, ordinal: u32, title: &str, reason: Option<&str>) {
        let failures = match reason.is_some_and(is_nobody_left) {
            true => &mut self.failed_by_loss,
            false => &mut self.failed_otherwise,
        };
        failures.count += 1;
        failures.first.get_or_insert_with(|| {
            let why = reason.unwrap_or("for an unknown reason");
            (ordinal, format!("{title} failed: {why}"))
        });
    }

    /// Summary of the failures; `None` if there are none. For a step with no agent left, `on-loss` has decided that the
    /// run continues: the step makes the run partial, unless the run measured nothing at all.
    pub fn failures(&self) -> Option<String> {
        let counted = [
            Some(&self.failed_otherwise),
            Some(&self.failed_by_loss).filter(|_| self.done == 0),
        ];
        let counted = || counted.into_iter().flatten();
        let firsts = counted().filter_map(|failures| failures.first.as_ref());
        let (_, first) = firsts.min_by_key(|(ordinal, _)| *ordinal)?;
        let all: usize = counted().map(|failures| failures.count).sum();
        Some(match all.saturating_sub(1) {
            0 => first.clone(),
            1 => format!("{first} (and 1 more step)"),
            more => format!("{first} (and {more} more steps)"),
        })
    }
}
