//! Stores a run that was parsed from another tool's output, in one transaction.

use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use crate::off_runtime;
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::RunId;
use benchmesh_model::text::is_hidden;
use benchmesh_results::import::{self, ImportedLog, ImportedOp, ImportedSecond, ImportedStep};
use benchmesh_results::seconds::{Seconds, SecondsSum, WholeSeconds};
use benchmesh_results::{PERIOD_US, StepInterval};
use benchmesh_workloads::histogram::Histogram;
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use std::collections::BTreeMap;

/// Maximum length of a log's text that is stored with its run, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum length of the name of a run, target or system, in bytes; enough for the name of a file.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum number of logs that repeat each other.
const MAX_LOGS: usize = 10_000;

const DOING: &str = "store an imported run";

/// A run to store: one log, or several repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImportedRun {
    pub name: String,
    /// The storage under test; empty if unknown.
    pub target: String,
    pub system: String,
    /// Each log with its text; the first is the first repeat.
    pub logs: Vec<(ImportedLog, String)>,
}

/// Why an import was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreImportError {
    #[error("this log is already in the database, as run {run}")]
    Known { run: RunId },
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Store(StoreError),
}

impl ImportedRun {
    /// Equal for equal texts: 128-bit FNV-1a.
    fn uid(&self) -> String {
        let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        for (_, text) in &self.logs {
            for byte in text.bytes().chain([0]) {
                hash ^= u128::from(byte);
                hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
            }
        }
        format!("import-{hash:032x}")
    }

    /// Checks that it can be stored; its sender is not trusted.
    fn check(&self) -> Result<(), StoreImportError> {
        let wrong = |what: String| Err(StoreImportError::Wrong(what));
        if self.logs.is_empty() || self.name.trim().is_empty() {
            return wrong(String::from("an imported run needs a name and a log"));
        }
        if self.logs.len() > MAX_LOGS {
            return wrong(format!(
                "{} logs are too many for one run; the limit is {MAX_LOGS}",
                self.logs.len()
            ));
        }
        for (what, text) in [
            ("name", &self.name),
            ("target", &self.target),
            ("system", &self.system),
        ] {
            if text.len() > MAX_NAME_BYTES || text.chars().any(is_hidden) {
                return wrong(format!(
                    "the {what} of an imported run is longer than {MAX_NAME_BYTES} bytes or has control characters"
                ));
            }
        }
        for (log, _) in &self.logs {
            import::check(log).or_else(|error| wrong(error.to_string()))?;
        }
        Ok(())
    }

    fn ended_us(&self) -> i64 {
        let ends = self.logs.iter().flat_map(|(log, _)| {
            let steps = log.steps.iter();
            steps.map(|step| {
                log.started_us
                    .saturating_add(step.at_us)
                    .saturating_add(step.lasted_us)
            })
        });
        ends.max().unwrap_or(0)
    }

    fn started_us(&self) -> i64 {
        let starts = self.logs.iter().map(|(log, _)| log.started_us);
        starts.min().unwrap_or(0)
    }
}

impl Store {
    /// Stores an imported run. The same logs are refused a second time.
    #[boxed]
    #[inline(never)]
    pub async fn import_run(&self, run: ImportedRun) -> Result<RunId, StoreImportError> {
        let (run, uid) = off_runtime(move || {
            run.check()?;
            let uid = run.uid();
            Ok((run, uid))
        })
        .await?;
        let known: Option<i64> = sqlx::query_scalar("SELECT id FROM runs WHERE uid = ?")
            .bind(&uid)
            .fetch_optional(self.reader())
            .await
            .doing("look for an imported run")
            .map_err(StoreImportError::Store)?;
        if let Some(run) = known {
            return Err(StoreImportError::Known { run: RunId(run) });
        }
        self.write((run, uid), |(run, uid), connection| {
            Box::pin(store(run, uid, connection))
        })
        .await
        .map_err(StoreImportError::Store)
    }
}

