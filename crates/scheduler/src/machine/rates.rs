//! The rate of a whole step when a client is lost: the other clients take its share once its lease is over.
//!
//! Until then the lost client may still carry load, and the step would exceed its rate.

use super::{
    effect::Within,
    run::{Run, after, micros},
    stage::Stage,
    tasks::TaskHandle,
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId};
use benchmesh_plan::PlannedLoad;
use benchmesh_workloads::{
    common::Common,
    pacing::{Pace, Per},
};
use std::time::Duration;

/// The agent may have received a message for this long after the collector last received one from it.
const AFTER_CONTACT: Duration = Duration::from_millis(500);
/// The new shares begin this long after they are sent. An agent that receives them later keeps the old ones until then.
const LEAD: Duration = Duration::from_secs(1);
/// An agent that does not answer within this time is about to be lost itself.
const WITHIN: Duration = Duration::from_secs(5);

/// Why a rate is redistributed.
#[derive(Clone, Copy, Debug)]
enum ShareCause {
    Lost,
    Returned,
}

impl Run {
    /// Gives the share of a lost task to the others once the task can no longer carry load: when its lease is over, or
    /// when its stop is confirmed.
    pub(super) fn replace_in_rate(&mut self, task: TaskHandle) {
        if !matches!(self.stage, Stage::Running) || self.rate_of(task).is_none() {
            return;
        }
        let last_seen = self
            .members
            .get(task.agent)
            .map_or(self.now, |member| member.last_seen);
        let contact = match self.members.is_attached(task.agent) {
            true => self.now,
            false => last_seen.min(self.now),
        };
        let lease = self.policy.lease.saturating_add(AFTER_CONTACT);
        self.wait_until(
            Waiting::LeaseOver { task: task.task },
            after(contact, lease),
        );
    }

    /// A lost task no longer carries load.
    pub(super) fn on_lease_over(&mut self, task: TaskId) {
        self.cancel(
            |waiting| matches!(waiting, Waiting::LeaseOver { task: other } if *other == task),
        );
        let Some(step) = &mut self.step else { return };
        let Some(handle) = step.tasks.get(task) else {
            return;
        };
        if !matches!(self.stage, Stage::Running) || !step.replaced.insert(task) {
            return;
        }
        let load = self.active_plan().and_then(|plan| {
            let index = self.step.as_ref()?.tasks.index(task)?;
            Some(plan.tasks.get(index)?.load)
        });
        if let Some(load) = load {
            self.share_again(load, handle.agent, ShareCause::Lost);
        }
    }

    /// Takes the share of a client that came back from the others.
    pub(super) fn share_with_returned(&mut self, task: TaskHandle) {
        let index = self
            .step
            .as_ref()
            .and_then(|step| step.tasks.index(task.task));
        let planned = index.zip(self.active_plan());
        let load = planned.and_then(|(index, plan)| plan.tasks.get(index));
        if let Some(load) = load.map(|planned| planned.load)
            && self.rate_of(task).is_some()
        {
            self.share_again(load, task.agent, ShareCause::Returned);
        }
    }

    fn rate_of(&self, task: TaskHandle) -> Option<Pace> {
        step_rate(self.load_of(task)?)
    }

    /// Splits a load's rate over the running tasks, from the same instant for all.
    fn share_again(&mut self, load: usize, of: AgentId, because: ShareCause) {
        let Some(plan) = self.active_plan() else {
            return;
        };
        let planned: Vec<usize> = plan.tasks.iter().map(|task| task.load).collect();
        let of_load = |task: &TaskHandle| {
            let index = self
                .step
                .as_ref()
                .and_then(|step| step.tasks.index(task.task));
            index.and_then(|index| planned.get(index)) == Some(&load)
        };
        let running = self.step.as_ref().map(|step| step.tasks.running());
        let left: Vec<TaskHandle> = running.into_iter().flatten().filter(of_load).collect();
        let tasks = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let from = MeshMicros(self.now.0.saturating_add(micros(LEAD)));
        let Some(what) = self.describe_rate(load) else {
            return;
        };
        let name = self.agents.name(of).to_owned();
        let message = match (because, tasks) {
            (ShareCause::Lost, 0) => {
                format!("no task is left to keep {what} after the loss of `{name}`")
            }
            (ShareCause::Lost, _) => format!(
                "{what} is split over the {tasks} remaining tasks, because the lease of `{name}` has expired"
            ),
            (ShareCause::Returned, _) => {
                format!("{what} is split over {tasks} tasks, because `{name}` is back")
            }
        };
        self.record_event(None, EventKind::RateSharedAgain, message);
        for (task, task_index) in left.into_iter().zip(0_u32..) {
            let command = Command::ShareRate {
                task: task.task,
                task_index,
                tasks,
                from,
            };
            let waiting = Waiting::RateShared { load };
            self.ask(waiting, task.agent, command, Within::For(WITHIN));
        }
    }

    pub(super) fn on_rate_shared(&mut self, load: usize, answer: &Result<AgentAnswer, CallError>) {
        if let Err(error) = answer
            && let Some(what) = self.describe_rate(load)
        {
            let message = format!("not every agent took its new share of {what}: {error}");
            self.record_event(None, EventKind::RateSharedAgain, message);
        }
    }

    fn describe_rate(&self, load: usize) -> Option<String> {
        let load = self.active_plan()?.loads.get(load)?;
        let pace = step_rate(load)?;
        Some(match load.group.as_str() {
            "" => format!("{} = {}", pace.key(), pace.per_second),
            group => format!("{} = {} of group `{group}`", pace.key(), pace.per_second),
        })
    }
}

/// The rate of a load, if it applies to the whole step.
fn step_rate(load: &PlannedLoad) -> Option<Pace> {
    let pace = Common::of(&load.params).ok()?.pace?;
    (pace.per == Per::Step).then_some(pace)
}
