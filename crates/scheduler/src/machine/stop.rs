//! A stop on request: the step enters `cleaning`, its data are removed with the run's directories, and the start of
//! each task's last operation is compared with the instant of the request.

use super::run::Run;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, Severity, StepState, TaskState};
use benchmesh_store::rows::{NewEvent, TaskRow};
use serde_json::json;
use std::time::Duration;

/// A stopped task that has not ended by then means that its agent hangs.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// After a stop, no operation should begin later than this.
const QUIET_AFTER_US: i64 = 500_000;

impl Run {
    /// Handles the stopped step after its agents reported the ends of all tasks.
    pub(super) fn stop_step(&mut self, reason: &str) {
        let Some(step) = &self.step else {
            return self.remove_directories(None);
        };
        let cleaning = self
            .active_facts()
            .is_some_and(|facts| facts.state == StepState::Cleaning);
        // Nothing to record if the load ended before the request.
        let (measured, over) = (step.measured, step.was_over);
        self.end_live(TaskState::Stopped, Some(reason));
        if measured && !over && !cleaning {
            self.record_halt();
        }
        self.clean_after_stop();
    }

    /// Removes all data of the run, with the step in state `cleaning`.
    pub(super) fn clean_after_stop(&mut self) {
        let reason = self.stop.clone();
        self.enter_because(StepState::Cleaning, None, reason);
        self.forget_all();
        let step = self.step.as_ref().map(|step| step.id);
        self.remove_directories(step);
    }

    /// Records when the last operation of a stopped or aborted load began, as its tasks reported it.
    pub(super) fn record_halt(&mut self) {
        let (Some(halted), Some(step)) = (self.halted, &self.step) else {
            return;
        };
        let (id, tasks) = (step.id, &step.rows);
        let last = last_begun(tasks);
        let late_us = last.map(|last| last.0.saturating_sub(halted.0));
        let unreported = tasks.iter().filter(|task| task.ended.is_none()).count();
        let severity = match late_us {
            Some(late) if late > QUIET_AFTER_US => Severity::Warning,
            _ if none_reported(tasks.len(), unreported) => Severity::Warning,
            _ => EventKind::LoadStopped.row().severity,
        };
        let detail = json!({
            "stopped_us": halted.0,
            "last_begun_us": last.map(|last| last.0),
            "tasks": tasks.len(),
            "tasks_untold": unreported,
        });
        let message = halt_message(late_us, tasks.len(), unreported);
        self.store_event(NewEvent {
            step: Some(id),
            severity,
            detail_json: Some(detail.to_string()),
            ..NewEvent::new(self.now, EventKind::LoadStopped, message)
        });
    }
}

fn none_reported(tasks: usize, unreported: usize) -> bool {
    tasks > 0 && unreported == tasks
}

fn last_begun(tasks: &[TaskRow]) -> Option<MeshMicros> {
    tasks.iter().filter_map(|task| task.last_begun).max()
}

/// `late_us`: how long after the stop the last operation began.
fn halt_message(late_us: Option<i64>, tasks: usize, unreported: usize) -> String {
    if none_reported(tasks, unreported) {
        return format!(
            "the load was stopped; none of {tasks} tasks has reported when its last operation began"
        );
    }
    let of = match unreported {
        0 => format!("{tasks} tasks"),
        unreported => format!("{} of {tasks} tasks", tasks.saturating_sub(unreported)),
    };
    match late_us {
        None => format!("the load was stopped; {of} had begun no operation"),
        Some(late) if late <= 0 => {
            format!("the load was stopped; no operation of {of} began after that")
        }
        Some(late) => {
            let (ms, rest) = (late / 1000, late % 1000 / 100);
            format!("the load was stopped; the last operation of {of} began {ms}.{rest} ms later")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_stop_counts_silent_tasks() {
        let check = |late, unreported, expected: &str| {
            assert_eq!(halt_message(late, 3, unreported), expected)
        };
        check(
            Some(12_345),
            0,
            "the load was stopped; the last operation of 3 tasks began 12.3 ms later",
        );
        check(
            Some(-5),
            1,
            "the load was stopped; no operation of 2 of 3 tasks began after that",
        );
        check(
            None,
            0,
            "the load was stopped; 3 tasks had begun no operation",
        );
        check(
            None,
            3,
            "the load was stopped; none of 3 tasks has reported when its last operation began",
        );
    }
}
