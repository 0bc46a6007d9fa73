//! A task from its parameters to its end: prepared, armed, run by OS threads, reported as intervals.
//!
//! [`Task::prepare`] opens and parks every worker, [`Task::arm`] sets their common start instant, and
//! [`Task::run_to_end`] emits their intervals until the last one has ended. A worker that fails or panics stops the
//! others and makes the task fail with its message, so a task always ends. This module does not know the mesh.

mod finish;
mod gate;
mod io_threads;
mod merge;
mod options;
mod stall_watch;
mod threads;
mod usage;

pub use crate::engine::prep_threads::PrepThreads;
pub use crate::engine::prepare_control::{LayingOut, PrepareControl, PrepareProgress};
pub use crate::engine::spec::{Cache, CellDir, PeerEnd, Place, TaskError, TaskSpec};
pub use crate::engine::stall::{OnStall, Stall, StallEvent, TaskPhase};

use crate::engine::workload::{Load, Note, Opened, Threads, Timing, Workload};
use crate::measure::clock::MonoNanos;
use crate::measure::interval::{Interval, PERIOD, Shift};
use crate::measure::op::Op;
use crate::measure::pacing::ShareChange;
use crate::measure::recorder::{self, Consumer, ErrorCount};
use crate::measure::thread_cpu::CpuTime;
use finish::{Unfinished, finish};
use gate::{Gate, PACED_RT_LIMIT, RT_LIMIT};
use merge::Merge;
use options::TaskOptions;
use stall_watch::StallDetector;
use std::sync::Arc;
use std::time::Duration;
use threads::{WorkerEnd, WorkerThreads};
use usage::Usage;

/// Time for workers to end after their load was stopped, or a stall has ended their task.
const LEAVE_AFTER: Duration = Duration::from_secs(2);

/// The start instant is past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the start instant was {} us ago when it was set", by.as_micros())]
pub struct TooLate {
    pub by: Duration,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    Stopped,
    Failed,
}

impl End {
    /// Its name in the database and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            End::Done => "done",
            End::Stopped => "stopped",
            End::Failed => "failed",
        }
    }
}

/// Summary of a task, after its last worker has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnd {
    pub state: End,
    pub workers: u32,
    pub planned_start: MonoNanos,
    /// When the last worker began.
    pub last_start: MonoNanos,
    /// When the first worker had finished.
    pub first_done: MonoNanos,
    /// Shift of the periods at that instant, from [`Shift::get`].
    pub first_done_shift_ns: i64,
    pub ended: MonoNanos,
    /// When the last operation of any worker began; `None`: none did.
    pub last_begun: Option<MonoNanos>,
    /// CPU time of its workers and of a library's threads for them; `None` if a worker was abandoned.
    pub cpu_user: Option<Duration>,
    /// Includes the kernel's threads for io_urings; `None` also if these cannot be attributed.
    pub cpu_system: Option<Duration>,
    /// Time that workers were runnable without a CPU; `None` if the kernel does not report it.
    pub wait_cpu: Option<Duration>,
    pub harness_ns_per_op: u64,
    pub error: Option<String>,
    /// A stall ended it: some of its workers may still be in a system call.
    pub stalled: bool,
    pub errors: Vec<ErrorCount>,
    /// When each worker began.
    pub starts: Vec<MonoNanos>,
}

/// Events of a running task.
#[derive(Debug)]
pub enum TaskEvent {
    Interval(Interval),
    Stall(StallEvent),
    /// Operations that a stop has not ended.
    Held(Vec<Stall>),
    /// The last worker has ended; the workload's work after its load (syncing, closing, checking) follows.
    LoadOver,
}

