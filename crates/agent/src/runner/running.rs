//! The thread of a running task: it waits for the task's end, and hands its intervals and its end to the spool.
//!
//! The workers never wait for it: when the spool is slow, this thread waits, and the recorder makes the intervals wider.
//! The task's instants come from one [`MeshMap`], which moves slowly where the clocks part: see `follow`.

use super::command::Ended;
use super::follow::Follow;
use super::tidings::Tidings;
use crate::clock::{Estimate, MeshMap};
use crate::spool::Entry;
use crate::telemetry::{
    Belongs, EndState, ErrorCount, Event, MeshMicros, OpInterval, Row, Severity, TaskEnd, TaskId,
    clipped,
};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::interval::{Interval, PERIOD};
use benchmesh_workloads::task::{self, End, OnStall, Task, Told};
use benchmesh_workloads::workload::Note;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// What the outside can say to a running task's thread.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    /// Why it was stopped; the first reason stays.
    reason: Arc<Mutex<Option<String>>>,
    /// Its rows are of no use to anybody any more: its mesh is gone.
    abandoned: Arc<AtomicBool>,
}

impl Strings {
    /// Notes why the task is stopped.
    pub fn because(&self, reason: &str) {
        let mut held = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_with(|| reason.to_owned());
    }

    /// Its rows are dropped from now on.
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

/// One armed task and where its rows go.
#[derive(Debug)]
pub struct Running {
    pub id: TaskId,
    pub belongs: Belongs,
    pub task: Task,
    pub start: MeshMicros,
    pub map: MeshMap,
    /// What is known of mesh time, always the newest.
    pub clock: watch::Receiver<Option<Estimate>>,
    pub entries: mpsc::Sender<Entry>,
    pub strings: Strings,
    /// Where the raw starts of its workers are written.
    pub start_log: Option<Arc<Path>>,
    pub on_stall: OnStall,
}

impl Running {
    /// Runs it to its end. Blocks; returns how it ended and where its last row is.
    pub fn run(self) -> Ended {
        let Self {
            id,
            belongs,
            task,
            start,
            map,
            clock,
            entries,
            strings,
            start_log,
            on_stall,
        } = self;
        let ramp = task.timing().ramp.unwrap_or_default();
        let ramp_us = micros(ramp);
        let ramp_end = map
            .to_mono(start)
            .map_or(MonoNanos(u64::MAX), |start| start.saturating_add(ramp));
        let mut follow = Follow::new(map, clock, task.shift(), ramp_end);
        let mut tell = |told: Told| {
            if let Told::Interval(interval) = &told {
                follow.ended(interval.index, MonoNanos::now());
            }
            let tidings = Tidings {
                belongs,
                map: follow.map(),
            };
            if !strings.abandoned.load(Ordering::Relaxed) {
                let row = match told {
                    Told::Interval(interval) => {
                        Row::OpInterval(op_interval(id, start, ramp_us, &interval))
                    }
                    Told::Stalled(stall) => Row::Event(tidings.stalled(&stall)),
                    Told::StallOver(stall) => Row::Event(tidings.over(&stall)),
                };
                // A spool that has ended takes nothing: the agent is going.
                let _ = entries.blocking_send(Entry::Rows(vec![row]));
            }
        };
        let notes = task.notes();
        if !notes.is_empty() {
            let rows = notes.into_iter().map(|note| event(belongs, start, note));
            let _ = entries.blocking_send(Entry::Rows(rows.collect()));
        }
        let end = task.run_watched(on_stall, &mut tell);
        let maps = Maps {
            first_done: map.moved(end.first_done_shift_ns),
            ended: follow.map(),
        };
        let stalled = end.stalled;
        if let Some(file) = start_log
            && let Err(error) = log_starts(&file, id, &end.starts)
        {
            tracing::warn!(task = %id, file = %file.display(), %error, "the raw starts of a task are not written");
        }
        let row = task_end(id, start, &maps, end, strings.reason());
        let (state, error) = (row.state, row.error.clone());
        let (reply, place) = oneshot::channel();
        let sent = match strings.abandoned.load(Ordering::Relaxed) {
            true => None,
            false => entries
                .blocking_send(Entry::Last(Row::TaskEnd(row), reply))
                .ok(),
        };
        match sent.and_then(|()| place.blocking_recv().ok()) {
            Some(place) => Ended {
                state,
                error,
                spool: place.spool.to_string(),
                sequence: place.sequence.0,
                stalled,
            },
            None => Ended {
                state,
                error,
                spool: String::new(),
                sequence: 0,
                stalled,
            },
        }
    }
}

/// What a person has to know of how a task was done, beside its figures.
fn event(belongs: Belongs, start: MeshMicros, note: Note) -> Row {
    Row::Event(Event {
        at: start,
        belongs,
        severity: Severity::Warning,
        kind: note.kind.to_owned(),
        message: clipped(note.message),
        detail: String::new(),
    })
}

/// One line per worker: the task, the worker, its start in nanoseconds of CLOCK_MONOTONIC.
fn log_starts(file: &Path, task: TaskId, starts: &[MonoNanos]) -> io::Result<()> {
    let lines: String = (0..)
        .zip(starts)
        .map(|(worker, start): (u32, _)| format!("{task} {worker} {}\n", start.0))
        .collect();
    // In one piece: tasks of one agent may end at once.
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(lines.as_bytes())
}

/// The parts on either side of the end of a ramp end and begin there, wherever in a period that is.
fn op_interval(task: TaskId, start: MeshMicros, ramp_us: i64, interval: &Interval) -> OpInterval {
    let begin = i64::try_from(interval.index.saturating_mul(MICROS_PER_SECOND)).unwrap_or(i64::MAX);
    let end = begin.saturating_add(i64::from(interval.periods).saturating_mul(micros(PERIOD)));
    let (begin, end) = if interval.ramp {
        (begin, end.min(ramp_us))
    } else {
        (begin.max(ramp_us.min(end)), end)
    };
    OpInterval {
        task,
        at: MeshMicros(start.0.saturating_add(begin)),
        span_us: end.saturating_sub(begin).max(1),
        op: interval.op,
        ramp: interval.ramp,
        ops: interval.ops,
        bytes: interval.bytes,
        errors: interval.errors,
        in_flight: interval.in_flight,
        service: interval.service.to_blob(),
        response: interval
            .response
            .as_ref()
            .map(|response| response.to_blob()),
    }
}

/// The mapping of a task at two instants: each as that instant's second was labelled.
#[derive(Clone, Copy, Debug)]
struct Maps {
    first_done: MeshMap,
    ended: MeshMap,
}

fn task_end(
    task: TaskId,
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
    // Stopped before its start: it never began, and no skew is known of it.
    let began = !end.starts.is_empty();
    let told = |at: MeshMicros| if began { at } else { MeshMicros(0) };
    TaskEnd {
        task,
        state,
        workers: end.workers,
        start: told(start),
        skew_us: micros(end.last_start.since(end.planned_start)),
        skew_error_us: maps.ended.error_us(end.planned_start),
        first_done: told(maps.first_done.to_mesh(end.first_done)),
        ended: maps.ended.to_mesh(end.ended),
        last_begun: end
            .last_begun
            .map_or(MeshMicros(0), |at| maps.ended.to_mesh(at)),
        cpu_user_us: micros(end.cpu_user),
        cpu_system_us: micros(end.cpu_system),
        harness_ns_per_op: i64::try_from(end.harness_ns_per_op).unwrap_or(i64::MAX),
        wait_cpu_us: micros(end.wait_cpu),
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
