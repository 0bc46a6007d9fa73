//! Invariant of a rate of the whole step: when a task is lost, the others take its share soon after its lease.

use super::{S, SimEvent, World, micros};
use crate::simulation::{agent::SimTaskState, plans::name};
use benchmesh_model::mesh::{StepState, TaskId, TaskState};
use benchmesh_plan::PlannedStep;
use benchmesh_workloads::recorder::is_errors_limit;

/// From the end of the lease until all agents have the new shares, with the collector's delay after a contact.
const SHARED_WITHIN: i64 = 4 * S;

impl World {
    /// Has the shares of the others checked when a task of a step with a rate is lost.
    pub(super) fn expect_share_of(&mut self, task: TaskId, state: TaskState) {
        let lost = match state {
            TaskState::Lost => true,
            TaskState::Failed => {
                let error = self.store.task(task).error.as_deref();
                error.is_some_and(is_errors_limit)
            }
            _ => false,
        };
        let step = self.store.step(self.store.task(task).step);
        let has_rate = self.planned_step(step.ordinal).is_some_and(|planned| {
            let load = &planned.loads[self.load_of(&planned, task)];
            load.params.get("rate-per").is_some_and(|per| per == "step")
        });
        if lost && has_rate && step.state == StepState::Running {
            let check = SimEvent::CheckShares {
                lost: task,
                since: self.now,
                generation: self.generation,
            };
            self.after(micros(self.policy.lease) + SHARED_WITHIN, check);
        }
    }

    /// Which of its step's loads a task does.
    fn load_of(&self, planned: &PlannedStep, task: TaskId) -> usize {
        let index = self.store.task(task).client_index;
        planned.tasks[usize::try_from(index).unwrap()].load
    }

    /// Every agent that was attached all the time has a larger share, if the step still runs.
    pub(super) fn check_shares(&self, lost: TaskId, since: i64, generation: u64) {
        let step = self.store.task(lost).step;
        let runs = self
            .machine
            .as_ref()
            .is_some_and(|machine| machine.stage() == "Running");
        let was_blocked = self.blocked || self.unblocked_at > since;
        if generation != self.generation
            || !runs
            || was_blocked
            || self.store.step(step).state != StepState::Running
        {
            return;
        }
        let planned = self.planned_step(self.store.step(step).ordinal).unwrap();
        let load = self.load_of(&planned, lost);
        let mut tasks = self.store.tasks_of(step);
        tasks.retain(|task| self.load_of(&planned, task.id) == load);
        for task in tasks.iter().filter(|task| task.state == TaskState::Running) {
            let agent = usize::try_from(task.agent.0).unwrap() - 1;
            let one = &self.agents[agent];
            let Some(held) = one.tasks.get(&task.id) else {
                continue;
            };
            let loads = matches!(held.state, SimTaskState::Running { .. }) && !held.stopped;
            // An attached agent's last contact is its hello.
            if !loads || one.session == 0 || one.last_contact > since {
                continue;
            }
            let share = held.rate_tasks.map(|tasks| usize::try_from(tasks).unwrap());
            assert!(
                share.is_some_and(|share| share < tasks.len()),
                "task {lost} is lost, and agent {} still has a share of one in {} of the rate",
                name(agent),
                share.unwrap_or(tasks.len())
            );
        }
    }
}
