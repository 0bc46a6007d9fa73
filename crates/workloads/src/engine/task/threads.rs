//! The OS threads of a task: opened, parked and started together, and their results.

use super::gate::Gate;
use super::io_threads::IoThreads;
use super::usage::{Usage, UsageMeter};
use super::{PrepareControl, TaskError, TaskOptions};
use crate::engine::prep_threads::PrepThreads;
use crate::engine::workload::{Load, Opened, Threads, Worker};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use crate::measure::recorder::{self, Consumer, ErrorCount, Settings};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of checks for a cancellation while workers open.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Result of a worker.
#[derive(Debug)]
pub(super) struct WorkerEnd {
    /// When it left the gate. With due instants: the start plus the delay of its first operation.
    pub started: MonoNanos,
    pub ended: MonoNanos,
    /// Shift of its periods when it ended.
    pub shift_ns: i64,
    /// `None` if it was abandoned, or panicked.
    pub usage: Option<Usage>,
    pub errors: Vec<ErrorCount>,
    /// Why it could not complete its work.
    pub failure: Option<String>,
}

/// The parked or running workers of a task. Dropping this ends them.
pub(super) struct WorkerThreads {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<Option<WorkerEnd>>>,
    consumers: Arc<[Consumer]>,
    /// Present if the load has io_urings.
    io_threads: Option<Arc<IoThreads>>,
    holdings: Arc<Holdings>,
}

/// Values held until a worker's thread has ended, by its index: shares of its agent's budget.
#[derive(Default)]
struct Holdings(Mutex<BTreeMap<u32, Box<dyn Any + Send>>>);

impl Holdings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Box<dyn Any + Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what a worker holds when its thread ends, even by a panic.
struct DropHoldings(Arc<Holdings>, u32);

impl Drop for DropHoldings {
    fn drop(&mut self) {
        let held = self.0.lock().remove(&self.1);
        // Outside of the lock.
        drop(held);
    }
}

/// Sent by a worker when it is parked, or has failed to open.
type Parked = (u32, Result<Consumer, TaskError>);

impl WorkerThreads {
    pub(super) fn open(
        opened: &Opened,
        ops: &'static [Op],
        options: &TaskOptions,
        control: &PrepareControl,
    ) -> Result<WorkerThreads, TaskError> {
        let Threads { workers, timing } = opened.threads;
        let issue = opened.load.issue();
        let mut parked = WorkerThreads {
            gate: Arc::default(),
            threads: Vec::new(),
            consumers: Arc::new([]),
            io_threads: issue.rings.then(Arc::default),
            holdings: Arc::default(),
        };
        let (parked_tx, parked_rx) = sync_channel(usize::try_from(workers).unwrap_or(1));
        for index in 0..workers {
            let (load, gate) = (Arc::clone(&opened.load), Arc::clone(&parked.gate));
            let settings = Settings {
                timing,
                stop: parked.gate.stop_request(),
                changes: parked.gate.changes(),
                shift: parked.gate.shift(),
                schedule: options
                    .schedule(index, workers, issue.shards)
                    .map(|load| (load, workers)),
                own_instants: issue.own_instants.then_some(workers),
                errors: options.common.errors,
                limit: options.limit.clone(),
                depth: issue.depth,
                ..Settings::of(ops)
            };
            let (is_parked, prep_threads) = (parked_tx.clone(), control.prep_threads());
            let io_threads = parked.io_threads.clone();
            let drop_holdings = DropHoldings(Arc::clone(&parked.holdings), index);
            let thread = std::thread::Builder::new()
                .name(format!("bm-w{index}"))
                .spawn(move || {
                    let _drop_holdings = drop_holdings;
                    live(
                        index,
                        load.as_ref(),
                        &gate,
                        settings,
                        (&prep_threads, io_threads.as_deref()),
                        is_parked,
                    )
                })
                .map_err(|error| TaskError::io(format!("start worker {index}"), error))?;
            parked.threads.push(thread);
        }
        drop(parked_tx);
        parked.consumers = await_openings(workers, &parked_rx, control)?.into();
        Ok(parked)
    }

    /// Gives one of the values to each worker, which drops it when its thread ends, whoever waits for that.
    pub(super) fn attach<T: Send + 'static>(&self, values: Vec<T>) {
        let values = values
            .into_iter()
            .map(|value| -> Box<dyn Any + Send> { Box::new(value) });
        self.holdings.lock().extend((0..).zip(values));
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(super) fn consumers(&self) -> Arc<[Consumer]> {
        Arc::clone(&self.consumers)
    }

