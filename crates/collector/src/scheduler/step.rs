//! One step: prepare, settle, drop caches, ready, armed, running, ends, results.

use super::{
    arm::{ARM_TRIES, Arming},
    board::{StepSummary, StepView},
    drive::{Drive, Fact, Held},
    ends::{Crew, TaskOutcome},
};
use crate::{
    model::{MeshMicros, Severity, StepId, StepState, TaskState},
    plan::{Cache, PlannedStep},
    sessions::{
        command::{Answer, Command},
        fleet_call,
    },
    store::{
        StoreError,
        rows::{FinishedStep, NewTask, StepChange, StepRow},
    },
};
use futures::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// A mark is worth nothing later.
const MARK_WITHIN: Duration = Duration::from_secs(5);

/// How a step ended.
#[derive(Debug)]
pub(super) enum StepEnd {
    Done,
    /// The cell cannot go on, the run can.
    Failed {
        reason: String,
    },
    /// The run ends.
    Aborted {
        reason: String,
    },
    /// Its tasks may have started apart: the cell has to be begun anew.
    Again {
        reason: String,
    },
}

impl Drive {
    pub(super) async fn run_step(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        last: bool,
    ) -> Result<StepEnd, StoreError> {
        let held = self.make_tasks(step, row).await?;
        self.hold(row.id, &held);
        self.show_step(step, row, &held);
        let mut crew = Crew::new(held);
        let start = match self.ready_and_armed(step, row, &mut crew).await? {
            Ok(start) => start,
            Err(end) => return self.give_up(step, row, &crew, end).await,
        };
        self.enter(row.id, StepState::Running, Some(start)).await?;
        self.all_tasks(&crew, TaskState::Running).await?;
        self.mark(Some(start));
        self.finish(step, row, crew, last).await
    }

    /// Everything before the start: prepared, settled, cold, ready and armed.
    async fn ready_and_armed(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        crew: &mut Crew,
    ) -> Result<Result<MeshMicros, StepEnd>, StoreError> {
        let mut late = String::new();
        for attempt in 0..ARM_TRIES {
            self.enter(row.id, StepState::Prepare, None).await?;
            if let Some(end) = self.prepare(step, row, crew).await? {
                return Ok(Err(end));
            }
            if !step.settle.is_zero() {
                self.enter(row.id, StepState::Settle, None).await?;
                sleep(step.settle).await;
            }
            if step.cache == Cache::Cold {
                self.drop_caches(row, crew).await?;
            }
            self.all_tasks(crew, TaskState::Ready).await?;
            let writing = Instant::now();
            self.enter(row.id, StepState::Ready, None).await?;
            match self.arm(row, crew, writing.elapsed(), attempt).await? {
                Arming::Armed { start } => return Ok(Ok(start)),
                Arming::Aborted { reason } => return Ok(Err(StepEnd::Aborted { reason })),
                Arming::Late { start, reason } => {
                    self.event(Fact {
                        step: Some(row.id),
                        agent: None,
                        severity: Severity::Warning,
                        kind: "step-late",
                        message: format!("{} is armed once more: {reason}", step.title()),
                    })
                    .await?;
                    let held: Vec<Held> = crew.live().collect();
                    self.let_go(&held, "the step was not armed in time").await;
                    if self.clock.now() >= start {
                        return Ok(Err(StepEnd::Again {
                            reason: format!("its tasks may have started apart ({reason})"),
                        }));
                    }
                    late = reason;
                }
            }
        }
        Ok(Err(StepEnd::Failed {
            reason: format!("it could not be armed in time, {ARM_TRIES} times: {late}"),
        }))
    }

