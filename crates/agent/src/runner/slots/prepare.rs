//! Preparing a task, on a thread of its own: the target may be slow, and a preparation can be stopped.

use super::{Fate, Slot, Slots, State, discard, unstarted};
use crate::runner::command::{Answer, Prepare, Progress, Refusal, RefusalKind};
use crate::runner::slots::threads::unpanicked;
use crate::runner::tidings::Tidings;
use crate::runner::voice::{Teller, Voice};
use crate::runner::{Order, place};
use crate::spool;
use crate::telemetry::{Row, TaskId};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{PrepareControl, StallNews, Task};
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Tasks that are held, ended ones included; the oldest end gives way.
const MOST_TASKS: usize = 1024;

impl Slots {
    pub(super) fn prepare(&mut self, asked: Prepare, voice: Voice) {
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
        let prepare_control = prepare_control.telling_stalls(self.on_stalls(&asked));
        let (grounds, orders) = (self.around.grounds.clone(), self.orders.clone());
        let spec_of = asked.clone();
        let started = self.on_thread("bm-prepare", move || {
            let prepared = unpanicked(|| {
                let params = spec_of.params.clone();
                prepare_control.watched(&params, || {
                    let spec = grounds.spec(&mesh, spec_of)?;
                    Task::prepare_here(&spec, &prepare_control)
                        .map(Box::new)
                        .map_err(|error| place::refusal(&error))
                })
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
                self.tasks.insert(
                    id,
                    Slot {
                        asked,
                        state,
                        lease_is_over: false,
                    },
                );
            }
            Err(refusal) => voice.reply(Err(refusal)),
        }
    }

    /// What is done about calls of a preparation that do not end: they are told, and where the plan does not wait, the
    /// task is refused. The thread that hangs is left behind; nothing can end it.
    fn on_stalls(&self, asked: &Prepare) -> impl Fn(StallNews) + Send + Sync + 'static {
        let (id, belongs, on_stall) = (asked.task, asked.belongs, asked.on_stall);
        let (clock, entries) = (self.around.clock.clone(), self.around.entries.clone());
        let orders = self.orders.clone();
        move |news| {
            let map = clock.borrow().as_ref().map(|estimate| estimate.map);
            if let Some(map) = map {
                let event = Tidings { belongs, map }.stall(&news);
                // A spool that has ended takes nothing: the agent is going.
                let _ = entries.blocking_send(spool::Entry::Rows(vec![Row::Event(event)]));
            }
            if let (Some(why), Some(orders)) =
                (news.why_ended(on_stall, MonoNanos::now()), orders.upgrade())
            {
                let refusal = Refusal::new(RefusalKind::Stalled, why);
                let _ = orders.blocking_send(Order::LeftPreparing(id, refusal));
            }
        }
    }

    /// Answers for a preparation that hangs; what comes of it later is dropped.
    pub(in crate::runner) fn leave_preparing(&mut self, id: TaskId, why: Refusal) {
        let Entry::Occupied(slot) = self.tasks.entry(id) else {
            return;
        };
        if let State::Preparing { .. } = slot.get().state {
            let mut slot = slot.remove();
            slot.stop("it hangs");
            if let State::Preparing { voices, .. } = slot.state {
                for voice in voices {
                    voice.reply(Err(why.clone()));
                }
            }
        }
        self.tell_if_stopped();
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

    pub(in crate::runner) fn prepared(&mut self, id: TaskId, result: Result<Box<Task>, Refusal>) {
        let Some(Slot {
            asked,
            state: State::Preparing { voices, fate, .. },
            lease_is_over,
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
                        lease_is_over: false,
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
                        lease_is_over,
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
}
