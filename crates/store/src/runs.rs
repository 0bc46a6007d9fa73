//! Runs, steps, tasks and events as the scheduler writes them. Each of its transitions is one transaction of rows.

use super::rows::{
    Creation, NewCacheDrop, NewEvent, NewPart, NewRun, NewStep, NewTask, Row, RunChange,
    RunDirectoryRow, SpoolPosition, StepChange,
};
use super::writer::Haste;
use super::{Doing, Store, StoreError, environment, findings, kept};
use crate::database::WriteRows;
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{
    AgentId, CacheLayer, MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState,
};
use sqlx::SqliteConnection;

impl Store {
    /// Queues a run. For a known uid, returns the existing run.
    #[boxed]
    #[inline(never)]
    pub async fn create_run(&self, run: NewRun) -> Result<(RunId, Creation), StoreError> {
        self.note(run.created);
        self.write(run, |run, connection| Box::pin(create_run(run, connection)))
            .await
    }

    /// Writes rows in one transaction. Returns the ids of new steps and tasks, one list for each row that creates
    /// some.
    #[boxed]
    #[inline(never)]
    pub async fn apply(&self, rows: Vec<Row>) -> Result<Vec<Vec<i64>>, StoreError> {
        if let Some(at) = rows.iter().filter_map(Row::latest).max() {
            self.note(at);
        }
        let is_of_run = |row: &Row| matches!(row, Row::Run { .. });
        let haste = match rows.iter().any(is_of_run) {
            true => Haste::Watched,
            false => Haste::AtOnce,
        };
        let has_failed = rows.iter().any(|row| matches!(row, Row::OpenFailed { .. }));
        let made = self
            .write_in(haste, rows, |rows, connection| {
                Box::pin(async move {
                    let mut made = Vec::new();
                    for row in rows {
                        made.extend(apply(row, connection).await?);
                    }
                    Ok(made)
                })
            })
            .await;
        if has_failed {
            // Figures read from its steps are computed again.
            self.shared.live.late();
        }
        made
    }

    /// Stores a request to stop the run. Only the first request counts, and none after the run's end.
    #[boxed]
    #[inline(never)]
    pub async fn store_stop_request(
        &self,
        run: RunId,
        reason: String,
        at: MeshMicros,
    ) -> Result<(), StoreError> {
        self.note(at);
        self.write((run, reason, at), |(run, reason, at), connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE runs SET stop_reason = coalesce(stop_reason, nullif(?, '')), halted_us = coalesce(halted_us, ?)
                     WHERE id = ? AND state IN ('queued', 'running')",
                )
                .bind(reason.as_str())
                .bind(at.0)
                .bind(run.0)
                .write(connection, "store the request to stop a run")
                .await
            })
        })
        .await
    }

    /// Queues an ended run again, and stores events about it. Returns `false` if the run has not ended.
    #[boxed]
    #[inline(never)]
    pub async fn resume_run(&self, run: RunId, events: Vec<NewEvent>) -> Result<bool, StoreError> {
        if let Some(at) = events.iter().map(|event| event.at).max() {
            self.note(at);
        }
        self.write((run, events), |(run, events), connection| {
            Box::pin(resume_run(*run, events, connection))
        })
        .await
    }

    /// Stores an event.
    pub async fn add_event(&self, event: NewEvent) -> Result<(), StoreError> {
        self.apply(vec![Row::Event(event)]).await.map(drop)
    }
}

