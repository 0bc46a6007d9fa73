//! The rate of a whole step when a client is lost: once its lease has run out the others take its part.
//!
//! Before that it may still load, and the step would get more than it asked for. What is lost is read from the database,
//! so that a collector that was started again goes on with it.

use super::{
    arm::micros,
    drive::{Drive, Fact},
};
use crate::{
    model::{AgentId, MeshMicros, Severity, TaskId, TaskState},
    plan::{PlannedLoad, PlannedStep},
    sessions::{
        Call,
        command::{Command, RefusalKind},
    },
    store::{
        StoreError,
        rows::{StepRow, TaskRow},
    },
};
use benchmesh_workloads::{
    common::Common,
    pacing::{Pace, Per},
};
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::sleep;

/// How often to look for tasks that were lost.
const LOOK: Duration = Duration::from_millis(500);
/// What the agent may have heard of us after we heard of it last.
const AFTER_CONTACT: Duration = Duration::from_millis(500);
/// The new shares begin so long after they are told; agents that hear of them later keep to the old ones until then.
const LEAD: Duration = Duration::from_secs(1);
/// An agent that does not answer within this is about to be lost itself.
const WITHIN: Duration = Duration::from_secs(5);

impl Drive {
    /// Keeps the rates of a running step that are rates of the whole step. Never ends but by a failure of the database.
    pub(super) async fn keep_rate(&self, step: &PlannedStep, row: &StepRow) -> StoreError {
        let shared: Vec<(usize, &PlannedLoad, Pace)> = step
            .loads
            .iter()
            .enumerate()
            .filter_map(|(at, load)| Some((at, load, step_rate(load)?)))
            .collect();
        if shared.is_empty() {
            std::future::pending::<()>().await;
        }
        let mut gone: BTreeSet<TaskId> = BTreeSet::new();
        loop {
            sleep(LOOK).await;
            let tasks = match self.store.tasks(row.id).await {
                Ok(tasks) => tasks,
                Err(error) => return error,
            };
            let mut news = BTreeSet::new();
            for task in tasks.iter().filter(|task| task.state == TaskState::Lost) {
                if !gone.contains(&task.id) && self.is_over(task).await {
                    news.insert(task.id);
                }
            }
            for (at, load, pace) in &shared {
                let of_load: Vec<&TaskRow> = step
                    .tasks
                    .iter()
                    .zip(&tasks)
                    .filter(|(planned, _)| planned.load == *at)
                    .map(|(_, task)| task)
                    .collect();
                let lost: Vec<AgentId> = of_load
                    .iter()
                    .filter(|task| news.contains(&task.id))
                    .map(|task| task.agent)
                    .collect();
                if !lost.is_empty()
                    && let Err(error) = self.share_again(row, load, *pace, &of_load, &lost).await
                {
                    return error;
                }
            }
            gone.extend(news);
        }
    }

    /// Whether a lost task loads no more: its agent has stopped by itself, or was told to and did.
    async fn is_over(&self, task: &TaskRow) -> bool {
        let Some(member) = self.fleet.member(task.agent) else {
            return true;
        };
        if !member.attached {
            let lease = self.plan.lease.saturating_add(AFTER_CONTACT);
            let until = member.last_seen.0.saturating_add(micros(lease));
            return self.clock.now().0 >= until;
        }
        let command = Command::StopTask {
            task: task.id,
            reason: String::from("its agent was lost, and the others have its part of the rate"),
        };
        let call = Call::to(task.agent, command, self.loss_after()).within(WITHIN);
        match self.fleet.call(call).await {
            Ok(_) => true,
            Err(error) => error.refusal() == Some(RefusalKind::UnknownTask),
        }
    }

    /// Splits a load's rate over the tasks that run, from an instant on that is the same for all.
    async fn share_again(
        &self,
        row: &StepRow,
        load: &PlannedLoad,
        pace: Pace,
        of_load: &[&TaskRow],
        lost: &[AgentId],
    ) -> Result<(), StoreError> {
        let left: Vec<&TaskRow> = of_load
            .iter()
            .copied()
            .filter(|task| task.state == TaskState::Running)
            .collect();
        let tasks = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let from = MeshMicros(self.clock.now().0.saturating_add(micros(LEAD)));
        let told = left.iter().zip(0_u32..).map(|(task, task_index)| {
            let command = Command::ShareRate {
                task: task.id,
                task_index,
                tasks,
                from,
            };
            let call = Call::to(task.agent, command, self.loss_after()).within(WITHIN);
            async move { self.fleet.call(call).await.err() }
        });
        let failed: Vec<String> = join_all(told)
            .await
            .into_iter()
            .flatten()
            .map(|error| error.to_string())
            .collect();
        let names: BTreeSet<&str> = lost.iter().map(|agent| self.team.name(*agent)).collect();
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        let what = match load.group.as_str() {
            "" => format!("{} = {}", pace.key(), pace.per_second),
            group => format!("{} = {} of group `{group}`", pace.key(), pace.per_second),
        };
        let message = match (tasks, failed.as_slice()) {
            (0, _) => format!(
                "nobody is left to keep {what}, after the loss of {}",
                names.join(", ")
            ),
            (_, []) => format!(
                "{what} is split over the {tasks} tasks that are left, after the lease of {}",
                names.join(", ")
            ),
            (_, failed) => format!("{what} is not split anew everywhere: {}", failed.join("; ")),
        };
        self.event(Fact {
            step: Some(row.id),
            agent: None,
            severity: Severity::Warning,
            kind: "rate-shared-again",
            message,
        })
        .await
    }
}

/// The rate of a load, if it is one of the whole step.
fn step_rate(load: &PlannedLoad) -> Option<Pace> {
    let pace = Common::of(&load.params).ok()?.pace?;
    (pace.per == Per::Step).then_some(pace)
}
