//! Acts on a requested stop, an abort by the policy, or a failure, as soon as the stage of the run allows it.

use super::{
    run::Run,
    stage::{Goal, Stage},
    waiting::{Waiting, WaitingScope},
};

impl Run {
    /// Acts on a stop, an abort or a failure as soon as the stage allows it.
    pub(super) fn act_on_requests(&mut self) {
        if self.is_ending() {
            return;
        }
        let making = |waiting: &Waiting| {
            waiting.must_be_awaited() && !matches!(waiting, Waiting::Opened { .. })
        };
        if self.waiting.values().any(making) {
            return;
        }
        if self.stop.is_some() {
            return self.act_on_stop();
        }
        if self.aborted.is_some() && matches!(self.stage, Stage::PausingLoops) {
            self.cancel(|waiting| matches!(waiting, Waiting::LoopPause));
            return self.remove_directories(None);
        }
        if self.closing_goal().is_some() || self.is_ending_step() || self.step.is_none() {
            return;
        }
        if let Some(reason) = self.aborted.clone() {
            self.close(Goal::Abort { reason });
        } else if let Some(reason) = self.failing.take() {
            self.close(Goal::Fail { reason });
        }
    }

    /// Whether only the removal of the run's data is left.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Over | Stage::Removing(_))
    }

    fn act_on_stop(&mut self) {
        match self.stage.clone() {
            Stage::Finishing(_) => {}
            Stage::Cleaning(_) => {
                self.cancel(|waiting| matches!(waiting, Waiting::CellRemoved { .. }));
                self.clean_after_stop();
            }
            _ if self.step.is_none() => {
                self.cancel(|waiting| {
                    matches!(
                        waiting,
                        Waiting::CellRemoved { .. }
                            | Waiting::Environment
                            | Waiting::LoopPause
                            | Waiting::LoopPlanned
                    )
                });
                self.remove_directories(None);
            }
            Stage::LinkSpeeds => {
                // The step has not begun.
                self.cancel(|waiting| waiting.scope() == WaitingScope::Stage);
                self.remove_directories(None);
            }
            Stage::CleaningFailed | Stage::RepeatingCell => {
                self.cancel(|waiting| matches!(waiting, Waiting::CellRemoved { .. }));
                self.remove_directories(None);
            }
            _ => match self.closing_goal() {
                Some(Goal::Stop) => {}
                // The tasks are being stopped already, or have ended.
                Some(Goal::CutOff | Goal::Abort { .. } | Goal::Conclude) => {
                    self.change_goal(Goal::Stop);
                }
                _ => self.close(Goal::Stop),
            },
        }
    }

    fn is_ending_step(&self) -> bool {
        matches!(
            self.stage,
            Stage::Cleaning(_)
                | Stage::Finishing(_)
                | Stage::CleaningFailed
                | Stage::RepeatingCell
                | Stage::Beginning
                | Stage::Between
        )
    }

    fn change_goal(&mut self, goal: Goal) {
        self.record_was_over();
        self.stage = match &self.stage {
            Stage::Closing(_) => Stage::Closing(goal),
            Stage::StoringRows(_) => Stage::StoringRows(goal),
            // Read the tasks again for the new goal.
            _ => Stage::StoringRows(goal),
        };
    }
}