/// Writes one row; returns the ids of the rows that it creates.
async fn apply(
    row: &Row,
    connection: &mut SqliteConnection,
) -> Result<Option<Vec<i64>>, StoreError> {
    match row {
        Row::Run { run, change } => set_run_state(*run, change, connection).await?,
        Row::Abort { run, reason, at } => store_abort(*run, reason, *at, connection).await?,
        Row::Environment { run, agents } => environment::store(*run, agents, connection).await?,
        Row::Steps { run, steps } => {
            let mut ids = Vec::with_capacity(steps.len());
            for step in steps {
                ids.push(create_step(*run, step, connection).await?.0);
            }
            return Ok(Some(ids));
        }
        Row::Step { step, change } => set_step_state(*step, change, connection).await?,
        Row::Tasks { step, tasks } => {
            let mut ids = Vec::with_capacity(tasks.len());
            for task in tasks {
                ids.push(create_task(*step, task, connection).await?);
            }
            return Ok(Some(ids));
        }
        Row::Parts { step, parts } => {
            let mut ids = Vec::with_capacity(parts.len());
            for part in parts {
                let id = create_task(*step, &part.task, connection).await?;
                set_part(id, part, connection).await?;
                ids.push(id);
            }
            return Ok(Some(ids));
        }
        Row::Task {
            task,
            state,
            error,
            last_batch,
        } => {
            let last = last_batch.as_ref();
            set_task_state(*task, *state, error.as_deref(), last, connection).await?;
        }
        Row::StartsCleared { step } => clear_starts(*step, connection).await?,
        Row::TaskAgain { task } => begin_task_again(*task, connection).await?,
        Row::TaskStarts(starts) => {
            for (task, start) in starts {
                set_task_start(*task, *start, connection).await?;
            }
        }
        Row::Directory(directory) => store_directory(directory, connection).await?,
        Row::NoDirectory { run, agent, path } => {
            forget_directories(*run, Some((*agent, path)), connection).await?;
        }
        Row::DirectoriesGone { run } => forget_directories(*run, None, connection).await?,
        Row::OpenFailed { run, reason, at } => fail_open(*run, reason, *at, connection).await?,
        Row::Event(event) => add_event(event, connection).await?,
        Row::Unreported { agent, from, until } => {
            add_unreported(*agent, *from, *until, connection).await?;
        }
        Row::CacheDrops { step, drops } => add_cache_drops(*step, drops, connection).await?,
        Row::KeptData(data) => kept::note(data, connection).await?,
        Row::KeptDataWhole { name, path, at } => kept::whole(name, path, *at, connection).await?,
    }
    Ok(None)
}

/// `running` sets `started_us`, an end state `ended_us`. `partial` is only unset when a resumed run begins again,
/// which ends its pause. While running, `reason` is replaced as given (why the run ends early). The findings of an
/// end are computed from everything stored then.
async fn set_run_state(
    run: RunId,
    change: &RunChange,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let running = change.state == RunState::Running;
    sqlx::query(
        "UPDATE runs SET state = ?1, partial = max(iif(?2 AND paused_from_us IS NOT NULL, 0, partial), ?3),
             reason = iif(?2, nullif(?4, ''), coalesce(nullif(?4, ''), reason)),
             started_us = coalesce(started_us, iif(?2, ?5, NULL)), ended_us = iif(?6, ?5, NULL),
             paused_us = paused_us + iif(?2, max(0, coalesce(?5 - paused_from_us, 0)), 0),
             paused_from_us = iif(?2, NULL, paused_from_us)
         WHERE id = ?7",
    )
    .bind(change.state.as_str())
    .bind(running)
    .bind(change.partial)
    .bind(change.reason.as_deref())
    .bind(change.at.0)
    .bind(change.state.is_end())
    .bind(run.0)
    .write_one(connection, "store a run's state", "run", run.0)
    .await?;
    if change.state.is_end() {
        findings::forget(run, connection).await?;
    }
    Ok(())
}

/// Stores why and when the policy ended a running run; the run is partial from then on.
async fn store_abort(
    run: RunId,
    reason: &str,
    at: MeshMicros,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE runs SET reason = nullif(?, ''), partial = 1, halted_us = coalesce(halted_us, ?) WHERE id = ?",
    )
    .bind(reason)
    .bind(at.0)
    .bind(run.0)
    .write_one(connection, "store why a run is aborted", "run", run.0)
    .await
}

async fn set_step_state(
    step: StepId,
    change: &StepChange,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE steps SET state = ?, start_us = coalesce(?, start_us), ended_us = coalesce(?, ended_us),
             reason = coalesce(nullif(?, ''), reason) WHERE id = ?",
    )
    .bind(change.state.as_str())
    .bind(change.start.map(|at| at.0))
    .bind(change.ended.map(|at| at.0))
    .bind(change.reason.as_deref())
    .bind(step.0)
    .write_one(connection, "store a step's state", "step", step.0)
    .await?;
    if change.state.is_end() || change.state == StepState::Planned {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO step_states (step_id, state, at_us) VALUES (?, ?, ?)
         ON CONFLICT (step_id, state) DO UPDATE SET at_us = excluded.at_us",
    )
    .bind(step.0)
    .bind(change.state.as_str())
    .bind(change.at.0)
    .write(connection, "store when a step entered a state")
    .await
}

/// Updates the existing rows only: the run may fail because some are missing.
async fn fail_open(
    run: RunId,
    reason: &str,
    at: MeshMicros,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for statement in [
        "UPDATE tasks SET state = 'lost', error = coalesce(error, ?2)
         WHERE step_id IN (SELECT id FROM steps WHERE run_id = ?1
                           AND state NOT IN ('planned', 'done', 'failed', 'stopped'))
           AND state NOT IN ('done', 'failed', 'stopped', 'lost')",
        // Figures that a report read while the step ran are not its results, so they are computed again.
        "UPDATE steps SET state = 'failed', partial = 1, reason = coalesce(reason, ?2),
             ended_us = coalesce(ended_us, ?3),
             stale_batches = stale_batches + EXISTS (SELECT 1 FROM step_results AS r WHERE r.step_id = steps.id)
         WHERE run_id = ?1 AND state NOT IN ('planned', 'done', 'failed', 'stopped')",
    ] {
        sqlx::query(statement)
            .bind(run.0)
            .bind(reason)
            .bind(at.0)
            .write(connection, "end the open steps of a run")
            .await?;
    }
    Ok(())
}

