//! Applies the machine's `Show` effects to the progress of a run.

use super::{RunProgress, RunView, StepView};
use crate::{machine::effect::Show, snapshot::StepNow};
use benchmesh_model::mesh::{MeshMicros, RunState, StepId, TaskId};
use std::collections::BTreeMap;

impl RunProgress {
    /// Applies a change.
    pub(crate) fn apply(&self, show: Show, now: MeshMicros) {
        match show {
            Show::Began {
                at,
                paused_us,
                steps_done,
            } => self.change(|view| {
                view.state = RunState::Running;
                view.began = Some(at);
                view.paused_us = paused_us;
                view.steps_done = steps_done;
            }),
            Show::Loop {
                number,
                before,
                steps,
            } => {
                let loops = self.with_view(|view| view.loops);
                self.set_loop(number, loops, before, steps);
            }
            Show::Step { index, id, tasks } => self.show_step(index, id, &tasks, now),
            Show::State { step, state, start } => self.change_step(step, |view| {
                view.now.state = state;
                view.start = start.or(view.start);
                view.progress.clear();
            }),
            Show::Parts { step, tasks } => self.change_step(step, |view| {
                view.tasks.extend(tasks);
            }),
            Show::Progress {
                step,
                task,
                progress,
            } => self.change_step(step, |view| {
                view.progress.insert(task, progress);
            }),
            Show::Took { index, took } => self.estimates().took(index, took),
            Show::StepGone => self.change(|view| view.step = None),
            Show::StepDone => self.change(|view| view.steps_done += 1),
            Show::StepsUndone(count) => self.change(|view| {
                view.steps_done = view.steps_done.saturating_sub(count);
            }),
            Show::Removing => self.change(|view| view.removed_files = Some(0)),
            Show::Removed(files) => self.change(|view| {
                let before = view.removed_files.unwrap_or(0);
                view.removed_files = Some(before.saturating_add(files));
            }),
            Show::RemovingOver => self.change(|view| view.removed_files = None),
            Show::Message(message) => self.show_message(message),
            // Handled for all runs in `WatchedRuns::ended`.
            Show::Ended(_) => {}
        }
    }

    fn show_step(&self, index: usize, id: StepId, tasks: &[TaskId], now: MeshMicros) {
        let (view, left, unknown) = {
            let estimates = self.estimates();
            let Some(step) = estimates.step(index) else {
                return;
            };
            let (left, unknown) = estimates.after(index, self.with_view(RunView::loops_after));
            let view = StepView {
                now: StepNow {
                    step_id: id,
                    ordinal: step.ordinal,
                    phase: step.phase.clone(),
                    target: step.target.clone(),
                    mode: step.mode.clone(),
                    params: (*step.params).clone(),
                    peer: step.link(),
                    clients: u32::try_from(step.agents().len()).unwrap_or(u32::MAX),
                    ..StepNow::default()
                },
                began: now,
                start: None,
                tasks: tasks.iter().copied().collect(),
                expected: step.expected,
                like: estimates.load_of_likes(step),
                moved_bytes: step.moved_bytes,
                files: step.files,
                progress: BTreeMap::new(),
                rates: Vec::new(),
                last_rows_at: None,
            };
            (view, left, unknown)
        };
        self.change(|run| {
            run.left_after_step = Some(left);
            run.unknown_after_step = unknown;
            run.step = Some(view);
        });
    }
}
