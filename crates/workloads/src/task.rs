//! One task from its parameters to its end: prepared, armed, run by OS threads, taken apart into intervals.
//!
//! [`Task::prepare`] leaves every worker opened and parked; [`Task::arm`] gives all of them one start instant;
//! [`Task::run_to_end`] hands out what they record until the last has ended. A worker that fails or panics stops the
//! others and makes the task fail with its message: a task always ends. Nothing is known here of the mesh.

mod conduct;
mod control;
mod crew;
mod finish;
mod gate;
mod hands;
mod kernel_call;
mod merge;
mod spec;
mod stall;
mod usage;

pub use control::{PrepareControl, Progress};
pub use spec::{Cache, PeerEnd, Place, TaskError, TaskSpec};
pub use stall::{Doing, Stall, StallNews};

use crate::clock::MonoNanos;
use crate::interval::{Interval, PERIOD, Shift};
use crate::op::Op;
use crate::pacing::Change;
use crate::recorder::{self, ErrorCount, InFlightOp, Taker};
use crate::workload::{self, Load, Note, Timing};
use conduct::Conduct;
use crew::{Crew, WorkerEnd};
use finish::{Unfinished, finish};
use gate::Gate;
use merge::Merge;
use stall::StallWatch;
use std::sync::Arc;
use std::time::Duration;

/// Workers that do not hang end within this time after a stall has ended their task.
const LEAVE_AFTER: Duration = Duration::from_secs(2);

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
    /// Where the periods had moved to at that instant, as [`Shift::get`] has it.
    pub first_done_shift_ns: i64,
    pub ended: MonoNanos,
    /// When the last operation of any worker began; `None`: none did.
    pub last_begun: Option<MonoNanos>,
    pub cpu_user: Duration,
    pub cpu_system: Duration,
    /// Time that workers were runnable and had no CPU.
    pub wait_cpu: Duration,
    pub harness_ns_per_op: u64,
    pub error: Option<String>,
    /// A stall ended it: some of its workers may still be within a system call.
    pub stalled: bool,
    pub errors: Vec<ErrorCount>,
    /// When each worker began.
    pub starts: Vec<MonoNanos>,
}

/// What follows from an operation that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStall {
    /// It is told of, and waited for.
    #[default]
    Continue,
    /// The task fails. The worker that hangs is left behind: nothing can end a thread within a system call.
    Abort,
}

/// What a running task tells.
#[derive(Debug)]
pub enum Told {
    Interval(Interval),
    Stall(StallNews),
}

