//! The tasks that the agent holds, and what each command does to them.
//!
//! A task is preparing, prepared, running or ended, and leaves when it is forgotten. Every method returns at once; what
//! may block is given to a thread, which comes back with an order.

mod files;
mod leases;
mod prepare;
mod receivers;
mod run;
mod stuck;
mod threads;

use super::command::{Answer, Command, Ended, Outcome, Prepare, Refusal, Request, Sampling};
use super::running::Strings;
use super::voice::{Teller, Voice};
use super::{Order, Surroundings};
use crate::telemetry::{EndState, MeshMicros, TaskId};
use crate::wire::reply::Said;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{Stopper, Task};
use receivers::Receivers;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};

/// One task.
struct Slot {
    asked: Prepare,
    state: State,
    /// It was stopped for want of contact.
    lease_is_over: bool,
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
            Request::ShareRate {
                task,
                task_index,
                tasks,
                from,
            } => self.share_rate(task, (task_index, tasks), from),
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
        self.tasks.keys().map(|task| task.0).collect()
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

    fn stop(&mut self, id: TaskId, reason: &str) -> Outcome {
        let known_receiver = self.receivers.close(id);
        if !self.tasks.contains_key(&id) {
            return match known_receiver {
                true => Ok(Answer::Done),
                false => Err(Refusal::unknown_task(id)),
            };
        }
        self.stop_slot(id, reason);
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
        stalled: false,
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
