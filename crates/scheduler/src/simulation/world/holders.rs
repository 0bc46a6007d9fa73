//! Invariant of a start of the collector: a step that was running goes on if any agent comes back in time with a task
//! of it.

use super::{TICK, World, micros};
use crate::{machine::event::LoadedRun, simulation::plans::name};
use benchmesh_model::mesh::{StepId, StepState, TaskId};
use benchmesh_store::rows::StepChange;

/// A step that was running when the run was loaded.
#[derive(Debug)]
pub(super) struct Resumed {
    step: StepId,
    /// Its tasks that had not ended.
    live: Vec<TaskId>,
    /// Until then an agent may come back.
    until: i64,
    /// The agent that came back with a task.
    holder: Option<usize>,
}

impl World {
    /// Agents have `loss-after` from the load on to come back.
    pub(super) fn expect_holders(&mut self, loaded: &LoadedRun) {
        let mut steps = loaded.steps.iter();
        let running = steps.find(|step| step.state == StepState::Running);
        let live = loaded.tasks.iter();
        let live = live.filter(|task| !self.ended_at_load.contains_key(&task.id));
        self.resumed = running.map(|step| Resumed {
            step: step.id,
            live: live.map(|task| task.id).collect(),
            until: self.now + micros(self.policy.loss_after) - TICK,
            holder: None,
        });
        self.note_holders();
    }

    /// The machine is told who is attached, with which tasks.
    pub(super) fn note_holders(&mut self) {
        let Some(resumed) = &mut self.resumed else {
            return;
        };
        if self.now >= resumed.until || resumed.holder.is_some() {
            return;
        }
        resumed.holder = self.agents.iter().position(|agent| {
            let mut held = agent.held_at_hello.iter();
            // The receiving end of a link holds none.
            let is_of_agent = |task: &TaskId| self.store.task(*task).agent == agent.id;
            agent.session != 0 && held.any(|task| resumed.live.contains(task) && is_of_agent(task))
        });
    }

    pub(super) fn check_holders(&self, step: StepId, change: &StepChange) {
        let Some(resumed) = self.resumed.as_ref().filter(|it| it.step == step) else {
            return;
        };
        let reason = change.reason.as_deref().unwrap_or_default();
        let repeats = reason.starts_with("the collector restarted");
        let holder = resumed.holder.filter(|_| repeats);
        assert!(
            holder.is_none(),
            "step {step} is repeated, although agent {} came back with its task",
            name(holder.unwrap_or_default())
        );
    }
}
