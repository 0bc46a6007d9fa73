//! Whether each agent started what it had confirmed: at all, and at the instant that it was given.
//!
//! An agent that confirms and does not begin is lost to the step once nothing has come of its task for long enough; one
//! that began at another instant than it was armed for, or before it, has failed: its operations were not measured
//! together with the others'. The agents' own clocks are not judged here, only what they say of their start.

use super::{
    drive::{Drive, Held},
    ends::Crew,
};
use crate::{
    clock::until,
    model::{AgentId, TaskId, TaskState},
    plan::PlannedStep,
    store::{
        StoreError,
        rows::{StepRow, TaskRow},
    },
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;

/// An agent that has begun tells of it at least every few seconds, even of operations that do not end.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

/// Where the spools of agents are.
type Positions = BTreeMap<AgentId, Vec<(String, u64)>>;

impl Drive {
    /// Waits until tasks of the step should long have told of their first operation, and names those of `held` that
    /// have not. Never returns for a load whose operations may be far apart by design.
    pub(super) async fn not_begun(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        held: &[Held],
    ) -> Result<Vec<Held>, StoreError> {
        let paced = step.loads.iter().any(|load| {
            let mut keys = load.params.keys();
            keys.any(|key| key == "rate" || key == "rate_iops")
        });
        if paced {
            std::future::pending::<()>().await;
        }
        if let Some(start) = self.start_of(row) {
            let tasks = u32::try_from(step.tasks.len()).unwrap_or(u32::MAX);
            let last = step.stagger.saturating_mul(tasks.saturating_sub(1));
            sleep(until(&self.clock, start).saturating_add(last)).await;
        }
        let patience = BEGUN_WITHIN.max(self.loss_after() * 2);
        loop {
            let before = self.positions(held).await?;
            sleep(patience).await;
            let silent = self.store.tasks_without_rows(row.id).await?;
            let silent: Vec<Held> = held
                .iter()
                .copied()
                .filter(|held| silent.contains(&held.task))
                .collect();
            if silent.is_empty() {
                std::future::pending::<()>().await;
            }
            // Rows of an agent that still sends older ones are on their way; one that is away is judged elsewhere.
            let now = self.positions(&silent).await?;
            let stuck: Vec<Held> = silent
                .iter()
                .copied()
                .filter(|held| {
                    let here = self
                        .fleet
                        .member(held.agent)
                        .is_some_and(|member| member.attached);
                    here && before.get(&held.agent) == now.get(&held.agent)
                })
                .collect();
            if !stuck.is_empty() {
                return Ok(stuck);
            }
        }
    }

    async fn positions(&self, held: &[Held]) -> Result<Positions, StoreError> {
        let mut positions = Positions::new();
        for one in held {
            let known = self.store.spool_positions(one.agent).await?;
            positions.insert(one.agent, known);
        }
        Ok(positions)
    }

    fn start_of(&self, row: &StepRow) -> Option<crate::model::MeshMicros> {
        self.board
            .look(|view| view.step.as_ref().filter(|step| step.id == row.id)?.start)
            .or(row.start)
    }

    /// Fails the tasks that began at another instant than they were armed for.
    pub(super) async fn check_starts(
        &self,
        row: &StepRow,
        crew: &mut Crew,
    ) -> Result<(), StoreError> {
        let Some(start) = self.start_of(row) else {
            return Ok(());
        };
        let tasks: BTreeMap<TaskId, TaskRow> = self
            .store
            .tasks(row.id)
            .await?
            .into_iter()
            .map(|task| (task.id, task))
            .collect();
        for outcome in crew.outcomes() {
            let ended = matches!(outcome.state, TaskState::Done | TaskState::Stopped);
            let Some(task) = tasks.get(&outcome.held.task).filter(|_| ended) else {
                continue;
            };
            let start = self.start_of_task(row, crew, outcome.held, start);
            let early = task.skew_us.unwrap_or(0).saturating_neg();
            let why = match task.start {
                Some(at) if at != start => Some(format!(
                    "it started for another instant than it had confirmed, {} us from it",
                    at.0.saturating_sub(start.0)
                )),
                _ if early > 0 => Some(format!("it started {early} us before the instant")),
                _ => None,
            };
            if let Some(why) = why {
                crew.fail(outcome.held.task, &why);
                self.store
                    .set_task_state(outcome.held.task, TaskState::Failed, Some(why))
                    .await?;
            }
        }
        Ok(())
    }
}
