//! The tasks that the agent holds, and what each command does to them.
//!
//! A task is preparing, prepared, running or ended, and leaves when it is forgotten. Every method returns at once; what
//! may block is given to a thread, which comes back with an order.

mod files;
mod receivers;

use super::command::{
    Answer, Command, Ended, Outcome, Prepare, Progress, Refusal, RefusalKind, Request, Sampling,
};
use super::place;
use super::running::{Running, Strings};
use super::voice::{Teller, Voice};
use super::{Order, Surroundings};
use crate::telemetry::{EndState, MeshMicros, TaskId};
use crate::wire::reply::Said;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{PrepareControl, Stopper, Task};
use receivers::Receivers;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Tasks that are held, ended ones included; the oldest end gives way.
const MOST_TASKS: usize = 1024;
/// Commands that block on the file system at once. One more than a mesh asks for means that they hang.
const MOST_THREADS: usize = 64;
/// A start further ahead than this is a mistake, and would only park the workers.
const LONGEST_LEAD_US: i64 = 3_600_000_000;

/// One task.
struct Slot {
    asked: Prepare,
    state: State,
}

enum State {
    Preparing {
        control: Arc<AtomicBool>,
        teller: Arc<Teller>,
        voices: Vec<Voice>,
        fate: Fate,
    },
    Prepared(Box<Task>),
    Running {
        start: MeshMicros,
        lead_us: i64,
        stopper: Stopper,
        strings: Strings,
        voices: Vec<Voice>,
        fate: Fate,
    },
    Ended(Ended),
}

/// What happens to a task when its thread comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    /// It was stopped before it began.
    Stop(String),
    Forget,
}

/// All tasks, and all that they need.
pub(super) struct Slots {
    around: Surroundings,
    orders: mpsc::WeakSender<Order>,
    mesh: Option<String>,
    tasks: BTreeMap<TaskId, Slot>,
    receivers: Receivers,
    threads: Arc<AtomicUsize>,
    stopping: Vec<oneshot::Sender<()>>,
}

impl Slots {
    pub(super) fn new(around: Surroundings, orders: mpsc::WeakSender<Order>) -> Self {
        Self {
            around,
            orders,
            mesh: None,
            tasks: BTreeMap::new(),
            receivers: Receivers::default(),
            threads: Arc::default(),
            stopping: Vec::new(),
        }
    }

    /// Does one command.
    pub(super) fn command(&mut self, command: Command, said: mpsc::Sender<Said>) {
        let voice = Voice::new(command.id, said);
        let outcome = match command.request {
            Request::Sampling(sampling) => {
                self.around.watch.appoint(sampling).map(|()| Answer::Done)
            }
            Request::Mark { at } => self.mark(at),
            Request::Arm { task, start } => self.arm(task, start),
            Request::StopTask { task, reason } => self.stop(task, &reason),
            Request::ForgetTask { task } => self.forget(task),
            Request::Prepare(prepare) => return self.prepare(prepare, voice),
            Request::AwaitEnd { task } => return self.await_end(task, voice),
            Request::Listen(listen) => self.listen(&listen),
            request => return self.on_files(request, voice),
        };
        voice.reply(outcome);
    }

    pub(super) fn appoint(&mut self, sampling: Sampling) {
        // The watch has said in the log what is wrong.
        let _ = self.around.watch.appoint(sampling);
    }

    pub(super) fn mesh(&mut self, uid: String) {
        if self.mesh.as_ref().is_some_and(|mesh| *mesh != uid) {
            let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
            for task in tasks {
                if let Some(Slot {
                    state: State::Running { strings, .. },
                    ..
                }) = self.tasks.get(&task)
                {
                    strings.abandon();
                }
                self.drop_task(task, "the collector has another database than before");
            }
            self.receivers.close_all();
            self.around.watch.start_over();
        }
        self.mesh = Some(uid);
    }

    pub(super) fn held(&self) -> Vec<i64> {
        self.tasks
            .keys()
            .chain(self.receivers.tasks())
            .map(|task| task.0)
            .collect()
    }

    fn mark(&self, at: Option<MeshMicros>) -> Outcome {
        let now = MonoNanos::now();
        let at = match at {
            None => now,
            Some(at) => self.map()?.to_mono(at).unwrap_or(now),
        };
        self.around.watch.mark(at);
        Ok(Answer::Done)
    }

    fn map(&self) -> Result<crate::clock::MeshMap, Refusal> {
        self.around
            .clock
            .borrow()
            .map(|estimate| estimate.map)
            .ok_or_else(|| {
                Refusal::failed(
                    "this agent does not know mesh time yet: no clock exchange has been made",
                )
            })
    }