/// A task whose workers are opened and parked.
pub struct Task {
    load: Arc<dyn Load>,
    size: Threads,
    threads: WorkerThreads,
    /// The mode's most frequent operation.
    usual_op: Op,
    stall_after: Duration,
    /// How long after the start workers may have real-time priority.
    rt_limit: Duration,
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
    /// Lays out the data and opens one OS thread per worker; blocks until all are parked.
    pub fn prepare(
        workload: &dyn Workload,
        spec: &TaskSpec,
        control: &PrepareControl,
    ) -> Result<Task, TaskError> {
        let about = workload.about();
        let is_other = |place: &&Place| !about.targets.contains(&place.kind());
        if let Some(place) = spec.place.as_ref().filter(is_other) {
            return Err(TaskError::Unsupported {
                why: format!(
                    "`{}` works in {}, and {} is {}",
                    spec.workload,
                    about.target_nouns(),
                    place.name(),
                    place.kind().noun
                ),
            });
        }
        let mode = workload.mode(&spec.mode).map_err(TaskError::Params)?;
        let options = TaskOptions::of(spec, mode).map_err(TaskError::Params)?;
        Task::prepare_load(workload.load(spec)?, mode.ops, &options, control)
    }

    fn prepare_load(
        opened: Opened,
        ops: &'static [Op],
        options: &TaskOptions,
        control: &PrepareControl,
    ) -> Result<Task, TaskError> {
        let load = &opened.load;
        load.prepare(control)?;
        control.check()?;
        if options.warm {
            load.warm(control)?;
            control.check()?;
        }
        let threads = WorkerThreads::open(&opened, ops, options, control)?;
        let has_instants = options.common.pace.is_some() || load.issue().own_instants;
        recorder::harness_ns_per_op();
        Ok(Task {
            load: opened.load,
            size: opened.threads,
            threads,
            usual_op: ops.first().copied().unwrap_or(Op::Null),
            stall_after: options.common.stall_after,
            rt_limit: if has_instants {
                PACED_RT_LIMIT
            } else {
                RT_LIMIT
            },
            start: None,
        })
    }

    /// Sets the start instant of all workers, and returns the time left until then. Call it once.
    pub fn arm(&mut self, start: MonoNanos) -> Result<Duration, TooLate> {
        self.arm_until(start, None)
    }

    /// As [`Task::arm`], with an end instant at which the load ends at the latest.
    pub fn arm_until(
        &mut self,
        start: MonoNanos,
        end: Option<MonoNanos>,
    ) -> Result<Duration, TooLate> {
        let now = MonoNanos::now();
        if start <= now {
            return Err(TooLate {
                by: now.since(start),
            });
        }
        self.threads.gate().arm(start, end);
        self.start = Some(start);
        Ok(start.since(now))
    }

