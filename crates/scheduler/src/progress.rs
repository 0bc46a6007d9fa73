//! Progress of runs for watchers, as plain values. Old runs are dropped; they are in the database.

mod estimate;
mod live;
mod show;
mod view;

pub use view::{RunView, StepView, WatcherPosition};

use super::machine::STOPPING;
use crate::snapshot::{Forward, RunNow, StepDone};
use benchmesh_model::mesh::{MeshMicros, RunId, StepId};
use benchmesh_plan::{Loops, PlannedStep};
use benchmesh_store::rows::{RunChange, RunRow};
use estimate::Estimates;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Number of ended runs that are kept, for late watchers.
const KEPT_RUNS: usize = 16;
/// Number of messages that are kept per run, for late watchers.
const KEPT_MESSAGES: usize = 1000;
/// Number of ended steps that are kept per run, for late watchers.
const KEPT_FINISHED: usize = 1000;

/// All runs that someone may watch.
#[derive(Debug, Default)]
pub struct WatchedRuns {
    runs: Mutex<BTreeMap<RunId, Arc<RunProgress>>>,
}

/// One run.
#[derive(Debug)]
pub struct RunProgress {
    view: Mutex<RunView>,
    /// One for all watchers, who see the same progress.
    forward: Mutex<Forward>,
    estimates: Mutex<Estimates>,
    changes: watch::Sender<u64>,
}

/// Whether a change is visible to watchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewChange {
    Made,
    None,
}

impl WatchedRuns {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<RunProgress>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn run(&self, run: RunId) -> Option<Arc<RunProgress>> {
        self.runs().get(&run).cloned()
    }

    /// The run that is driven now, else the newest known one.
    pub fn current(&self) -> Option<Arc<RunProgress>> {
        let runs = self.runs();
        runs.values()
            .find(|run| run.with_view(|view| view.driven && !view.state.is_end()))
            .or_else(|| runs.values().next_back())
            .cloned()
    }

    /// Makes a run visible, if it is not yet.
    pub fn open(&self, row: &RunRow) -> Arc<RunProgress> {
        let mut runs = self.runs();
        let opened = Arc::clone(
            runs.entry(row.id)
                .or_insert_with(|| Arc::new(RunProgress::of(row))),
        );
        let ended: Vec<RunId> = runs
            .iter()
            .filter(|(_, progress)| progress.with_view(|view| view.state.is_end()))
            .map(|(run, _)| *run)
            .collect();
        for run in ended.iter().take(ended.len().saturating_sub(KEPT_RUNS)) {
            runs.remove(run);
        }
        opened
    }

    /// Hides the earlier progress of a run from new watchers, because its end no longer holds.
    pub(super) fn forget(&self, run: RunId) {
        self.runs().remove(&run);
    }

    /// Shows a message to all watchers of runs that have not ended.
    pub(super) fn show_to_all(&self, message: &str) {
        let runs = self.runs();
        let open = runs
            .values()
            .filter(|progress| progress.with_view(|view| !view.state.is_end()));
        for progress in open {
            progress.show_message(message);
        }
    }

    /// Whether the run has ended or is unknown.
    pub(super) fn has_ended(&self, run: RunId) -> bool {
        self.run(run)
            .is_none_or(|progress| progress.with_view(|view| view.state.is_end()))
    }

    /// Whether the run is visible already.
    pub(super) fn has(&self, run: RunId) -> bool {
        self.runs().contains_key(&run)
    }

    pub(super) fn driven(&self, run: RunId) {
        if let Some(progress) = self.run(run) {
            progress.change(|view| view.driven = true);
        }
    }

    pub(super) fn ended(&self, run: RunId, end: RunChange) {
        if let Some(progress) = self.run(run) {
            let RunChange {
                state,
                partial,
                reason,
                at,
            } = end;
            progress.change(|view| {
                // A step's message has usually shown it already.
                let reason = reason.filter(|reason| {
                    let same = |shown: &String| {
                        reason.starts_with(shown.as_str())
                            || shown.strip_prefix(STOPPING) == Some(reason.as_str())
                    };
                    !view.messages.iter().any(same)
                });
                view.messages.extend(reason);
                view.ended = Some(at);
                view.step = None;
                view.removed_files = None;
                view.left_after_step = Some(Duration::ZERO);
                view.unknown_after_step = 0.0;
                view.partial = partial;
                view.state = state;
            });
        }
    }
}

