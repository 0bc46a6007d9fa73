//! Reads runs, steps and tasks, for the scheduler after a restart, and for the lists of the services.

use super::rows::{RunDirectoryRow, RunRow, SpoolPosition, StepRow, TaskRow};
use super::{Doing, Store, StoreError};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{
    AgentId, MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use std::collections::BTreeSet;

/// SQL: the number of a run's steps that are done in their newest attempt, and the number of all its steps.
const STEP_COUNTS: &str =
    "SELECT coalesce(sum(state = 'done'), 0), count(*) FROM steps AS s WHERE run_id = ? AND attempt =
         (SELECT max(attempt) FROM steps WHERE run_id = s.run_id AND ordinal = s.ordinal)";

impl Store {
    /// Queued and running runs, oldest first.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunRow>, StoreError> {
        sqlx::query_as("SELECT * FROM runs WHERE state IN ('queued', 'running') ORDER BY id")
            .fetch_all(self.reader())
            .await
            .doing("list the unfinished runs")
    }

    /// The earliest due time after `after` of a queued run.
    pub async fn next_due(&self, after: MeshMicros) -> Result<Option<MeshMicros>, StoreError> {
        sqlx::query_scalar("SELECT min(due_us) FROM runs WHERE state = 'queued' AND due_us > ?")
            .bind(after.0)
            .fetch_one(self.reader())
            .await
            .map(|due: Option<i64>| due.map(MeshMicros))
            .doing("look for runs with a later start")
    }

    /// The number of queued runs that start after `now`.
    pub async fn count_scheduled_runs(&self, now: MeshMicros) -> Result<u32, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM runs WHERE state = 'queued' AND due_us > ?")
            .bind(now.0)
            .fetch_one(self.reader())
            .await
            .doing("count the runs with a later start")
    }

    /// The number of queued and running runs.
    pub async fn count_unfinished_runs(&self) -> Result<u32, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM runs WHERE state IN ('queued', 'running')")
            .fetch_one(self.reader())
            .await
            .doing("count the unfinished runs")
    }

    /// The id of the newest event; 0 if there is none.
    pub async fn newest_event(&self) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM events")
            .fetch_one(self.reader())
            .await
            .doing("look for the newest event")
    }

    /// The messages of a run's events of one kind.
    pub async fn messages_of(
        &self,
        run: RunId,
        kind: EventKind,
    ) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar("SELECT message FROM events WHERE run_id = ? AND kind = ? ORDER BY id")
            .bind(run.0)
            .bind(kind.as_str())
            .fetch_all(self.reader())
            .await
            .doing("read the events of a run")
    }

    /// Kind and detail of the collector's events of these kinds about a run, oldest first.
    pub async fn own_events(
        &self,
        run: RunId,
        kinds: [EventKind; 2],
    ) -> Result<Vec<(String, Option<String>)>, StoreError> {
        let [one, other] = kinds.map(EventKind::as_str);
        sqlx::query_as(
            "SELECT kind, detail FROM events
             WHERE run_id = ? AND kind IN (?, ?) AND source = 'collector' ORDER BY id",
        )
        .bind(run.0)
        .bind(one)
        .bind(other)
        .fetch_all(self.reader())
        .await
        .doing("read the events of a run")
    }

    /// The running runs, and the one that ended last here.
    pub async fn newest_watched_runs(&self) -> Result<Vec<RunId>, StoreError> {
        let runs: Vec<i64> = sqlx::query_scalar(
            "SELECT id FROM runs WHERE state = 'running'
             UNION SELECT id FROM (SELECT id FROM runs WHERE ended_us IS NOT NULL AND imported_from IS NULL
                                   ORDER BY ended_us DESC LIMIT 1)",
        )
        .fetch_all(self.reader())
        .await
        .doing("look for the newest runs")?;
        Ok(runs.into_iter().map(RunId).collect())
    }

    /// Those of the daemons that have ended.
    pub async fn daemons_that_ended(&self, daemons: &[i64]) -> Result<Vec<i64>, StoreError> {
        let ids = serde_json::Value::from(daemons).to_string();
        sqlx::query_scalar(
            "SELECT id FROM daemons WHERE ended_us IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
        )
        .bind(ids)
        .fetch_all(self.reader())
        .await
        .doing("look for daemons that ended")
    }

    /// Daemons on hosts of a run that ended or were restarted since it began and after the event `last`, which is set
    /// to the newest event: name, instance, message. Those that serve none of its targets too: an alarm names them.
    pub async fn daemons_that_died(
        &self,
        run: RunId,
        last: &mut i64,
    ) -> Result<Vec<(String, String, String)>, StoreError> {
        let newest = self.newest_event().await?;
        let died = sqlx::query_as(
            "SELECT coalesce(json_extract(e.detail, '$.name'), ''),
                    coalesce(json_extract(e.detail, '$.instance'), ''), e.message
             FROM events AS e JOIN runs AS r ON r.id = ?1
             WHERE e.id > ?2 AND e.id <= ?3 AND e.kind IN ('daemon-ended', 'daemon-restarted')
               AND e.at_us >= r.started_us
               AND EXISTS (SELECT 1 FROM run_agents AS a WHERE a.run_id = r.id AND a.agent_id = e.agent_id)
             ORDER BY e.id",
        )
        .bind(run.0)
        .bind(*last)
        .bind(newest)
        .fetch_all(self.reader())
        .await
        .doing("look for daemons that died")?;
        *last = newest;
        Ok(died)
    }

    /// Whether something has happened to a run since the event `last` that may have degraded a storage cluster whose
    /// facts are read. `last` is set to the newest event.
    pub async fn may_have_degraded(&self, run: RunId, last: &mut i64) -> Result<bool, StoreError> {
        let newest = self.newest_event().await?;
        let happened = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM events AS e JOIN runs AS r ON r.id = ?1
                            WHERE e.id > ?2 AND e.id <= ?3 AND e.at_us >= r.started_us
                              AND e.kind IN ('agent-lost', 'carrier-lost', 'daemon-ended', 'daemon-restarted',
                                             'daemon-stopped', 'link-silent', 'operation-stuck', 'stall')
                              AND (e.run_id = r.id OR EXISTS (SELECT 1 FROM run_agents AS a
                                                              WHERE a.run_id = r.id AND a.agent_id = e.agent_id)))
                AND EXISTS (SELECT 1 FROM facts WHERE run_id = ?1)",
        )
        .bind(run.0)
        .bind(*last)
        .bind(newest)
        .fetch_one(self.reader())
        .await
        .doing("look for what may have degraded a cluster")?;
        *last = newest;
        Ok(happened)
    }

    pub async fn run(&self, run: RunId) -> Result<RunRow, StoreError> {
        self.find_run(&run.to_string()).await
    }

    /// The run to be stopped. It is found like in `find_run`, but among runs of the same name the running one comes
    /// first, then the first queued one.
    pub async fn find_run_to_stop(&self, wanted: &str) -> Result<RunRow, StoreError> {
        let unfinished = sqlx::query_as(
            "SELECT * FROM runs WHERE name = ? AND state IN ('running', 'queued')
             ORDER BY state = 'running' DESC, id LIMIT 1",
        )
        .bind(wanted)
        .fetch_optional(self.reader())
        .await
        .doing("look for a run")?;
        match unfinished {
            // A number is an id, even if a run has it as its name.
            Some(row) if wanted.parse::<i64>().is_err() => Ok(row),
            _ => self.find_run(wanted).await,
        }
    }

    /// Finds a run by id, uid or name (the newest of that name); if `wanted` is empty, the newest run.
    pub async fn find_run(&self, wanted: &str) -> Result<RunRow, StoreError> {
        let number: Option<i64> = wanted.parse().ok();
        let found = if wanted.is_empty() {
            sqlx::query_as("SELECT * FROM runs ORDER BY id DESC LIMIT 1")
        } else {
            sqlx::query_as(
                "SELECT * FROM runs WHERE id = ? OR uid = ? OR name = ?
                 ORDER BY id = ? DESC, uid = ? DESC, id DESC LIMIT 1",
            )
            .bind(number)
            .bind(wanted)
            .bind(wanted)
            .bind(number)
            .bind(wanted)
        };
        found
            .fetch_optional(self.reader())
            .await
            .doing("look for a run")?
            .ok_or_else(|| match wanted {
                "" => StoreError::NoRunYet,
                wanted => StoreError::NoSuch {
                    what: "run",
                    id: wanted.to_owned(),
                },
            })
    }

    /// The newest loop of a run that has steps; `None` if there are none.
    pub async fn newest_loop(&self, run: RunId) -> Result<Option<u32>, StoreError> {
        sqlx::query_scalar("SELECT loop FROM steps WHERE run_id = ? ORDER BY ordinal DESC LIMIT 1")
            .bind(run.0)
            .fetch_optional(self.reader())
            .await
            .doing("look for the newest loop of a run")
    }

    /// The newest attempt of each step of one loop, in order.
    pub async fn steps_of_loop(&self, run: RunId, number: u32) -> Result<Vec<StepRow>, StoreError> {
        sqlx::query_as(
            "SELECT * FROM steps AS s WHERE run_id = ?1 AND loop = ?2 AND attempt =
                 (SELECT max(attempt) FROM steps WHERE run_id = s.run_id AND ordinal = s.ordinal)
             ORDER BY ordinal",
        )
        .bind(run.0)
        .bind(number)
        .fetch_all(self.reader())
        .await
        .doing("list the steps of a loop")
    }

    /// In the newest attempts of earlier loops: the number of done steps, and the failed or partial ones, in order.
    pub async fn steps_before_loop(
        &self,
        run: RunId,
        number: u32,
    ) -> Result<(usize, Vec<StepRow>), StoreError> {
        let done: u32 = sqlx::query_scalar(
            "SELECT count(*) FROM steps AS s WHERE run_id = ? AND loop < ? AND state = 'done' AND attempt =
                 (SELECT max(attempt) FROM steps WHERE run_id = s.run_id AND ordinal = s.ordinal)",
        )
        .bind(run.0)
        .bind(number)
        .fetch_one(self.reader())
        .await
        .doing("count the steps of earlier loops")?;
        let flawed = sqlx::query_as(
            "SELECT * FROM steps AS s WHERE run_id = ?1 AND loop < ?2 AND (state <> 'done' OR partial) AND attempt =
                 (SELECT max(attempt) FROM steps WHERE run_id = s.run_id AND ordinal = s.ordinal)
             ORDER BY ordinal",
        )
        .bind(run.0)
        .bind(number)
        .fetch_all(self.reader())
        .await
        .doing("list the failed steps of earlier loops")?;
        Ok((usize::try_from(done).unwrap_or(usize::MAX), flawed))
    }

    /// The number of a run's steps that are done in their newest attempt, and the number of all its steps.
    pub async fn step_counts(&self, run: RunId) -> Result<(usize, usize), StoreError> {
        let (done, all): (u32, u32) = sqlx::query_as(STEP_COUNTS)
            .bind(run.0)
            .fetch_one(self.reader())
            .await
            .doing("count the steps of a run")?;
        let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
        Ok((count(done), count(all)))
    }

    /// The newest attempt of each step, in order.
    pub async fn steps(&self, run: RunId) -> Result<Vec<StepRow>, StoreError> {
        sqlx::query_as(
            "SELECT * FROM steps AS s WHERE run_id = ? AND attempt =
                 (SELECT max(attempt) FROM steps WHERE run_id = s.run_id AND ordinal = s.ordinal)
             ORDER BY ordinal",
        )
        .bind(run.0)
        .fetch_all(self.reader())
        .await
        .doing("list the steps of a run")
    }

    /// Steps of a run that were left out because the target does not support their mode.
    pub async fn steps_left_out(&self, run: RunId) -> Result<BTreeSet<StepId>, StoreError> {
        sqlx::query_scalar(
            "SELECT step_id FROM events WHERE run_id = ? AND kind = 'mode-left-out' AND step_id IS NOT NULL",
        )
        .bind(run.0)
        .fetch_all(self.reader())
        .await
        .map(|ids: Vec<i64>| ids.into_iter().map(StepId).collect())
        .doing("look for skipped steps")
    }

    /// Whether a run was asked to begin no further loop.
    pub async fn ends_after_loop(&self, run: RunId) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM events WHERE run_id = ? AND kind = 'last-loop-requested')",
        )
        .bind(run.0)
        .fetch_one(self.reader())
        .await
        .doing("look for a request to end after a loop")
    }

    /// The last probes of a run's finished searches.
    pub async fn steps_searched(&self, run: RunId) -> Result<BTreeSet<StepId>, StoreError> {
        sqlx::query_scalar(
            "SELECT step_id FROM events
             WHERE run_id = ? AND kind IN ('search-found', 'search-not-found') AND step_id IS NOT NULL",
        )
        .bind(run.0)
        .fetch_all(self.reader())
        .await
        .map(|ids: Vec<i64>| ids.into_iter().map(StepId).collect())
        .doing("look for searches that have ended")
    }

    /// The tool whose output a run was imported from; `None` for a run that was measured in this mesh.
    pub async fn imported_from(&self, run: RunId) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT imported_from FROM runs WHERE id = ?")
            .bind(run.0)
            .fetch_optional(self.reader())
            .await
            .map(Option::flatten)
            .doing("read the origin of a run")
    }

    pub async fn step(&self, step: StepId) -> Result<StepRow, StoreError> {
        sqlx::query_as("SELECT * FROM steps WHERE id = ?")
            .bind(step.0)
            .fetch_optional(self.reader())
            .await
            .doing("read a step")?
            .ok_or_else(|| StoreError::NoSuch {
                what: "step",
                id: step.to_string(),
            })
    }

    /// The tasks of a step without a stored interval.
    pub async fn tasks_without_rows(&self, step: StepId) -> Result<Vec<TaskId>, StoreError> {
        sqlx::query_scalar(
            "SELECT id FROM tasks WHERE step_id = ?
               AND NOT EXISTS (SELECT 1 FROM op_intervals AS i WHERE i.task_id = tasks.id)",
        )
        .bind(step.0)
        .fetch_all(self.reader())
        .await
        .map(|ids: Vec<i64>| ids.into_iter().map(TaskId).collect())
        .doing("look for silent tasks")
    }

    /// One task; `None` if the id is unknown.
    pub async fn task(&self, task: TaskId) -> Result<Option<TaskRow>, StoreError> {
        sqlx::query_as("SELECT * FROM tasks WHERE id = ?")
            .bind(task.0)
            .fetch_optional(self.reader())
            .await
            .doing("read a task")
    }

    /// The highest throughput at which a step of `network` sent data to an agent from other hosts, in bytes per
    /// second; `None` if there was no such step.
    ///
    /// The throughputs of several senders in a step are added up, unless they did not overlap. Loads that did not use
    /// the whole link do not count: those with a rate, with other groups beside them, and tasks that did not end
    /// well.
    pub async fn most_received_per_s(&self, agent: AgentId) -> Result<Option<i64>, StoreError> {
        let most: Option<f64> = sqlx::query_scalar(
            "SELECT max(bytes_per_s) FROM (
                 SELECT sum(o.bytes_per_s) AS bytes_per_s
                 FROM tasks AS t
                 JOIN steps AS s ON s.id = t.step_id
                 JOIN agents AS f ON f.id = t.agent_id
                 JOIN agents AS p ON p.id = t.peer_agent_id
                 LEFT JOIN run_agents AS rf ON rf.run_id = s.run_id AND rf.agent_id = f.id
                 LEFT JOIN run_agents AS rp ON rp.run_id = s.run_id AND rp.agent_id = p.id
                 JOIN task_results AS o ON o.task_id = t.id
                 LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = t.group_name
                 WHERE t.peer_agent_id = ? AND o.op = 'send' AND t.state = 'done'
                   AND coalesce(rf.host_id, f.host_id) <> coalesce(rp.host_id, p.host_id)
                   AND json_extract(coalesce(g.params, s.params), '$.rate') IS NULL
                   AND json_extract(coalesce(g.params, s.params), '$.rate_iops') IS NULL
                   AND (SELECT count(*) FROM step_groups AS beside WHERE beside.step_id = s.id) < 2
                   AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap')
                 GROUP BY t.step_id)",
        )
        .bind(agent.0)
        .fetch_one(self.reader())
        .await
        .doing("read the throughput of a link")?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast saturates, and bytes have no parts"
        )]
        Ok(most.map(|most| most as i64))
    }

    /// The known directories of a run, oldest first.
    pub async fn run_directories(&self, run: RunId) -> Result<Vec<RunDirectoryRow>, StoreError> {
        sqlx::query_as("SELECT * FROM run_directories WHERE run_id = ? ORDER BY rowid")
            .bind(run.0)
            .fetch_all(self.reader())
            .await
            .doing("list the directories of a run")
    }

    /// The tasks of a step, by index.
    pub async fn tasks(&self, step: StepId) -> Result<Vec<TaskRow>, StoreError> {
        sqlx::query_as("SELECT * FROM tasks WHERE step_id = ? ORDER BY task_index")
            .bind(step.0)
            .fetch_all(self.reader())
            .await
            .doing("list the tasks of a step")
    }
}

