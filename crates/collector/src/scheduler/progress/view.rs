//! The progress of one run and its steps as plain values, and the estimate of what is left.

use crate::{
    clock::MeshClock,
    live::TaskRate,
    model::{MeshMicros, RunId, RunState, StepId, StepState, TaskId},
    plan::Loops,
    results::{Flag, OpResult},
    sessions::command::Progress,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The fraction of a step that must be done before its rate gives an estimate.
const LEAST_SHARE: f64 = 0.01;

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
    /// Of all loops; where a time ends them, of those so far.
    pub steps_total: usize,
    /// Those in state `done`.
    pub steps_done: usize,
    pub began: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
    /// Of the steps after this one, those whose time is known; `None`: no step has begun.
    pub left_after_step: Option<Duration>,
    /// The others, counted in steps as large as this one.
    pub unknown_after_step: f64,
    pub step: Option<StepView>,
    /// While data are removed: number of files so far.
    pub removed_files: Option<u64>,
    /// Messages so far, and the number of older ones that were dropped.
    pub messages: Vec<String>,
    pub messages_gone: usize,
    /// Ended steps, and the number of older ones that were dropped.
    pub finished: Vec<StepSummary>,
    pub finished_gone: usize,
}

/// The progress of the current step.
#[derive(Clone, Debug)]
pub struct StepView {
    pub id: StepId,
    pub ordinal: u32,
    pub phase: String,
    pub target: String,
    pub mode: String,
    pub params_json: String,
    pub peer: String,
    pub state: StepState,
    pub clients: u32,
    pub began: MeshMicros,
    /// The start of the load, once it is known.
    pub start: Option<MeshMicros>,
    pub tasks: BTreeSet<TaskId>,
    pub expected: Option<Duration>,
    /// How long steps of its kind took before it.
    pub like: Option<Duration>,
    /// 0: not known.
    pub moved_bytes: u64,
    pub files: u64,
    /// Of long preparations, by task.
    pub progress: BTreeMap<TaskId, Progress>,
    pub ops: u64,
    pub bytes: u64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// The rates of its tasks over the last seconds.
    pub rates: Vec<TaskRate>,
    /// When the last of its intervals was stored.
    pub last_rows_at: Option<MeshMicros>,
}

impl StepView {
    /// For how long nothing of the load under way has come.
    pub fn silent(&self, now: MeshMicros) -> Duration {
        let since = match self.state {
            StepState::Running => self.last_rows_at.max(self.start),
            _ => None,
        };
        let silent = since.map_or(0, |since| now.0.saturating_sub(since.0).max(0));
        Duration::from_micros(silent.unsigned_abs())
    }

    /// How much of the step's present part is done, 0..1; `None`: not known.
    pub fn share_done(&self, now: MeshMicros) -> Option<f64> {
        let share = |done: u64, total: u64| (total > 0).then(|| (ratio(done, total)).min(1.0));
        match self.state {
            StepState::Prepare | StepState::Cleaning => {
                let (done, total) = self.progress.values().fold((0, 0), |(done, total), part| {
                    let sum = u64::saturating_add;
                    (sum(part.done, done), sum(part.total, total))
                });
                share(done, total)
            }
            StepState::Running => match self.expected {
                Some(expected) => {
                    let elapsed = now.0.saturating_sub(self.start?.0).max(0).unsigned_abs();
                    share(elapsed, u64::try_from(expected.as_micros()).ok()?)
                }
                None if self.bytes > 0 => share(self.bytes, self.moved_bytes),
                None => share(self.ops, self.files),
            },
            _ => None,
        }
    }

