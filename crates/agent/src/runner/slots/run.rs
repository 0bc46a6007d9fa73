//! From the start instant to the end: armed, run on a thread of its own, asked how it ended.

use super::{Fate, Slots, State};
use crate::runner::Order;
use crate::runner::command::{Answer, Ended, Outcome, Refusal, RefusalKind};
use crate::runner::running::{Running, Strings};
use crate::runner::voice::Voice;
use crate::telemetry::{EndState, MeshMicros, TaskId};
use benchmesh_workloads::clock::MonoNanos;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A start further ahead than this is a mistake, and would only park the workers.
const LONGEST_LEAD_US: i64 = 3_600_000_000;

impl Slots {
    pub(super) fn arm(&mut self, id: TaskId, start: MeshMicros) -> Outcome {
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
        let on_stall = slot.asked.on_stall;
        let entries = self.around.entries.clone();
        let running = Running {
            id,
            belongs: slot.asked.belongs,
            task: *task,
            start,
            map,
            clock: self.around.clock.clone(),
            entries,
            strings,
            start_log: self.around.start_log.clone(),
            on_stall,
        };
        if let Err(refusal) = self.run(running) {
            self.tasks.remove(&id);
            return Err(refusal);
        }
        Ok(Answer::Armed { lead_us })
    }

    /// Changes a running task's share of its step's rate; one that has ended has none.
    pub(super) fn share_rate(
        &mut self,
        id: TaskId,
        (task_index, tasks): (u32, u32),
        from: MeshMicros,
    ) -> Outcome {
        let map = self.map()?;
        let slot = self
            .tasks
            .get(&id)
            .ok_or_else(|| Refusal::unknown_task(id))?;
        match &slot.state {
            State::Running { stopper, .. } => {
                let from = map.to_mono(from).ok_or_else(|| {
                    Refusal::failed(format!("the instant {} was before this host was", from.0))
                })?;
                stopper.share(task_index, tasks, from);
                Ok(Answer::Done)
            }
            State::Ended(_) => Ok(Answer::Done),
            State::Preparing { .. } | State::Prepared(_) => {
                Err(Refusal::failed(format!("task {id} has not been armed")))
            }
        }
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
                stalled: false,
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

    pub(in crate::runner) fn ended(&mut self, id: TaskId, ended: Ended) {
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

    pub(super) fn await_end(&mut self, id: TaskId, voice: Voice) {
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
}
