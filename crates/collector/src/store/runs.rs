//! Runs, steps, tasks and events as the scheduler writes them: each transition is one committed write.

use super::rows::{Known, NewCacheDrop, NewEvent, NewRun, NewStep, NewTask, RunChange, StepChange};
use super::{Store, StoreError};
use crate::model::{MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState};
use sqlx::SqliteConnection;

impl Store {
    /// Queues a run. A uid that is known answers for the run that it made.
    pub async fn create_run(&self, run: NewRun) -> Result<(RunId, Known), StoreError> {
        self.note(run.created);
        self.write(run, |run, connection| Box::pin(create_run(run, connection)))
            .await
    }

    /// Sets a run's state; the first `running` sets when it started, an end when it ended. `partial` is never unset. The
    /// reason of a run that is `running` is why it is to end early, and exactly what is given.
    pub async fn set_run_state(&self, run: RunId, change: RunChange) -> Result<(), StoreError> {
        self.note(change.at);
        self.write((run, change), |(run, change), connection| {
            Box::pin(async move {
                let running = change.state == RunState::Running;
                sqlx::query(
                    "UPDATE runs SET state = ?, partial = max(partial, ?), reason = iif(?, ?, coalesce(?, reason)),
                         started_us = coalesce(started_us, ?), ended_us = ? WHERE id = ?",
                )
                .bind(change.state.as_str())
                .bind(change.partial)
                .bind(running)
                .bind(change.reason.as_deref())
                .bind(change.reason.as_deref())
                .bind(running.then_some(change.at.0))
                .bind(change.state.is_end().then_some(change.at.0))
                .bind(run.0)
                .execute(connection)
                .await
                .map_err(StoreError::sql("keep a run's state"))
                .and_then(|done| one("run", run.0, done.rows_affected()))
            })
        })
        .await
    }

