//! What there is to see of runs: plain values for those who watch. It forgets old runs; the truth is in the database.

mod view;

pub(super) use view::size_in_steps;
pub use view::{OpSummary, RunView, StepSummary, StepView};

use crate::{
    model::{RunId, RunState, StepId},
    store::rows::{RunChange, RunRow},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Runs that are kept after their end, for those who watch late.
const KEPT_RUNS: usize = 16;
/// Messages that are kept per run, for those who watch late.
const KEPT_MESSAGES: usize = 1000;
/// Ended steps that are kept per run, for those who watch late.
const KEPT_FINISHED: usize = 1000;
/// What is said of a wish to stop, before its reason.
pub(super) const STOPPING: &str = "stopping: ";

/// All runs that someone may watch.
#[derive(Debug, Default)]
pub struct Board {
    runs: Mutex<BTreeMap<RunId, Arc<RunBoard>>>,
}

/// One run.
#[derive(Debug)]
pub struct RunBoard {
    view: Mutex<RunView>,
    changes: watch::Sender<u64>,
}

/// Whether there is something new to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Made,
    None,
}

impl Board {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<RunBoard>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn run(&self, run: RunId) -> Option<Arc<RunBoard>> {
        self.runs().get(&run).cloned()
    }

    /// Makes a run visible, if it is not yet.
    pub fn open(&self, row: &RunRow) -> Arc<RunBoard> {
        let mut runs = self.runs();
        let opened = Arc::clone(runs.entry(row.id).or_insert_with(|| {
            Arc::new(RunBoard {
                view: Mutex::new(RunView {
                    run: row.id,
                    name: row.name.clone(),
                    state: row.state,
                    partial: row.partial,
                    driven: false,
                    steps_total: 0,
                    steps_done: 0,
                    began: row.started,
                    ended: row.ended,
                    left_after_step: None,
                    unknown_after_step: 0.0,
                    step: None,
                    removed_files: None,
                    messages: Vec::new(),
                    messages_gone: 0,
                    finished: Vec::new(),
                    finished_gone: 0,
                }),
                changes: watch::Sender::new(0),
            })
        }));
        let ended: Vec<RunId> = runs
            .iter()
            .filter(|(_, board)| board.look(|view| view.state.is_end()))
            .map(|(run, _)| *run)
            .collect();
        for run in ended.iter().take(ended.len().saturating_sub(KEPT_RUNS)) {
            runs.remove(run);
        }
        opened
    }

    /// The run that is under way.
    pub(super) fn running(&self) -> Option<RunId> {
        let runs = self.runs();
        let mut running = runs
            .iter()
            .filter(|(_, board)| board.look(|view| view.state == RunState::Running));
        running.next().map(|(run, _)| *run)
    }

    /// Tells something to all who watch a run that has not ended.
    pub(super) fn tell_all(&self, message: &str) {
        let runs = self.runs();
        let open = runs
            .values()
            .filter(|board| board.look(|view| !view.state.is_end()));
        for board in open {
            board.say(message);
        }
    }

    /// Whether the run is visible already.
    pub(super) fn has(&self, run: RunId) -> bool {
        self.runs().contains_key(&run)
    }

    pub(super) fn driven(&self, run: RunId) {
        if let Some(board) = self.run(run) {
            board.change(|view| view.driven = true);
        }
    }

    /// Whether the scheduler has taken the run up.
    pub fn is_driven(&self, run: RunId) -> bool {
        self.run(run)
            .is_some_and(|board| board.look(|view| view.driven))
    }

    pub(super) fn ended(&self, run: RunId, end: RunChange) {
        if let Some(board) = self.run(run) {
            let RunChange {
                state,
                partial,
                reason,
                at,
            } = end;
            board.change(|view| {
                // Most often a step has said it already.
                let reason = reason.filter(|reason| {
                    let same = |said: &String| {
                        reason.starts_with(said.as_str())
                            || said.strip_prefix(STOPPING) == Some(reason.as_str())
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

impl RunBoard {
    fn view(&self) -> MutexGuard<'_, RunView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves with each change after this call.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn look<T>(&self, look: impl FnOnce(&RunView) -> T) -> T {
        look(&self.view())
    }

    pub fn change(&self, change: impl FnOnce(&mut RunView)) {
        change(&mut self.view());
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// A change of which those who watch hear only if it was made.
    pub(super) fn change_if(&self, change: impl FnOnce(&mut RunView) -> Change) {
        if change(&mut self.view()) == Change::Made {
            self.changes
                .send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Changes the step under way, if it is still that one.
    pub fn change_step(&self, step: StepId, change: impl FnOnce(&mut StepView)) {
        self.change(|view| {
            if let Some(view) = view.step.as_mut().filter(|view| view.id == step) {
                change(view);
            }
        });
    }

    /// Shows what a step came to; it is no longer under way.
    pub fn finish(&self, step: StepSummary) {
        self.change(|view| {
            view.step = None;
            view.finished.push(step);
            if view.finished.len() > KEPT_FINISHED {
                view.finished.remove(0);
                view.finished_gone += 1;
            }
        });
    }

    /// Tells something to whoever watches.
    pub fn say(&self, message: impl Into<String>) {
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
    use crate::model::StepState;

    #[test]
    fn only_the_last_of_many_ended_steps_are_kept() {
        let board = RunBoard {
            view: Mutex::new(RunView {
                run: RunId(1),
                name: String::new(),
                state: RunState::Running,
                partial: false,
                driven: true,
                steps_total: 0,
                steps_done: 0,
                began: None,
                ended: None,
                left_after_step: None,
                unknown_after_step: 0.0,
                step: None,
                messages: Vec::new(),
                messages_gone: 0,
                finished: Vec::new(),
                finished_gone: 0,
                removed_files: None,
            }),
            changes: watch::Sender::new(0),
        };
        let ended = |ordinal| StepSummary {
            id: StepId(i64::from(ordinal)),
            ordinal,
            phase: String::new(),
            target: String::new(),
            workload: String::new(),
            mode: String::new(),
            params_json: String::new(),
            clients: 1,
            state: StepState::Done,
            link: String::new(),
            ops: Vec::new(),
            skew_us: None,
            skew_error_us: None,
            flags: Vec::new(),
        };
        for ordinal in 1..=1500 {
            board.finish(ended(ordinal));
        }
        board.look(|view| {
            let first = view.finished.first().map(|step| step.ordinal);
            assert_eq!((first, view.finished_gone), (Some(501), 500));
        });
    }
}
