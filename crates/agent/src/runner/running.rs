//! The thread of a running task: it waits for the task's end, and passes its intervals and its end to the spool.
//!
//! The workers never wait for it. When the spool is slow, this thread waits, and the recorder widens the intervals. The
//! task's instants come from one [`MeshMap`], which follows the drift of the clocks slowly: see `follow`.

use super::claimed_task::ClaimedTask;
use super::follow::Follow;
use super::task_events::TaskEvents;
use crate::clock::{Dating, MeshMap};
use crate::command::TaskEnded;
use crate::envelope::RowPosition;
use crate::spool::SpoolEntry;
use crate::telemetry::{
    EndState, ErrorCount, Event, MeshMicros, OpInterval, RunScope, TaskEnd, TaskId, TelemetryRow,
    clipped,
};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::interval::{Interval, PERIOD};
use benchmesh_workloads::task::{self, End, OnStall, TaskEvent};
use benchmesh_workloads::workload::Note;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Requests from outside to a running task's thread.
#[derive(Clone, Debug, Default)]
pub struct StopReason {
    /// The reason for the stop; the first one is kept.
    reason: Arc<Mutex<Option<String>>>,
    /// The task's rows are obsolete, because its mesh is gone.
    abandoned: Arc<AtomicBool>,
}

impl StopReason {
    /// Records why the task is stopped.
    pub fn because(&self, reason: &str) {
        let mut held = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_with(|| reason.to_owned());
    }

