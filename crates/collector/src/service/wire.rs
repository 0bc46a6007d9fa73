//! Conversion of the collector's types to messages of `Control`, and of its errors to statuses.

mod watched;

use benchmesh_answers::{
    compare::CompareError,
    query::{self, QueryError, Value},
};
use benchmesh_model::mesh::{MeshMicros, RunState};
use benchmesh_plan::{AgentPolicy, PlannedStep};
use benchmesh_proto::v1;
use benchmesh_scheduler::{
    sessions::MemberFacts,
    snapshot::{
        AlarmNow, ClientRate, DaemonNow, ObjectiveNow, OpDone, RunNow, Snapshot, StepDone, StepNow,
    },
};
use benchmesh_store::{
    StoreError,
    annotate::{AnnotateError, Annotation, ListedRun, RunSearch},
    import::StoreImportError,
    ingest::IngestError,
    rows::RunRow,
};
use benchmesh_workloads::error_chain;
use serde_json::Map;
use tonic::Status;
pub(super) use watched::{WatchPosition, add_events};

/// The status of a refused batch.
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

/// A failing database is not the caller's fault.
pub(super) fn store_status(error: &StoreError) -> Status {
    let message = error_chain(error);
    match error {
        StoreError::NoSuch { .. } | StoreError::NoRunYet => Status::not_found(message),
        StoreError::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn planned_step(step: &PlannedStep) -> v1::PlannedStep {
    let peers: Vec<&str> = step.receivers().into_iter().collect();
    v1::PlannedStep {
        ordinal: step.ordinal,
        repeat: step.repeat,
        phase: step.phase.clone(),
        target: step.target.clone(),
        workload: step.workload.clone(),
        mode: step.mode.clone(),
        params_json: params_json((*step.params).clone()),
        agents: step.agents().into_iter().map(str::to_owned).collect(),
        peer: peers.join(", "),
        bytes: signed(step.moved_bytes),
        files: signed(step.files),
        expected_us: step.expected.map_or(0, |expected| {
            i64::try_from(expected.as_micros()).unwrap_or(i64::MAX)
        }),
        link: step.link(),
        cache: step.cache.as_str().to_owned(),
    }
}

pub(super) fn agent_facts(facts: MemberFacts) -> v1::AgentFacts {
    let hello = &facts.hello;
    v1::AgentFacts {
        agent_id: facts.id.0,
        name: hello.name.clone(),
        attached: facts.attached,
        labels: hello.labels.clone().into_iter().collect(),
        host: hello.host_name.clone(),
        kernel: hello.kernel.clone(),
        cpus: hello.cpus,
        memory_bytes: hello.memory_bytes,
        allowed_paths: facts
            .hello
            .allowed
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        version: hello.version.clone(),
        last_seen_us: facts.last_seen.0,
        clock_error_us: facts.clock_error_us,
        round_trip_us: facts.round_trip_us,
        samples_host: facts.attached && facts.sampling.host_wide,
        address: facts.address,
        policy: hello.policy.clone().map(policy),
    }
}

fn policy(policy: AgentPolicy) -> v1::AgentPolicy {
    v1::AgentPolicy {
        devices: policy.devices,
        workloads: policy.workloads,
        memory_bytes: signed(policy.memory_bytes),
        threads: policy.threads,
        rate_bytes_per_s: signed(policy.rate_bytes_per_s),
        free_space: policy.free_space,
        free_inodes: policy.free_inodes,
        networks: policy.networks,
        drop_caches: policy.drop_caches,
    }
}

/// A run and how many of its steps have ended.
pub(super) fn run_facts(listed: ListedRun) -> v1::RunFacts {
    let run = listed.run;
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
        steps_done: listed.steps_done,
        steps_total: listed.steps_total,
        tags: listed.tags.into_iter().collect(),
        notes: listed.notes,
        imported_from: listed.imported_from.unwrap_or_default(),
    }
}

/// The annotation in a request, which may be missing.
pub(super) fn annotation(
    annotation: Option<v1::annotate_request::Annotation>,
) -> Result<Annotation, Status> {
    use v1::annotate_request::Annotation as Wire;
    match annotation {
        None => Err(Status::invalid_argument(
            "the request contains no annotation of the run",
        )),
        Some(Wire::Tag(tag)) => Ok(Annotation::Tag {
            set: tag.set.into_iter().collect(),
            remove: tag.remove,
        }),
        Some(Wire::Note(text)) => Ok(Annotation::Note(text)),
        Some(Wire::Mark(mark)) => Ok(Annotation::Mark {
            text: mark.text,
            at: mark.at_us.map(MeshMicros),
        }),
        Some(Wire::Baseline(name)) => Ok(Annotation::Baseline(name)),
    }
}

/// The filter of a list of runs.
pub(super) fn search(request: v1::ListRunsRequest, limit: u32) -> RunSearch {
    let tags = request.tags.iter().map(|tag| RunSearch::tag(tag));
    RunSearch {
        limit,
        tags: tags.collect(),
        text: request.text,
        target: request.target,
        since: request.since_us.map(MeshMicros),
        until: request.until_us.map(MeshMicros),
    }
}

pub(super) fn annotate_status(error: &AnnotateError) -> Status {
    match error {
        AnnotateError::Wrong(message) => Status::invalid_argument(message.clone()),
        AnnotateError::Store(error) => store_status(error),
    }
}

pub(super) fn import_status(error: &StoreImportError) -> Status {
    match error {
        StoreImportError::Known { .. } | StoreImportError::Wrong(_) => {
            Status::invalid_argument(error.to_string())
        }
        StoreImportError::Store(error) => store_status(error),
    }
}

pub(super) fn compare_status(error: &CompareError) -> Status {
    let message = error_chain(error);
    match error {
        CompareError::NoRun { .. } | CompareError::NoRunYet | CompareError::NoBaseline { .. } => {
            Status::not_found(message)
        }
        error if error.is_request() => Status::invalid_argument(message),
        _ => Status::internal(message),
    }
}

/// For replies that carry a state as text.
pub(super) fn state_word(state: RunState) -> String {
    state.as_str().to_owned()
}

pub(super) fn query_status(error: &QueryError) -> Status {
    let message = error_chain(error);
    match error {
        QueryError::NotReading
        | QueryError::SeveralStatements
        | QueryError::NoStatement
        | QueryError::ZeroByte
        | QueryError::Sql { .. } => Status::invalid_argument(message),
        QueryError::TimeLimit { .. } => Status::deadline_exceeded(message),
        QueryError::MemoryLimit { .. }
        | QueryError::TempLimit { .. }
        | QueryError::RowTooLarge { .. }
        | QueryError::AnswerTooLarge { .. }
        | QueryError::NoThread { .. } => Status::resource_exhausted(message),
        _ => Status::internal(message),
    }
}

pub(super) fn query_reply(rows: Vec<query::ResultRow>) -> v1::QueryReply {
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

/// A run that ended before the collector started.
pub(super) fn past_run(run: &RunRow, steps_done: usize, steps_total: usize) -> v1::RunUpdate {
    v1::RunUpdate {
        run_id: run.id.0,
        run: run.name.clone(),
        state: run.state.as_str().to_owned(),
        partial: run.partial,
        steps_done: small(steps_done),
        steps_total: small(steps_total),
        elapsed_us: run.ended.map_or(0, |ended| ended.since(run.started)),
        expected_left_us: 0,
        messages: run.reason.iter().cloned().collect(),
        ..v1::RunUpdate::default()
    }
}

/// Unknown values are -1 or 0 on the wire.
pub(super) fn run_update(run: RunNow) -> v1::RunUpdate {
    v1::RunUpdate {
        run_id: run.run_id.0,
        run: run.run,
        state: run.state.as_str().to_owned(),
        partial: run.partial,
        r#loop: run.loop_in_words,
        steps_done: small(run.steps_done),
        steps_total: small(run.steps_total),
        elapsed_us: run.elapsed_us,
        expected_left_us: run.left_us.unwrap_or(-1),
        left_is_low: run.left_is_low,
        step: run.step.map(step_update),
        messages: run.messages,
        finished: run.finished.into_iter().map(step_summary).collect(),
        removed_files: run.removed_files,
        alarms: run.alarms.into_iter().map(alarm_update).collect(),
        objectives: run.objectives.into_iter().map(objective_update).collect(),
        slowest_client: None,
        busiest_daemon: None,
        other_clients: Vec::new(),
        other_daemons: Vec::new(),
        events: Vec::new(),
    }
}

fn alarm_update(alarm: AlarmNow) -> v1::AlarmUpdate {
    v1::AlarmUpdate {
        when: alarm.when,
        because: alarm.because,
    }
}

fn objective_update(objective: ObjectiveNow) -> v1::ObjectiveUpdate {
    v1::ObjectiveUpdate {
        holds: objective.holds,
        seconds: objective.seconds,
        bad_seconds: objective.bad_seconds,
        budget_s: objective.budget_s,
        broken: objective.broken,
    }
}

/// Maximum number of clients and of daemons that a watcher gets: more than a terminal shows.
const WATCHED_ROWS: usize = 40;

/// Adds the slowest clients of the running step, and the busiest daemons that are not ours.
pub(super) fn add_detail(update: &mut v1::RunUpdate, snapshot: &Snapshot) {
    let is_of_step = |run: &&RunNow| {
        let step = run.step.as_ref().map(|step| step.step_id.0);
        update.step.is_some() && step == update.step.as_ref().map(|step| step.step_id)
    };
    if let Some(run) = snapshot.run.as_ref().filter(is_of_step) {
        let clients = small(run.clients.len());
        let mut slowest = run.clients.iter().take(WATCHED_ROWS);
        update.slowest_client = slowest.next().map(|client| client_update(client, clients));
        update.other_clients = slowest
            .map(|client| client_update(client, clients))
            .collect();
        if let (Some(shown), Some(step)) = (&mut update.step, &run.step) {
            shown.clients_absent = small(step.clients_absent);
        }
    }
    let mut busiest = snapshot
        .daemons
        .iter()
        .filter(|daemon| daemon.name != "benchmesh" && daemon.cpu_percent.is_some())
        .take(WATCHED_ROWS);
    update.busiest_daemon = busiest.next().map(daemon_update);
    update.other_daemons = busiest.map(daemon_update).collect();
}

fn client_update(client: &ClientRate, clients: u32) -> v1::ClientUpdate {
    v1::ClientUpdate {
        agent: client.agent.clone(),
        ops_per_s: client.ops_per_s,
        bytes_per_s: client.bytes_per_s,
        absent: client.is_absent,
        clients,
    }
}

fn daemon_update(daemon: &DaemonNow) -> v1::DaemonUpdate {
    v1::DaemonUpdate {
        host: daemon.host.clone(),
        name: daemon.name.clone(),
        instance: daemon.instance.clone(),
        cpu_percent: daemon.cpu_percent.unwrap_or(0.0),
        rss_bytes: daemon.newest.figures.rss_bytes,
    }
}

fn step_update(step: StepNow) -> v1::StepUpdate {
    v1::StepUpdate {
        step_id: step.step_id.0,
        ordinal: step.ordinal,
        phase: step.phase,
        target: step.target,
        mode: step.mode,
        params_json: params_json(step.params),
        state: step.state.as_str().to_owned(),
        clients: step.clients,
        ops_per_s: step.load.ops_per_s,
        bytes_per_s: step.load.bytes_per_s,
        p50_ms: step.load.p50_ms.unwrap_or(0.0),
        p99_ms: step.load.p99_ms.unwrap_or(0.0),
        max_ms: step.load.max_ms.unwrap_or(0.0),
        response_p99_ms: step.load.response_p99_ms.unwrap_or(0.0),
        clients_absent: 0,
        share_done: step.share_done.unwrap_or(-1.0),
        elapsed_us: step.elapsed_us,
        peer: step.peer,
        silent_us: step.silent_us,
    }
}

fn step_summary(step: StepDone) -> v1::StepSummary {
    v1::StepSummary {
        step_id: step.step_id.0,
        ordinal: step.ordinal,
        phase: step.phase,
        target: step.target,
        workload: step.workload,
        mode: step.mode,
        params_json: params_json(step.params),
        clients: step.clients,
        state: step.state.as_str().to_owned(),
        ops: step.ops.into_iter().map(op_summary).collect(),
        max_skew_us: step.max_skew_us.unwrap_or(0),
        skew_error_us: step.skew_error_us.unwrap_or(0),
        flags: step.flags,
        link: step.link,
    }
}

fn op_summary(op: OpDone) -> v1::OpSummary {
    v1::OpSummary {
        group: op.group,
        op: op.op,
        ops_per_s: op.ops_per_s.unwrap_or(0.0),
        bytes_per_s: op.bytes_per_s.unwrap_or(0.0),
        mean_ms: op.mean_ms,
        p50_ms: op.p50_ms,
        p99_ms: op.p99_ms,
        max_ms: op.max_ms,
        response_p99_ms: op.response_p99_ms,
        ops: u64::try_from(op.ops).unwrap_or(0),
        errors: u64::try_from(op.errors).unwrap_or(0),
    }
}

fn params_json(params: Map<String, serde_json::Value>) -> String {
    serde_json::Value::Object(params).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_proto::MAX_MESSAGE_BYTES;
    use proptest::prelude::*;
    use prost::Message;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Integer),
            any::<f64>().prop_map(Value::Real),
            any::<String>().prop_map(Value::Text),
            prop::collection::vec(any::<u8>(), 0..100).prop_map(Value::Blob),
        ]
    }

    proptest! {
        /// Every value arrives unchanged, and NULL is not an empty text.
        #[test]
        fn rows_keep_their_values(rows in prop::collection::vec(prop::collection::vec(value(), 0..6), 0..20)) {
            use v1::query_value::Value as Wire;
            let sent = query_reply(rows.clone()).encode_to_vec();
            let came = v1::QueryReply::decode(sent.as_slice()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(came.rows.len(), rows.len());
            for (row, came) in rows.into_iter().zip(came.rows) {
                let came: Vec<Value> = came
                    .values
                    .into_iter()
                    .map(|value| match value.value {
                        None => Value::Null,
                        Some(Wire::Integer(n)) => Value::Integer(n),
                        Some(Wire::Real(n)) => Value::Real(n),
                        Some(Wire::Text(text)) => Value::Text(text),
                        Some(Wire::Blob(bytes)) => Value::Blob(bytes),
                    })
                    .collect();
                // NaN is not equal to itself.
                prop_assert_eq!(format!("{row:?}"), format!("{came:?}"));
            }
        }
    }

    /// A watcher gets the busiest daemons, however many there are, and none of ours.
    #[test]
    fn a_watcher_gets_as_many_daemons_as_a_terminal_shows() {
        let daemon = |name: &str, number: i32| DaemonNow {
            name: name.to_owned(),
            pid: i64::from(number),
            cpu_percent: Some(f64::from(500 - number)),
            ..DaemonNow::default()
        };
        let ours = (0..10).map(|number| daemon("benchmesh", number));
        let others = (10..300).map(|number| daemon("ceph-osd", number));
        let snapshot = Snapshot {
            daemons: ours.chain(others).collect(),
            ..Snapshot::default()
        };
        let mut update = v1::RunUpdate::default();
        add_detail(&mut update, &snapshot);
        let shares = update.busiest_daemon.iter().chain(&update.other_daemons);
        let shares: Vec<f64> = shares.map(|daemon| daemon.cpu_percent).collect();
        let busiest = (10..50).map(|number| f64::from(500 - number));
        assert_eq!(shares, busiest.collect::<Vec<f64>>());
    }

    #[test]
    fn the_largest_batch_of_rows_fits_into_a_message() {
        // As many rows as a batch holds before it is passed on, as many columns as a statement has, and the longest
        // row.
        let small = vec![vec![Value::Integer(i64::MIN); 500]; 64];
        let long = vec![Value::Blob(vec![0; query::MAX_ROW_BYTES])];
        let reply = query_reply(small.into_iter().chain([long]).collect());
        assert!(reply.encoded_len() < MAX_MESSAGE_BYTES);
    }
}
