//! From generated types to the commands' own.

use super::facts::{
    AgentRow, ClientNow, DaemonNow, EventNow, OpDone, PlannedStep, PolicyRow, RunRow, RunStarted,
    StepDone, StepNow, StopDone, Update,
};
use benchmesh_collector::model::RunState;
use benchmesh_collector::query::Row;
use benchmesh_collector::store::annotate::Annotation;
use benchmesh_proto::v1;
use serde_json::{Map, Value};
use std::time::Duration;

pub fn row(row: v1::QueryRow) -> Row {
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
            bytes: Some(step.bytes).filter(|bytes| *bytes > 0),
            files: step.files,
            expected_s: micros(step.expected_us)
                .filter(|span| !span.is_zero())
                .map(|span| span.as_secs_f64()),
        }
    }
}

impl TryFrom<v1::RunUpdate> for Update {
    type Error = &'static str;

    fn try_from(update: v1::RunUpdate) -> Result<Self, Self::Error> {
        Ok(Self {
            run_id: update.run_id,
            run: update.run,
            state: RunState::parse(&update.state).ok_or("a known state of the run")?,
            partial: update.partial,
            loop_in_words: update.r#loop,
            steps_done: update.steps_done,
            steps_total: update.steps_total,
            elapsed: micros(update.elapsed_us).unwrap_or_default(),
            left: micros(update.expected_left_us),
            step: update.step.map(StepNow::from),
            messages: update.messages,
            finished: update.finished.into_iter().map(StepDone::from).collect(),
            removed_files: update.removed_files,
            events: update
                .events
                .into_iter()
                .map(|event| EventNow {
                    event_id: event.event_id,
                    at_us: event.at_us,
                    severity: event.severity,
                    agent: event.agent,
                    message: event.message,
                })
                .collect(),
            slowest_client: update.slowest_client.map(|client| ClientNow {
                agent: client.agent,
                ops_per_s: client.ops_per_s,
                clients: client.clients,
            }),
            busiest_daemon: update.busiest_daemon.map(|daemon| DaemonNow {
                host: daemon.host,
                name: daemon.name,
                instance: daemon.instance,
                cpu_percent: daemon.cpu_percent,
                rss_bytes: daemon.rss_bytes,
            }),
        })
    }
}

impl From<v1::StepUpdate> for StepNow {
    fn from(step: v1::StepUpdate) -> Self {
        Self {
            ordinal: step.ordinal,
            phase: step.phase,
            target: step.target,
            mode: step.mode,
            params: params(&step.params_json),
            state: step.state,
            clients: step.clients,
            ops_per_s: step.ops_per_s,
            bytes_per_s: step.bytes_per_s,
            p50_ms: step.p50_ms,
            p99_ms: step.p99_ms,
            share_done: Some(step.share_done).filter(|share| (0.0..=1.0).contains(share)),
            elapsed: micros(step.elapsed_us).unwrap_or_default(),
            peer: step.peer,
            silent: micros(step.silent_us).unwrap_or_default(),
        }
    }
}

impl From<v1::StepSummary> for StepDone {
    fn from(step: v1::StepSummary) -> Self {
        Self {
            ordinal: step.ordinal,
            phase: step.phase,
            target: step.target,
            mode: step.mode,
            params: params(&step.params_json),
            state: step.state,
            ops: step.ops.into_iter().map(OpDone::from).collect(),
            flags: step.flags,
            link: step.link,
        }
    }
}

impl From<v1::OpSummary> for OpDone {
    fn from(op: v1::OpSummary) -> Self {
        Self {
            group: op.group,
            op: op.op,
            ops_per_s: op.ops_per_s,
            bytes_per_s: op.bytes_per_s,
            p50_ms: op.p50_ms,
            p99_ms: op.p99_ms,
            response_p99_ms: op.response_p99_ms,
            errors: op.errors,
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
            policy: agent.policy.map(PolicyRow::from),
        }
    }
}

impl From<v1::AgentPolicy> for PolicyRow {
    fn from(policy: v1::AgentPolicy) -> Self {
        Self {
            devices: policy.devices,
            workloads: policy.workloads,
            memory_bytes: policy.memory_bytes,
            threads: policy.threads,
            cpus: policy.cpus,
            rate_bytes_per_s: policy.rate_bytes_per_s,
            free_space: policy.free_space,
            free_inodes: policy.free_inodes,
            networks: policy.networks,
            drop_caches: policy.drop_caches,
            hours: policy.hours,
        }
    }
}

impl From<v1::RunFacts> for RunRow {
    fn from(run: v1::RunFacts) -> Self {
        // The wire has no absent instant: zero stands for it.
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

/// An annotation as the wire has it.
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

/// Parameters that are no object are shown as none: they are for display alone.
fn params(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}
