//! A task from its start instant to its end: armed, run on a thread of its own, queried for its end.

use super::{PendingAction, SlotState, Slots};
use crate::command::{Answer, CommandResult, ProgressReport, Refusal, RefusalKind, TaskEnded};
use crate::runner::RunnerRequest;
use crate::runner::reply::ReplyHandle;
use crate::runner::running::{self, Running, StopReason};
use crate::sampler::Mark;
use crate::telemetry::{MeshMicros, TaskId};
use benchmesh_workloads::clock::MonoNanos;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Progress of `AwaitEnd` that reports that the workers have ended.
const LOAD_OVER: ProgressReport = ProgressReport {
    done: 1,
    total: 1,
    unit: "loads",
};
/// A start further ahead than this is a mistake, and would only keep the workers waiting.
const LONGEST_LEAD_US: i64 = 3_600_000_000;

impl Slots {
    pub(super) fn arm(
        &mut self,
        id: TaskId,
        start: MeshMicros,
        end: Option<MeshMicros>,
    ) -> CommandResult {
        let map = self.map();
        let slot = self
            .tasks
            .get_mut(&id)
            .ok_or_else(|| Refusal::unknown_task(id))?;
        let task = match &mut slot.state {
            SlotState::Prepared(task) => task,
            SlotState::Running {
                start: armed,
                lead_us,
                ..
            } if *armed == start => {
                return Ok(Answer::Armed { lead_us: *lead_us });
            }
            SlotState::Running { start: armed, .. } => {
                return Err(Refusal::failed(format!(
                    "task {id} is armed for {} already",
                    armed.0
                )));
            }
            SlotState::Preparing { .. } => {
                return Err(Refusal::failed(format!(
                    "task {id} is still being prepared"
                )));
            }
            SlotState::Ended(ended) => {
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
        let at = map.to_mono(start).ok_or_else(|| {
            too_late(format!(
                "start {} precedes this host's boot: check the clocks",
                start.0
            ))
        })?;
        let lead = task
            .task
            .arm_until(at, end.and_then(|end| map.to_mono(end)))
            .map_err(|error| too_late(error.to_string()))?;
        let lead_us = i64::try_from(lead.as_micros()).unwrap_or(i64::MAX);
        let (stopper, stop_reason) = (task.task.stopper(), StopReason::default());
        let running = SlotState::Running {
            start,
            lead_us,
            stopper,
            stop_reason: stop_reason.clone(),
            waiting: Vec::new(),
            load_over: false,
            pending: PendingAction::Keep,
        };
        let SlotState::Prepared(task) = std::mem::replace(&mut slot.state, running) else {
            return Err(Refusal::failed(format!("task {id} is not prepared")));
        };
        let on_stall = slot.asked.on_stall;
        let entries = self.deps.entries.clone();
        let requests = self.requests.clone();
        let load_over = move || {
            if let Some(requests) = requests.upgrade() {
                let _ = requests.blocking_send(RunnerRequest::LoadOver(id));
            }
        };
        let running = Running {
            id,
            scope: slot.asked.scope.clone(),
            task: *task,
            start,
            map,
            dating: self.deps.dating.clone(),
            entries,
            stop_reason,
            start_log: self.deps.start_log.clone(),
            on_stall,
            load_over: Box::new(load_over),
        };
        if let Err(refusal) = self.run(running) {
            self.tasks.remove(&id);
            return Err(refusal);
        }
        Ok(Answer::Armed { lead_us })
    }

    /// Changes a running task's share of its step's rate. Has no effect on an ended task.
    pub(super) fn share_rate(
        &mut self,
        id: TaskId,
        (task_index, tasks): (u32, u32),
        from: MeshMicros,
    ) -> CommandResult {
        let map = self.map()?;
        let slot = self
            .tasks
            .get(&id)
            .ok_or_else(|| Refusal::unknown_task(id))?;
        match &slot.state {
            SlotState::Running { stopper, .. } => {
                let from = map.to_mono(from).ok_or_else(|| {
                    Refusal::failed(format!(
                        "instant {} precedes this host's boot: check the clocks",
                        from.0
                    ))
                })?;
                stopper.share(task_index, tasks, from);
                Ok(Answer::Done)
            }
            SlotState::Ended(_) => Ok(Answer::Done),
            SlotState::Preparing { .. } | SlotState::Prepared(_) => {
                Err(Refusal::failed(format!("task {id} has not been armed")))
            }
        }
    }

    fn run(&self, running: Running) -> Result<(), Refusal> {
        let (id, requests) = (running.id, self.requests.clone());
        let (scope, entries) = (running.scope.clone(), running.entries.clone());
        let run = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| running.run()));
            let ended = ended.unwrap_or_else(|_| running::panicked(id, &scope, &entries));
            if let Some(requests) = requests.upgrade() {
                let _ = requests.blocking_send(RunnerRequest::Ended(id, ended));
            }
        };
        std::thread::Builder::new()
            .name(format!("bm-task-{id}"))
            .spawn(run)
            .map(|_| ())
            .map_err(|error| Refusal::failed(format!("no thread for task {id}: {error}")))
    }

    /// Handles the end of a task's workers: takes a sample here and reports to the scheduler, which requests one from
    /// every sampler once the last task has ended. The workload's finishing work may take long and does not count
    /// towards a step.
    pub(in crate::runner) fn load_over(&mut self, id: TaskId) {
        self.deps.watch.mark(Mark::TaskEnd(MonoNanos::now()));
        let Some(SlotState::Running {
            waiting, load_over, ..
        }) = self.tasks.get_mut(&id).map(|slot| &mut slot.state)
        else {
            return;
        };
        *load_over = true;
        for reply_to in waiting {
            reply_to.progress(LOAD_OVER);
        }
    }

    pub(in crate::runner) fn ended(&mut self, id: TaskId, ended: TaskEnded) {
        let Some(slot) = self.tasks.get_mut(&id) else {
            return;
        };
        let SlotState::Running {
            waiting, pending, ..
        } = &mut slot.state
        else {
            return;
        };
        for reply_to in waiting.drain(..) {
            reply_to.reply(Ok(Answer::Ended(ended.clone())));
        }
        if *pending == PendingAction::Forget {
            self.tasks.remove(&id);
        } else {
            slot.state = SlotState::Ended(ended);
        }
        self.report_stopped();
    }

    pub(super) fn await_end(&mut self, id: TaskId, reply_to: ReplyHandle) {
        match self.tasks.get_mut(&id).map(|slot| &mut slot.state) {
            None => reply_to.reply(Err(Refusal::unknown_task(id))),
            Some(SlotState::Ended(ended)) => reply_to.reply(Ok(Answer::Ended(ended.clone()))),
            Some(SlotState::Running {
                waiting, load_over, ..
            }) => {
                if *load_over {
                    reply_to.progress(LOAD_OVER);
                }
                // Reply handles of closed sessions are dropped.
                waiting.retain(ReplyHandle::is_open);
                waiting.push(reply_to);
            }
            Some(SlotState::Preparing { .. } | SlotState::Prepared(_)) => {
                reply_to.reply(Err(Refusal::failed(format!(
                    "task {id} has not been armed"
                ))));
            }
        }
    }
}
