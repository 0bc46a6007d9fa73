//! Keeps the shown progress of a run from going back.
//!
//! The time left is an estimate that is made anew for each update: a step of unknown length is assumed to go on at its
//! present rate, and a step that is slower than others of its kind moves the end of the run away. Shown as they come,
//! such estimates make a bar go back. [`Forward`] holds the lowest time left and the highest share until the estimate
//! has caught up, and marks the time left as too low meanwhile. Pure; it keeps one run's position.

use super::RunNow;
use benchmesh_model::mesh::{RunState, StepId, StepState};

/// The highest share of a run that has not ended.
const MAX_RUNNING_SHARE: f64 = 0.99;
/// An estimate that is higher than the shown time left by more than a tenth of it and this is no jitter.
const JITTER_US: i64 = 2_000_000;

/// The furthest position of a run that has been shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward {
    left_us: Option<i64>,
    share_done: f64,
    /// The present stage of the step under way, with its share.
    step: Option<(StepId, StepState, f64)>,
}

impl Forward {
    /// Replaces the estimates of `run` by those that may be shown after all earlier calls.
    pub fn hold(&mut self, run: &mut RunNow) {
        if !run.state.is_end() {
            self.hold_left(run);
        }
        self.hold_share(run);
        self.hold_step(run);
    }

    fn hold_left(&mut self, run: &mut RunNow) {
        let Some(shown) = self.left_us else {
            self.left_us = run.left_us;
            return;
        };
        let is_jitter = |left: i64| left <= shown.saturating_add(JITTER_US.max(shown / 10));
        // An end that is no longer known may be further away.
        run.left_is_low |= !run.left_us.is_some_and(is_jitter);
        self.left_us = Some(run.left_us.map_or(shown, |left| left.min(shown)));
        run.left_us = self.left_us;
    }

    fn hold_share(&mut self, run: &mut RunNow) {
        let share = match run.left_us {
            _ if run.state == RunState::Done => 1.0,
            Some(left_us) if !run.state.is_end() => {
                by_time(run.elapsed_us, left_us).min(MAX_RUNNING_SHARE)
            }
            _ => by_steps(run).min(MAX_RUNNING_SHARE),
        };
        self.share_done = self.share_done.max(share);
        run.share_done = self.share_done;
    }

    fn hold_step(&mut self, run: &mut RunNow) {
        let Some(step) = &mut run.step else {
            self.step = None;
            return;
        };
        let shown = match self.step {
            Some((id, state, share)) if (id, state) == (step.step_id, step.state) => Some(share),
            _ => None,
        };
        let share = step
            .share_done
            .map_or(shown, |share| Some(share.max(shown.unwrap_or(0.0))));
        step.share_done = share;
        self.step = share.map(|share| (step.step_id, step.state, share));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to look at")]
fn by_time(elapsed_us: i64, left_us: i64) -> f64 {
    let elapsed_us = elapsed_us.max(0) as f64;
    let whole_us = elapsed_us + left_us.max(0) as f64;
    if whole_us > 0.0 {
        elapsed_us / whole_us
    } else {
        0.0
    }
}

/// The steps that are done, with the load of the one under way.
#[expect(clippy::cast_precision_loss, reason = "a share to look at")]
fn by_steps(run: &RunNow) -> f64 {
    let load = run
        .step
        .as_ref()
        .filter(|step| step.state == StepState::Running)
        .and_then(|step| step.share_done);
    let done = run.steps_done as f64 + load.unwrap_or(0.0);
    done / run.steps_total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    /// A running run of 10 steps, of which one is done.
    fn run(elapsed_s: i64, left_s: Option<i64>) -> RunNow {
        RunNow {
            state: RunState::Running,
            steps_done: 1,
            steps_total: 10,
            elapsed_us: elapsed_s * S,
            left_us: left_s.map(|left| left * S),
            ..RunNow::default()
        }
    }

    #[test]
    fn the_time_left_never_rises_and_says_so() {
        let mut forward = Forward::default();
        for (elapsed_s, estimate_s, shown_s, is_low) in [
            (0, None, None, false),
            (1, Some(100), Some(100), false),
            (2, Some(90), Some(90), false),
            // Jitter.
            (3, Some(95), Some(90), false),
            // A step that is slower than expected, or has become unknown.
            (4, Some(300), Some(90), true),
            (5, None, Some(90), true),
            (200, Some(91), Some(90), false),
            (250, Some(45), Some(45), false),
            (290, Some(0), Some(0), false),
            (300, Some(60), Some(0), true),
        ] {
            let mut run = run(elapsed_s, estimate_s);
            forward.hold(&mut run);
            let shown = (run.left_us.map(|left| left / S), run.left_is_low);
            assert_eq!(shown, (shown_s, is_low), "after {elapsed_s} s");
        }
    }

    #[test]
    fn the_share_never_falls_and_is_whole_only_at_the_end() {
        let mut forward = Forward::default();
        let mut hold = |mut run: RunNow| {
            forward.hold(&mut run);
            run.share_done
        };
        assert_eq!(hold(run(0, None)), 0.1, "by steps");
        assert_eq!(hold(run(1, Some(99))), 0.1, "less by time");
        assert_eq!(hold(run(50, Some(50))), 0.5);
        assert_eq!(hold(run(51, Some(500))), 51.0 / 101.0);
        assert_eq!(hold(run(90, Some(0))), 0.99);
        let mut ended = run(91, Some(0));
        ended.state = RunState::Stopped;
        assert_eq!(hold(ended.clone()), 0.99);
        ended.state = RunState::Done;
        assert_eq!(hold(ended), 1.0);
    }
}
