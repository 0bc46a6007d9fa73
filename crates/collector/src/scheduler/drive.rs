//! One run from where it is to its end: cells in order, directories at both ends.

use super::{
    Inner,
    admission::{expanded, rows},
    board::RunBoard,
    cell::{CellEnd, is_open},
    directories::Directories,
    team::Team,
};
use crate::{
    clock::MeshClock,
    model::{AgentId, MeshMicros, RunState, Severity, StepId, StepState, TaskId},
    plan::{Plan, PlannedStep},
    sessions::Fleet,
    store::{
        Store, StoreError,
        rows::{NewEvent, RunChange, RunRow, StepRow, TaskRow, steps_done},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What a step takes beside its load: preparation, lead, results.
const AROUND_A_STEP: Duration = Duration::from_millis(300);

/// How a run ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub state: RunState,
    pub partial: bool,
    pub reason: Option<String>,
}

/// A task that an agent may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub task: TaskId,
    pub agent: AgentId,
    /// Who holds its receiving end.
    pub peer: Option<AgentId>,
}

impl Held {
    pub fn of_row(row: &TaskRow) -> Self {
        Self {
            task: row.id,
            agent: row.agent,
            peer: row.peer,
        }
    }
}

/// What has to be tidied when the run stops at any moment.
#[derive(Debug, Default)]
pub(super) struct Alive {
    pub step: Option<StepId>,
    pub tasks: Vec<Held>,
}

/// A run that is being driven.
#[derive(Debug)]
pub(super) struct Drive {
    pub store: Store,
    pub clock: Arc<MeshClock>,
    pub fleet: Fleet,
    pub board: Arc<RunBoard>,
    pub row: RunRow,
    pub plan: Plan,
    pub team: Team,
    pub steps: Vec<PlannedStep>,
    pub directories: Directories,
    alive: Mutex<Alive>,
    partial: AtomicBool,
    /// Why the policy ends the run.
    aborted: Mutex<Option<String>>,
    /// The directories that earlier steps made are known, as far as agents are there.
    pub found: AtomicBool,
    /// When someone or the policy wished that the load ends.
    halted: Mutex<Option<MeshMicros>>,
    /// An operation hangs on a target, and whatever touches it may hang as well.
    stalled: AtomicBool,
    /// Agents that are lost, as far as that has been told.
    told_lost: Mutex<BTreeSet<AgentId>>,
    /// Phase and mode -> how long steps of them took, and how many.
    took: Mutex<BTreeMap<(String, String), (Duration, u32)>>,
    /// The most that was ever sent to an agent in a second, as far as it was asked since the last step with links.
    pub(super) carried: Mutex<BTreeMap<AgentId, Option<i64>>>,
}

impl Drive {
    /// Makes the run's steps, or finds them, and sets it running. The inner error is why it cannot run at all.
    pub async fn begin(inner: &Inner, row: &RunRow) -> Result<Result<Self, String>, StoreError> {
        let (plan, team, expansion) = match expanded(row) {
            Ok(expanded) => expanded,
            Err(reason) => return Ok(Err(reason)),
        };
        let board = inner.board.open(row);
        let known = inner.store.steps(row.id).await?;
        if known.is_empty() {
            inner
                .store
                .create_steps(row.id, rows(&expansion.steps, 1))
                .await?;
        } else if known.len() != expansion.steps.len() {
            return Ok(Err(format!(
                "the run has {} steps in the database, and this version of benchmesh makes {} of its plan: go on with the version that began it",
                known.len(),
                expansion.steps.len()
            )));
        }
        // A run that was running when the collector ended may have been told to end.
        let aborted = row
            .reason
            .clone()
            .filter(|_| row.state == RunState::Running);
        let now = inner.clock.now();
        let change = RunChange {
            state: RunState::Running,
            partial: row.partial,
            reason: aborted.clone(),
            at: now,
        };
        inner.store.set_run_state(row.id, change).await?;
        if let Some(seed) = row.order_seed {
            board.say(format!(
                "cells come in a random order, drawn from seed {seed}"
            ));
        }
        let began = row.started.unwrap_or(now);
        board.change(|view| {
            view.state = RunState::Running;
            view.began = Some(began);
            view.steps_total = expansion.steps.len();
            view.steps_done = steps_done(&known);
        });
        Ok(Ok(Self {
            store: inner.store.clone(),
            clock: Arc::clone(&inner.clock),
            fleet: inner.fleet.clone(),
            board,
            row: row.clone(),
            plan,
            team,
            steps: expansion.steps,
            directories: Directories::default(),
            alive: Mutex::default(),
            partial: AtomicBool::new(row.partial),
            aborted: Mutex::new(aborted),
            found: AtomicBool::new(false),
            halted: Mutex::new(row.halted),
            stalled: AtomicBool::new(false),
            told_lost: Mutex::default(),
            took: Mutex::default(),
            carried: Mutex::default(),
        }))
    }

    pub fn board(&self) -> Arc<RunBoard> {
        Arc::clone(&self.board)
    }

    pub fn alive(&self) -> MutexGuard<'_, Alive> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on agents may hold these tasks of a step.
    pub fn hold(&self, step: StepId, tasks: &[Held]) {
        *self.alive() = Alive {
            step: Some(step),
            tasks: tasks.to_vec(),
        };
    }