impl FromRow<'_, SqliteRow> for RunRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: RunId(row.try_get("id")?),
            uid: row.try_get("uid")?,
            name: row.try_get("name")?,
            plan_text: row.try_get("plan")?,
            agents_json: row.try_get("agents")?,
            order_seed: row.try_get("order_seed")?,
            state: word(row, "state", RunState::parse)?,
            partial: row.try_get("partial")?,
            reason: row.try_get("reason")?,
            created: MeshMicros(row.try_get("created_us")?),
            due: instant(row, "due_us")?,
            started: instant(row, "started_us")?,
            ended: instant(row, "ended_us")?,
            version: row.try_get("version")?,
            stop_reason: row.try_get("stop_reason")?,
            halted: instant(row, "halted_us")?,
            paused_us: row.try_get("paused_us")?,
            paused_from: instant(row, "paused_from_us")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for StepRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: StepId(row.try_get("id")?),
            run: RunId(row.try_get("run_id")?),
            ordinal: row.try_get("ordinal")?,
            loop_number: row.try_get("loop")?,
            repeat: row.try_get("repeat")?,
            attempt: row.try_get("attempt")?,
            phase: row.try_get("phase")?,
            cell: row.try_get("cell")?,
            target: text(row, "target")?,
            system: text(row, "system")?,
            workload: row.try_get("workload")?,
            mode: row.try_get("mode")?,
            params_json: row.try_get("params")?,
            clients: row.try_get("clients")?,
            cache: row.try_get("cache")?,
            state: word(row, "state", StepState::parse)?,
            partial: row.try_get("partial")?,
            flags_json: row.try_get("flags")?,
            reason: row.try_get("reason")?,
            start: instant(row, "start_us")?,
            ended: instant(row, "ended_us")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for RunDirectoryRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            run: RunId(row.try_get("run_id")?),
            agent: AgentId(row.try_get("agent_id")?),
            path: row.try_get("path")?,
            nonce: row.try_get("nonce")?,
            made: row.try_get("made")?,
            free_bytes: row.try_get::<i64, _>("free_bytes")?.max(0).unsigned_abs(),
        })
    }
}