async fn create_task(
    step: StepId,
    task: &NewTask,
    connection: &mut SqliteConnection,
) -> Result<i64, StoreError> {
    sqlx::query_scalar(
        "INSERT INTO tasks (step_id, task_index, agent_id, peer_agent_id, state, workers, group_name, link_bytes_per_s)
         VALUES (?, ?, ?, ?, ?, ?, nullif(?, ''), ?) RETURNING id",
    )
    .bind(step.0)
    .bind(task.task_index)
    .bind(task.agent.0)
    .bind(task.peer.map(|peer| peer.0))
    .bind(TaskState::Planned.as_str())
    .bind(task.workers)
    .bind(task.group.as_str())
    .bind(task.link_bytes_per_s)
    .fetch_one(connection)
    .await
    .doing("make a task")
}

async fn set_part(
    task: i64,
    part: &NewPart,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE tasks SET part = ?, client_index = ? WHERE id = ?")
        .bind(part.part)
        .bind(part.client_index)
        .bind(task)
        .write(connection, "make a further task of a client")
        .await
}

/// The figures of a task's end come from its agent. A task whose agent has reported its end cannot become lost or
/// running.
async fn set_task_state(
    task: TaskId,
    state: TaskState,
    error: Option<&str>,
    last_batch: Option<&SpoolPosition>,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let overrides = matches!(
        state,
        TaskState::Done | TaskState::Failed | TaskState::Stopped
    );
    sqlx::query(
        "UPDATE tasks SET state = iif(?1 OR state NOT IN ('done', 'stopped', 'failed'), ?2, state),
             error = CASE WHEN ?2 = 'done' THEN NULL
                          WHEN ?1 OR state NOT IN ('done', 'stopped', 'failed') THEN coalesce(nullif(?3, ''), error)
                          ELSE error END,
             last_spool_id = coalesce(?5, last_spool_id), last_sequence = coalesce(?6, last_sequence)
         WHERE id = ?4",
    )
    .bind(overrides)
    .bind(state.as_str())
    .bind(error)
    .bind(task.0)
    .bind(last_batch.map(|last| last.spool_id.as_str()))
    .bind(last_batch.map(|last| i64::try_from(last.sequence).unwrap_or(i64::MAX)))
    .write_one(connection, "store a task's state", "task", task.0)
    .await
}

/// Resets a task and its agent's report of a start that did not happen.
async fn begin_task_again(
    task: TaskId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE tasks SET state = ?, error = NULL, start_us = NULL, skew_us = NULL, skew_error_us = NULL,
             first_done_us = NULL, ended_us = NULL, last_begun_us = NULL, cpu_user_us = NULL, cpu_system_us = NULL,
             wait_cpu_us = NULL, harness_ns_per_op = NULL, last_spool_id = NULL, last_sequence = NULL
         WHERE id = ?",
    )
    .bind(TaskState::Planned.as_str())
    .bind(task.0)
    .write_one(connection, "prepare a task once more", "task", task.0)
    .await
}

async fn clear_starts(step: StepId, connection: &mut SqliteConnection) -> Result<(), StoreError> {
    for statement in [
        "UPDATE steps SET start_us = NULL WHERE id = ?",
        "UPDATE tasks SET start_us = NULL WHERE step_id = ? AND ended_us IS NULL",
    ] {
        sqlx::query(statement)
            .bind(step.0)
            .write(connection, "clear the start instants of a step")
            .await?;
    }
    Ok(())
}

/// Sets the start of a task that does not start with its step.
async fn set_task_start(
    task: TaskId,
    start: MeshMicros,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE tasks SET start_us = ? WHERE id = ?")
        .bind(start.0)
        .bind(task.0)
        .write_one(connection, "store a task's start", "task", task.0)
        .await
}

async fn store_directory(
    directory: &RunDirectoryRow,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO run_directories (run_id, agent_id, path, nonce, made, free_bytes) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (run_id, agent_id, path) DO UPDATE SET nonce = excluded.nonce, made = excluded.made,
             free_bytes = excluded.free_bytes",
    )
    .bind(directory.run.0)
    .bind(directory.agent.0)
    .bind(directory.path.as_str())
    .bind(directory.nonce.as_deref())
    .bind(directory.made)
    .bind(i64::try_from(directory.free_bytes).unwrap_or(i64::MAX))
    .write(connection, "store a run's directory")
    .await
}