    /// Gives one of the values to each worker. It is dropped when the worker's thread has ended, even if that thread
    /// hangs and the task has ended long before.
    pub fn attach_to_workers<T: Send + 'static>(&self, values: Vec<T>) {
        self.threads.attach(values);
    }

    /// Number of threads.
    pub fn workers(&self) -> u32 {
        self.size.workers
    }

    /// When it starts to count and when it ends.
    pub fn timing(&self) -> Timing {
        self.size.timing
    }

    /// The shift of its periods. Change it after the ramp only, because the end of the ramp does not move.
    pub fn shift(&self) -> Arc<Shift> {
        self.threads.gate().shift()
    }

    /// How the task deviates from the plan.
    pub fn notes(&self) -> Vec<Note> {
        self.load.notes()
    }

    /// A handle for other threads.
    pub fn stopper(&self) -> StopHandle {
        StopHandle {
            gate: Arc::clone(self.threads.gate()),
        }
    }

    /// Returns the operation in flight of the first worker that has one, whenever it is called.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> impl Fn() -> Option<recorder::InFlightOp> + Send + use<> {
        let consumers = self.threads.consumers();
        move || consumers.iter().find_map(Consumer::in_flight)
    }

    /// Emits the intervals until the last worker has ended: each one about 200 ms after its end, or when all workers
    /// have handed it over, at most 2 s later. Data that come later are emitted as further intervals of the same index.
    /// A task that was not armed ends at once, as stopped.
    pub fn run_to_end(self, sink: &mut dyn FnMut(Interval)) -> TaskEnd {
        self.run_watched(OnStall::Continue, &mut |event| {
            if let TaskEvent::Interval(interval) = event {
                sink(interval);
            }
        })
    }

    /// As [`Task::run_to_end`], and reports operations that do not end.
    pub fn run_watched(self, on_stall: OnStall, emit: &mut dyn FnMut(TaskEvent)) -> TaskEnd {
        let Task {
            load,
            size,
            threads,
            usual_op,
            stall_after,
            rt_limit,
            start,
        } = self;
        let gate = Arc::clone(threads.gate());
        let Some(start) = start else {
            gate.stop();
            let ends = threads.join();
            let ending = Ending {
                workers: size.workers,
                io_threads: Some(Duration::ZERO),
                library: Some(CpuTime::default()),
                abandoned: None,
                finished: finish(&load, stall_after, on_stall, emit),
            };
            return task_end(MonoNanos::now(), ends, &[], &gate, ending);
        };
        let mut merge = Merge::new(start, PERIOD, size.timing.ramp, gate.shift(), usual_op);
        let consumers = threads.consumers();
        let io_threads = threads.io_threads();
        gate.watch_start(threads.workers(), start, rt_limit);
        let library_before = load.library_cpu();
        let mut stalls = StallDetector::new(stall_after);
        let mut abandoned: Option<Abandoned> = None;
        let mut settled = false;
        let all_ended = loop {
            let all_ended = gate.wait_ended(threads.workers(), merge.next_poll());
            merge.collect(&consumers);
            if let Some(io_threads) = &io_threads {
                io_threads.poll();
            }
            let now = MonoNanos::now();
            let events = stalls.poll(now, &consumers, load.as_ref());
            events
                .into_iter()
                .for_each(|event| emit(TaskEvent::Stall(event)));
            if all_ended
                || abandoned
                    .as_ref()
                    .is_some_and(|abandoned| now >= abandoned.leave_at)
            {
                break all_ended;
            }
            if let (OnStall::Abort, None, Some(stall)) = (on_stall, &abandoned, stalls.longest()) {
                gate.end_load();
                abandoned = Some(Abandoned::after(stall, now));
            }
            let stopped = gate.load_ended().filter(|_| gate.was_stopped());
            let outlasting = stalls.outlasting_stop(stopped, load.as_ref());
            if !outlasting.is_empty() {
                emit(TaskEvent::Held(outlasting));
            }
            if !settled && let Some(stopped) = gate.load_ended() {
                settled = now >= stopped.saturating_add(LEAVE_AFTER);
                if settled {
                    merge.settle(stopped, now, &consumers);
                }
            }
            merge.emit_due(now, &consumers, &mut |interval| {
                emit(TaskEvent::Interval(interval))
            });
        };
        let ends = match all_ended {
            true => threads.join(),
            false => threads.leave(start),
        };
        if let (false, Some(stopped)) = (all_ended, gate.load_ended()) {
            // Workers that have ended meanwhile have handed over.
            merge.collect(&consumers);
            merge.settle(stopped, MonoNanos::now(), &consumers);
            // Those that ended between the two.
            merge.collect(&consumers);
        }
        let library = load.library_cpu().zip(library_before);
        let until = match all_ended {
            true => ends.iter().map(|end| end.ended).max().unwrap_or(start),
            false => MonoNanos::now(),
        };
        emit(TaskEvent::LoadOver);
        merge.emit_all(until, &consumers, &mut |interval| {
            emit(TaskEvent::Interval(interval))
        });
        let (after, on_stall) = match abandoned {
            Some(_) => (stall_after.min(LEAVE_AFTER), OnStall::Abort),
            None => (stall_after, on_stall),
        };
        let ending = Ending {
            workers: size.workers,
            io_threads: io_threads.map_or(Some(Duration::ZERO), |threads| threads.on_cpu()),
            library: library.map(|(after, before)| after.since(before)),
            abandoned: abandoned.map(|end| end.why),
            finished: finish(&load, after, on_stall, emit),
        };
        task_end(start, ends, &consumers, &gate, ending)
    }
}

