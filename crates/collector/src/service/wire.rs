//! Our words as the messages of Control, and our errors as statuses.

use crate::{
    causes::chain,
    clock::MeshClock,
    ingest::IngestError,
    model::{MeshMicros, RunState},
    plan::PlannedStep,
    query::{self, QueryError, Value},
    scheduler::{RunView, StepSummary, StepView},
    sessions::MemberFacts,
    store::{StoreError, rows::RunRow},
};
use benchmesh_proto::v1;
use tonic::Status;

/// What a refused batch is called.
pub(super) fn ingest_status(error: &IngestError) -> Status {
    let message = error.to_string();
    match error {
        IngestError::Closed => Status::unavailable(message),
        IngestError::Hole { .. } | IngestError::Overlap { .. } => {
            Status::failed_precondition(message)
        }
        _ => Status::invalid_argument(message),
    }
}

/// A database that fails is not the caller's fault.
pub(super) fn store_status(error: &StoreError) -> Status {
    let message = chain(error);
    match error {
        StoreError::NoSuch { .. } | StoreError::NoRunYet => Status::not_found(message),
        StoreError::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl From<&PlannedStep> for v1::PlannedStep {
    fn from(step: &PlannedStep) -> Self {
        let peers: Vec<&str> = step.receivers().into_iter().collect();
        Self {
            ordinal: step.ordinal,
            repeat: step.repeat,
            phase: step.phase.clone(),
            target: step.target.clone(),
            workload: step.workload.clone(),
            mode: step.mode.clone(),
            params_json: serde_json::Value::Object(step.params.clone()).to_string(),
            agents: step.agents().into_iter().map(str::to_owned).collect(),
            peer: peers.join(", "),
            bytes: signed(step.moved_bytes),
            files: signed(step.files),
            expected_us: step.expected.map_or(0, |expected| {
                i64::try_from(expected.as_micros()).unwrap_or(i64::MAX)
            }),
            link: step.link(),
        }
    }
}

impl From<MemberFacts> for v1::AgentFacts {
    fn from(facts: MemberFacts) -> Self {
        Self {
            agent_id: facts.id.0,
            name: facts.hello.name,
            attached: facts.attached,
            labels: facts.hello.labels.into_iter().collect(),
            host: facts.hello.host_name,
            kernel: facts.hello.kernel,
            cpus: facts.hello.cpus,
            memory_bytes: facts.hello.memory_bytes,
            allowed_paths: facts
                .hello
                .allowed
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            version: facts.hello.version,
            last_seen_us: facts.last_seen.0,
            clock_error_us: facts.clock_error_us,
            round_trip_us: facts.round_trip_us,
            samples_host: facts.attached && facts.sampling.host_wide,
            address: facts.address,
        }
    }
}

/// A run and how many of its steps have ended.
pub(super) fn run_facts(run: RunRow, steps_done: usize, steps_total: usize) -> v1::RunFacts {
    v1::RunFacts {
        run_id: run.id.0,
        stopping: run.stop_reason.is_some() && !run.state.is_end(),
        uid: run.uid,
        name: run.name,
        state: run.state.as_str().to_owned(),
        partial: run.partial,
        created_us: run.created.0,
        started_us: run.started.map_or(0, |at| at.0),
        ended_us: run.ended.map_or(0, |at| at.0),
        steps_done: u32::try_from(steps_done).unwrap_or(u32::MAX),
        steps_total: u32::try_from(steps_total).unwrap_or(u32::MAX),
    }
}

/// For replies that carry a state as text.
pub(super) fn state_word(state: RunState) -> String {
    state.as_str().to_owned()
}

pub(super) fn query_status(error: &QueryError) -> Status {
    let message = chain(error);
    match error {
        QueryError::NotReading
        | QueryError::SeveralStatements
        | QueryError::NoStatement
        | QueryError::Sql { .. } => Status::invalid_argument(message),
        QueryError::TimeLimit { .. } => Status::deadline_exceeded(message),
        _ => Status::internal(message),
    }
}

pub(super) fn query_reply(rows: Vec<query::Row>) -> v1::QueryReply {
    use v1::query_value::Value as Wire;
    let value = |value| v1::QueryValue {
        value: match value {
            Value::Null => None,
            Value::Integer(n) => Some(Wire::Integer(n)),
            Value::Real(n) => Some(Wire::Real(n)),
            Value::Text(text) => Some(Wire::Text(text)),
            Value::Blob(bytes) => Some(Wire::Blob(bytes)),
        },
    };
    v1::QueryReply {
        columns: Vec::new(),
        rows: rows
            .into_iter()
            .map(|row| v1::QueryRow {
                values: row.into_iter().map(value).collect(),
            })
            .collect(),
    }
}

fn small(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn elapsed_us(from: Option<MeshMicros>, now: MeshMicros) -> i64 {
    from.map_or(0, |from| now.0.saturating_sub(from.0).max(0))
}

/// A run that ended before this collector was started.
pub(super) fn past_run(run: &RunRow, steps_done: usize, steps_total: usize) -> v1::RunUpdate {
    v1::RunUpdate {
        run_id: run.id.0,
        run: run.name.clone(),
        state: run.state.as_str().to_owned(),
        partial: run.partial,
        steps_done: small(steps_done),
        steps_total: small(steps_total),
        elapsed_us: run.ended.map_or(0, |ended| elapsed_us(run.started, ended)),
        expected_left_us: 0,
        messages: run.reason.iter().cloned().collect(),
        ..v1::RunUpdate::default()
    }
}

/// What is new since `messages` and `finished` had been told.
pub(super) fn update(
    view: &RunView,
    messages: usize,
    finished: usize,
    clock: &MeshClock,
) -> v1::RunUpdate {
    let now = clock.now();
    let told = messages.saturating_sub(view.messages_gone);
    v1::RunUpdate {
        run_id: view.run.0,
        run: view.name.clone(),
        state: view.state.as_str().to_owned(),
        partial: view.partial,
        steps_done: small(view.steps_done),
        steps_total: small(view.steps_total),
        elapsed_us: elapsed_us(view.began, view.ended.unwrap_or(now)),
        expected_left_us: view.left(clock).map_or(-1, |left| {
            i64::try_from(left.as_micros()).unwrap_or(i64::MAX)
        }),
        step: view.step.as_ref().map(|step| step_update(step, now)),
        messages: view.messages.iter().skip(told).cloned().collect(),
        finished: view
            .finished
            .iter()
            .skip(finished.saturating_sub(view.finished_gone))
            .map(summary)
            .collect(),
        removed_files: view.removed_files,
    }
}

fn step_update(step: &StepView, now: MeshMicros) -> v1::StepUpdate {
    v1::StepUpdate {
        step_id: step.id.0,
        ordinal: step.ordinal,
        phase: step.phase.clone(),
        target: step.target.clone(),
        mode: step.mode.clone(),
        params_json: step.params_json.clone(),
        state: step.state.as_str().to_owned(),
        clients: step.clients,
        ops_per_s: step.ops_per_s,
        bytes_per_s: step.bytes_per_s,
        p99_ms: step.p99_ms,
        share_done: step.share_done(now).unwrap_or(-1.0),
        elapsed_us: elapsed_us(
            Some(
                step.start
                    .filter(|start| *start <= now)
                    .unwrap_or(step.began),
            ),
            now,
        ),
        peer: step.peer.clone(),
        silent_us: i64::try_from(step.silent(now).as_micros()).unwrap_or(i64::MAX),
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds to look at")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn summary(step: &StepSummary) -> v1::StepSummary {
    let ops = step.ops.iter().map(|op| v1::OpSummary {
        group: op.group.clone(),
        op: op.op.clone(),
        ops_per_s: op.ops_per_s.unwrap_or(0.0),
        bytes_per_s: op.bytes_per_s.unwrap_or(0.0),
        mean_ms: op.mean_ns / 1e6,
        p50_ms: ms(op.p50_ns),
        p99_ms: ms(op.p99_ns),
        max_ms: ms(op.max_ns),
        response_p99_ms: op.response_p99_ns.map(ms),
        ops: u64::try_from(op.ops).unwrap_or(0),
        errors: u64::try_from(op.errors).unwrap_or(0),
    });
    v1::StepSummary {
        step_id: step.id.0,
        ordinal: step.ordinal,
        phase: step.phase.clone(),
        target: step.target.clone(),
        workload: step.workload.clone(),
        mode: step.mode.clone(),
        params_json: step.params_json.clone(),
        clients: step.clients,
        state: step.state.as_str().to_owned(),
        ops: ops.collect(),
        max_skew_us: step.skew_us.unwrap_or(0),
        skew_error_us: step.skew_error_us.unwrap_or(0),
        flags: step
            .flags
            .iter()
            .map(|flag| flag.as_str().to_owned())
            .collect(),
        link: step.link.clone(),
    }
}
