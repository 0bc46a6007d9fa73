//! Applies `on-loss` to lost agents, targets that are gone on one agent, and broken links. A loss is stored as an event
//! and makes the step partial. If a lost agent is still reachable, its tasks are stopped and forgotten at once;
//! otherwise when it attaches again (`orphan_cleanup`).

use super::{
    effect::Within,
    run::Run,
    stop::STOP_TIMEOUT,
    tasks::{TaskHandle, TaskSet},
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command, RefusalKind};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, TaskState};
use benchmesh_plan::OnLoss;
use benchmesh_workloads::recorder::is_errors_limit;
use std::time::Duration;

/// Time limit for forgetting an ended task.
pub(super) const FORGET_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the step continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LossVerdict {
    GoOn,
    Abort { reason: String },
}

/// The verdict on a loss, and how many agents of the step are left.
pub(super) struct Decided {
    pub verdict: LossVerdict,
    pub left: usize,
}

/// The policy's verdict when `left` of the `all` agents of a step are left.
pub(super) fn apply_policy(policy: OnLoss, left: usize, all: usize, why: &str) -> LossVerdict {
    match policy {
        OnLoss::Continue => LossVerdict::GoOn,
        OnLoss::Abort => LossVerdict::Abort {
            reason: format!("{why}, and on-loss = \"abort\""),
        },
        OnLoss::AtLeast(least) => {
            // A step with fewer agents than `least` needs all of them.
            let needed = usize::try_from(least).unwrap_or(usize::MAX).min(all);
            if left >= needed {
                return LossVerdict::GoOn;
            }
            LossVerdict::Abort {
                reason: format!(
                    "{why}: {left} agents of the step are left, and on-loss requires at least {needed}"
                ),
            }
        }
    }
}

impl Run {
    /// Removes a lost agent from the step, stores that, and applies the policy.
    pub(super) fn lose(&mut self, agent: AgentId, why: &str) {
        let Some(step) = &mut self.step else { return };
        let lost = step.tasks.lose(agent, why);
        self.lose_tasks(agent, lost, why);
    }

    /// Removes the links to a lost receiver from the step. The receiver's own tasks are awaited like any agent's.
    pub(super) fn lose_receiver(&mut self, receiver: AgentId, why: &str) {
        let Some(step) = &mut self.step else { return };
        let lost = step.tasks.lose_links_to(receiver, why);
        self.lose_tasks(receiver, lost, why);
    }

    fn lose_tasks(&mut self, agent: AgentId, lost: Vec<TaskHandle>, why: &str) {
        if lost.is_empty() {
            return;
        }
        let decided = self.decide(why);
        self.remove_lost(lost, why);
        if !self.known_lost.insert(agent) && decided.verdict == LossVerdict::GoOn {
            // Already lost to an earlier step.
            return;
        }
        self.record_loss(agent, EventKind::AgentLost, why, &decided);
    }

    /// Removes an attached agent from the step because it can no longer use the target. It is asked again in the next
    /// step.
    pub(super) fn lose_target(&mut self, agent: AgentId, why: &str) {
        let Some(step) = &mut self.step else { return };
        let lost = step.tasks.lose(agent, why);
        if lost.is_empty() {
            return;
        }
        let decided = self.decide(why);
        self.remove_lost(lost, why);
        self.record_loss(agent, EventKind::TargetLost, why, &decided);
    }

    /// Applies the policy to a task that has ended by its errors-limit, or whose link broke.
    pub(super) fn on_task_failed(&mut self, task: TaskHandle, error: &str) {
        let why = format!("agent `{}`: {error}", self.agents.name(task.agent));
        let decided = self.decide(&why);
        // It has ended, so the others can take its share of the rate.
        self.on_lease_over(task.task);
        let kind = match is_errors_limit(error) {
            true => EventKind::ErrorsLimit,
            false => EventKind::LinkBroken,
        };
        self.record_loss(task.agent, kind, &why, &decided);
    }

    fn decide(&mut self, why: &str) -> Decided {
        self.partial = true;
        let tasks = self.step.as_ref().map(|step| &step.tasks);
        let left = tasks.map_or(0, TaskSet::agents_left);
        let all = tasks.map_or(0, TaskSet::agents);
        let verdict = apply_policy(self.policy.on_loss, left, all, why);
        if let LossVerdict::Abort { reason } = &verdict {
            self.abort(reason.clone());
        }
        Decided { verdict, left }
    }

    /// Applies the policy to an agent whose last rows do not come, unless its loss was decided about already.
    pub(super) fn decide_about_rows(&mut self, agent: AgentId, why: &str) {
        if self.known_lost.contains(&agent) {
            return;
        }
        let Some(step) = &self.step else { return };
        let (left, all) = (step.tasks.agents_left_without(agent), step.tasks.agents());
        if let LossVerdict::Abort { reason } = apply_policy(self.policy.on_loss, left, all, why) {
            self.abort(reason);
        }
    }

