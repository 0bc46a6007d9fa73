//! The encoding of batches in the spool and on the wire.
//!
//! The bytes are an encoded message without its spool and sequences, which the spool adds when it sends the batch.

mod samples;

use crate::envelope::Envelope;
use crate::telemetry::{
    Batch, ClockOffset, EndState, ErrorCount, Event, Fact, Loss, LossKind, MeshMicros, OpInterval,
    RunId, RunScope, RunUid, StepId, TaskEnd, TaskId, TelemetryRow,
};
use benchmesh_model::events::WireKind;
use benchmesh_model::systems::facts::Value;
use benchmesh_proto::v1;
use benchmesh_workloads::histogram::Blob;
use benchmesh_workloads::op::Op;
use prost::Message;
use samples::{daemon_samples, daemon_seen, disk_sample, host_sample, net_sample, target_sample};

/// Size limit of a batch, which leaves room for its spool and sequences.
pub const MAX_BYTES: usize = benchmesh_proto::MAX_BATCH_BYTES - 1024;

/// Bytes or a message of the wrong form.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("it is not a batch")]
    NotABatch {
        #[source]
        source: prost::DecodeError,
    },
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is {found}, {problem}")]
    Bad {
        field: &'static str,
        found: String,
        problem: &'static str,
    },
}

/// The bytes of a batch.
pub fn encode(batch: &Batch) -> Vec<u8> {
    let columns = daemon_samples(&batch.daemon_samples);
    v1::Batch {
        op_intervals: batch.op_intervals.iter().map(op_interval).collect(),
        daemons: batch.daemons.iter().map(daemon_seen).collect(),
        daemon_samples: (!batch.daemon_samples.is_empty()).then_some(columns),
        host_samples: batch.host_samples.iter().map(host_sample).collect(),
        disk_samples: batch.disk_samples.iter().map(disk_sample).collect(),
        net_samples: batch.net_samples.iter().map(net_sample).collect(),
        target_samples: batch.target_samples.iter().map(target_sample).collect(),
        clock_offsets: batch.clock_offsets.iter().map(clock_offset).collect(),
        events: batch.events.iter().map(event).collect(),
        facts: batch.facts.iter().map(fact).collect(),
        losses: batch.losses.iter().map(loss).collect(),
        task_ends: batch.task_ends.iter().map(task_end).collect(),
        ..v1::Batch::default()
    }
    .encode_to_vec()
}

/// Decodes a batch without its samples, which are counted as losses instead. Samples of targets are few and are kept.
///
/// # Errors
/// If the bytes are not a batch of this agent.
pub fn open(bytes: &[u8]) -> Result<Batch, WireError> {
    let wire = decode(bytes)?;
    let mut batch = Batch::default();
    for interval in wire.op_intervals {
        batch.push(TelemetryRow::OpInterval(interval.try_into()?));
    }
    for end in wire.task_ends {
        batch.push(TelemetryRow::TaskEnd(end.try_into()?));
    }
    for event in wire.events {
        batch.push(TelemetryRow::Event(event.into()));
    }
    for fact in wire.facts {
        batch.push(TelemetryRow::Fact(fact.into()));
    }
    for loss in wire.losses {
        batch.push(TelemetryRow::Loss(loss.try_into()?));
    }
    for seen in wire.daemons {
        batch.push(TelemetryRow::Daemon(seen.into()));
    }
    for sample in wire.target_samples {
        batch.push(TelemetryRow::TargetSample(sample.into()));
    }
    let daemon_samples = wire.daemon_samples.unwrap_or_default();
    given_up(
        &mut batch,
        LossKind::DaemonSamples,
        daemon_samples.at_us.iter().copied(),
    );
    given_up(
        &mut batch,
        LossKind::HostSamples,
        wire.host_samples.iter().map(|row| row.at_us),
    );
    given_up(
        &mut batch,
        LossKind::DiskSamples,
        wire.disk_samples.iter().map(|row| row.at_us),
    );
    given_up(
        &mut batch,
        LossKind::NetSamples,
        wire.net_samples.iter().map(|row| row.at_us),
    );
    given_up(
        &mut batch,
        LossKind::ClockOffsets,
        wire.clock_offsets.iter().map(|row| row.at_us),
    );
    Ok(batch)
}