    /// From running to its results.
    pub(super) async fn finish(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        mut crew: Crew,
        last: bool,
    ) -> Result<StepEnd, StoreError> {
        let aborted = self.await_ends(row, &mut crew).await?;
        self.mark(None);
        self.await_rows(row, &mut crew).await?;
        let outcomes = crew.outcomes();
        if let Some(reason) = aborted {
            self.forget(&outcomes).await;
            self.store_results(step, row, StepState::Failed, Some(reason.clone()))
                .await?;
            return Ok(StepEnd::Aborted { reason });
        }
        self.conclude(step, row, &outcomes, last).await
    }

    /// All tasks have ended and what they measured is stored: clean up, compute, tell.
    pub(super) async fn conclude(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        outcomes: &[TaskOutcome],
        last: bool,
    ) -> Result<StepEnd, StoreError> {
        self.forget(outcomes).await;
        if last {
            self.enter(row.id, StepState::Cleaning, None).await?;
            self.clean_cell(step, row.attempt).await?;
        }
        let failed = outcomes
            .iter()
            .find(|outcome| outcome.state == TaskState::Failed);
        let lost = outcomes
            .iter()
            .filter(|outcome| outcome.state == TaskState::Lost)
            .count();
        let reason = match failed {
            Some(failed) => Some(format!(
                "agent `{}`: {}",
                self.team.name(failed.held.agent),
                failed.error
            )),
            None if lost == outcomes.len() => {
                Some(String::from("every agent of the step was lost"))
            }
            None => None,
        };
        let state = if reason.is_some() {
            StepState::Failed
        } else {
            StepState::Done
        };
        if let Some(reason) = &reason {
            self.event(Fact {
                step: Some(row.id),
                agent: failed.map(|failed| failed.held.agent),
                severity: Severity::Error,
                kind: "step-failed",
                message: format!("{} failed: {reason}", step.title()),
            })
            .await?;
        }
        self.store_results(step, row, state, reason.clone()).await?;
        match reason {
            None => Ok(StepEnd::Done),
            Some(reason) => Ok(StepEnd::Failed {
                reason: format!("{} failed: {reason}", step.title()),
            }),
        }
    }

    async fn store_results(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        state: StepState,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        let partial = self
            .store
            .tasks(row.id)
            .await?
            .iter()
            .any(|task| task.state != TaskState::Done);
        if partial {
            self.mark_partial();
        }
        let finished = FinishedStep {
            state,
            partial,
            ended: self.clock.now(),
            reason,
        };
        let results = self.store.finish_step(row.id, finished).await?;
        self.hold_nothing();
        let summary = StepSummary {
            id: row.id,
            ordinal: row.ordinal,
            phase: row.phase.clone(),
            target: row.target.clone(),
            workload: row.workload.clone(),
            mode: row.mode.clone(),
            params_json: row.params_json.clone(),
            clients: row.clients,
            state,
            link: step.link(),
            results,
        };
        self.board.change(|view| {
            view.step = None;
            view.finished.push(summary);
        });
        Ok(())
    }

    /// A step that will not have results: everything under way is stopped and forgotten.
    async fn give_up(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        crew: &Crew,
        end: StepEnd,
    ) -> Result<StepEnd, StoreError> {
        let held: Vec<Held> = crew.all().collect();
        let reason = match &end {
            StepEnd::Done => return Ok(end),
            StepEnd::Failed { reason }
            | StepEnd::Aborted { reason }
            | StepEnd::Again { reason } => reason.clone(),
        };
        self.let_go(&held, &reason).await;
        for held in crew.live() {
            self.store
                .set_task_state(held.task, TaskState::Stopped, None)
                .await?;
        }
        // A cell that is begun anew ends its steps itself.
        if !matches!(end, StepEnd::Again { .. }) {
            self.event(Fact {
                step: Some(row.id),
                agent: None,
                severity: Severity::Error,
                kind: "step-failed",
                message: format!("{} failed: {reason}", step.title()),
            })
            .await?;
            self.store_results(step, row, StepState::Failed, Some(reason.clone()))
                .await?;
        }
        Ok(match end {
            StepEnd::Failed { reason } => StepEnd::Failed {
                reason: format!("{} failed: {reason}", step.title()),
            },
            end => end,
        })
    }

