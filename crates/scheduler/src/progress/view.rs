//! The progress of one run and its steps as plain values, and the estimate of the remaining time.

use crate::{
    live::TaskRate,
    sessions::command::CommandProgress,
    snapshot::{AlarmNow, ObjectiveNow, RunNow, StepDone, StepNow},
};
use benchmesh_model::mesh::{MeshMicros, RunId, RunState, StepState, TaskId};
use benchmesh_plan::Loops;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The fraction of a step that must be done before its rate gives an estimate.
const MIN_SHARE: f64 = 0.01;

/// The progress of a run.
#[derive(Clone, Debug)]
pub struct RunView {
    pub run: RunId,
    pub name: String,
    pub state: RunState,
    pub partial: bool,
    pub driven: bool,
    pub loops: Loops,
    /// The loop under way, from 1.
    pub loop_number: u32,
    /// Number of steps in all loops; if a time limit ends the loops, in those so far. For a search, the probes so far.
    pub steps_total: usize,
    /// Number of steps in state `done`.
    pub steps_done: usize,
    pub began: Option<MeshMicros>,
    /// The total of the run's pauses since `began`, before its resumptions.
    pub paused_us: i64,
    pub ended: Option<MeshMicros>,
    /// Total time of the later steps with a known duration; `None` if no step has begun.
    pub left_after_step: Option<Duration>,
    /// The total size of the other later steps, in units of this one.
    pub unknown_after_step: f64,
    pub step: Option<StepView>,
    /// While data are removed: number of files so far.
    pub removed_files: Option<u64>,
    /// Alarms of the plan that are raised now.
    pub alarms: Vec<AlarmNow>,
    pub objectives: Vec<ObjectiveNow>,
    /// Messages so far, and the number of older ones that were dropped.
    pub messages: Vec<String>,
    pub messages_gone: usize,
    /// Ended steps, and the number of older ones that were dropped.
    pub finished: Vec<StepDone>,
    pub finished_gone: usize,
}

/// Position of a watcher in the messages and ended steps of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatcherPosition {
    pub messages: usize,
    pub finished: usize,
}

/// The progress of the current step.
#[derive(Clone, Debug)]
pub struct StepView {
    /// The displayed step, except the fields that depend on the instant ([`StepView::at`]).
    pub now: StepNow,
    pub began: MeshMicros,
    /// The start of the load, once it is known.
    pub start: Option<MeshMicros>,
    pub tasks: BTreeSet<TaskId>,
    pub expected: Option<Duration>,
    /// How long earlier steps of its kind took.
    pub like: Option<Duration>,
    /// 0 if not known.
    pub moved_bytes: u64,
    pub files: u64,
    /// Progress of long preparations, by task.
    pub progress: BTreeMap<TaskId, CommandProgress>,
    /// The rates of its tasks over the last seconds.
    pub rates: Vec<TaskRate>,
    /// When the last of its intervals was stored.
    pub last_rows_at: Option<MeshMicros>,
}

impl StepView {
    /// The displayed step at an instant.
    pub fn at(&self, now: MeshMicros) -> StepNow {
        let started = self.start.filter(|start| *start <= now);
        // While its load runs: since its last rows, or since its start before there were any.
        let silent_since = match self.now.state {
            StepState::Running => self.last_rows_at.max(self.start),
            _ => None,
        };
        StepNow {
            elapsed_us: now.since(started.or(Some(self.began))),
            share_done: self.share_done(now),
            silent_us: now.since(silent_since),
            start_us: self.start.map(|start| start.0),
            ..self.now.clone()
        }
    }

    /// How long its load has run; `None` if it does not run.
    fn ran(&self, now: MeshMicros) -> Option<Duration> {
        let start = self
            .start
            .filter(|_| self.now.state == StepState::Running)?;
        Some(Duration::from_micros(now.since(Some(start)).unsigned_abs()))
    }