/// Deletes the directories of a run, or the one of an agent.
async fn forget_directories(
    run: RunId,
    only: Option<(AgentId, &String)>,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM run_directories
         WHERE run_id = ?1 AND (?2 IS NULL OR (agent_id = ?2 AND path = ?3))",
    )
    .bind(run.0)
    .bind(only.map(|(agent, _)| agent.0))
    .bind(only.map(|(_, path)| path.as_str()))
    .write(connection, "forget a run's directories")
    .await
}

/// Counts the second that a killed agent had not yet written as a lost batch.
async fn add_unreported(
    agent: AgentId,
    from: MeshMicros,
    until: MeshMicros,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO losses (agent_id, what, rows, from_us, until_us) VALUES (?, 'batches', 1, ?, ?)",
    )
    .bind(agent.0)
    .bind(from.0)
    .bind(until.0)
    .write(connection, "count what a killed agent had not written")
    .await
}

pub(super) async fn add_event(
    event: &NewEvent,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
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
    .write(connection, "store an event")
    .await
}

/// Stores the results of dropping caches before a step, for each agent.
async fn add_cache_drops(
    step: StepId,
    drops: &[NewCacheDrop],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for drop in drops {
        // An agent of another version may report a cache that this schema does not have.
        if CacheLayer::parse(&drop.what).is_none() {
            tracing::warn!(agent = %drop.agent, what = %drop.what, "cannot store the drop of an unknown cache");
            continue;
        }
        sqlx::query(
            "INSERT INTO cache_drops (step_id, agent_id, at_us, what, dropped, error)
             VALUES (?, ?, ?, ?, ?, nullif(?, ''))",
        )
        .bind(step.0)
        .bind(drop.agent.0)
        .bind(drop.at.0)
        .bind(drop.what.as_str())
        .bind(drop.dropped)
        .bind(drop.error.as_deref())
        .write(connection, "store a cache drop")
        .await?;
    }
    Ok(())
}

async fn create_run(
    run: &NewRun,
    connection: &mut SqliteConnection,
) -> Result<(RunId, Creation), StoreError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT id FROM runs WHERE uid = ?")
        .bind(run.uid.as_str())
        .fetch_optional(&mut *connection)
        .await
        .doing("look for a run")?;
    if let Some(id) = found {
        return Ok((RunId(id), Creation::Existing));
    }
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO runs (uid, name, plan, agents, order_seed, state, created_us, due_us, version)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(run.uid.as_str())
    .bind(run.name.as_str())
    .bind(run.plan_text.as_str())
    .bind(run.agents_json.as_str())
    .bind(run.order_seed)
    .bind(RunState::Queued.as_str())
    .bind(run.created.0)
    .bind(run.due.map(|due| due.0))
    .bind(run.version.as_str())
    .fetch_one(&mut *connection)
    .await
    .doing("make a run")?;
    Ok((RunId(id), Creation::New))
}

async fn resume_run(
    run: RunId,
    events: &[NewEvent],
    connection: &mut SqliteConnection,
) -> Result<bool, StoreError> {
    let resumed = sqlx::query(
        "UPDATE runs SET state = ?, reason = NULL, stop_reason = NULL, halted_us = NULL, due_us = NULL,
             paused_from_us = iif(started_us IS NULL, NULL, coalesce(paused_from_us, ended_us)), ended_us = NULL
         WHERE id = ? AND state IN ('done', 'failed', 'stopped') AND imported_from IS NULL",
    )
    .bind(RunState::Queued.as_str())
    .bind(run.0)
    .execute(&mut *connection)
    .await
    .doing("queue a run again")?;
    if resumed.rows_affected() == 0 {
        return Ok(false);
    }
    findings::forget(run, connection).await?;
    // Its loops go on.
    sqlx::query("DELETE FROM events WHERE run_id = ? AND kind = 'last-loop-requested'")
        .bind(run.0)
        .write(connection, "withdraw a request to end after a loop")
        .await?;
    for event in events {
        add_event(event, connection).await?;
    }
    Ok(true)
}

async fn create_step(
    run: RunId,
    step: &NewStep,
    connection: &mut SqliteConnection,
) -> Result<StepId, StoreError> {
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO steps (run_id, ordinal, loop, repeat, attempt, phase, cell, target, system, workload, mode, params,
             clients, cache, state)
         VALUES (?, ?, ?, ?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(run.0)
    .bind(step.ordinal)
    .bind(step.loop_number)
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
    .doing("make a step")?;
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
        .write(connection, "make a group of a step")
        .await?;
    }
    Ok(StepId(id))
}
