//! One step: prepare, settle, drop caches, ready, armed, running, ends, results.

use super::{
    arm::{ARM_TRIES, Arming},
    board::{OpSummary, StepSummary},
    drive::{Drive, Fact, Held},
    ends::{Crew, TaskOutcome},
};
use crate::{
    model::{MeshMicros, Severity, StepId, StepState, TaskState},
    plan::{Cache, PlannedStep},
    results::{Missing, StepResults, missing::without},
    store::{
        StoreError,
        rows::{FinishedStep, StepChange, StepRow},
    },
};
use std::time::Duration;
use tokio::time::Instant;

const NOBODY_LEFT: &str = "every agent of the step was lost";

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
        self.welcome_back(row.id).await?;
        let mut crew = Crew::new(held);
        let start = match self.ready_and_armed(step, row, &mut crew).await? {
            Ok(start) => start,
            Err(end) => return self.give_up(step, row, &crew, end).await,
        };
        self.enter(row.id, StepState::Running, Some(start)).await?;
        self.all_tasks(&crew, TaskState::Running).await?;
        let end = self.finish(step, row, crew, last).await?;
        let took = self.clock.now().0.saturating_sub(start.0).max(0);
        self.took(step, Duration::from_micros(took.unsigned_abs()));
        Ok(end)
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
            if crew.live().next().is_none() {
                return Ok(Err(StepEnd::Failed {
                    reason: String::from(NOBODY_LEFT),
                }));
            }
            self.settle(step, row).await?;
            if step.cache == Cache::Cold {
                self.drop_caches(step, row, crew).await?;
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
        let aborted = tokio::select! {
            aborted = self.await_ends(step, row, &mut crew) => aborted?,
            failed = self.keep_rate(step, row) => return Err(failed),
        };
        self.mark(None);
        self.await_rows(row, &mut crew).await?;
        self.check_starts(row, &mut crew).await?;
        let outcomes = crew.outcomes();
        if let Some(reason) = aborted {
            self.tell_halted(row).await?;
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
            None if lost == outcomes.len() => Some(String::from(NOBODY_LEFT)),
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
        for stopped in outcomes
            .iter()
            .filter(|outcome| outcome.state == TaskState::Stopped)
        {
            let name = self.team.name(stopped.held.agent);
            self.event(Fact {
                step: Some(row.id),
                agent: Some(stopped.held.agent),
                severity: Severity::Warning,
                kind: "task-stopped",
                message: format!("agent `{name}` stopped its task early: {}", stopped.error),
            })
            .await?;
        }
        self.store_results(step, row, state, reason.clone()).await?;
        match reason {
            None => Ok(StepEnd::Done),
            Some(reason) => Ok(StepEnd::Failed { reason }),
        }
    }

    pub(super) async fn store_results(
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
        self.tell_missing(step, row, &results).await?;
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
            ops: results.ops.iter().map(OpSummary::from).collect(),
            skew_us: results.max_skew_us,
            skew_error_us: results.skew_error_us,
            flags: results.flags,
        };
        self.board.finish(summary);
        Ok(())
    }

    /// Tells which clients the step went on without, and what they had done.
    async fn tell_missing(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        results: &StepResults,
    ) -> Result<(), StoreError> {
        if results.ops.is_empty() {
            return Ok(());
        }
        let tasks = self.store.tasks(row.id).await?;
        let missing: Vec<Missing> = tasks
            .iter()
            .filter(|task| task.state != TaskState::Done)
            .map(|task| {
                let done = || results.tasks.iter().filter(|done| done.task == task.id);
                Missing {
                    agent: self.team.name(task.agent).to_owned(),
                    state: task.state.as_str().to_owned(),
                    ran_us: done().filter_map(|done| done.busy_us).max(),
                    ops: done().map(|done| done.ops).sum(),
                    bytes: done().map(|done| done.bytes).sum(),
                }
            })
            .collect();
        let Some(without) = without(&missing) else {
            return Ok(());
        };
        self.event(Fact {
            step: Some(row.id),
            agent: None,
            severity: Severity::Warning,
            kind: "step-partial",
            message: format!("{} is partial: {without}", step.title()),
        })
        .await
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
        Ok(end)
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
}
