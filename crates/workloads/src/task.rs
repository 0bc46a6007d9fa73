//! One task from its parameters to its end: prepared, armed, run by OS threads, taken apart into intervals.
//!
//! [`Task::prepare`] leaves every worker opened and parked; [`Task::arm`] gives all of them one start instant;
//! [`Task::run_to_end`] hands out what they record until the last has ended. A worker that fails or panics stops the
//! others and makes the task fail with its message: a task always ends. Nothing is known here of the mesh.

mod crew;
mod gate;
mod merge;
mod usage;

use crate::clock::MonoNanos;
use crate::interval::{Interval, PERIOD};
use crate::op::Op;
use crate::params::ParamError;
use crate::recorder::{self, ErrorCount, InFlightOp, Taker};
use crate::sandbox::{Allowed, Dir, RunDirectory, SandboxError};
use crate::workload::{self, Load, Params};
use crew::{Crew, WorkerEnd};
use gate::Gate;
use merge::Merge;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where a task that needs a target works: its own directory in a cell of a run's directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub run: Arc<RunDirectory>,
    pub cell: String,
}

impl Place {
    /// The directory of one task, made if it is not there yet.
    pub fn task_dir(&self, task_index: u32) -> Result<Dir, SandboxError> {
        let cell = self.run.cell(&self.cell)?;
        cell.make_dir(&crate::sandbox::task_dir_name(task_index))
    }
}

/// The other end of a task that needs a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerEnd {
    pub address: SocketAddr,
    pub token: String,
}

/// What is done about caches; dropping them is not a task's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    #[default]
    AsIs,
    /// One unmeasured pass before the start.
    Warm,
    /// They are dropped between preparation and start.
    Cold,
    /// O_DIRECT.
    Bypass,
}

/// Everything that makes a task.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    pub workload: String,
    pub mode: String,
    pub params: Params,
    pub place: Option<Place>,
    /// Which task of its step this is, and how many there are.
    pub task_index: u32,
    pub tasks: u32,
    pub peer: Option<PeerEnd>,
    pub scratch: Option<PathBuf>,
    /// Beneath which paths files to copy may be read.
    pub sources: Allowed,
    pub cache: Cache,
}

impl TaskSpec {
    /// The only task of a step, with nothing but its parameters.
    pub fn new(workload: &str, mode: &str, params: Params) -> TaskSpec {
        TaskSpec {
            workload: workload.to_owned(),
            mode: mode.to_owned(),
            params,
            place: None,
            task_index: 0,
            tasks: 1,
            peer: None,
            scratch: None,
            sources: Allowed::default(),
            cache: Cache::AsIs,
        }
    }

    /// The task's own directory on the target.
    pub fn dir(&self) -> Result<Dir, TaskError> {
        let place = self.place.as_ref().ok_or(TaskError::NoPlace {
            workload: self.workload.clone(),
        })?;
        place.task_dir(self.task_index).map_err(TaskError::Sandbox)
    }
}

/// Why a task could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("there is no workload `{name}`")]
    UnknownWorkload { name: String },
    #[error("a parameter cannot be")]
    Params(#[source] ParamError),
    #[error("workload `{workload}` needs a target, and the task has none")]
    NoPlace { workload: String },
    #[error("workload `{workload}` needs a peer, and the task has none")]
    NoPeer { workload: String },
    #[error("workload `{workload}` has no receiving end")]
    NoReceiver { workload: &'static str },
    #[error("the sandbox refused")]
    Sandbox(#[source] SandboxError),
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("the target cannot do this: {why}")]
    Unfit { why: String },
    #[error("worker {worker} died while it was being prepared: {message}")]
    Died { worker: u32, message: String },
    #[error("the preparation was cancelled")]
    Cancelled,
}

impl TaskError {
    pub fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> TaskError {
        TaskError::Io {
            doing: doing.into(),
            source: source.into(),
        }
    }

    /// The whole chain of causes on one line, for who cannot keep the chain.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// How far a preparation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
    /// `bytes`, `files`, ...
    pub unit: &'static str,
}

/// The strings on a preparation: cancelling it, and hearing of its progress.
pub struct PrepareControl {
    cancelled: Arc<AtomicBool>,
    progress: Box<dyn Fn(Progress) + Send + Sync>,
}

impl std::fmt::Debug for PrepareControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrepareControl")
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

impl PrepareControl {
    /// Setting `cancelled` ends the preparation soon; `progress` is called from the preparing threads.
    pub fn new(
        cancelled: Arc<AtomicBool>,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> PrepareControl {
        PrepareControl {
            cancelled,
            progress: Box::new(progress),
        }
    }

    /// Nobody cancels and nobody listens.
    pub fn silent() -> PrepareControl {
        PrepareControl::new(Arc::default(), |_| {})
    }

    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// An error once it was cancelled, for `?` in a loop.
    pub fn check(&self) -> Result<(), TaskError> {
        match self.cancelled() {
            true => Err(TaskError::Cancelled),
            false => Ok(()),
        }
    }

    pub fn progress(&self, done: u64, total: u64, unit: &'static str) {
        (self.progress)(Progress { done, total, unit });
    }
}

/// The start instant is past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the start instant was {} us ago when it was set", by.as_micros())]
pub struct TooLate {
    pub by: Duration,
}

/// An operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    pub worker: u32,
    pub op: Op,
    pub since: MonoNanos,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    Stopped,
    Failed,
}

impl End {
    /// The word that the database and the wire use.
    pub const fn as_str(self) -> &'static str {
        match self {
            End::Done => "done",
            End::Stopped => "stopped",
            End::Failed => "failed",
        }
    }
}