    /// Keeps that someone wishes the run to stop; the first wish counts, and none does after the run's end.
    pub async fn keep_stop(
        &self,
        run: RunId,
        reason: String,
        at: MeshMicros,
    ) -> Result<(), StoreError> {
        self.note(at);
        self.write((run, reason, at), |(run, reason, at), connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE runs SET stop_reason = coalesce(stop_reason, ?), halted_us = coalesce(halted_us, ?)
                     WHERE id = ? AND state IN ('queued', 'running')",
                )
                .bind(reason.as_str())
                .bind(at.0)
                .bind(run.0)
                .execute(connection)
                .await
                .map(drop)
                .map_err(StoreError::sql("keep the wish that a run stops"))
            })
        })
        .await
    }

    /// Keeps why the policy ends a running run, and when it did; the run is partial from here on.
    pub async fn keep_abort(
        &self,
        run: RunId,
        reason: String,
        at: MeshMicros,
    ) -> Result<(), StoreError> {
        self.note(at);
        self.write((run, reason, at), |(run, reason, at), connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE runs SET reason = ?, partial = 1, halted_us = coalesce(halted_us, ?) WHERE id = ?",
                )
                .bind(reason.as_str())
                .bind(at.0)
                .bind(run.0)
                .execute(connection)
                .await
                .map_err(StoreError::sql("keep why a run is aborted"))
                .and_then(|done| one("run", run.0, done.rows_affected()))
            })
        })
        .await
    }

    /// Adds steps to a run, all or none; their ids come in the same order.
    pub async fn create_steps(
        &self,
        run: RunId,
        steps: Vec<NewStep>,
    ) -> Result<Vec<StepId>, StoreError> {
        self.write((run, steps), |(run, steps), connection| {
            Box::pin(async move {
                let mut ids = Vec::with_capacity(steps.len());
                for step in steps {
                    ids.push(create_step(*run, step, connection).await?);
                }
                Ok(ids)
            })
        })
        .await
    }

    /// Sets a step's state and what else the change names.
    pub async fn set_step_state(&self, step: StepId, change: StepChange) -> Result<(), StoreError> {
        if let Some(at) = change.start.max(change.ended) {
            self.note(at);
        }
        self.write((step, change), |(step, change), connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE steps SET state = ?, start_us = coalesce(?, start_us), ended_us = coalesce(?, ended_us),
                         reason = coalesce(?, reason) WHERE id = ?",
                )
                .bind(change.state.as_str())
                .bind(change.start.map(|at| at.0))
                .bind(change.ended.map(|at| at.0))
                .bind(change.reason.as_deref())
                .bind(step.0)
                .execute(connection)
                .await
                .map_err(StoreError::sql("keep a step's state"))
                .and_then(|done| one("step", step.0, done.rows_affected()))
            })
        })
        .await
    }

    /// Adds tasks to a step, all or none; their ids come in the same order.
    pub async fn create_tasks(
        &self,
        step: StepId,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.write((step, tasks), |(step, tasks), connection| {
            Box::pin(async move {
                let mut ids = Vec::with_capacity(tasks.len());
                for task in tasks {
                    let id: i64 = sqlx::query_scalar(
                        "INSERT INTO tasks (step_id, task_index, agent_id, peer_agent_id, state, workers, group_name,
                             link_bytes_per_s)
                         VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                    )
                    .bind(step.0)
                    .bind(task.task_index)
                    .bind(task.agent.0)
                    .bind(task.peer.map(|peer| peer.0))
                    .bind(TaskState::Planned.as_str())
                    .bind(task.workers)
                    .bind(task.group.as_str())
                    .bind(task.link_bytes_per_s)
                    .fetch_one(&mut *connection)
                    .await
                    .map_err(StoreError::sql("make a task"))?;
                    ids.push(TaskId(id));
                }
                Ok(ids)
            })
        })
        .await
    }

    /// Sets a task's state, and its error when there is one. How it ended in figures comes from its agent.
    pub async fn set_task_state(
        &self,
        task: TaskId,
        state: TaskState,
        error: Option<String>,
    ) -> Result<(), StoreError> {
        self.write((task, state, error), |(task, state, error), connection| {
            Box::pin(async move {
                sqlx::query("UPDATE tasks SET state = ?, error = coalesce(?, error) WHERE id = ?")
                    .bind(state.as_str())
                    .bind(error.as_deref())
                    .bind(task.0)
                    .execute(connection)
                    .await
                    .map_err(StoreError::sql("keep a task's state"))
                    .and_then(|done| one("task", task.0, done.rows_affected()))
            })
        })
        .await
    }

    /// Keeps when tasks are to start that do not start with their step.
    pub async fn set_task_starts(
        &self,
        starts: Vec<(TaskId, MeshMicros)>,
    ) -> Result<(), StoreError> {
        self.write(starts, |starts, connection| {
            Box::pin(async move {
                for (task, start) in starts {
                    sqlx::query("UPDATE tasks SET start_us = ? WHERE id = ?")
                        .bind(start.0)
                        .bind(task.0)
                        .execute(&mut *connection)
                        .await
                        .map_err(StoreError::sql("keep a task's start"))
                        .and_then(|done| one("task", task.0, done.rows_affected()))?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Keeps a dated fact.
    pub async fn add_event(&self, event: NewEvent) -> Result<(), StoreError> {
        self.note(event.at);
        self.write(event, |event, connection| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO events (at_us, run_id, step_id, agent_id, severity, kind, message, detail)
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                )
                .bind(event.at.0)
                .bind(event.run.map(|id| id.0))
                .bind(event.step.map(|id| id.0))
                .bind(event.agent.map(|id| id.0))
                .bind(event.severity.as_str())
                .bind(event.kind.as_str())
                .bind(event.message.as_str())
                .bind(event.detail_json.as_deref())
                .execute(connection)
                .await
                .map(drop)
                .map_err(StoreError::sql("keep an event"))
            })
        })
        .await
    }

    /// Keeps what became of dropping caches before a step, agent by agent.
    pub async fn add_cache_drops(
        &self,
        step: StepId,
        drops: Vec<NewCacheDrop>,
    ) -> Result<(), StoreError> {
        self.write((step, drops), |(step, drops), connection| {
            Box::pin(async move {
                for drop in drops {
                    sqlx::query(
                        "INSERT INTO cache_drops (step_id, agent_id, at_us, what, dropped, error)
                         VALUES (?, ?, ?, ?, ?, ?)",
                    )
                    .bind(step.0)
                    .bind(drop.agent.0)
                    .bind(drop.at.0)
                    .bind(drop.what.as_str())
                    .bind(drop.dropped)
                    .bind(drop.error.as_deref())
                    .execute(&mut *connection)
                    .await
                    .map_err(StoreError::sql("keep a cache drop"))?;
                }
                Ok(())
            })
        })
        .await
    }
}

fn one(what: &'static str, id: i64, changed: u64) -> Result<(), StoreError> {
    if changed == 1 {
        return Ok(());
    }
    Err(StoreError::NoSuch {
        what,
        id: id.to_string(),
    })
}

async fn create_run(
    run: &NewRun,
    connection: &mut SqliteConnection,
) -> Result<(RunId, Known), StoreError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT id FROM runs WHERE uid = ?")
        .bind(run.uid.as_str())
        .fetch_optional(&mut *connection)
        .await
        .map_err(StoreError::sql("look for a run"))?;
    if let Some(id) = found {
        return Ok((RunId(id), Known::Already));
    }
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO runs (uid, name, plan, agents, order_seed, state, created_us, version)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(run.uid.as_str())
    .bind(run.name.as_str())
    .bind(run.plan_text.as_str())
    .bind(run.agents_json.as_str())
    .bind(run.order_seed)
    .bind(RunState::Queued.as_str())
    .bind(run.created.0)
    .bind(run.version.as_str())
    .fetch_one(connection)
    .await
    .map_err(StoreError::sql("make a run"))?;
    Ok((RunId(id), Known::New))
}

async fn create_step(
    run: RunId,
    step: &NewStep,
    connection: &mut SqliteConnection,
) -> Result<StepId, StoreError> {
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO steps (run_id, ordinal, repeat, attempt, phase, cell, target, system, workload, mode, params,
             clients, cache, state)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(run.0)
    .bind(step.ordinal)
    .bind(step.repeat)
    .bind(step.attempt)
    .bind(step.phase.as_str())
    .bind(step.cell.as_str())
    .bind(step.target.as_str())
    .bind(step.system.as_str())
    .bind(step.workload.as_str())
    .bind(step.mode.as_str())
    .bind(step.params_json.as_str())
    .bind(step.clients)
    .bind(step.cache.as_str())
    .bind(StepState::Planned.as_str())
    .fetch_one(&mut *connection)
    .await
    .map_err(StoreError::sql("make a step"))?;
    for group in &step.groups {
        sqlx::query(
            "INSERT INTO step_groups (step_id, name, workload, mode, params, clients, tasks)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(id)
        .bind(group.name.as_str())
        .bind(group.workload.as_str())
        .bind(group.mode.as_str())
        .bind(group.params_json.as_str())
        .bind(group.clients)
        .bind(group.tasks)
        .execute(&mut *connection)
        .await
        .map_err(StoreError::sql("make a group of a step"))?;
    }
    Ok(StepId(id))
}