    fn prepare(&mut self, asked: Prepare, voice: Voice) {
        let id = asked.task;
        if let Some(slot) = self.tasks.get_mut(&id) {
            if slot.asked != asked {
                return voice.reply(Err(Refusal::failed(format!(
                    "task {id} is already here, with other parameters; forget it first"
                ))));
            }
            match &mut slot.state {
                State::Preparing { teller, voices, .. } => {
                    teller.turn_to(voice.clone());
                    voices.push(voice);
                }
                _ => voice.reply(Ok(Answer::Done)),
            }
            return;
        }
        let Some(mesh) = self.mesh.clone() else {
            return voice.reply(Err(Refusal::failed("the agent is not attached yet")));
        };
        if let Err(refusal) = self.make_room() {
            return voice.reply(Err(refusal));
        }
        let control = Arc::new(AtomicBool::new(false));
        let teller = Arc::new(Teller::new(voice.clone()));
        let telling = Arc::clone(&teller);
        let prepare_control = PrepareControl::new(Arc::clone(&control), move |it| {
            telling.tell(Progress {
                done: it.done,
                total: it.total,
                unit: it.unit,
            });
        });
        let (grounds, orders) = (self.around.grounds.clone(), self.orders.clone());
        let spec_of = asked.clone();
        let started = self.on_thread("bm-prepare", move || {
            let prepared = unpanicked(|| {
                let spec = grounds.spec(&mesh, spec_of)?;
                Task::prepare(&spec, &prepare_control)
                    .map(Box::new)
                    .map_err(|error| place::refusal(&error))
            });
            if let Some(orders) = orders.upgrade() {
                // An actor that has ended needs no task; it is dropped, which ends its workers.
                let _ = orders.blocking_send(Order::Prepared(id, prepared));
            }
        });
        match started {
            Ok(()) => {
                let state = State::Preparing {
                    control,
                    teller,
                    voices: vec![voice],
                    fate: Fate::Keep,
                };
                self.tasks.insert(id, Slot { asked, state });
            }
            Err(refusal) => voice.reply(Err(refusal)),
        }
    }

