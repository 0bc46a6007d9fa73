//! The OS threads of a task: opened, parked, started together, and what each has to say at its end.

use super::gate::Gate;
use super::hands::Hands;
use super::usage::{Usage, UsageMeter};
use super::{Conduct, PrepareControl, TaskError};
use crate::clock::MonoNanos;
use crate::op::Op;
use crate::recorder::{self, ErrorCount, Settings, Taker};
use crate::workload::{Load, Worker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a cancellation is looked for while workers open.
const CANCEL_LOOK: Duration = Duration::from_millis(100);

/// What a worker leaves behind.
#[derive(Debug)]
pub(super) struct WorkerEnd {
    pub started: MonoNanos,
    pub ended: MonoNanos,
    /// Where its periods had moved to when it ended.
    pub shift_ns: i64,
    pub usage: Usage,
    pub errors: Vec<ErrorCount>,
    /// Why it could not do all of its work.
    pub failure: Option<String>,
}

/// The parked or running workers of a task. Dropping it ends them.
pub(super) struct Crew {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<Option<WorkerEnd>>>,
    takers: Arc<[Taker]>,
}

/// A worker's word that it is parked, or why it is not.
type Opened = (u32, Result<Taker, TaskError>);

impl Crew {
    pub(super) fn open(
        load: &Arc<dyn Load>,
        ops: &'static [Op],
        conduct: &Conduct,
        control: &PrepareControl,
    ) -> Result<Crew, TaskError> {
        let workers = load.workers();
        let mut crew = Crew {
            gate: Arc::default(),
            threads: Vec::new(),
            takers: Arc::new([]),
        };
        let (opened, openings) = sync_channel(usize::try_from(workers).unwrap_or(1));
        for index in 0..workers {
            let (load, gate) = (Arc::clone(load), Arc::clone(&crew.gate));
            let settings = Settings {
                timing: load.timing(),
                stop: crew.gate.stop_flag(),
                changes: crew.gate.changes(),
                shift: crew.gate.shift(),
                schedule: conduct
                    .schedule(index, workers, load.lanes())
                    .map(|it| (it, workers)),
                own_instants: load.has_instants().then_some(workers),
                on_error: conduct.common.on_error,
                depth: load.depth(),
                ..Settings::of(ops)
            };
            let (opened, hands) = (opened.clone(), control.hands());
            let thread = std::thread::Builder::new()
                .name(format!("bm-w{index}"))
                .spawn(move || live(index, load.as_ref(), &gate, settings, &hands, opened))
                .map_err(|error| TaskError::io(format!("start worker {index}"), error))?;
            crew.threads.push(thread);
        }
        drop(opened);
        crew.takers = await_openings(workers, &openings, control)?.into();
        Ok(crew)
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(super) fn takers(&self) -> Arc<[Taker]> {
        Arc::clone(&self.takers)
    }

    pub(super) fn workers(&self) -> usize {
        self.threads.len()
    }

    /// Takes the word of the threads that have ended, and leaves the others where they hang; the load began at `start`.
    pub(super) fn leave(mut self, start: MonoNanos) -> Vec<WorkerEnd> {
        let (ended, hanging): (Vec<_>, Vec<_>) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(JoinHandle::is_finished);
        let shift_ns = self.gate.shift().get();
        let mut ends = words_of(ended, shift_ns);
        ends.extend(hanging.iter().map(|_| WorkerEnd {
            started: start,
            ended: MonoNanos::now(),
            shift_ns,
            usage: Usage::default(),
            errors: Vec::new(),
            failure: None,
        }));
        ends
    }

    /// Waits for every thread; those that never started have nothing to say.
    pub(super) fn join(mut self) -> Vec<WorkerEnd> {
        let threads = std::mem::take(&mut self.threads);
        words_of(threads, self.gate.shift().get())
    }
}

fn words_of(threads: Vec<JoinHandle<Option<WorkerEnd>>>, shift_ns: i64) -> Vec<WorkerEnd> {
    threads
        .into_iter()
        .filter_map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| Some(died(panic, shift_ns)))
        })
        .collect()
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.gate.end_load();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn await_openings(
    workers: u32,
    openings: &Receiver<Opened>,
    control: &PrepareControl,
) -> Result<Vec<Taker>, TaskError> {
    let mut takers = Vec::new();
    while takers.len() < usize::try_from(workers).unwrap_or(usize::MAX) {
        match openings.recv_timeout(CANCEL_LOOK) {
            Ok((index, taker)) => takers.push((index, taker?)),
            Err(RecvTimeoutError::Timeout) => control.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TaskError::Died {
                    worker: u32::try_from(takers.len()).unwrap_or(workers),
                    message: "it ended without a word".to_owned(),
                });
            }
        }
    }
    takers.sort_by_key(|(index, _)| *index);
    Ok(takers.into_iter().map(|(_, taker)| taker).collect())
}

/// A worker's whole life. `None` when it never started.
fn live(
    index: u32,
    load: &dyn Load,
    gate: &Gate,
    settings: Settings,
    hands: &Hands,
    opened: SyncSender<Opened>,
) -> Option<WorkerEnd> {
    let opening = hands.present();
    let worker = catch_unwind(AssertUnwindSafe(|| load.worker(index))).unwrap_or_else(|panic| {
        Err(TaskError::Died {
            worker: index,
            message: message_of(panic.as_ref()),
        })
    });
    let mut worker = match worker {
        Ok(worker) => worker,
        Err(error) => {
            drop(opened.send((index, Err(error))));
            return None;
        }
    };
    drop(opening);
    let (mut recorder, taker) = recorder::pair(settings);
    let meter = UsageMeter::of_this_thread();
    opened.send((index, Ok(taker))).ok()?;
    drop(opened);
    let _ended = Ended(gate);

    gate.wait_start().map(|start| {
        recorder.set_start(start.planned);
        recorder.urgent_until_first(start.urgent);
        let before = meter.read();
        let failure = work(index, worker.as_mut(), &mut recorder);
        let ended = MonoNanos::now();
        let usage = meter.read().since(before);
        if failure.is_some() {
            gate.end_load();
        }
        let shift_ns = gate.shift().get();
        // What it has counted is handed over before it closes its files, which can hang.
        let leaving = recorder.leaving();
        let errors = recorder.finish();
        leaving.during(|| drop(worker));
        WorkerEnd {
            started: start.began,
            ended,
            shift_ns,
            usage,
            errors,
            failure,
        }
    })
}

/// Tells the gate that a worker is gone, however it went.
struct Ended<'a>(&'a Gate);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.one_ended();
    }
}

fn work(index: u32, worker: &mut dyn Worker, recorder: &mut recorder::Recorder) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| worker.run(recorder))) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("worker {index}: {error}")),
        Err(panic) => Some(format!(
            "worker {index} died: {}",
            message_of(panic.as_ref())
        )),
    }
}

fn died(panic: Box<dyn Any + Send>, shift_ns: i64) -> WorkerEnd {
    WorkerEnd {
        started: MonoNanos(0),
        ended: MonoNanos::now(),
        shift_ns,
        usage: Usage::default(),
        errors: Vec::new(),
        failure: Some(format!("a worker died: {}", message_of(panic.as_ref()))),
    }
}

pub(super) fn message_of(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => "a panic without a message".to_owned(),
    }
}