fn given_up(batch: &mut Batch, what: LossKind, instants: impl Iterator<Item = i64>) {
    for at in instants {
        let at = MeshMicros(at);
        batch.push(TelemetryRow::Loss(Loss {
            what,
            rows: 1,
            from: at,
            until: at,
        }));
    }
}

fn decode(bytes: &[u8]) -> Result<v1::Batch, WireError> {
    v1::Batch::decode(bytes).map_err(|source| WireError::NotABatch { source })
}

/// Encodes the part of the message before an envelope's body. Protobuf concatenates parts of a message, so header and
/// body form one `Batch`, and a spooled body is sent unchanged.
pub(crate) fn header(envelope: &Envelope) -> Vec<u8> {
    v1::Batch {
        spool_id: envelope.spool.to_string(),
        first_sequence: envelope.first.0,
        sequence: envelope.sequence.0,
        ..v1::Batch::default()
    }
    .encode_to_vec()
}

fn op_interval(row: &OpInterval) -> v1::OpInterval {
    v1::OpInterval {
        task_id: row.task.0,
        at_us: row.at.0,
        span_us: row.span_us,
        op: row.op.as_str().to_owned(),
        ramp: row.ramp,
        ops: row.ops,
        bytes: row.bytes,
        undated_bytes: row.undated_bytes,
        errors: row.errors,
        in_flight: row.in_flight,
        service: Some(distribution(&row.service)),
        response: row.response.as_ref().map(distribution),
        run_uid: row.run_uid.as_str().to_owned(),
    }
}

impl TryFrom<v1::OpInterval> for OpInterval {
    type Error = WireError;

    fn try_from(row: v1::OpInterval) -> Result<Self, WireError> {
        let op = Op::parse(&row.op).ok_or(WireError::Bad {
            field: "op_intervals.op",
            found: row.op,
            problem: "which is no operation of this version",
        })?;
        let service = row.service.ok_or(WireError::Missing {
            field: "op_intervals.service",
        })?;
        Ok(Self {
            task: TaskId(row.task_id),
            run_uid: row.run_uid.into(),
            at: MeshMicros(row.at_us),
            span_us: row.span_us,
            op,
            ramp: row.ramp,
            ops: row.ops,
            bytes: row.bytes,
            undated_bytes: row.undated_bytes,
            errors: row.errors,
            in_flight: row.in_flight,
            service: blob(service),
            response: row.response.map(blob),
        })
    }
}

fn distribution(blob: &Blob) -> v1::Distribution {
    v1::Distribution {
        histogram: blob.v2_deflate.clone(),
        count: blob.count,
        sum_ns: blob.sum_ns,
        sum_squares_ns2: blob.sum_squares_ns2,
        min_ns: blob.min_ns,
        max_ns: blob.max_ns,
        saturated: blob.saturated,
    }
}

fn blob(wire: v1::Distribution) -> Blob {
    Blob {
        v2_deflate: wire.histogram,
        count: wire.count,
        sum_ns: wire.sum_ns,
        sum_squares_ns2: wire.sum_squares_ns2,
        min_ns: wire.min_ns,
        max_ns: wire.max_ns,
        saturated: wire.saturated,
    }
}

fn task_end(row: &TaskEnd) -> v1::TaskEnd {
    v1::TaskEnd {
        task_id: row.task.0,
        state: row.state.as_str().to_owned(),
        workers: row.workers,
        start_us: row.start.0,
        skew_us: row.skew_us,
        skew_error_us: row.skew_error_us,
        first_done_us: row.first_done.0,
        ended_us: row.ended.0,
        last_begun_us: row.last_begun.0,
        cpu_user_us: row.cpu_user_us,
        cpu_system_us: row.cpu_system_us,
        harness_ns_per_op: row.harness_ns_per_op,
        wait_cpu_us: row.wait_cpu_us,
        error: row.error.clone(),
        run_uid: row.run_uid.as_str().to_owned(),
        errors: row
            .errors
            .iter()
            .map(|error| v1::ErrorCount {
                op: error.op.clone(),
                errno: error.errno,
                count: error.count,
                first: error.first.clone(),
            })
            .collect(),
    }
}

