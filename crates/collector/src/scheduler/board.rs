//! What there is to see of runs: plain values for those who watch. It forgets old runs; the truth is in the database.

use crate::{
    clock::MeshClock,
    model::{MeshMicros, RunId, RunState, StepId, StepState, TaskId},
    results::figures::StepResults,
    sessions::command::Progress,
    store::rows::RunRow,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Runs that are kept after their end, for those who watch late.
const KEPT_RUNS: usize = 16;
/// Messages that are kept per run, for those who watch late.
const KEPT_MESSAGES: usize = 1000;

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

/// What there is to see of a run.
#[derive(Clone, Debug)]
pub struct RunView {
    pub run: RunId,
    pub name: String,
    pub state: RunState,
    pub partial: bool,
    pub driven: bool,
    pub steps_total: usize,
    pub steps_done: usize,
    pub began: Option<MeshMicros>,
    /// `None`: not known.
    pub left_after_step: Option<Duration>,
    pub step: Option<StepView>,
    /// Messages so far, and how many older ones were let go.
    pub messages: Vec<String>,
    pub messages_gone: usize,
    pub finished: Vec<StepSummary>,
}

/// What there is to see of the step under way.
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
    /// 0: not known.
    pub moved_bytes: u64,
    pub files: u64,
    /// Of long preparations, by task.
    pub progress: BTreeMap<TaskId, Progress>,
    pub ops: u64,
    pub bytes: u64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    pub p99_ms: f64,
}

impl StepView {
    /// How much of the step's present part is done, 0..1; `None`: not known.
    pub fn share_done(&self, now: MeshMicros) -> Option<f64> {
        let share = |done: u64, total: u64| (total > 0).then(|| (ratio(done, total)).min(1.0));
        match self.state {
            StepState::Prepare | StepState::Cleaning => {
                let (done, total) = self.progress.values().fold((0, 0), |(done, total), part| {
                    (part.done + done, part.total + total)
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
            _ => return self.expected,
        };
        match self.expected {
            Some(expected) => Some(expected.saturating_sub(elapsed)),
            None => {
                let share = self.share_done(now).filter(|share| *share > 0.01)?;
                Some(elapsed.mul_f64(1.0 / share - 1.0))
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to look at")]
fn ratio(done: u64, total: u64) -> f64 {
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
    pub results: StepResults,
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
                    left_after_step: None,
                    step: None,
                    messages: Vec::new(),
                    messages_gone: 0,
                    finished: Vec::new(),
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

    pub(super) fn ended(&self, run: RunId, state: RunState, partial: bool, reason: Option<String>) {
        if let Some(board) = self.run(run) {
            board.change(|view| {
                view.messages.extend(reason);
                view.step = None;
                view.left_after_step = Some(Duration::ZERO);
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

    /// Changes the step under way, if it is still that one.
    pub fn change_step(&self, step: StepId, change: impl FnOnce(&mut StepView)) {
        self.change(|view| {
            if let Some(view) = view.step.as_mut().filter(|view| view.id == step) {
                change(view);
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

impl RunView {
    /// How long the run will still take; `None`: not known.
    pub fn left(&self, clock: &MeshClock) -> Option<Duration> {
        let rest = self.left_after_step?;
        match &self.step {
            Some(step) => Some(rest + step.left(clock.now())?),
            None => Some(rest),
        }
    }
}