impl RunProgress {
    fn of(row: &RunRow) -> Self {
        Self {
            view: Mutex::new(RunView {
                run: row.id,
                name: row.name.clone(),
                state: row.state,
                partial: row.partial,
                driven: false,
                loops: Loops::ONE,
                loop_number: 1,
                steps_total: 0,
                steps_done: 0,
                began: row.started,
                paused_us: row.paused_us,
                ended: row.ended,
                left_after_step: None,
                unknown_after_step: 0.0,
                step: None,
                removed_files: None,
                alarms: Vec::new(),
                objectives: Vec::new(),
                messages: Vec::new(),
                messages_gone: 0,
                finished: Vec::new(),
                finished_gone: 0,
            }),
            forward: Mutex::default(),
            estimates: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// A run that ended before the collector started, with the number of its steps.
    pub fn past(row: &RunRow, steps_done: usize, steps_total: usize) -> Self {
        let progress = Self::of(row);
        progress.change(|view| {
            (view.steps_done, view.steps_total) = (steps_done, steps_total);
            view.left_after_step = Some(Duration::ZERO);
            view.messages.extend(row.reason.clone());
        });
        progress
    }

    fn estimates(&self) -> MutexGuard<'_, Estimates> {
        self.estimates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of steps of a loop, before the first begins.
    pub(super) fn set_size(&self, steps: usize, loops: Loops) {
        self.change(|view| view.set_loop(1, loops, 0, steps));
    }

    /// Sets the loop under way, the number of steps in the loops before it, and its own.
    pub(super) fn set_loop(
        &self,
        number: u32,
        loops: Loops,
        before: usize,
        steps: Arc<[PlannedStep]>,
    ) {
        self.change(|view| view.set_loop(number, loops, before, steps.len()));
        self.estimates().set_plan(steps);
    }

    /// A step of the run's plan.
    pub(super) fn planned(&self, index: usize) -> Option<PlannedStep> {
        self.estimates().step(index).cloned()
    }

    fn view(&self) -> MutexGuard<'_, RunView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves with each change after this call.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The displayed run for a watcher at this position, and the watcher's next position. Rates of clients and marks
    /// are not known here.
    pub fn now(&self, now: MeshMicros, seen: WatcherPosition) -> (RunNow, WatcherPosition) {
        let (mut run, seen) = self.with_view(|view| (view.at(now, seen), view.seen()));
        let mut forward = self.forward.lock().unwrap_or_else(PoisonError::into_inner);
        forward.hold(&mut run);
        (run, seen)
    }

    pub fn with_view<T>(&self, read: impl FnOnce(&RunView) -> T) -> T {
        read(&self.view())
    }

    pub fn change(&self, change: impl FnOnce(&mut RunView)) {
        change(&mut self.view());
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Changes the view; watchers are notified only if `change` returns true.
    pub(super) fn change_if(&self, change: impl FnOnce(&mut RunView) -> ViewChange) {
        if change(&mut self.view()) == ViewChange::Made {
            self.changes
                .send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Changes the step under way, if it is still that one.
    pub fn change_step(&self, step: StepId, change: impl FnOnce(&mut StepView)) {
        self.change(|view| {
            if let Some(view) = view.step.as_mut().filter(|view| view.now.step_id == step) {
                change(view);
            }
        });
    }

    /// Shows a step's results; it is no longer the current one.
    pub fn finish(&self, step: StepDone) {
        self.change(|view| {
            view.step = None;
            view.finished.push(step);
            if view.finished.len() > KEPT_FINISHED {
                view.finished.remove(0);
                view.finished_gone += 1;
            }
        });
    }

    /// Shows a message to watchers.
    pub fn show_message(&self, message: impl Into<String>) {
        self.change(|view| {
            view.messages.push(message.into());
            if view.messages.len() > KEPT_MESSAGES {
                view.messages.remove(0);
                view.messages_gone += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_model::mesh::RunState;

    #[test]
    fn only_the_last_of_many_ended_steps_are_kept() {
        let progress = RunProgress {
            view: Mutex::new(RunView {
                run: RunId(1),
                name: String::new(),
                state: RunState::Running,
                partial: false,
                driven: true,
                loops: Loops::ONE,
                loop_number: 1,
                steps_total: 0,
                steps_done: 0,
                began: None,
                paused_us: 0,
                ended: None,
                left_after_step: None,
                unknown_after_step: 0.0,
                step: None,
                messages: Vec::new(),
                messages_gone: 0,
                finished: Vec::new(),
                finished_gone: 0,
                removed_files: None,
                alarms: Vec::new(),
                objectives: Vec::new(),
            }),
            forward: Mutex::default(),
            estimates: Mutex::default(),
            changes: watch::Sender::new(0),
        };
        let ended = |ordinal| StepDone {
            ordinal,
            ..StepDone::default()
        };
        for ordinal in 1..=1500 {
            progress.finish(ended(ordinal));
        }
        progress.with_view(|view| {
            let first = view.finished.first().map(|step| step.ordinal);
            assert_eq!((first, view.finished_gone), (Some(501), 500));
        });
    }
}