/// A task ended by a stall.
#[derive(Debug)]
struct Abandoned {
    why: String,
    /// Other workers have ended by then.
    leave_at: MonoNanos,
}

impl Abandoned {
    fn after(stall: &Stall, now: MonoNanos) -> Abandoned {
        Abandoned {
            why: stall.why_ended(now),
            leave_at: now.saturating_add(LEAVE_AFTER),
        }
    }
}

/// How a task ended, without its workers.
#[derive(Debug)]
struct Ending {
    workers: u32,
    /// CPU time of the kernel's threads for its io_urings, if known.
    io_threads: Option<Duration>,
    /// CPU time of a library's threads for it, if known.
    library: Option<CpuTime>,
    /// Why its workers were not waited for.
    abandoned: Option<String>,
    finished: Result<(), Unfinished>,
}

fn task_end(
    start: MonoNanos,
    ends: Vec<WorkerEnd>,
    consumers: &[Consumer],
    gate: &Gate,
    ending: Ending,
) -> TaskEnd {
    let instants = |pick: fn(&WorkerEnd) -> MonoNanos| ends.iter().map(pick);
    let Ending {
        workers,
        io_threads,
        library,
        abandoned,
        finished,
    } = ending;
    let unfinished = finished.err();
    let stalled = abandoned.is_some()
        || unfinished
            .as_ref()
            .is_some_and(|unfinished| unfinished.stalled);
    let error = abandoned
        .or_else(|| ends.iter().find_map(|end| end.failure.clone()))
        .or_else(|| unfinished.map(|end| end.why));
    let state = match (&error, gate.was_stopped()) {
        (Some(_), _) => End::Failed,
        (None, true) => End::Stopped,
        (None, false) => End::Done,
    };
    let first_done = ends.iter().min_by_key(|end| end.ended);
    let total = |pick: fn(&Usage) -> Option<Duration>| -> Option<Duration> {
        ends.iter().map(|end| pick(end.usage.as_ref()?)).sum()
    };
    let workers_cpu = total(|usage| Some(usage.user))
        .zip(total(|usage| Some(usage.system)))
        .map(|(user, system)| CpuTime { user, system });
    let cpu = workers_cpu
        .zip(library)
        .map(|(workers, library)| workers.plus(library));
    TaskEnd {
        state,
        workers,
        planned_start: start,
        last_start: instants(|end| end.started).max().unwrap_or(start),
        first_done: first_done.map_or(start, |end| end.ended),
        first_done_shift_ns: first_done.map_or(0, |end| end.shift_ns),
        ended: instants(|end| end.ended).max().unwrap_or(start),
        last_begun: consumers.iter().filter_map(Consumer::last_begun).max(),
        cpu_user: cpu.map(|cpu| cpu.user),
        cpu_system: cpu
            .zip(io_threads)
            .map(|(cpu, threads)| cpu.system + threads),
        wait_cpu: total(|usage| usage.wait),
        harness_ns_per_op: recorder::harness_ns_per_op(),
        starts: ends.iter().map(|end| end.started).collect(),
        error,
        stalled,
        errors: recorder::merge_errors(ends.into_iter().map(|end| end.errors)),
    }
}

/// Controls a task from other threads.
#[derive(Debug, Clone)]
pub struct StopHandle {
    gate: Arc<Gate>,
}

impl StopHandle {
    /// Workers stop after the operation in flight, or at once if they wait for the start.
    pub fn stop(&self) {
        self.gate.stop();
    }

    /// Changes the task's share of its step's rate from an instant on; no other rate changes. Operations that were due
    /// before are done, and the schedule continues without a burst.
    pub fn share(&self, task: u32, tasks: u32, from: MonoNanos) {
        self.gate.change(ShareChange {
            task,
            tasks,
            from,
            known_at: MonoNanos::now(),
        });
    }
}

#[cfg(test)]
mod tests;