    /// Fraction of the step's current phase that is done, 0..1; `None` if not known.
    fn share_done(&self, now: MeshMicros) -> Option<f64> {
        let share = |done: u64, total: u64| (total > 0).then(|| (ratio(done, total)).min(1.0));
        match self.now.state {
            StepState::Prepare | StepState::Cleaning => {
                let (done, total) = self.progress.values().fold((0, 0), |(done, total), part| {
                    let sum = u64::saturating_add;
                    (sum(part.done, done), sum(part.total, total))
                });
                share(done, total)
            }
            StepState::Running => match self.expected {
                Some(expected) => {
                    let micros = |span: Duration| u64::try_from(span.as_micros()).ok();
                    share(micros(self.ran(now)?)?, micros(expected)?)
                }
                None if self.now.load.bytes > 0 => share(self.now.load.bytes, self.moved_bytes),
                None => share(self.now.load.ops, self.files),
            },
            _ => None,
        }
    }

    /// Remaining time of the step; `None` if not known.
    fn left(&self, now: MeshMicros) -> Option<Duration> {
        let Some(elapsed) = self.ran(now) else {
            return self.expected.or(self.like);
        };
        if let Some(expected) = self.expected {
            return Some(expected.saturating_sub(elapsed));
        }
        let share = self.share_done(now).filter(|share| *share > MIN_SHARE);
        match share {
            Some(share) => {
                Duration::try_from_secs_f64(elapsed.as_secs_f64() * (1.0 / share - 1.0)).ok()
            }
            None => Some(self.like?.saturating_sub(elapsed)),
        }
    }