async fn store(
    run: &ImportedRun,
    uid: &str,
    connection: &mut SqliteConnection,
) -> Result<RunId, StoreError> {
    let (started, ended) = (run.started_us(), run.ended_us());
    let mut text: String = run.logs.iter().map(|(_, text)| text.as_str()).collect();
    let cut = (0..=MAX_TEXT_BYTES)
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(cut.unwrap_or(0));
    let steps = || run.logs.iter().flat_map(|(log, _)| &log.steps);
    let tool = run.logs.first().map_or("", |(log, _)| log.tool.as_str());
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO runs (uid, name, plan, state, partial, created_us, started_us, ended_us, version, imported_from)
         VALUES (?, ?, ?, 'done', ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(uid)
    .bind(&run.name)
    .bind(text)
    .bind(steps().any(|step| step.failed.is_some()))
    .bind(started)
    .bind(started)
    .bind(ended)
    .bind(env!("CARGO_PKG_VERSION"))
    .bind(tool)
    .fetch_one(&mut *connection)
    .await
    .doing(DOING)?;
    let mut ordinal = 0_i64;
    for ((log, _), repeat) in run.logs.iter().zip(1_i64..) {
        for step in &log.steps {
            ordinal += 1;
            let begun = log.started_us.saturating_add(step.at_us);
            let step_id = insert_step(run, step, (id, ordinal, repeat, begun), connection).await?;
            for op in &step.ops {
                insert_op(step_id, step, op, connection).await?;
            }
            for second in &step.seconds {
                insert_second(step_id, begun, second, connection).await?;
            }
            if let Some(failure) = &step.failed {
                insert_failure((id, step_id), begun, failure, connection).await?;
            }
        }
    }
    Ok(RunId(id))
}

async fn insert_step(
    run: &ImportedRun,
    step: &ImportedStep,
    (id, ordinal, repeat, begun): (i64, i64, i64, i64),
    connection: &mut SqliteConnection,
) -> Result<i64, StoreError> {
    let ended = begun.saturating_add(step.lasted_us);
    let is_failed = step.failed.is_some();
    sqlx::query_scalar(
        "INSERT INTO steps (run_id, ordinal, repeat, phase, cell, target, system, workload, mode, params, clients, cache,
             state, partial, flags, start_us, measured_from_us, last_done_us, ended_us)
         VALUES (?, ?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, ?, ?, ?, 'asis', ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(id)
    .bind(ordinal)
    .bind(repeat)
    .bind(&step.phase)
    .bind(format!("r{repeat}-p{ordinal}"))
    .bind(&run.target)
    .bind(&run.system)
    .bind(&step.workload)
    .bind(&step.mode)
    .bind(serde_json::Value::Object(step.params.clone()).to_string())
    .bind(step.clients.unwrap_or(1))
    .bind(if is_failed { "failed" } else { "done" })
    .bind(is_failed)
    .bind(if is_failed { r#"["partial"]"# } else { "[]" })
    .bind(begun)
    .bind(begun)
    .bind(ended)
    .bind(ended)
    .fetch_one(connection)
    .await
    .doing(DOING)
}

async fn insert_op(
    step_id: i64,
    step: &ImportedStep,
    op: &ImportedOp,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let seconds = seconds_of(step, &op.op);
    let own = || step.seconds.iter().filter(|second| second.op == op.op);
    // A log counts operations or bytes in all its seconds, or in none.
    let ops = seconds.filter(|_| own().all(|second| second.ops.is_some()));
    let ops = ops.map(|seconds| seconds.ops);
    let bytes = seconds.filter(|_| own().all(|second| second.bytes.is_some()));
    let bytes = bytes.map(|seconds| seconds.bytes);
    sqlx::query(
        "INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, ops_per_s, bytes_per_s, last_done_us,
             last_done_ops_per_s, last_done_bytes_per_s, mean_ns, stddev_ns, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns,
             max_ns, seconds, zero_seconds, ops_per_s_stddev, ops_per_s_min, ops_per_s_max, bytes_per_s_stddev,
             bytes_per_s_min, bytes_per_s_max, saturated)
         VALUES (?, ?, ?, ?, ?, ?, 'last-done', ?, ?, nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
             ?, ?, 0)",
    )
    .bind(step_id)
    .bind(&op.op)
    .bind(step.tasks)
    .bind(op.ops)
    .bind(op.bytes)
    .bind(op.errors)
    .bind(op.ops_per_s)
    .bind(op.bytes_per_s)
    .bind(step.lasted_us)
    .bind(op.ops_per_s)
    .bind(op.bytes_per_s)
    .bind(op.mean_ns)
    .bind(op.stddev_ns)
    .bind(op.min_ns)
    .bind(op.p50_ns)
    .bind(op.p90_ns)
    .bind(op.p95_ns)
    .bind(op.p99_ns)
    .bind(op.p999_ns)
    .bind(op.max_ns)
    .bind(seconds.map(|seconds| seconds.count))
    .bind(seconds.map(|seconds| seconds.zero))
    .bind(ops.map(|spread| spread.stddev))
    .bind(ops.map(|spread| spread.min))
    .bind(ops.map(|spread| spread.max))
    .bind(bytes.map(|spread| spread.stddev))
    .bind(bytes.map(|spread| spread.min))
    .bind(bytes.map(|spread| spread.max))
    .write(connection, DOING)
    .await
}

/// The variation of an operation over time, if the log has a line per second of it.
fn seconds_of(step: &ImportedStep, op: &str) -> Option<Seconds> {
    let own = || step.seconds.iter().filter(|second| second.op == op);
    let end = |second: &ImportedSecond| second.at_us.saturating_add(second.span_us);
    let from = own().map(|second| second.at_us).min()?;
    let window = WholeSeconds::of(from, (from, own().map(end).max()?))?;
    let mut lines: BTreeMap<i64, StepInterval> = BTreeMap::new();
    for second in own() {
        let line = (second.at_us - from).div_euclid(PERIOD_US);
        let all = lines.entry(line).or_insert_with(|| StepInterval {
            group: String::new(),
            at_us: second.at_us,
            span_us: 0,
            op: second.op.clone(),
            ramp: false,
            tasks: 1,
            ops: 0,
            bytes: 0,
            errors: 0,
            service: Histogram::new(),
            response: None,
        });
        all.span_us = end(second).saturating_sub(all.at_us).max(all.span_us);
        all.ops = all.ops.saturating_add(second.ops.unwrap_or(0));
        all.bytes = all.bytes.saturating_add(second.bytes.unwrap_or(0));
    }
    let mut sum = SecondsSum::default();
    for interval in lines.values() {
        sum.add(window, interval);
    }
    sum.finish(window)
}

async fn insert_second(
    step_id: i64,
    begun: i64,
    second: &ImportedSecond,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO step_intervals (step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, mean_ns)
         VALUES (?, ?, ?, ?, 0, 1, ?, ?, 0, ?)",
    )
    .bind(step_id)
    .bind(begun.saturating_add(second.at_us))
    .bind(second.span_us)
    .bind(&second.op)
    .bind(second.ops)
    .bind(second.bytes)
    .bind(second.mean_ns)
    .write(connection, DOING)
    .await
}

async fn insert_failure(
    (run_id, step_id): (i64, i64),
    at_us: i64,
    failure: &str,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO events (at_us, run_id, step_id, severity, kind, message) VALUES (?, ?, ?, 'error', 'step-failed', ?)",
    )
    .bind(at_us)
    .bind(run_id)
    .bind(step_id)
    .bind(format!("the tool reported: {failure}"))
    .write(connection, DOING)
    .await
}
