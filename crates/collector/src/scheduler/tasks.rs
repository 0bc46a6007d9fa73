//! The tasks of a step: made, shown, marked, awaited and forgotten.

use super::{
    board::{StepView, size_in_steps},
    drive::{Drive, Held},
    ends::{Crew, TaskOutcome},
};
use crate::{
    model::{AgentId, MeshMicros, TaskState},
    plan::PlannedStep,
    sessions::{
        Call,
        command::{Answer, CallError, Command},
    },
    store::{
        StoreError,
        rows::{NewTask, StepRow},
    },
};
use futures::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A mark is worth nothing later.
const MARK_WITHIN: Duration = Duration::from_secs(5);

impl Drive {
    /// The step's tasks, made now; or found, if the collector was started again right after they were made.
    pub(super) async fn make_tasks(
        &self,
        step: &PlannedStep,
        row: &StepRow,
    ) -> Result<Vec<Held>, StoreError> {
        let ids: Vec<_> = step
            .tasks
            .iter()
            .filter_map(|task| {
                let peer = task.peer.as_deref().and_then(|peer| self.team.id(peer));
                Some((self.team.id(&task.agent)?, peer, step.load(task)?))
            })
            .collect();
        let known = self.store.tasks(row.id).await?;
        let measures_links = step.tasks.iter().any(|task| task.peer.is_some());
        let tasks: Vec<_> = if known.is_empty() {
            let mut links: BTreeMap<AgentId, Option<i64>> = BTreeMap::new();
            for (agent, ..) in &ids {
                if !links.contains_key(agent) {
                    links.insert(*agent, self.link_bytes_per_s(*agent, step).await?);
                }
            }
            let new = ids
                .iter()
                .zip(0_u32..)
                .map(|((agent, peer, load), task_index)| NewTask {
                    agent: *agent,
                    peer: *peer,
                    task_index,
                    group: load.group.clone(),
                    workers: load.footprint.workers,
                    link_bytes_per_s: links.get(agent).copied().flatten(),
                })
                .collect();
            self.store.create_tasks(row.id, new).await?
        } else {
            known.into_iter().map(|task| task.id).collect()
        };
        if measures_links {
            self.links_are_measured();
        }
        Ok(tasks
            .into_iter()
            .zip(ids)
            .map(|(task, (agent, peer, _))| Held { task, agent, peer })
            .collect())
    }

    pub(super) async fn all_tasks(&self, crew: &Crew, state: TaskState) -> Result<(), StoreError> {
        let changes = crew
            .live()
            .map(|held| self.store.set_task_state(held.task, state, None));
        join_all(changes).await.into_iter().collect()
    }

    pub(super) fn show_step(&self, step: &PlannedStep, row: &StepRow, held: &[Held]) {
        let (mut left, mut unknown) = (Duration::ZERO, 0.0);
        for later in self
            .steps
            .iter()
            .filter(|later| later.ordinal > step.ordinal)
        {
            match self.estimate(later) {
                Some(estimate) => left += estimate,
                None => unknown += size_in_steps(step, later),
            }
        }
        let view = StepView {
            id: row.id,
            ordinal: row.ordinal,
            phase: row.phase.clone(),
            target: row.target.clone(),
            mode: row.mode.clone(),
            params_json: row.params_json.clone(),
            peer: step.link(),
            state: row.state,
            clients: row.clients,
            began: self.clock.now(),
            start: None,
            tasks: held.iter().map(|held| held.task).collect(),
            expected: step.expected,
            like: self.load_of_likes(step),
            moved_bytes: step.moved_bytes,
            files: step.files,
            progress: BTreeMap::new(),
            ops: 0,
            bytes: 0,
            ops_per_s: 0.0,
            bytes_per_s: 0.0,
            p99_ms: 0.0,
            heard: None,
        };
        self.board.change(|run| {
            run.left_after_step = Some(left);
            run.unknown_after_step = unknown;
            run.step = Some(view);
        });
    }

    /// Samplers read everything at this instant too; `None`: now.
    pub(super) fn mark(&self, at: Option<MeshMicros>) {
        for member in self.fleet.members() {
            if !member.attached || !(member.sampling.host_wide || member.sampling.interfaces) {
                continue;
            }
            let fleet = self.fleet.clone();
            let within =
                MARK_WITHIN + at.map_or(Duration::ZERO, |at| crate::clock::until(&self.clock, at));
            tokio::spawn(async move {
                let call = Call::to(member.id, Command::Mark { at }, MARK_WITHIN).within(within);
                if let Err(error) = fleet.call(call).await {
                    tracing::debug!(%error, "a mark was not taken");
                }
            });
        }
    }

    /// Lets agents forget tasks that are over, at both ends of a link. Who is away forgets by itself.
    pub(super) async fn forget(&self, outcomes: &[TaskOutcome]) {
        let ends: BTreeSet<_> = outcomes
            .iter()
            .filter(|outcome| outcome.state != TaskState::Lost)
            .flat_map(|outcome| {
                [Some(outcome.held.agent), outcome.held.peer]
                    .into_iter()
                    .flatten()
                    .map(|agent| (agent, outcome.held.task))
            })
            .collect();
        join_all(ends.into_iter().map(|(agent, task)| async move {
            let call =
                Call::to(agent, Command::ForgetTask { task }, MARK_WITHIN).within(MARK_WITHIN);
            if let Err(error) = self.fleet.call(call).await {
                tracing::debug!(%error, "a task was not forgotten");
            }
        }))
        .await;
    }

    /// Asks an agent about one of its tasks.
    pub(super) async fn await_end(&self, held: Held) -> (Held, Result<Answer, CallError>) {
        let call = Call::to(
            held.agent,
            Command::AwaitEnd { task: held.task },
            self.loss_after(),
        );
        (held, self.fleet.call(call).await)
    }
}