    /// An end that nobody has asked to forget gives way to a new task.
    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.tasks.len() < MOST_TASKS {
            return Ok(());
        }
        let ended = self
            .tasks
            .iter()
            .find(|(_, slot)| matches!(slot.state, State::Ended(_)));
        match ended.map(|(id, _)| *id) {
            Some(id) => {
                self.tasks.remove(&id);
                Ok(())
            }
            None => Err(Refusal::failed(format!(
                "the agent holds {MOST_TASKS} tasks already"
            ))),
        }
    }

    pub(super) fn prepared(&mut self, id: TaskId, result: Result<Box<Task>, Refusal>) {
        let Some(Slot {
            asked,
            state: State::Preparing { voices, fate, .. },
        }) = self.tasks.remove(&id)
        else {
            return discard(result.ok());
        };
        let outcome = match (result, fate) {
            (Ok(task), Fate::Keep) => {
                self.tasks.insert(
                    id,
                    Slot {
                        asked,
                        state: State::Prepared(task),
                    },
                );
                Ok(Answer::Done)
            }
            (Err(refusal), Fate::Keep) => Err(refusal),
            (result, Fate::Stop(reason)) => {
                discard(result.ok());
                self.tasks.insert(
                    id,
                    Slot {
                        asked,
                        state: State::Ended(unstarted(&reason)),
                    },
                );
                Err(Refusal::failed(format!(
                    "task {id} was stopped while it was prepared: {reason}"
                )))
            }
            (result, Fate::Forget) => {
                discard(result.ok());
                Err(Refusal::failed(format!(
                    "task {id} was forgotten while it was prepared"
                )))
            }
        };
        for voice in voices {
            voice.reply(outcome.clone());
        }
        self.tell_if_stopped();
    }

    fn arm(&mut self, id: TaskId, start: MeshMicros) -> Outcome {
        let map = self.map();
        let slot = self
            .tasks
            .get_mut(&id)
            .ok_or_else(|| Refusal::unknown_task(id))?;
        let task = match &mut slot.state {
            State::Prepared(task) => task,
            State::Running {
                start: armed,
                lead_us,
                ..
            } if *armed == start => {
                return Ok(Answer::Armed { lead_us: *lead_us });
            }
            State::Running { start: armed, .. } => {
                return Err(Refusal::failed(format!(
                    "task {id} is armed for {} already",
                    armed.0
                )));
            }
            State::Preparing { .. } => {
                return Err(Refusal::failed(format!(
                    "task {id} is still being prepared"
                )));
            }
            State::Ended(ended) => {
                let state = ended.state.as_str();
                return Err(Refusal::failed(format!(
                    "task {id} has ended already: {state}"
                )));
            }
        };
        let map = map?;
        let too_late = |message: String| Refusal::new(RefusalKind::TooLate, message);
        let now = map.to_mesh(MonoNanos::now());
        if start.0.saturating_sub(now.0) > LONGEST_LEAD_US {
            return Err(Refusal::failed(format!(
                "the start {} is more than an hour ahead of mesh time",
                start.0
            )));
        }
        let at = map
            .to_mono(start)
            .ok_or_else(|| too_late(format!("the start {} was before this host was", start.0)))?;
        let lead = task.arm(at).map_err(|error| too_late(error.to_string()))?;
        let lead_us = i64::try_from(lead.as_micros()).unwrap_or(i64::MAX);
        let (stopper, strings) = (task.stopper(), Strings::default());
        let running = State::Running {
            start,
            lead_us,
            stopper,
            strings: strings.clone(),
            voices: Vec::new(),
            fate: Fate::Keep,
        };
        let State::Prepared(task) = std::mem::replace(&mut slot.state, running) else {
            return Err(Refusal::failed(format!("task {id} is not prepared")));
        };
        let entries = self.around.entries.clone();
        let running = Running {
            id,
            task: *task,
            start,
            map,
            entries,
            strings,
        };
        if let Err(refusal) = self.run(running) {
            self.tasks.remove(&id);
            return Err(refusal);
        }
        Ok(Answer::Armed { lead_us })
    }

    fn run(&self, running: Running) -> Result<(), Refusal> {
        let (id, orders) = (running.id, self.orders.clone());
        let run = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| running.run()));
            let ended = ended.unwrap_or_else(|_| Ended {
                state: EndState::Failed,
                error: "the task's own thread panicked; the agent's log says where".to_owned(),
                spool: String::new(),
                sequence: 0,
            });
            if let Some(orders) = orders.upgrade() {
                let _ = orders.blocking_send(Order::Ended(id, ended));
            }
        };
        std::thread::Builder::new()
            .name(format!("bm-task-{id}"))
            .spawn(run)
            .map(|_| ())
            .map_err(|error| Refusal::failed(format!("no thread for task {id}: {error}")))
    }

    pub(super) fn ended(&mut self, id: TaskId, ended: Ended) {
        let Some(slot) = self.tasks.get_mut(&id) else {
            return;
        };
        let State::Running { voices, fate, .. } = &mut slot.state else {
            return;
        };
        for voice in voices.drain(..) {
            voice.reply(Ok(Answer::Ended(ended.clone())));
        }
        if *fate == Fate::Forget {
            self.tasks.remove(&id);
        } else {
            slot.state = State::Ended(ended);
        }
        self.tell_if_stopped();
    }

    fn await_end(&mut self, id: TaskId, voice: Voice) {
        match self.tasks.get_mut(&id).map(|slot| &mut slot.state) {
            None => voice.reply(Err(Refusal::unknown_task(id))),
            Some(State::Ended(ended)) => voice.reply(Ok(Answer::Ended(ended.clone()))),
            Some(State::Running { voices, .. }) => {
                // Sessions that are over leave their voices behind, and nobody hears them.
                voices.retain(Voice::is_heard);
                voices.push(voice);
            }
            Some(State::Preparing { .. } | State::Prepared(_)) => {
                voice.reply(Err(Refusal::failed(format!(
                    "task {id} has not been armed"
                ))));
            }
        }
    }

    fn stop(&mut self, id: TaskId, reason: &str) -> Outcome {
        let known_receiver = self.receivers.close(id);
        let Some(slot) = self.tasks.get_mut(&id) else {
            return match known_receiver {
                true => Ok(Answer::Done),
                false => Err(Refusal::unknown_task(id)),
            };
        };
        slot.stop(reason);
        Ok(Answer::Done)
    }

    fn forget(&mut self, id: TaskId) -> Outcome {
        self.receivers.close(id);
        match self.tasks.get(&id).map(|slot| &slot.state) {
            Some(State::Running { .. }) => Err(Refusal::failed(format!(
                "task {id} still runs; stop it and await its end first"
            ))),
            Some(_) => {
                self.drop_task(id, "it was forgotten");
                Ok(Answer::Done)
            }
            // Forgotten is forgotten, however often.
            None => Ok(Answer::Done),
        }
    }

    /// Stops it, and lets it go as soon as that is possible.
    fn drop_task(&mut self, id: TaskId, reason: &str) {
        let Some(slot) = self.tasks.get_mut(&id) else {
            return;
        };
        slot.stop(reason);
        match &mut slot.state {
            State::Preparing { fate, .. } | State::Running { fate, .. } => *fate = Fate::Forget,
            State::Prepared(_) | State::Ended(_) => {
                self.tasks.remove(&id);
            }
        }
    }

    /// How long until the first task's lease ends, when nothing is heard until then.
    pub(super) fn next_lease(&self) -> Option<Duration> {
        let leases = self
            .tasks
            .values()
            .filter(|slot| slot.is_live())
            .map(|slot| slot.asked.lease);
        let silent = MonoNanos::now().since(self.around.contact.last());
        leases.chain(self.receivers.lease()).min().map(|lease| {
            // A little longer, so that it has ended when it is looked at.
            lease
                .saturating_sub(silent)
                .saturating_add(Duration::from_millis(10))
        })
    }

    /// Stops what has been without contact for longer than it may.
    pub(super) fn end_leases(&mut self) {
        let silent = MonoNanos::now().since(self.around.contact.last());
        for (id, slot) in &mut self.tasks {
            if slot.is_live() && slot.asked.lease <= silent {
                let lease = slot.asked.lease.as_secs_f64();
                tracing::warn!(task = %id, "no contact with the collector for {lease} s: its load is stopped");
                slot.stop(&format!(
                    "no contact with the collector for {lease} s (the lease)"
                ));
            }
        }
        if self.receivers.lease().is_some_and(|lease| lease <= silent) {
            self.receivers.close_all();
        }
    }

    pub(super) fn stop_sampler(&mut self) -> Option<std::thread::JoinHandle<()>> {
        self.around.watch.stop()
    }

    pub(super) fn stop_all(&mut self, done: oneshot::Sender<()>) {
        self.receivers.close_all();
        for slot in self.tasks.values_mut() {
            slot.stop("the agent was stopped");
        }
        self.stopping.push(done);
        self.tell_if_stopped();
    }

    fn tell_if_stopped(&mut self) {
        let live =
            |slot: &Slot| matches!(slot.state, State::Preparing { .. } | State::Running { .. });
        if !self.tasks.values().any(live) {
            for done in self.stopping.drain(..) {
                let _ = done.send(());
            }
        }
    }

    /// Starts a thread for something that may block.
    fn on_thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
        let threads = Arc::clone(&self.threads);
        if threads.fetch_add(1, Ordering::Relaxed) >= MOST_THREADS {
            threads.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::failed(format!(
                "{MOST_THREADS} commands wait for file systems already: does one of them hang?"
            )));
        }
        let counted = Arc::clone(&threads);
        let spawned = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                work();
                counted.fetch_sub(1, Ordering::Relaxed);
            });
        spawned.map(|_| ()).map_err(|error| {
            threads.fetch_sub(1, Ordering::Relaxed);
            Refusal::failed(format!("no thread for a command: {error}"))
        })
    }
}

