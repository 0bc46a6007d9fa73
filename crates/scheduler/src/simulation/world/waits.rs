//! Invariants of waiting: each token has a source that will answer it, and none is waited for beyond its deadline.

use super::{S, TICK, World, micros, sim_event::Call};
use crate::{
    machine::{Machine, effect::Effect, event::Token},
    sessions::command::Command,
    simulation::agent::SimTaskState,
};
use benchmesh_model::mesh::TaskId;

/// From the arming of a step to its start, at most.
const MAX_LEAD_US: i64 = 20 * S;

impl World {
    /// Everything that the machine waits for is owed by something.
    pub(super) fn check_waits(&self) {
        let Some(machine) = &self.machine else { return };
        let mut waits = 0;
        for token in machine.waits_for() {
            waits += 1;
            self.check_deadline(machine, token);
            let owed = self.calls.contains_key(&token)
                || self.lookups.contains(&token)
                || self.row_lookups.contains_key(&token)
                || self.timers.contains_key(&token)
                || self.is_queued(token);
            assert!(
                owed,
                "nobody owes what it waits for: {}; {}",
                machine.awaited(token),
                machine.stage()
            );
        }
        let ends = self.store.run.state.is_end() || self.loading || self.committing.is_some();
        assert!(
            ends || !self.queue.is_empty() || waits > 0,
            "it waits for nothing, and the run has not ended: {}",
            machine.stage()
        );
    }

    /// Each wait ends when its time is up: at a timer, at the deadline of a command, at the loss of the agent.
    fn check_deadline(&self, machine: &Machine, token: Token) {
        let mut over: Vec<i64> = self.timers.get(&token).copied().into_iter().collect();
        if let Some(call) = self.calls.get(&token) {
            over.extend(call.deadline);
            let one = &self.agents[call.agent];
            if one.session == 0 {
                over.push((one.last_contact + call.loss_after).max(call.asked_at));
            }
            if let Command::AwaitEnd { task } = call.command
                && machine.awaited(token).starts_with("Some(Ended")
            {
                over.extend(
                    self.longest_load(task)
                        .map(|longest| call.asked_at + longest),
                );
                over.extend(self.begun_by(call, task));
            }
        }
        for over in over {
            assert!(
                self.now <= over + TICK,
                "{} us after its deadline it still waits for {}; {}",
                self.now - over,
                machine.awaited(token),
                machine.stage()
            );
        }
    }

    /// How long the end of a task is awaited: the time that its step is bounded to and a tenth more, at least 30 s
    /// more, from its start. `None`: its step has no bound.
    fn longest_load(&self, task: TaskId) -> Option<i64> {
        let step = self.store.step(self.store.task(task).step);
        let expected = micros(self.planned_step(step.ordinal)?.expected?);
        Some(MAX_LEAD_US + expected + (expected / 10).max(30 * S))
    }

    /// How long after a task the last one of its step starts, at most.
    fn later_starts(&self, task: TaskId) -> i64 {
        let step = self.store.step(self.store.task(task).step);
        self.planned_step(step.ordinal).map_or(0, |planned| {
            i64::try_from(planned.tasks.len()).unwrap() * micros(planned.stagger)
        })
    }

    /// When a task that its agent has armed and that does not begin is abandoned; `None`: it begins, or is not expected
    /// to have sent rows. All is counted from the last thing that may have delayed its rows.
    fn begun_by(&self, call: &Call, task: TaskId) -> Option<i64> {
        let agent = &self.agents[call.agent];
        let held = agent.tasks.get(&task)?;
        let SimTaskState::Running { start, .. } = held.state else {
            return None;
        };
        if held.begins || held.is_paced || agent.session == 0 || self.blocked {
            return None;
        }
        // An attached agent's last contact is its hello.
        let from = [call.asked_at, agent.last_contact, self.unblocked_at];
        let last_start = start.0 + self.later_starts(task);
        let from = from.into_iter().fold(last_start, i64::max);
        // Rows that were in transit at the first check require a second one.
        let patience = micros(self.policy.loss_after * 2).max(10 * S);
        Some(from + 2 * patience + 3 * S)
    }

    /// An agent is removing a run's directory.
    pub fn is_removing(&self, path: &str) -> bool {
        let mut calls = self.calls.values();
        calls.any(|call| matches!(&call.command, Command::RemoveRunDirectory { path: removed, .. } if removed == path))
    }

    /// Whether an agent is being asked to stop a task.
    pub(in crate::simulation) fn is_stop_asked(&self, agent: usize, task: TaskId) -> bool {
        let mut calls = self.calls.values().filter(|call| call.agent == agent);
        calls.any(|call| matches!(call.command, Command::StopTask { task: stopped, .. } if stopped == task))
    }

    /// Whether it is still to be asked, behind a commit.
    fn is_queued(&self, token: Token) -> bool {
        let committing = self.committing.iter().map(|(_, out)| out);
        let mut all = self.queue.iter().chain(committing);
        all.any(|out| {
            let asks = |effect: &Effect| match effect {
                Effect::Ask(ask) => ask.token == token,
                Effect::Wait { token: other, .. }
                | Effect::Lookup { token: other, .. }
                | Effect::Finish { token: other, .. } => *other == token,
                _ => false,
            };
            out.made.contains(&token) || out.then.iter().any(asks)
        })
    }
}