    /// How long the step will still run; `None`: not known.
    pub fn left(&self, now: MeshMicros) -> Option<Duration> {
        let elapsed = match (self.state, self.start) {
            (StepState::Running, Some(start)) => {
                Duration::from_micros(now.0.saturating_sub(start.0).max(0).unsigned_abs())
            }
            _ => return self.expected.or(self.like),
        };
        if let Some(expected) = self.expected {
            return Some(expected.saturating_sub(elapsed));
        }
        let share = self.share_done(now).filter(|share| *share > LEAST_SHARE);
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
        match (self.state, self.start) {
            (StepState::Running, Some(start)) => {
                let elapsed = now.0.saturating_sub(start.0).max(0).unsigned_abs();
                left.checked_add(Duration::from_micros(elapsed))
            }
            _ => Some(left),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to look at")]
pub(super) fn ratio(done: u64, total: u64) -> f64 {
    done as f64 / total as f64
}

/// A step that has ended.
#[derive(Clone, Debug)]
pub struct StepSummary {
    pub id: StepId,
    pub ordinal: u32,
    pub phase: String,
    pub target: String,
    pub workload: String,
    pub mode: String,
    pub params_json: String,
    pub clients: u32,
    pub state: StepState,
    /// network: "from -> to".
    pub link: String,
    pub ops: Vec<OpSummary>,
    pub skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub flags: Vec<Flag>,
}

/// One operation of a step that has ended: the figures alone, for a run may have a hundred thousand steps.
#[derive(Clone, Debug)]
pub struct OpSummary {
    pub group: String,
    pub op: String,
    pub ops: i64,
    pub errors: i64,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// `None`: the load was not paced.
    pub response_p99_ns: Option<u64>,
}

impl From<&OpResult> for OpSummary {
    fn from(op: &OpResult) -> Self {
        Self {
            group: op.group.clone(),
            op: op.op.clone(),
            ops: op.ops,
            errors: op.errors,
            ops_per_s: op.ops_per_s,
            bytes_per_s: op.bytes_per_s,
            mean_ns: op.service.mean_ns(),
            p50_ns: op.service.quantile(0.5),
            p99_ns: op.service.quantile(0.99),
            max_ns: op.service.max_ns(),
            response_p99_ns: op.response.as_ref().map(|it| it.quantile(0.99)),
        }
    }
}

impl RunView {
    pub(super) fn set_loop(&mut self, number: u32, loops: Loops, steps: usize) {
        self.loops = loops;
        self.loop_number = number;
        let known = match loops {
            Loops::Times(times) => times.max(number),
            Loops::For(_) => number,
        };
        self.steps_total = steps.saturating_mul(usize::try_from(known).unwrap_or(usize::MAX));
    }

    /// How many loops are known to follow.
    pub(super) fn loops_after(&self) -> u32 {
        match self.loops {
            Loops::Times(times) => times.saturating_sub(self.loop_number),
            Loops::For(_) => 0,
        }
    }

    fn elapsed(&self, now: MeshMicros) -> Duration {
        let elapsed = self.began.map_or(0, |began| now.0.saturating_sub(began.0));
        Duration::from_micros(elapsed.max(0).unsigned_abs())
    }

    /// `loop 3 of 10`, `loop 3, 41h of 72h`; empty: the plan has no loops.
    pub fn loop_in_words(&self, now: MeshMicros) -> String {
        let now = self.ended.unwrap_or(now);
        let words = self.loops.in_words(self.loop_number, self.elapsed(now));
        words.unwrap_or_default()
    }

    /// How long the run will still take; `None`: not known.
    pub fn left(&self, clock: &MeshClock) -> Option<Duration> {
        self.left_at(clock.now())
    }

    /// Steps of unknown length are taken to go on as the one under way does.
    fn left_at(&self, now: MeshMicros) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn step(state: StepState, expected: Option<u64>, like: Option<u64>, bytes: u64) -> StepView {
        StepView {
            id: StepId(1),
            ordinal: 1,
            phase: String::new(),
            target: String::new(),
            mode: String::new(),
            params_json: String::new(),
            peer: String::new(),
            state,
            clients: 1,
            began: MeshMicros(0),
            start: (state == StepState::Running).then_some(MeshMicros(10 * S)),
            tasks: BTreeSet::new(),
            expected: expected.map(Duration::from_secs),
            like: like.map(Duration::from_secs),
            moved_bytes: 1000,
            files: 0,
            progress: BTreeMap::new(),
            ops: 0,
            bytes,
            ops_per_s: 0.0,
            bytes_per_s: 0.0,
            p50_ms: 0.0,
            p99_ms: 0.0,
            max_ms: 0.0,
            rates: Vec::new(),
            last_rows_at: None,
        }
    }

    /// 5 s into the load.
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
                ended: None,
                left_after_step: Some(Duration::from_secs(100)),
                unknown_after_step: unknown,
                removed_files: None,
                step: Some(step),
                messages: Vec::new(),
                messages_gone: 0,
                finished: Vec::new(),
                finished_gone: 0,
            };
            let shown = run.left_at(MeshMicros(15 * S)).map(|left| left.as_secs());
            assert_eq!(shown, left, "{run:#?}");
        };
        check(step(Running, Some(8), None, 0), 0.0, Some(103));
        check(step(Prepare, Some(8), None, 0), 0.0, Some(108));
        // A quarter is done in 5 s.
        check(step(Running, None, None, 250), 0.0, Some(115));
        check(step(Running, None, Some(99), 250), 0.0, Some(115));
        // Two more like it.
        check(step(Running, None, None, 250), 2.0, Some(155));
        check(step(Running, None, Some(9), 0), 0.0, Some(104));
        check(step(Prepare, None, Some(9), 0), 0.5, Some(113));
        check(step(Prepare, None, None, 0), 0.0, None);
        // Later steps that are out of all proportion to this one.
        check(step(Running, None, None, 250), 1e300, None);
    }
}