    /// The step's tasks, made now; or found, if the collector was started again right after they were made.
    async fn make_tasks(&self, step: &PlannedStep, row: &StepRow) -> Result<Vec<Held>, StoreError> {
        let ids: Vec<_> = step
            .tasks
            .iter()
            .filter_map(|task| {
                let peer = task.peer.as_deref().and_then(|peer| self.team.id(peer));
                Some((self.team.id(&task.agent)?, peer))
            })
            .collect();
        let known = self.store.tasks(row.id).await?;
        let tasks: Vec<_> = if known.is_empty() {
            let new = ids
                .iter()
                .zip(0_u32..)
                .map(|((agent, peer), task_index)| NewTask {
                    agent: *agent,
                    peer: *peer,
                    task_index,
                    workers: step.footprint.workers,
                })
                .collect();
            self.store.create_tasks(row.id, new).await?
        } else {
            known.into_iter().map(|task| task.id).collect()
        };
        Ok(tasks
            .into_iter()
            .zip(ids)
            .map(|(task, (agent, peer))| Held { task, agent, peer })
            .collect())
    }

    /// Persists a state of the step, then shows it.
    pub(super) async fn enter(
        &self,
        step: StepId,
        state: StepState,
        start: Option<MeshMicros>,
    ) -> Result<(), StoreError> {
        let change = StepChange {
            state,
            start,
            ended: None,
            reason: None,
        };
        self.store.set_step_state(step, change).await?;
        self.board.change_step(step, |view| {
            view.state = state;
            view.start = start.or(view.start);
            view.progress.clear();
        });
        Ok(())
    }

    async fn all_tasks(&self, crew: &Crew, state: TaskState) -> Result<(), StoreError> {
        let changes = crew
            .live()
            .map(|held| self.store.set_task_state(held.task, state, None));
        join_all(changes).await.into_iter().collect()
    }

    pub(super) fn show_step(&self, step: &PlannedStep, row: &StepRow, held: &[Held]) {
        let expected = |step: &PlannedStep| step.expected.map(|expected| expected + step.settle);
        let left = self
            .steps
            .iter()
            .filter(|later| later.ordinal > step.ordinal)
            .map(expected)
            .sum::<Option<Duration>>();
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
            moved_bytes: step.moved_bytes,
            files: step.files,
            progress: BTreeMap::new(),
            ops: 0,
            bytes: 0,
            ops_per_s: 0.0,
            bytes_per_s: 0.0,
            p99_ms: 0.0,
        };
        self.board.change(|run| {
            run.left_after_step = left;
            run.step = Some(view);
        });
    }

    /// Samplers read everything at this instant too; `None`: now.
    fn mark(&self, at: Option<MeshMicros>) {
        for member in self.fleet.members() {
            if !member.attached || !(member.sampling.host_wide || member.sampling.interfaces) {
                continue;
            }
            let fleet = self.fleet.clone();
            let within =
                MARK_WITHIN + at.map_or(Duration::ZERO, |at| crate::clock::until(&self.clock, at));
            tokio::spawn(async move {
                let call = fleet_call(member.id, Command::Mark { at }, MARK_WITHIN).within(within);
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
                fleet_call(agent, Command::ForgetTask { task }, MARK_WITHIN).within(MARK_WITHIN);
            if let Err(error) = self.fleet.call(call).await {
                tracing::debug!(%error, "a task was not forgotten");
            }
        }))
        .await;
    }

    /// Asks an agent about one of its tasks.
    pub(super) async fn await_end(
        &self,
        held: Held,
    ) -> (Held, Result<Answer, crate::sessions::command::CallError>) {
        let call = fleet_call(
            held.agent,
            Command::AwaitEnd { task: held.task },
            self.loss_after(),
        );
        (held, self.fleet.call(call).await)
    }
}