    pub fn hold_nothing(&self) {
        *self.alive() = Alive::default();
    }

    pub fn told_lost(&self) -> MutexGuard<'_, BTreeSet<AgentId>> {
        self.told_lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers how long a step took from its start.
    pub fn took(&self, step: &PlannedStep, took: Duration) {
        let mut known = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, count) = known
            .entry((step.phase.clone(), step.mode.clone()))
            .or_default();
        *total += took;
        *count += 1;
    }

    /// How long a step will take, all in all: as long as it is bounded to, or as long as its like took.
    pub fn estimate(&self, step: &PlannedStep) -> Option<Duration> {
        let load = step.expected.or_else(|| self.load_of_likes(step))?;
        Some(load + step.settle.least() + AROUND_A_STEP)
    }

    /// How long the load of steps of this phase and mode took.
    pub fn load_of_likes(&self, step: &PlannedStep) -> Option<Duration> {
        let known = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, count) = known.get(&(step.phase.clone(), step.mode.clone()))?;
        total.checked_div(*count)
    }

    pub fn loss_after(&self) -> Duration {
        self.plan.loss_after
    }

    /// From now on the run's results are not all that was asked for.
    pub fn mark_partial(&self) {
        self.partial.store(true, Ordering::Relaxed);
    }

    pub fn mark_stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    pub fn is_partial(&self) -> bool {
        self.partial.load(Ordering::Relaxed)
    }

    /// Why the policy ends the run, if it does.
    pub fn aborted(&self) -> Option<String> {
        let aborted = self.aborted.lock().unwrap_or_else(PoisonError::into_inner);
        aborted.clone()
    }

    /// When someone or the policy wished that the load ends; `None`: nobody has.
    pub fn halted(&self) -> Option<MeshMicros> {
        *self.halted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first wish counts.
    pub fn note_halt(&self, at: MeshMicros) {
        self.halted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(at);
    }

    /// The policy ends the run. Kept before anything is done about it, so that a collector that starts in the middle of
    /// it carries it out.
    pub async fn abort(&self, reason: &str) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.note_halt(now);
        let reason = self
            .aborted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| reason.to_owned())
            .clone();
        let halted = self.halted().unwrap_or(now);
        self.store.keep_abort(self.row.id, reason, halted).await
    }

    /// Drives every cell that has not ended, then removes the run's directories.
    pub async fn to_end(&self) -> Result<Ending, StoreError> {
        let known = self.store.steps(self.row.id).await?;
        self.find_directories(&known).await?;
        let mut aborted = self.aborted();
        for (planned, rows) in cells(&self.steps, &known) {
            let tidy = aborted.is_some() && !rows.iter().any(is_open);
            if tidy || rows.iter().all(|row| row.state.is_end()) {
                continue;
            }
            if let CellEnd::Aborted { reason } = self.run_cell(planned, rows).await? {
                aborted = Some(reason);
                break;
            }
        }
        self.remove_directories().await?;
        let known = self.store.steps(self.row.id).await?;
        let reason = aborted.or_else(|| self.failures(&known));
        Ok(Ending {
            state: if reason.is_some() {
                RunState::Failed
            } else {
                RunState::Done
            },
            partial: self.is_partial() || known.iter().any(|row| row.partial),
            reason,
        })
    }

    /// What failed, in short; `None`: nothing. From the database, so that it is whole after a start of the collector.
    fn failures(&self, known: &[StepRow]) -> Option<String> {
        let failed = self
            .steps
            .iter()
            .zip(known)
            .filter(|(_, row)| row.state == StepState::Failed);
        let more = failed.clone().count().checked_sub(1)?;
        let (step, row) = failed.clone().next()?;
        let why = row.reason.as_deref().unwrap_or("for no known reason");
        let first = format!("{} failed: {why}", step.title());
        Some(match more {
            0 => first,
            1 => format!("{first} (and 1 more step)"),
            more => format!("{first} (and {more} more steps)"),
        })
    }

    /// Tells a fact: to the database and to whoever watches.
    pub async fn event(&self, event: Fact<'_>) -> Result<(), StoreError> {
        self.event_with(event, None).await
    }

    /// The same, with what programs may read.
    pub async fn event_with(
        &self,
        event: Fact<'_>,
        detail_json: Option<String>,
    ) -> Result<(), StoreError> {
        self.board.say(event.message.clone());
        self.store
            .add_event(NewEvent {
                at: self.clock.now(),
                run: Some(self.row.id),
                step: event.step,
                agent: event.agent,
                severity: event.severity,
                kind: event.kind.to_owned(),
                message: event.message,
                detail_json,
            })
            .await
    }
}

/// An event to be told.
#[derive(Debug)]
pub(super) struct Fact<'a> {
    pub step: Option<StepId>,
    pub agent: Option<AgentId>,
    pub severity: Severity,
    pub kind: &'a str,
    pub message: String,
}

/// The steps cell by cell, each with its rows. Steps and rows are both in the order of their ordinals.
fn cells<'s>(steps: &'s [PlannedStep], rows: &[StepRow]) -> Vec<(&'s [PlannedStep], Vec<StepRow>)> {
    let mut rows = rows.iter().cloned();
    steps
        .chunk_by(|a, b| a.cell == b.cell)
        .map(|cell| (cell, rows.by_ref().take(cell.len()).collect()))
        .collect()
}