/// All there is to say about a task once its last worker has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnd {
    pub state: End,
    pub workers: u32,
    pub planned_start: MonoNanos,
    /// When the last worker began.
    pub last_start: MonoNanos,
    /// When the first worker had finished.
    pub first_done: MonoNanos,
    pub ended: MonoNanos,
    pub cpu_user: Duration,
    pub cpu_system: Duration,
    /// Time that workers were runnable and had no CPU.
    pub wait_cpu: Duration,
    pub harness_ns_per_op: u64,
    pub error: Option<String>,
    pub errors: Vec<ErrorCount>,
}

/// A task whose workers are opened and parked.
pub struct Task {
    load: Arc<dyn Load>,
    crew: Crew,
    start: Option<MonoNanos>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Task {
    /// Lays out the data and opens one OS thread per worker; blocks until all are parked. Nothing stays behind of a
    /// preparation that failed but the data.
    pub fn prepare(spec: &TaskSpec, control: &PrepareControl) -> Result<Task, TaskError> {
        let workload =
            workload::find(&spec.workload).ok_or_else(|| TaskError::UnknownWorkload {
                name: spec.workload.clone(),
            })?;
        let mode = workload.mode(&spec.mode).map_err(TaskError::Params)?;
        Task::prepare_load(workload.load(spec)?.into(), mode.ops, control)
    }

    fn prepare_load(
        load: Arc<dyn Load>,
        ops: &'static [Op],
        control: &PrepareControl,
    ) -> Result<Task, TaskError> {
        load.prepare(control)?;
        control.check()?;
        let crew = Crew::open(&load, ops, control)?;
        recorder::harness_ns_per_op();
        Ok(Task {
            load,
            crew,
            start: None,
        })
    }

    /// Gives every worker its start instant, and says how much time is left until then. Once.
    pub fn arm(&mut self, start: MonoNanos) -> Result<Duration, TooLate> {
        let now = MonoNanos::now();
        if start <= now {
            return Err(TooLate {
                by: now.since(start),
            });
        }
        self.crew.gate().arm(start);
        self.start = Some(start);
        Ok(start.since(now))
    }

    /// The way to stop it, and to see what it is doing, from other threads.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            gate: Arc::clone(self.crew.gate()),
            takers: self.crew.takers(),
        }
    }

    /// Hands out the intervals until the last worker has ended: each about 200 ms after its end, or when all workers
    /// have handed theirs over, at most 2 s later; what comes still later as further intervals of the same index.
    /// A task that was not armed ends at once, stopped.
    pub fn run_to_end(self, sink: &mut dyn FnMut(Interval)) -> TaskEnd {
        let Task { load, crew, start } = self;
        let gate = Arc::clone(crew.gate());
        let Some(start) = start else {
            gate.stop();
            return task_end(MonoNanos::now(), crew.join(), &gate, load.as_ref());
        };
        let mut merge = Merge::new(start, PERIOD);
        let takers = crew.takers();
        loop {
            let all_ended = gate.wait_ended(crew.workers(), merge.next_look());
            merge.collect(&takers);
            if all_ended {
                break;
            }
            merge.emit_due(MonoNanos::now(), &takers, sink);
        }
        merge.emit_all(sink);
        task_end(start, crew.join(), &gate, load.as_ref())
    }
}

fn task_end(start: MonoNanos, ends: Vec<WorkerEnd>, gate: &Gate, load: &dyn Load) -> TaskEnd {
    let instants = |pick: fn(&WorkerEnd) -> MonoNanos| ends.iter().map(pick);
    let finished = load.finish();
    let error = ends
        .iter()
        .find_map(|end| end.failure.clone())
        .or_else(|| finished.err().map(|error| error.in_full()));
    let state = match (&error, gate.was_stopped()) {
        (Some(_), _) => End::Failed,
        (None, true) => End::Stopped,
        (None, false) => End::Done,
    };
    let total = |pick: fn(&WorkerEnd) -> Duration| ends.iter().map(pick).sum();
    TaskEnd {
        state,
        workers: load.workers(),
        planned_start: start,
        last_start: instants(|end| end.started).max().unwrap_or(start),
        first_done: instants(|end| end.ended).min().unwrap_or(start),
        ended: instants(|end| end.ended).max().unwrap_or(start),
        cpu_user: total(|end| end.usage.user),
        cpu_system: total(|end| end.usage.system),
        wait_cpu: total(|end| end.usage.wait),
        harness_ns_per_op: recorder::harness_ns_per_op(),
        error,
        errors: recorder::merge_errors(ends.into_iter().map(|end| end.errors)),
    }
}

/// A handle on a task from other threads.
#[derive(Debug, Clone)]
pub struct Stopper {
    gate: Arc<Gate>,
    takers: Arc<[Taker]>,
}

impl Stopper {
    /// Workers end after the operation in flight; those that wait for the start, at once.
    pub fn stop(&self) {
        self.gate.stop();
    }

    /// What each worker has in flight at this moment.
    pub fn in_flight(&self) -> Vec<InFlight> {
        (0_u32..)
            .zip(self.takers.iter())
            .filter_map(|(worker, taker)| {
                let InFlightOp { op, since } = taker.in_flight()?;
                Some(InFlight { worker, op, since })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