impl TryFrom<v1::TaskEnd> for TaskEnd {
    type Error = WireError;

    fn try_from(row: v1::TaskEnd) -> Result<Self, WireError> {
        let state = EndState::parse(&row.state).ok_or(WireError::Bad {
            field: "task_ends.state",
            found: row.state,
            problem: "which is no end",
        })?;
        Ok(Self {
            task: TaskId(row.task_id),
            run_uid: row.run_uid.into(),
            state,
            workers: row.workers,
            start: MeshMicros(row.start_us),
            skew_us: row.skew_us,
            skew_error_us: row.skew_error_us,
            first_done: MeshMicros(row.first_done_us),
            ended: MeshMicros(row.ended_us),
            last_begun: MeshMicros(row.last_begun_us),
            cpu_user_us: row.cpu_user_us,
            cpu_system_us: row.cpu_system_us,
            harness_ns_per_op: row.harness_ns_per_op,
            wait_cpu_us: row.wait_cpu_us,
            error: row.error,
            errors: row
                .errors
                .into_iter()
                .map(|error| ErrorCount {
                    op: error.op,
                    errno: error.errno,
                    count: error.count,
                    first: error.first,
                })
                .collect(),
        })
    }
}

fn event(row: &Event) -> v1::Event {
    v1::Event {
        at_us: row.at.0,
        run_id: row.scope.run.map_or(0, |id| id.0),
        step_id: row.scope.step.map_or(0, |id| id.0),
        detail_json: row.detail.clone(),
        severity: row.kind.severity().as_str().to_owned(),
        kind: row.kind.as_str().to_owned(),
        message: row.message.clone(),
        run_uid: row.scope.run_uid.as_str().to_owned(),
    }
}

/// The wire uses 0 for an absent id.
pub(super) fn scope(run_uid: String, run_id: i64, step_id: i64) -> RunScope {
    RunScope {
        run_uid: RunUid::from(run_uid),
        run: (run_id != 0).then_some(RunId(run_id)),
        step: (step_id != 0).then_some(StepId(step_id)),
    }
}

impl From<v1::Event> for Event {
    fn from(row: v1::Event) -> Self {
        Self {
            at: MeshMicros(row.at_us),
            scope: scope(row.run_uid, row.run_id, row.step_id),
            kind: WireKind::received(row.kind, &row.severity),
            message: row.message,
            detail: row.detail_json,
        }
    }
}

fn fact(row: &Fact) -> v1::Fact {
    let (number, text) = match &row.value {
        Value::Number(number) => (Some(*number), String::new()),
        Value::Text(text) => (None, text.clone()),
    };
    v1::Fact {
        at_us: row.at.0,
        system: row.system.clone(),
        name: row.name.clone(),
        number,
        text,
        unit: row.unit.clone(),
        run_id: row.run.map_or(0, |run| run.0),
    }
}

impl From<v1::Fact> for Fact {
    fn from(row: v1::Fact) -> Self {
        Self {
            at: MeshMicros(row.at_us),
            run: (row.run_id > 0).then_some(RunId(row.run_id)),
            system: row.system,
            name: row.name,
            value: match row.number {
                Some(number) => Value::Number(number),
                None => Value::Text(row.text),
            },
            unit: row.unit,
        }
    }
}

fn loss(row: &Loss) -> v1::Loss {
    v1::Loss {
        what: row.what.as_str().to_owned(),
        rows: row.rows,
        from_us: row.from.0,
        until_us: row.until.0,
    }
}

impl TryFrom<v1::Loss> for Loss {
    type Error = WireError;

    fn try_from(row: v1::Loss) -> Result<Self, WireError> {
        let what = LossKind::parse(&row.what).ok_or(WireError::Bad {
            field: "losses.what",
            found: row.what,
            problem: "which is never lost",
        })?;
        let (from, until) = (MeshMicros(row.from_us), MeshMicros(row.until_us));
        Ok(Self {
            what,
            rows: row.rows,
            from,
            until,
        })
    }
}

fn clock_offset(row: &ClockOffset) -> v1::ClockOffset {
    v1::ClockOffset {
        at_us: row.at.0,
        offset_us: row.offset_us,
        error_us: row.error_us,
        round_trip_us: row.round_trip_us,
    }
}