    /// Drops the task's rows from now on.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn reason(&self) -> Option<String> {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// One armed task and the destination of its rows.
pub struct Running {
    pub id: TaskId,
    pub scope: RunScope,
    pub task: ClaimedTask,
    pub start: MeshMicros,
    pub map: MeshMap,
    /// Dates the task's rows, and this agent's other rows while the task runs.
    pub dating: Dating,
    pub entries: mpsc::Sender<SpoolEntry>,
    pub stop_reason: StopReason,
    /// File for the raw starts of the task's workers.
    pub start_log: Option<Arc<Path>>,
    pub on_stall: OnStall,
    /// Called when the last worker has ended, before the workload's finishing work.
    pub load_over: Box<dyn FnOnce() + Send>,
}

impl Running {
    /// Runs the task to its end. Blocks; returns the position of its last row.
    pub fn run(self) -> TaskEnded {
        let Self {
            id,
            scope,
            task,
            start,
            map,
            dating,
            entries,
            stop_reason,
            start_log,
            on_stall,
            load_over,
        } = self;
        // Held until the task has ended.
        let ClaimedTask {
            task,
            space_guard: _space_guard,
        } = task;
        let mut load_over = Some(load_over);
        let ramp = task.timing().ramp.unwrap_or_default();
        let ramp_us = micros(ramp);
        let ramp_end = map
            .to_mono(start)
            .map_or(MonoNanos(u64::MAX), |start| start.saturating_add(ramp));
        let mut follow = Follow::new(map, dating.begin_task(map), task.shift(), ramp_end);
        let mut on_event = |event: TaskEvent| {
            if matches!(event, TaskEvent::LoadOver) {
                if let Some(load_over) = load_over.take() {
                    load_over();
                }
                return;
            }
            if let TaskEvent::Interval(interval) = &event {
                follow.ended(interval.index, MonoNanos::now());
            }
            let events = TaskEvents {
                scope: scope.clone(),
                map: follow.map(),
            };
            if !stop_reason.abandoned.load(Ordering::Relaxed) {
                let row = match event {
                    TaskEvent::Interval(interval) => {
                        TelemetryRow::OpInterval(op_interval(id, &scope, start, ramp_us, &interval))
                    }
                    TaskEvent::Stall(stall) => TelemetryRow::Event(events.stall(&stall)),
                    TaskEvent::Held(stalls) => TelemetryRow::Event(events.held(id, &stalls)),
                    TaskEvent::LoadOver => return,
                };
                // A closed spool accepts no rows: the agent is shutting down.
                let _ = entries.blocking_send(SpoolEntry::Rows(vec![row]));
            }
        };
        let notes = task.notes();
        if !notes.is_empty() {
            let rows = notes
                .into_iter()
                .map(|note| event(scope.clone(), start, note));
            let _ = entries.blocking_send(SpoolEntry::Rows(rows.collect()));
        }
        let end = task.run_watched(on_stall, &mut on_event);
        let maps = Maps {
            first_done: map.moved(end.first_done_shift_ns),
            ended: follow.map(),
        };
        drop(follow);
        let stalled = end.stalled;
        if let Some(file) = start_log
            && let Err(error) = log_starts(&file, id, &end.starts)
        {
            tracing::warn!(task = %id, file = %file.display(), %error, "the raw starts of a task are not written");
        }
        let row = task_end(id, &scope, start, &maps, end, stop_reason.reason());
        TaskEnded {
            state: row.state,
            last_row: match stop_reason.abandoned.load(Ordering::Relaxed) {
                true => None,
                false => spool_end(row, &entries),
            },
            stalled,
        }
    }
}

/// The end of a task after a panic of its own thread.
pub fn panicked(task: TaskId, scope: &RunScope, entries: &mpsc::Sender<SpoolEntry>) -> TaskEnded {
    let unknown = MeshMicros(0);
    let row = TaskEnd {
        task,
        run_uid: scope.run_uid.clone(),
        state: EndState::Failed,
        workers: 0,
        start: unknown,
        skew_us: 0,
        skew_error_us: 0,
        first_done: unknown,
        ended: unknown,
        last_begun: unknown,
        cpu_user_us: None,
        cpu_system_us: None,
        harness_ns_per_op: 0,
        wait_cpu_us: None,
        error: "the task's own thread panicked; the agent's log shows where".to_owned(),
        errors: Vec::new(),
    };
    TaskEnded {
        state: row.state,
        last_row: spool_end(row, entries),
        stalled: false,
    }
}

/// Passes the last row of a task to the spool; `None` if the spool is closed.
fn spool_end(row: TaskEnd, entries: &mpsc::Sender<SpoolEntry>) -> Option<RowPosition> {
    let (reply, position) = oneshot::channel();
    let last = SpoolEntry::Last(Box::new(TelemetryRow::TaskEnd(row)), reply);
    entries.blocking_send(last).ok()?;
    position.blocking_recv().ok()
}

/// Converts a task's note into an event for the user.
fn event(scope: RunScope, start: MeshMicros, note: Note) -> TelemetryRow {
    TelemetryRow::Event(Event {
        at: start,
        scope,
        kind: note.kind.into(),
        message: clipped(note.message),
        detail: String::new(),
    })
}

/// Appends one line per worker: the task, the worker, its start in nanoseconds of CLOCK_MONOTONIC.
fn log_starts(file: &Path, task: TaskId, starts: &[MonoNanos]) -> io::Result<()> {
    let lines: String = (0..)
        .zip(starts)
        .map(|(worker, start): (u32, _)| format!("{task} {worker} {}\n", start.0))
        .collect();
    // A single write, because several tasks of one agent may end at the same time.
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(lines.as_bytes())
}

/// The two intervals at the end of a ramp meet exactly there, wherever the end lies within a period.
fn op_interval(
    task: TaskId,
    scope: &RunScope,
    start: MeshMicros,
    ramp_us: i64,
    interval: &Interval,
) -> OpInterval {
    let begin = i64::try_from(interval.index.saturating_mul(MICROS_PER_SECOND)).unwrap_or(i64::MAX);
    let end = begin.saturating_add(i64::from(interval.periods).saturating_mul(micros(PERIOD)));
    let (begin, end) = if interval.ramp {
        (begin, end.min(ramp_us))
    } else {
        (begin.max(ramp_us.min(end)), end)
    };
    OpInterval {
        task,
        run_uid: scope.run_uid.clone(),
        at: MeshMicros(start.0.saturating_add(begin)),
        span_us: end.saturating_sub(begin).max(1),
        op: interval.op,
        ramp: interval.ramp,
        ops: interval.ops,
        bytes: interval.bytes,
        undated_bytes: interval.undated_bytes,
        errors: interval.errors,
        in_flight: interval.in_flight,
        service: interval.service.to_blob(),
        response: interval
            .response
            .as_ref()
            .map(|response| response.to_blob()),
    }
}

/// The mapping of a task at two instants, each as used for that instant's second.
#[derive(Clone, Copy, Debug)]
struct Maps {
    first_done: MeshMap,
    ended: MeshMap,
}

fn task_end(
    task: TaskId,
    scope: &RunScope,
    start: MeshMicros,
    maps: &Maps,
    end: task::TaskEnd,
    reason: Option<String>,
) -> TaskEnd {
    let state = match end.state {
        End::Done => EndState::Done,
        End::Stopped => EndState::Stopped,
        End::Failed => EndState::Failed,
    };
    let stopped = (state == EndState::Stopped).then_some(reason).flatten();
    // A task that was stopped before its start has no skew.
    let began = !end.starts.is_empty();
    let if_begun = |at: MeshMicros| if began { at } else { MeshMicros(0) };
    TaskEnd {
        task,
        run_uid: scope.run_uid.clone(),
        state,
        workers: end.workers,
        start: if_begun(start),
        skew_us: micros(end.last_start.since(end.planned_start)),
        skew_error_us: maps.ended.error_us(end.planned_start),
        first_done: if_begun(maps.first_done.to_mesh(end.first_done)),
        ended: maps.ended.to_mesh(end.ended),
        last_begun: end
            .last_begun
            .map_or(MeshMicros(0), |at| maps.ended.to_mesh(at)),
        cpu_user_us: end.cpu_user.map(micros),
        cpu_system_us: end.cpu_system.map(micros),
        harness_ns_per_op: i64::try_from(end.harness_ns_per_op).unwrap_or(i64::MAX),
        wait_cpu_us: end.wait_cpu.map(micros),
        error: clipped(end.error.or(stopped).unwrap_or_default()),
        errors: end
            .errors
            .into_iter()
            .map(|error| ErrorCount {
                op: error.op.as_str().to_owned(),
                errno: error.errno,
                count: error.count,
                first: clipped(error.first),
            })
            .collect(),
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::clock::{Exchange, Filter};
    use benchmesh_workloads::histogram::Histogram;
    use benchmesh_workloads::op::Op;

    const SECOND: u64 = 1_000_000_000;

    /// The mapping to a collector clock that is one second ahead.
    fn map() -> MeshMap {
        let exchange = Exchange {
            sent: MonoNanos(SECOND),
            mesh_received_ns: 2_000_050_000,
            mesh_sent_ns: 2_000_050_000,
            received: MonoNanos(SECOND + 100_000),
            slept_ns: 0,
        };
        Filter::default().add(exchange).unwrap().map
    }

    fn end(first_done: u64, ended: u64) -> task::TaskEnd {
        task::TaskEnd {
            state: End::Done,
            workers: 2,
            planned_start: MonoNanos(10 * SECOND),
            last_start: MonoNanos(10 * SECOND + 5_000),
            first_done: MonoNanos(first_done),
            first_done_shift_ns: 400_000,
            ended: MonoNanos(ended),
            last_begun: Some(MonoNanos(ended - 1_000_000)),
            cpu_user: Some(Duration::ZERO),
            cpu_system: Some(Duration::ZERO),
            wait_cpu: Some(Duration::ZERO),
            harness_ns_per_op: 0,
            error: None,
            stalled: false,
            errors: Vec::new(),
            starts: vec![MonoNanos(10 * SECOND); 2],
        }
    }

    /// A task's rows and its end are dated consistently: an end in the same second as the rows has an instant in that
    /// second.
    #[test]
    fn an_end_is_told_in_the_second_that_its_rows_are_in() {
        let map = map();
        let start = map.to_mesh(MonoNanos(10 * SECOND));
        // The periods had shifted by 0.4 ms when the first worker ended, in the last half millisecond of its third
        // second, and by 1 ms when all had ended.
        let first_done = 13 * SECOND + 400_000 - 1_000;
        let ended = 20 * SECOND + 1_000_000 - 1_000;
        let maps = Maps {
            first_done: map.moved(400_000),
            ended: map.moved(1_000_000),
        };
        let row = task_end(
            TaskId(1),
            &RunScope::default(),
            start,
            &maps,
            end(first_done, ended),
            None,
        );
        assert_eq!(row.start, start);
        assert_eq!(row.first_done.0 - start.0, 3_000_000 - 1);
        assert_eq!(row.ended.0 - start.0, 10_000_000 - 1);
        assert_eq!(row.last_begun.0 - start.0, 10_000_000 - 1_001);
        assert_eq!(row.skew_us, 5);
    }

    /// Parts of one period from several workers, on either side of a shift and of the ramp's end: each row lies in its
    /// period, independently of the shift.
    #[test]
    fn rows_are_whole_seconds_from_the_start_but_at_the_ramp() {
        let start = MeshMicros(1_700_000_000_123_456);
        let row = |index, periods, ramp| {
            let interval = Interval {
                index,
                periods,
                op: Op::Read,
                ramp,
                ops: 3,
                bytes: 30,
                undated_bytes: 20,
                errors: 0,
                in_flight: 1,
                service: Histogram::new(),
                response: None,
            };
            let row = op_interval(TaskId(1), &RunScope::default(), start, 2_500_000, &interval);
            assert_eq!((row.ops, row.bytes, row.in_flight), (3, 30, 1));
            assert_eq!(row.undated_bytes, 20);
            (row.at.0 - start.0, row.span_us)
        };
        assert_eq!(row(1, 1, true), (1_000_000, 1_000_000));
        assert_eq!(row(2, 1, true), (2_000_000, 500_000));
        assert_eq!(row(2, 1, false), (2_500_000, 500_000));
        assert_eq!(row(3, 1, false), (3_000_000, 1_000_000));
        assert_eq!(row(4, 3, false), (4_000_000, 3_000_000));
    }
}