/// A task whose workers are opened and parked.
pub struct Task {
    load: Arc<dyn Load>,
    crew: Crew,
    stall_after: Duration,
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
        control.watched(&spec.params, || Task::prepare_here(spec, control))
    }

    /// The same in a thread that is watched already.
    pub fn prepare_here(spec: &TaskSpec, control: &PrepareControl) -> Result<Task, TaskError> {
        let workload =
            workload::find(&spec.workload).ok_or_else(|| TaskError::UnknownWorkload {
                name: spec.workload.clone(),
            })?;
        if let Some(device) = spec.device.as_ref().filter(|_| !workload.takes_devices()) {
            let (workload, path) = (&spec.workload, device.path().display());
            return Err(TaskError::Unfit {
                why: format!("`{workload}` works in a directory, and {path} is a block device"),
            });
        }
        let mode = workload.mode(&spec.mode).map_err(TaskError::Params)?;
        let conduct = Conduct::of(spec, mode).map_err(TaskError::Params)?;
        let load = workload.load(spec)?.into();
        Task::prepare_load(load, mode.ops, &conduct, control)
    }

    fn prepare_load(
        load: Arc<dyn Load>,
        ops: &'static [Op],
        conduct: &Conduct,
        control: &PrepareControl,
    ) -> Result<Task, TaskError> {
        load.prepare(control)?;
        control.check()?;
        let crew = Crew::open(&load, ops, conduct, control)?;
        recorder::harness_ns_per_op();
        Ok(Task {
            load,
            crew,
            stall_after: conduct.common.stall_after,
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

    /// When it starts to count, and when it ends.
    pub fn timing(&self) -> Timing {
        self.load.timing()
    }

    /// How its periods are moved while it runs; after its ramp only, the end of which does not move.
    pub fn shift(&self) -> Arc<Shift> {
        self.crew.gate().shift()
    }

    /// What is to be said of how it will be done.
    pub fn notes(&self) -> Vec<Note> {
        self.load.notes()
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
        self.run_watched(OnStall::Continue, &mut |told| {
            if let Told::Interval(interval) = told {
                sink(interval);
            }
        })
    }

    /// The same, and tells of operations that do not end.
    pub fn run_watched(self, on_stall: OnStall, tell: &mut dyn FnMut(Told)) -> TaskEnd {
        let Task {
            load,
            crew,
            stall_after,
            start,
        } = self;
        let gate = Arc::clone(crew.gate());
        let Some(start) = start else {
            gate.stop();
            let ends = crew.join();
            let ending = Ending {
                workers: load.workers(),
                given_up: None,
                finished: finish(&load, stall_after, on_stall, tell),
            };
            return task_end(MonoNanos::now(), ends, &[], &gate, ending);
        };
        let mut merge = Merge::new(start, PERIOD, load.timing().ramp, gate.shift());
        let takers = crew.takers();
        gate.watch_start(crew.workers(), start);
        let mut stalls = StallWatch::new(stall_after);
        let mut given_up: Option<GivenUp> = None;
        let all_ended = loop {
            let all_ended = gate.wait_ended(crew.workers(), merge.next_look());
            merge.collect(&takers);
            let now = MonoNanos::now();
            let news = stalls.look(now, &takers, load.as_ref());
            news.into_iter().for_each(|it| tell(Told::Stall(it)));
            if all_ended || given_up.as_ref().is_some_and(|it| now >= it.leave_at) {
                break all_ended;
            }
            if let (OnStall::Abort, None, Some(stall)) = (on_stall, &given_up, stalls.longest()) {
                gate.end_load();
                given_up = Some(GivenUp::because(stall, now));
            }
            merge.emit_due(now, &takers, &mut |it| tell(Told::Interval(it)));
        };
        merge.emit_all(&mut |it| tell(Told::Interval(it)));
        let ends = match all_ended {
            true => crew.join(),
            false => crew.leave(start),
        };
        let (after, on_stall) = match given_up {
            Some(_) => (stall_after.min(LEAVE_AFTER), OnStall::Abort),
            None => (stall_after, on_stall),
        };
        let ending = Ending {
            workers: load.workers(),
            given_up: given_up.map(|it| it.why),
            finished: finish(&load, after, on_stall, tell),
        };
        task_end(start, ends, &takers, &gate, ending)
    }
}

/// A task that a stall ends.
#[derive(Debug)]
struct GivenUp {
    why: String,
    /// The other workers have ended by then.
    leave_at: MonoNanos,
}

impl GivenUp {
    fn because(stall: &Stall, now: MonoNanos) -> GivenUp {
        GivenUp {
            why: stall.why_ended(now),
            leave_at: now.saturating_add(LEAVE_AFTER),
        }
    }
}

/// What there is to say of a task beside what its workers do.
#[derive(Debug)]
struct Ending {
    workers: u32,
    /// Why its workers were not waited for.
    given_up: Option<String>,
    finished: Result<(), Unfinished>,
}

fn task_end(
    start: MonoNanos,
    ends: Vec<WorkerEnd>,
    takers: &[Taker],
    gate: &Gate,
    ending: Ending,
) -> TaskEnd {
    let instants = |pick: fn(&WorkerEnd) -> MonoNanos| ends.iter().map(pick);
    let Ending {
        workers,
        given_up,
        finished,
    } = ending;
    let unfinished = finished.err();
    let stalled = given_up.is_some() || unfinished.as_ref().is_some_and(|it| it.stalled);
    let error = given_up
        .or_else(|| ends.iter().find_map(|end| end.failure.clone()))
        .or_else(|| unfinished.map(|it| it.why));
    let state = match (&error, gate.was_stopped()) {
        (Some(_), _) => End::Failed,
        (None, true) => End::Stopped,
        (None, false) => End::Done,
    };
    let first_done = ends.iter().min_by_key(|end| end.ended);
    let total = |pick: fn(&WorkerEnd) -> Duration| ends.iter().map(pick).sum();
    TaskEnd {
        state,
        workers,
        planned_start: start,
        last_start: instants(|end| end.started).max().unwrap_or(start),
        first_done: first_done.map_or(start, |end| end.ended),
        first_done_shift_ns: first_done.map_or(0, |end| end.shift_ns),
        ended: instants(|end| end.ended).max().unwrap_or(start),
        last_begun: takers.iter().filter_map(Taker::last_begun).max(),
        cpu_user: total(|end| end.usage.user),
        cpu_system: total(|end| end.usage.system),
        wait_cpu: total(|end| end.usage.wait),
        harness_ns_per_op: recorder::harness_ns_per_op(),
        starts: ends.iter().map(|end| end.started).collect(),
        error,
        stalled,
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

    /// From an instant on the task has another share of its step's rate; of any other rate nothing changes. What was due
    /// before is done, and the schedule goes on without a burst.
    pub fn share(&self, task: u32, tasks: u32, from: MonoNanos) {
        self.gate.change(Change {
            task,
            tasks,
            from,
            told: MonoNanos::now(),
        });
    }

    /// What each worker has in flight at this moment.
    pub fn in_flight(&self) -> Vec<InFlight> {
        (0_u32..)
            .zip(self.takers.iter())
            .filter_map(|(worker, taker)| {
                let InFlightOp { op, since, .. } = taker.in_flight()?;
                Some(InFlight { worker, op, since })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