impl FromRow<'_, SqliteRow> for TaskRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let last_sequence: Option<i64> = row.try_get("last_sequence")?;
        let last_spool_id: Option<String> = row.try_get("last_spool_id")?;
        let task_index: u32 = row.try_get("task_index")?;
        let client_index: Option<u32> = row.try_get("client_index")?;
        Ok(Self {
            id: TaskId(row.try_get("id")?),
            step: StepId(row.try_get("step_id")?),
            task_index,
            part: row.try_get("part")?,
            client_index: client_index.unwrap_or(task_index),
            agent: AgentId(row.try_get("agent_id")?),
            peer: row.try_get::<Option<i64>, _>("peer_agent_id")?.map(AgentId),
            state: word(row, "state", TaskState::parse)?,
            workers: row.try_get("workers")?,
            start: instant(row, "start_us")?,
            skew_us: row.try_get("skew_us")?,
            skew_error_us: row.try_get("skew_error_us")?,
            first_done: instant(row, "first_done_us")?,
            ended: instant(row, "ended_us")?,
            last_begun: instant(row, "last_begun_us")?,
            cpu_user_us: row.try_get("cpu_user_us")?,
            cpu_system_us: row.try_get("cpu_system_us")?,
            wait_cpu_us: row.try_get("wait_cpu_us")?,
            harness_ns_per_op: row.try_get("harness_ns_per_op")?,
            error: row.try_get("error")?,
            last_batch: last_spool_id
                .zip(last_sequence)
                .map(|(spool_id, sequence)| SpoolPosition {
                    spool_id,
                    sequence: sequence.max(0).unsigned_abs(),
                }),
        })
    }
}

pub(super) fn instant(row: &SqliteRow, column: &str) -> Result<Option<MeshMicros>, sqlx::Error> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(MeshMicros))
}

/// A text; empty for NULL.
pub(super) fn text(row: &SqliteRow, column: &str) -> Result<String, sqlx::Error> {
    Ok(row
        .try_get::<Option<String>, _>(column)?
        .unwrap_or_default())
}

/// A value that is not one of the column's words, for example after a manual change, is an error that names the
/// column.
pub(super) fn word<T>(
    row: &SqliteRow,
    column: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<T, sqlx::Error> {
    let found: String = row.try_get(column)?;
    parse(&found).ok_or_else(|| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: format!("{found:?} is not a valid value").into(),
    })
}