impl Slot {
    /// Whether a load runs, or is ready to.
    fn is_live(&self) -> bool {
        match &self.state {
            State::Preparing { fate, .. } | State::Running { fate, .. } => *fate == Fate::Keep,
            State::Prepared(_) => true,
            State::Ended(_) => false,
        }
    }

    /// No new operation begins after this. An end stays what it was.
    fn stop(&mut self, reason: &str) {
        match &mut self.state {
            State::Preparing { control, fate, .. } => {
                control.store(true, Ordering::Relaxed);
                if *fate == Fate::Keep {
                    *fate = Fate::Stop(reason.to_owned());
                }
            }
            State::Prepared(_) => {
                let ended = State::Ended(unstarted(reason));
                if let State::Prepared(task) = std::mem::replace(&mut self.state, ended) {
                    discard(Some(task));
                }
            }
            State::Running {
                stopper,
                strings,
                fate,
                ..
            } => {
                strings.because(reason);
                stopper.stop();
                if *fate == Fate::Keep {
                    *fate = Fate::Stop(reason.to_owned());
                }
            }
            State::Ended(_) => {}
        }
    }
}

/// The end of a task that never began: it has no row.
fn unstarted(reason: &str) -> Ended {
    Ended {
        state: EndState::Stopped,
        error: reason.to_owned(),
        spool: String::new(),
        sequence: 0,
    }
}

/// Ends the workers of a task that is not wanted, off the runtime: it waits for them.
fn discard(task: Option<Box<Task>>) {
    if let Some(task) = task {
        // Without a thread it is dropped here.
        let _ = std::thread::Builder::new()
            .name("bm-discard".to_owned())
            .spawn(move || drop(task));
    }
}

/// A panic in a task's preparation is a refusal, not the end of the agent.
fn unpanicked<T>(work: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Refusal::failed(
            "the agent panicked over this command; its log says where",
        ))
    })
}
