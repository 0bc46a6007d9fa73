//! Conversion of generated types to the commands' own types.

use super::facts::{AgentRow, PlannedStep, RunResumed, RunRow, RunStarted, StopDone};
use benchmesh_answers::query::ResultRow;
use benchmesh_plan::AgentPolicy;
use benchmesh_proto::v1;
use benchmesh_store::annotate::Annotation;
use serde_json::{Map, Value};
use std::time::Duration;

pub fn row(row: v1::QueryRow) -> ResultRow {
    row.values.into_iter().map(super::value).collect()
}

impl From<v1::StartRunReply> for RunStarted {
    fn from(reply: v1::StartRunReply) -> Self {
        Self {
            run_id: reply.run_id,
            run_uid: reply.run_uid,
            steps: reply.steps.into_iter().map(PlannedStep::from).collect(),
            warnings: reply.warnings,
        }
    }
}

impl From<v1::PlannedStep> for PlannedStep {
    fn from(step: v1::PlannedStep) -> Self {
        Self {
            ordinal: step.ordinal,
            repeat: step.repeat,
            phase: step.phase,
            target: step.target,
            workload: step.workload,
            mode: step.mode,
            params: params(&step.params_json),
            agents: step.agents,
            peer: Some(step.peer).filter(|peer| !peer.is_empty()),
            link: step.link,
            cache: step.cache,
            bytes: Some(step.bytes).filter(|bytes| *bytes > 0),
            files: step.files,
            expected_s: micros(step.expected_us)
                .filter(|span| !span.is_zero())
                .map(|span| span.as_secs_f64()),
        }
    }
}

impl From<v1::ResumeRunReply> for RunResumed {
    fn from(reply: v1::ResumeRunReply) -> Self {
        Self {
            run_id: reply.run_id,
            run_uid: reply.run_uid,
            run: reply.run,
            steps_done: reply.steps_done,
            steps_total: reply.steps_total,
            changes: reply.changes,
        }
    }
}

impl From<v1::StopRunReply> for StopDone {
    fn from(reply: v1::StopRunReply) -> Self {
        Self {
            run_id: reply.run_id,
            state: reply.state,
        }
    }
}

impl From<v1::AgentFacts> for AgentRow {
    fn from(agent: v1::AgentFacts) -> Self {
        Self {
            id: agent.agent_id,
            name: agent.name,
            attached: agent.attached,
            labels: agent.labels.into_iter().collect(),
            host: agent.host,
            kernel: agent.kernel,
            cpus: agent.cpus,
            memory_bytes: agent.memory_bytes,
            allowed_paths: agent.allowed_paths,
            version: agent.version,
            address: agent.address,
            last_seen_us: agent.last_seen_us,
            clock_error_us: agent.clock_error_us,
            round_trip_us: agent.round_trip_us,
            samples_host: agent.samples_host,
            policy: agent.policy.map(policy),
        }
    }
}

fn policy(policy: v1::AgentPolicy) -> AgentPolicy {
    AgentPolicy {
        devices: policy.devices,
        workloads: policy.workloads,
        memory_bytes: u64::try_from(policy.memory_bytes).unwrap_or(0),
        threads: policy.threads,
        rate_bytes_per_s: u64::try_from(policy.rate_bytes_per_s).unwrap_or(0),
        free_space: policy.free_space,
        free_inodes: policy.free_inodes,
        networks: policy.networks,
        drop_caches: policy.drop_caches,
    }
}

impl From<v1::RunFacts> for RunRow {
    fn from(run: v1::RunFacts) -> Self {
        // The wire uses zero for an absent instant.
        let known = |at: i64| Some(at).filter(|at| *at > 0);
        Self {
            id: run.run_id,
            uid: run.uid,
            name: run.name,
            state: run.state,
            partial: run.partial,
            created_us: run.created_us,
            started_us: known(run.started_us),
            ended_us: known(run.ended_us),
            steps_done: run.steps_done,
            steps_total: run.steps_total,
            stopping: run.stopping,
            tags: run.tags.into_iter().collect(),
            notes: run.notes,
            imported_from: run.imported_from,
        }
    }
}

/// An annotation in wire format.
pub(super) fn annotation(annotation: Annotation) -> v1::annotate_request::Annotation {
    use v1::annotate_request::Annotation as Wire;
    match annotation {
        Annotation::Tag { set, remove } => Wire::Tag(v1::TagRun {
            set: set.into_iter().collect(),
            remove,
        }),
        Annotation::Note(text) => Wire::Note(text),
        Annotation::Mark { text, at } => Wire::Mark(v1::RunMark {
            text,
            at_us: at.map(|at| at.0),
        }),
        Annotation::Baseline(name) => Wire::Baseline(name),
    }
}

fn micros(us: i64) -> Option<Duration> {
    u64::try_from(us).ok().map(Duration::from_micros)
}

/// Parameters that are not an object are dropped: they are only displayed.
fn params(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}
