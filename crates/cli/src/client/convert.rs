//! Conversion of generated types to the commands' own types.

use super::facts::{AgentRow, PlannedStep, RunResumed, RunRow, RunStarted, StopDone, Update};
use benchmesh_answers::query::ResultRow;
use benchmesh_model::figures::{DaemonFigures, Figures};
use benchmesh_model::mesh::{RunId, RunState, StepId, StepState};
use benchmesh_plan::AgentPolicy;
use benchmesh_proto::v1;
use benchmesh_scheduler::snapshot::{
    AlarmNow, ClientRate, DaemonNow, EventNow, LoadNow, Newest, ObjectiveNow, OpDone, RunNow,
    StepDone, StepNow,
};
use benchmesh_store::annotate::{Annotation, ListedRun};
use serde_json::{Map, Value};
use std::time::Duration;

fn objective(objective: v1::ObjectiveUpdate) -> ObjectiveNow {
    ObjectiveNow {
        holds: objective.holds,
        seconds: objective.seconds,
        bad_seconds: objective.bad_seconds,
        budget_s: objective.budget_s,
        broken: objective.broken,
    }
}

fn alarm(alarm: v1::AlarmUpdate) -> AlarmNow {
    AlarmNow {
        when: alarm.when,
        because: alarm.because,
    }
}

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

/// The wire uses 0 or -1 for unknown values.
impl TryFrom<v1::RunUpdate> for Update {
    type Error = &'static str;

    fn try_from(update: v1::RunUpdate) -> Result<Self, Self::Error> {
        let slowest = update.slowest_client;
        let clients = slowest.as_ref().map_or(0, |client| client.clients);
        let slowest = slowest.into_iter().chain(update.other_clients);
        let busiest = update.busiest_daemon.into_iter();
        Ok(Self {
            clients,
            run: RunNow {
                run_id: RunId(update.run_id),
                run: update.run,
                state: RunState::parse(&update.state).ok_or("a known state of the run")?,
                partial: update.partial,
                loop_in_words: update.r#loop,
                steps_done: size(update.steps_done),
                steps_total: size(update.steps_total),
                started_us: None,
                elapsed_us: update.elapsed_us,
                left_us: Some(update.expected_left_us).filter(|left| *left >= 0),
                left_is_low: update.left_is_low,
                // Computed where it is shown, so that it also holds across two collectors.
                share_done: 0.0,
                removed_files: update.removed_files,
                alarms: update.alarms.into_iter().map(alarm).collect(),
                objectives: update.objectives.into_iter().map(objective).collect(),
                step: update.step.map(step_now).transpose()?,
                clients: slowest.map(client_rate).collect(),
                messages: update.messages,
                finished: update
                    .finished
                    .into_iter()
                    .map(step_done)
                    .collect::<Result<_, _>>()?,
                marks: Vec::new(),
            },
            daemons: busiest
                .chain(update.other_daemons)
                .map(daemon_now)
                .collect(),
            events: update.events.into_iter().map(event).collect(),
        })
    }
}

fn client_rate(client: v1::ClientUpdate) -> ClientRate {
    ClientRate {
        agent: client.agent,
        ops_per_s: client.ops_per_s,
        bytes_per_s: client.bytes_per_s,
        is_absent: client.absent,
    }
}

fn daemon_now(daemon: v1::DaemonUpdate) -> DaemonNow {
    DaemonNow {
        host: daemon.host,
        name: daemon.name,
        instance: daemon.instance,
        cpu_percent: Some(daemon.cpu_percent),
        newest: Newest {
            figures: DaemonFigures {
                rss_bytes: daemon.rss_bytes,
                ..DaemonFigures::UNREAD
            },
            ..Newest::default()
        },
        ..DaemonNow::default()
    }
}

fn event(event: v1::EventUpdate) -> EventNow {
    EventNow {
        event_id: event.event_id,
        at_us: event.at_us,
        severity: event.severity,
        agent: Some(event.agent).filter(|agent| !agent.is_empty()),
        message: event.message,
        ..EventNow::default()
    }
}

fn step_state(word: &str) -> Result<StepState, &'static str> {
    StepState::parse(word).ok_or("a known state of the step")
}

fn step_now(step: v1::StepUpdate) -> Result<StepNow, &'static str> {
    Ok(StepNow {
        step_id: StepId(step.step_id),
        ordinal: step.ordinal,
        phase: step.phase,
        target: step.target,
        mode: step.mode,
        params: params(&step.params_json),
        peer: step.peer,
        state: step_state(&step.state)?,
        clients: step.clients,
        clients_absent: size(step.clients_absent),
        elapsed_us: step.elapsed_us,
        share_done: Some(step.share_done).filter(|share| (0.0..=1.0).contains(share)),
        silent_us: step.silent_us,
        load: LoadNow {
            ops_per_s: step.ops_per_s,
            bytes_per_s: step.bytes_per_s,
            p50_ms: known(step.p50_ms),
            p99_ms: known(step.p99_ms),
            max_ms: known(step.max_ms),
            response_p99_ms: known(step.response_p99_ms),
            ..LoadNow::default()
        },
        start_us: None,
        seconds: Vec::new(),
    })
}

fn step_done(step: v1::StepSummary) -> Result<StepDone, &'static str> {
    Ok(StepDone {
        step_id: StepId(step.step_id),
        ordinal: step.ordinal,
        phase: step.phase,
        target: step.target,
        workload: step.workload,
        mode: step.mode,
        params: params(&step.params_json),
        link: step.link,
        clients: step.clients,
        state: step_state(&step.state)?,
        max_skew_us: Some(step.max_skew_us).filter(|skew| *skew != 0),
        skew_error_us: Some(step.skew_error_us).filter(|error| *error != 0),
        flags: step.flags,
        ops: step.ops.into_iter().map(op_done).collect(),
    })
}

fn op_done(op: v1::OpSummary) -> OpDone {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    OpDone {
        group: op.group,
        op: op.op,
        ops: count(op.ops),
        errors: count(op.errors),
        ops_per_s: known(op.ops_per_s),
        bytes_per_s: known(op.bytes_per_s),
        mean_ms: op.mean_ms,
        p50_ms: op.p50_ms,
        p99_ms: op.p99_ms,
        max_ms: op.max_ms,
        response_p99_ms: op.response_p99_ms,
    }
}

fn known(value: f64) -> Option<f64> {
    Some(value).filter(|value| *value > 0.0)
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
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

impl From<ListedRun> for RunRow {
    fn from(listed: ListedRun) -> Self {
        let run = listed.run;
        Self {
            id: run.id.0,
            stopping: run.stop_reason.is_some() && !run.state.is_end(),
            uid: run.uid,
            name: run.name,
            state: run.state.as_str().to_owned(),
            partial: run.partial,
            created_us: run.created.0,
            started_us: run.started.map(|at| at.0),
            ended_us: run.ended.map(|at| at.0),
            steps_done: listed.steps_done,
            steps_total: listed.steps_total,
            tags: listed.tags,
            notes: listed.notes,
            imported_from: listed.imported_from.unwrap_or_default(),
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
