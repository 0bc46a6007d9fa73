//! The loops of a run. The machine holds the steps of one loop, and a summary of the loops before it for the end of the
//! run: a plan of any number of loops takes the memory of one.
//!
//! The rows of the next loop are made in one transaction when all steps of the one before have ended. A restarted
//! collector continues with the newest loop that has rows.

use super::{
    effect::{Lookup, Show},
    ended::EndedSteps,
    run::Run,
    stage::Stage,
    step_rows::new_steps,
    waiting::Waiting,
};
use benchmesh_model::mesh::StepState;
use benchmesh_plan::PlannedStep;
use benchmesh_store::rows::Row;
use std::{sync::Arc, time::Duration};

/// Pause after a loop that measured nothing. The fault may be over by then, and a plan that cannot work does not fill
/// the database.
const PAUSE: Duration = Duration::from_secs(60);

impl Run {
    /// Summary of the ended steps of all loops so far.
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

    /// Begins the next loop after all steps of the current one have ended, if the plan has one.
    pub(super) fn begin_next_loop(&mut self) -> bool {
        if !self.has_next_loop() {
            return false;
        }
        let measured = |facts: &super::step::StepFacts| facts.state == StepState::Done;
        if self.facts.iter().any(measured) {
            self.plan_next_loop();
        } else {
            let message = format!(
                "loop {} measured nothing; the next loop begins in {} s",
                self.loop_number,
                PAUSE.as_secs()
            );
            self.show_message(message);
            self.stage = Stage::PausingLoops;
            self.wait(Waiting::LoopPause, PAUSE);
        }
        true
    }

    /// Whether another loop follows the current one.
    fn has_next_loop(&self) -> bool {
        !self.ends_after_loop && self.loops.continues(self.loop_number, self.elapsed())
    }

    /// Begins no further loop. The run ends with the current one, as if its plan had no other.
    pub(super) fn end_after_loop(&mut self) {
        if self.ends_after_loop {
            return;
        }
        self.ends_after_loop = true;
        self.show_message(String::from("no further loop begins, on request"));
        if matches!(self.stage, Stage::PausingLoops) {
            self.cancel(|waiting| matches!(waiting, Waiting::LoopPause));
        }
    }

    /// After a pause the run's time may be up.
    pub(super) fn pause_is_over(&mut self) {
        match self.has_next_loop() {
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
        // The cause of an agent's lateness may be over. Without this, a soak of days would only lose clients.
        self.barred.clear();
        self.unconfirmed.clear();
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
            before: self.earlier.count(),
            steps: Arc::clone(&steps),
        });
        self.steps = steps;
    }
}
