//! The loops of a run. The machine holds the steps of one loop, and of those before it what the end of the run needs: a plan
//! of any number of loops takes the memory of one.
//!
//! The rows of the next loop are made, in one transaction, when all steps of the one before have ended. A collector that
//! starts again goes on with the newest loop that has rows.

use super::{
    effect::{Lookup, Show},
    run::{Run, between, is_nobody_left},
    stage::Stage,
    step_rows::new_steps,
    waiting::Waiting,
};
use crate::{
    model::StepState,
    plan::{PlannedStep, step_title},
    store::rows::{Row, StepRow},
};
use std::{sync::Arc, time::Duration};

/// After a loop in which nothing was measured: what is wrong may be over by then, and a plan that cannot work does not
/// fill the database.
const PAUSE: Duration = Duration::from_secs(60);

/// What the end of a run depends on, of steps that have ended.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct EndedSteps {
    pub done: usize,
    pub partial: bool,
    /// Of which nobody was left.
    failed_by_loss: Failures,
    failed_otherwise: Failures,
}

#[derive(Clone, Debug, Default)]
struct Failures {
    count: usize,
    /// The ordinal of the first one, and a sentence about it.
    first: Option<(u32, String)>,
}

impl EndedSteps {
    pub fn add_done(&mut self, steps: usize) {
        self.done += steps;
    }

    /// A step that failed or is partial; those that are done are counted by `add_done`.
    pub fn add_flawed(&mut self, row: &StepRow) {
        self.partial |= row.partial;
        if row.state == StepState::Failed {
            let title = step_title(row.ordinal, &row.phase, &row.mode, &row.target);
            self.add_failure(row.ordinal, &title, row.reason.as_deref());
        }
    }

    fn add_failure(&mut self, ordinal: u32, title: &str, reason: Option<&str>) {
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

    /// What failed, in short; `None`: nothing. About a step of which nobody was left `on-loss` has decided that the run goes
    /// on: it makes the run partial, unless nothing at all was measured.
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

impl Run {
    /// The steps of all loops so far that have ended.
    pub(super) fn ended_steps(&self) -> EndedSteps {
        let mut ended = self.earlier.clone();
        for (step, facts) in self.steps.iter().zip(&self.facts) {
            ended.partial |= facts.partial;
            match facts.state {
                StepState::Done => ended.add_done(1),
                StepState::Failed => {
                    ended.add_failure(step.ordinal, &step.title(), facts.reason.as_deref());
                }
                _ => {}
            }
        }
        ended
    }

    /// Begins the next loop after one whose steps have all ended, if the plan wants one.
    pub(super) fn begin_next_loop(&mut self) -> bool {
        let elapsed = between(self.row.started.unwrap_or(self.now), self.now);
        if !self.loops.go_on(self.loop_number, elapsed) {
            return false;
        }
        let measured = |facts: &super::step::StepFacts| facts.state == StepState::Done;
        if self.facts.iter().any(measured) {
            self.plan_next_loop();
        } else {
            let message = format!(
                "nothing was measured in loop {}; the next one begins in {} s",
                self.loop_number,
                PAUSE.as_secs()
            );
            self.show_message(message);
            self.stage = Stage::PausingLoops;
            self.wait(Waiting::LoopPause, PAUSE);
        }
        true
    }

    /// After a pause the time may be over.
    pub(super) fn pause_is_over(&mut self) {
        let elapsed = between(self.row.started.unwrap_or(self.now), self.now);
        match self.loops.go_on(self.loop_number, elapsed) {
            true => self.plan_next_loop(),
            false => self.remove_directories(None),
        }
    }

    fn plan_next_loop(&mut self) {
        self.stage = Stage::PlanningLoop;
        let (run, number) = (self.row.id, self.loop_number + 1);
        self.lookup(Waiting::LoopPlanned, Lookup::Loop { run, number });
    }

    /// Makes the rows of the next loop.
    pub(super) fn on_loop_planned(&mut self, planned: Result<Arc<[PlannedStep]>, String>) {
        let steps = match planned {
            Ok(steps) => steps,
            Err(reason) => return self.abort(reason),
        };
        self.earlier = self.ended_steps();
        self.loop_number += 1;
        self.facts.clear();
        self.go_back_to(0);
        self.attempts = 0;
        let (run, range) = (self.row.id, 0..steps.len());
        let token = self.wait_for(Waiting::StepsMade {
            range,
            only: Vec::new(),
            attempt: 1,
        });
        self.out.made.push(token);
        self.out.rows.push(Row::Steps {
            run,
            steps: new_steps(steps.iter(), 1),
        });
        self.show(Show::Loop {
            number: self.loop_number,
            steps: Arc::clone(&steps),
        });
        self.steps = steps;
    }
}
