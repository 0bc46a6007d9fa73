//! Our words as the messages of Control, and our errors as statuses.

use crate::{
    ingest::IngestError,
    model::RunState,
    plan::PlannedStep,
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
        IngestError::Hole { .. } | IngestError::Overlap { .. } => Status::failed_precondition(message),
        _ => Status::invalid_argument(message),
    }
}

/// A database that fails is not the caller's fault.
pub(super) fn store_status(error: &StoreError) -> Status {
    let message = chain(error);
    match error {
        StoreError::NoSuch { .. } => Status::not_found(message),
        StoreError::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl From<&PlannedStep> for v1::PlannedStep {
    fn from(step: &PlannedStep) -> Self {
        let mut peers: Vec<&str> = step.tasks.iter().filter_map(|task| task.peer.as_deref()).collect();
        peers.sort_unstable();
        peers.dedup();
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
            expected_us: step
                .expected
                .map_or(0, |expected| i64::try_from(expected.as_micros()).unwrap_or(i64::MAX)),
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
