//! A step with `until = "steady"`: its load is stopped once it is in steady state, which is its regular end.
//!
//! The last row of each task carries the stop reason. A collector that restarts in between therefore recognizes the
//! step from its rows, and that its tasks completed.

use super::{
    effect::{Effect, Within},
    run::{ActiveStep, Run},
    stage::Stage,
    tasks::{STEADY, TaskHandle, is_steady_stop},
    waiting::Waiting,
};
use crate::{live::Steadiness, sessions::command::Command};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, StepId, TaskState};
use serde_json::json;

impl Run {
    /// Starts judging the load, if the plan asks for it. After a restart of the collector the window begins anew.
    pub(super) fn watch_steadiness(&mut self, start: MeshMicros, earliest: MeshMicros) {
        let steady = self.active_plan().and_then(|plan| plan.steady);
        let (Some(steady), Some(step)) = (steady, &self.step) else {
            return;
        };
        if was_steady(step) {
            return self.stop_steady();
        }
        if self.is_steady() {
            return;
        }
        self.at_once(Effect::JudgeSteadiness {
            step: step.id,
            steady,
            start,
            earliest,
            tasks: step.tasks.running().map(|task| task.task).collect(),
            max_silence: self.policy.loss_after,
        });
    }

    /// Whether the load is in steady state and is therefore being stopped.
    pub(super) fn is_steady(&self) -> bool {
        let step = self.step.as_ref();
        let judged = step.and_then(|step| step.steadiness.as_ref());
        judged.is_some_and(|judged| judged.is_steady)
    }

    pub(super) fn on_steadiness(&mut self, step: StepId, judged: Steadiness) {
        let is_running = matches!(self.stage, Stage::Running);
        let Some(active) = self.step.as_mut().filter(|active| active.id == step) else {
            return;
        };
        let was_steady = active
            .steadiness
            .as_ref()
            .is_some_and(|steadiness| steadiness.is_steady);
        if !is_running || was_steady {
            return;
        }
        let is_steady = judged.is_steady;
        active.steadiness = Some(judged.clone());
        if is_steady {
            self.stop_steady();
            let message = format!("after {} s: {}", judged.after.as_secs(), judged.in_words());
            self.record_steadiness(EventKind::Steady, &message, Some(&judged));
        }
    }

    /// Stops the tasks. Their ends are awaited like ends by themselves.
    fn stop_steady(&mut self) {
        self.abandon_returning(STEADY);
        for task in self.live() {
            let command = Command::StopTask {
                task: task.task,
                reason: STEADY.to_owned(),
            };
            self.ask_at_once(Waiting::SteadyStop, task.agent, command, Within::Contact);
        }
    }

    /// Marks the tasks that were stopped for steady state as done, once all tasks have ended.
    pub(super) fn conclude_steadiness(&mut self) {
        let Some(steady) = self.active_plan().and_then(|plan| plan.steady) else {
            return;
        };
        let Some(step) = &self.step else { return };
        let is_known = step
            .steadiness
            .as_ref()
            .is_some_and(|steadiness| steadiness.is_steady);
        if !was_steady(step) {
            // Its tasks had ended before the steady state was detected.
            if is_known {
                return;
            }
            let ran = self.ran();
            let judged = step.steadiness.clone();
            let message = match &judged {
                Some(judged) => format!("in {ran} s: {}", judged.in_words()),
                None => format!("in {ran} s: no window of {} s was judged", steady.seconds()),
            };
            self.record_steadiness(EventKind::NotSteady, &message, judged.as_ref());
            return;
        }
        // A task that had not begun by then did no work.
        let has_begun = |task: TaskHandle| {
            let mut rows = step.rows.iter();
            rows.any(|row| row.id == task.task && row.start.is_some())
        };
        let stopped = step.tasks.outcomes();
        let stopped: Vec<TaskHandle> = stopped
            .filter(|(task, outcome)| is_steady_stop(outcome) && has_begun(*task))
            .map(|(task, _)| task)
            .collect();
        for task in stopped {
            self.set_task(task.task, TaskState::Done, None);
            if let Some(step) = &mut self.step {
                step.tasks.end(task.task, TaskState::Done, "");
            }
        }
    }

    /// Seconds for which the load ran, by the ends of its tasks.
    fn ran(&self) -> i64 {
        let Some(step) = &self.step else { return 0 };
        let ended = step.rows.iter().filter_map(|row| row.ended).max();
        ended.unwrap_or(self.now).since(step.start) / 1_000_000
    }

    fn record_steadiness(&mut self, kind: EventKind, message: &str, judged: Option<&Steadiness>) {
        let title = self.active_plan().map(benchmesh_plan::PlannedStep::title);
        let words = kind.as_str().replace('-', " ");
        let message = format!("{} is {words} {message}", title.unwrap_or_default());
        let detail = judged.map(|judged| {
            json!({
                "figure": judged.steady.figure.as_str(),
                "window_s": judged.steady.seconds(),
                "after_s": judged.after.as_secs(),
                "mean": judged.window.mean,
                "range": judged.window.range,
                "deviation": judged.window.deviation,
                "slope": judged.window.slope,
                "change": judged.window.change,
                "words": judged.in_words(),
            })
            .to_string()
        });
        let step = self.step.as_ref().map(|step| step.id);
        self.record_event_of(step, None, kind, message, detail);
    }
}

/// Judged by its tasks.
fn was_steady(step: &ActiveStep) -> bool {
    step.tasks
        .outcomes()
        .any(|(_, outcome)| is_steady_stop(outcome))
}