    /// Kernel threads that execute part of the workers' operations.
    pub(super) fn io_threads(&self) -> Option<Arc<IoThreads>> {
        self.io_threads.clone()
    }

    pub(super) fn workers(&self) -> usize {
        self.threads.len()
    }

    /// Joins the threads that have ended and abandons those that hang; the load began at `start`.
    pub(super) fn leave(mut self, start: MonoNanos) -> Vec<WorkerEnd> {
        let shift_ns = self.gate.shift().get();
        let threads = std::mem::take(&mut self.threads);
        let (ended, hanging): (Vec<_>, Vec<_>) = threads
            .into_iter()
            .zip(self.consumers.iter())
            .partition(|(thread, _)| thread.is_finished());
        let ended = ended.into_iter().map(|(thread, _)| thread).collect();
        let mut ends = ends_of(ended, shift_ns);
        ends.extend(hanging.iter().map(|(_, consumer)| WorkerEnd {
            started: start,
            ended: MonoNanos::now(),
            shift_ns,
            usage: None,
            errors: consumer.errors(),
            failure: None,
        }));
        ends
    }

    /// Joins every thread. One that never started has no result.
    pub(super) fn join(mut self) -> Vec<WorkerEnd> {
        let threads = std::mem::take(&mut self.threads);
        ends_of(threads, self.gate.shift().get())
    }
}

fn ends_of(threads: Vec<JoinHandle<Option<WorkerEnd>>>, shift_ns: i64) -> Vec<WorkerEnd> {
    threads
        .into_iter()
        .filter_map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| Some(died(panic, shift_ns)))
        })
        .collect()
}

impl Drop for WorkerThreads {
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
    openings: &Receiver<Parked>,
    control: &PrepareControl,
) -> Result<Vec<Consumer>, TaskError> {
    let mut consumers = Vec::new();
    while consumers.len() < usize::try_from(workers).unwrap_or(usize::MAX) {
        match openings.recv_timeout(CANCEL_POLL_INTERVAL) {
            Ok((index, consumer)) => consumers.push((index, consumer?)),
            Err(RecvTimeoutError::Timeout) => control.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TaskError::Died {
                    worker: u32::try_from(consumers.len()).unwrap_or(workers),
                    message: "its thread ended before it was ready".to_owned(),
                });
            }
        }
    }
    consumers.sort_by_key(|(index, _)| *index);
    Ok(consumers
        .into_iter()
        .map(|(_, consumer)| consumer)
        .collect())
}

/// Opens a worker, waits for the start, runs it. `None` if it never started.
fn live(
    index: u32,
    load: &dyn Load,
    gate: &Gate,
    settings: Settings,
    (prep_threads, io_threads): (&PrepThreads, Option<&IoThreads>),
    opened: SyncSender<Parked>,
) -> Option<WorkerEnd> {
    let opening = prep_threads.present();
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
    let (mut recorder, consumer) = recorder::pair(settings);
    let meter = UsageMeter::of_this_thread();
    if let Some(io_threads) = io_threads {
        io_threads.add_this_thread();
    }
    opened.send((index, Ok(consumer))).ok()?;
    drop(opened);
    let _ended = EndGuard(gate);

    gate.wait_start().map(|start| {
        recorder.set_start(start.planned);
        recorder.end_by(start.end);
        recorder.rt_until_first_op(start.rt_priority);
        let before = meter.read();
        let failure = work(index, worker.as_mut(), &mut recorder);
        let began = recorder.first_issue().unwrap_or(start.began);
        let ended = recorder.load_ended().unwrap_or_else(MonoNanos::now);
        let usage = meter.read().since(before);
        if let Some(io_threads) = io_threads {
            // The kernel's threads end with this one.
            io_threads.read();
        }
        if failure.is_some() {
            gate.end_load();
        }
        let shift_ns = gate.shift().get();
        // Hand over the counts before closing files, because closing can hang.
        let close_guard = recorder.close_guard();
        let errors = recorder.finish();
        close_guard.run(|| drop(worker));
        WorkerEnd {
            started: began,
            ended,
            shift_ns,
            usage: Some(usage),
            errors,
            failure,
        }
    })
}

/// Reports a worker's end to the gate, even after a panic.
struct EndGuard<'a>(&'a Gate);

impl Drop for EndGuard<'_> {
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
        usage: None,
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