    /// Stores that tasks are lost, and stops those that still run.
    pub(super) fn remove_lost(&mut self, lost: Vec<TaskHandle>, why: &str) {
        for task in &lost {
            self.set_task(task.task, TaskState::Lost, Some(why.to_owned()));
        }
        self.note_lost(&lost);
        self.cancel(|waiting| waiting.task().is_some_and(|task| lost.contains(&task)));
        for task in lost {
            self.stop_lost(task);
            self.replace_in_rate(task);
        }
        self.note_ready();
    }

    pub(super) fn record_loss(
        &mut self,
        agent: AgentId,
        kind: EventKind,
        why: &str,
        decided: &Decided,
    ) {
        let next = match (&decided.verdict, decided.left) {
            (LossVerdict::Abort { .. }, _) => String::from("the run ends"),
            (LossVerdict::GoOn, 0) if self.awaits_return(agent) => {
                String::from("the step waits for its return")
            }
            (LossVerdict::GoOn, 0) => String::from("the step ends"),
            (LossVerdict::GoOn, left) => format!("the step goes on with {left}"),
        };
        let message = format!("{why}; {next}");
        self.record_event(Some(agent), kind, message);
    }

    /// Stops a lost task on its agent. A seemingly detached agent is asked too: it may just have attached and been
    /// given a command since, and a lost agent answers at once that it is lost.
    pub(super) fn stop_lost(&mut self, task: TaskHandle) {
        let command = Command::StopTask {
            task: task.task,
            reason: String::from("the step goes on without this task"),
        };
        let waiting = Waiting::StopLost { task };
        self.ask_at_once(waiting, task.agent, command, Within::For(STOP_TIMEOUT));
    }

    /// Whether an agent is being asked to stop a task that has ended for the step.
    pub(super) fn is_being_stopped(&self, task: TaskHandle) -> bool {
        self.waiting.values().any(|waiting| {
            matches!(waiting, Waiting::StopLost { task: other } | Waiting::EndOfLost { task: other } if *other == task)
        })
    }

    pub(super) fn on_lost_stopped(
        &mut self,
        task: TaskHandle,
        answer: &Result<AgentAnswer, CallError>,
    ) {
        match answer {
            Ok(_) => {
                self.on_lease_over(task.task);
                self.ask_at_once(
                    Waiting::EndOfLost { task },
                    task.agent,
                    Command::AwaitEnd { task: task.task },
                    Within::For(STOP_TIMEOUT),
                );
            }
            Err(error) if error.refusal() == Some(RefusalKind::UnknownTask) => {
                self.on_lease_over(task.task);
                self.mark_gone(task);
                self.forget(task);
            }
            // Lost again, or hung: its task is stopped when it attaches again.
            Err(_) => self.forget_receiver(task),
        }
    }

    /// Handles the end of a lost task on its agent, or an agent that does not answer.
    pub(super) fn on_lost_ended(
        &mut self,
        task: TaskHandle,
        answer: &Result<AgentAnswer, CallError>,
    ) {
        if !matches!(answer, Err(error) if error.is_lost()) {
            let hangs = matches!(answer, Err(CallError::Deadline { .. }));
            if !hangs {
                self.mark_gone(task);
            }
        }
        self.forget(task);
    }

    /// Closes the receiving end of a link whose sender does not answer.
    fn forget_receiver(&mut self, task: TaskHandle) {
        if let Some(peer) = task.peer.filter(|peer| *peer != task.agent) {
            self.forget_on(task, peer);
        }
    }

    /// Asks agents to forget an ended task, at both ends of a link.
    pub(super) fn forget(&mut self, task: TaskHandle) {
        for agent in task.ends() {
            self.forget_on(task, agent);
        }
    }

    fn forget_on(&mut self, task: TaskHandle, agent: AgentId) {
        let command = Command::ForgetTask { task: task.task };
        self.ask(
            Waiting::Forgotten,
            agent,
            command,
            Within::For(FORGET_TIMEOUT),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides() {
        let check = |policy, left, all, goes_on| {
            assert_eq!(
                apply_policy(policy, left, all, "x is lost") == LossVerdict::GoOn,
                goes_on,
                "{policy:?} {left} of {all}"
            );
        };
        check(OnLoss::Continue, 3, 4, true);
        check(OnLoss::Continue, 0, 1, true);
        check(OnLoss::Abort, 3, 4, false);
        check(OnLoss::AtLeast(2), 2, 3, true);
        check(OnLoss::AtLeast(2), 1, 3, false);
        check(OnLoss::AtLeast(2), 1, 1, true);
        check(OnLoss::AtLeast(2), 0, 1, false);
    }
}