    /// The step's total duration, if it can be estimated.
    fn whole(&self, now: MeshMicros) -> Option<Duration> {
        let left = self.left(now)?;
        left.checked_add(self.ran(now).unwrap_or_default())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to look at")]
pub(super) fn ratio(done: u64, total: u64) -> f64 {
    done as f64 / total as f64
}

impl RunView {
    /// The position of a watcher that is up to date.
    pub fn seen(&self) -> WatcherPosition {
        WatcherPosition {
            messages: self.messages_gone + self.messages.len(),
            finished: self.finished_gone + self.finished.len(),
        }
    }

    /// The run for a watcher at this position, with its present estimates. Rates of clients and marks are not known
    /// here.
    pub(super) fn at(&self, now: MeshMicros, seen: WatcherPosition) -> RunNow {
        let messages = seen.messages.saturating_sub(self.messages_gone);
        let finished = seen.finished.saturating_sub(self.finished_gone);
        RunNow {
            run_id: self.run,
            run: self.name.clone(),
            state: self.state,
            partial: self.partial,
            loop_in_words: self.loop_in_words(now),
            steps_done: self.steps_done,
            steps_total: self.steps_total,
            started_us: self.began.map(|at| at.0),
            elapsed_us: micros(self.elapsed(self.ended.unwrap_or(now))),
            left_us: self.left(now).map(micros),
            left_is_low: false,
            share_done: 0.0,
            removed_files: self.removed_files,
            alarms: self.alarms.clone(),
            objectives: self.objectives.clone(),
            step: self.step.as_ref().map(|step| step.at(now)),
            clients: Vec::new(),
            messages: self.messages.iter().skip(messages).cloned().collect(),
            finished: self.finished.iter().skip(finished).cloned().collect(),
            marks: Vec::new(),
        }
    }

    pub(super) fn set_loop(&mut self, number: u32, loops: Loops, before: usize, steps: usize) {
        self.loops = loops;
        self.loop_number = number;
        let known = usize::try_from(self.loops_after()).unwrap_or(usize::MAX);
        let known = steps.saturating_mul(known.saturating_add(1));
        self.steps_total = before.saturating_add(known);
    }

    /// The number of loops known to follow.
    pub(super) fn loops_after(&self) -> u32 {
        match self.loops {
            Loops::Times(times) => times.saturating_sub(self.loop_number),
            Loops::For(_) => 0,
        }
    }

    fn elapsed(&self, now: MeshMicros) -> Duration {
        let elapsed_us = now.since(self.began).saturating_sub(self.paused_us);
        Duration::from_micros(elapsed_us.max(0).unsigned_abs())
    }

    /// For example `loop 3 of 10` or `loop 3, 41h of 72h`; empty if the plan has no loops.
    pub fn loop_in_words(&self, now: MeshMicros) -> String {
        let now = self.ended.unwrap_or(now);
        let words = self.loops.in_words(self.loop_number, self.elapsed(now));
        words.unwrap_or_default()
    }

    /// Remaining time of the run; `None` if not known. Steps of unknown length are assumed to progress like the current
    /// one.
    pub fn left(&self, now: MeshMicros) -> Option<Duration> {
        let left = self.left_of_steps(now);
        match self.loops {
            // The last loop may end later.
            Loops::For(time) if !self.state.is_end() => {
                let time = time.saturating_sub(self.elapsed(now));
                left.or(Some(time))
                    .map(|left| left.max(time))
                    .filter(|left| !left.is_zero())
            }
            _ => left,
        }
    }

    fn left_of_steps(&self, now: MeshMicros) -> Option<Duration> {
        let rest = self.left_after_step?;
        let unknown = self.unknown_after_step;
        match &self.step {
            Some(step) if unknown > 0.0 => {
                let later = step.whole(now)?.as_secs_f64() * unknown;
                let later = Duration::try_from_secs_f64(later).ok()?;
                rest.checked_add(step.left(now)?)?.checked_add(later)
            }
            Some(step) => rest.checked_add(step.left(now)?),
            None if unknown > 0.0 => None,
            None => Some(rest),
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::LoadNow;

    const S: i64 = 1_000_000;

    fn step(state: StepState, expected: Option<u64>, like: Option<u64>, bytes: u64) -> StepView {
        StepView {
            now: StepNow {
                state,
                load: LoadNow {
                    bytes,
                    ..LoadNow::default()
                },
                ..StepNow::default()
            },
            began: MeshMicros(0),
            start: (state == StepState::Running).then_some(MeshMicros(10 * S)),
            tasks: BTreeSet::new(),
            expected: expected.map(Duration::from_secs),
            like: like.map(Duration::from_secs),
            moved_bytes: 1000,
            files: 0,
            progress: BTreeMap::new(),
            rates: Vec::new(),
            last_rows_at: None,
        }
    }

    /// A step 5 s into its load.
    #[test]
    fn the_rest_is_estimated_from_the_bound_the_progress_or_steps_of_the_same_kind() {
        use StepState::{Prepare, Running};
        let check = |step: StepView, unknown: f64, left: Option<u64>| {
            let run = RunView {
                run: RunId(1),
                name: String::new(),
                state: RunState::Running,
                partial: false,
                driven: true,
                loops: Loops::ONE,
                loop_number: 1,
                steps_total: 3,
                steps_done: 0,
                began: None,
                paused_us: 0,
                ended: None,
                left_after_step: Some(Duration::from_secs(100)),
                unknown_after_step: unknown,
                removed_files: None,
                alarms: Vec::new(),
                objectives: Vec::new(),
                step: Some(step),
                messages: Vec::new(),
                messages_gone: 0,
                finished: Vec::new(),
                finished_gone: 0,
            };
            let shown = run.left(MeshMicros(15 * S)).map(|left| left.as_secs());
            assert_eq!(shown, left, "{run:#?}");
        };
        check(step(Running, Some(8), None, 0), 0.0, Some(103));
        check(step(Prepare, Some(8), None, 0), 0.0, Some(108));
        // A quarter done in 5 s.
        check(step(Running, None, None, 250), 0.0, Some(115));
        check(step(Running, None, Some(99), 250), 0.0, Some(115));
        // Two more steps like it.
        check(step(Running, None, None, 250), 2.0, Some(155));
        check(step(Running, None, Some(9), 0), 0.0, Some(104));
        check(step(Prepare, None, Some(9), 0), 0.5, Some(113));
        check(step(Prepare, None, None, 0), 0.0, None);
        // Later steps that are disproportionately large.
        check(step(Running, None, None, 250), 1e300, None);
    }
}
