//! Conversion from the wire to our own types: the only module of ingest that names `proto`.
//!
//! Numbers are checked for their range, names for their length, the columns of daemon samples for equal length, and
//! histograms for validity. Free text (command lines, messages) is truncated; names that are too long are refused.

mod checks;
mod samples;

use crate::distribution::Distribution;
use benchmesh_model::events::{EventSource, WireKind};
use benchmesh_model::systems::facts::Value;
use std::collections::HashSet;

pub use checks::BatchError;
use checks::{
    LARGEST_SUM, LATEST_US, LONGEST_US, MAX_DAEMONS, MAX_DEVICES, MAX_EVENTS, NAME_BYTES,
    PACKED_BYTES, TEXT_BYTES, count, counter, cut_to, filled, instant, known_counter,
    known_instant, name, range, row_id, sequence, text, unsigned,
};
use samples::{daemon_samples, disk_sample, host_sample, net_sample, target_sample};

use super::{
    AgentEvent, Batch, ClockOffset, DaemonSeen, ErrorCount, Fact, Loss, OpInterval, Process,
    TaskEnd,
};
use benchmesh_model::mesh::{LossKind, RunId, StepId, TaskId, TaskState};
use benchmesh_proto::v1 as proto;
use benchmesh_workloads::histogram::Blob;
use benchmesh_workloads::op::Op;

impl TryFrom<proto::Batch> for Batch {
    type Error = BatchError;

    fn try_from(wire: proto::Batch) -> Result<Self, BatchError> {
        bounded(&wire)?;
        let mut batch = Batch {
            spool_id: name("spool_id", wire.spool_id)?,
            first_sequence: sequence("first_sequence", wire.first_sequence)?,
            sequence: sequence("sequence", wire.sequence)?,
            op_intervals: all(wire.op_intervals, op_interval)?,
            daemons: all(wire.daemons, daemon_seen)?,
            daemon_samples: match wire.daemon_samples {
                Some(columns) => daemon_samples(columns)?,
                None => Vec::new(),
            },
            host_samples: all(wire.host_samples, host_sample)?,
            disk_samples: all(wire.disk_samples, disk_sample)?,
            net_samples: all(wire.net_samples, net_sample)?,
            target_samples: all(wire.target_samples, target_sample)?,
            clock_offsets: all(wire.clock_offsets, clock_offset)?,
            events: all(wire.events, event)?,
            facts: all(wire.facts, fact)?,
            losses: all(wire.losses, loss)?,
            task_ends: all(wire.task_ends, task_end)?,
            newest_us: 0,
            stands_in_since: None,
        };
        if batch.first_sequence > batch.sequence {
            return Err(BatchError::Invalid {
                field: "first_sequence",
                why: format!(
                    "it is {}, but sequence is only {}",
                    batch.first_sequence, batch.sequence
                ),
            });
        }
        batch.newest_us = newest(&batch);
        Ok(batch)
    }
}

/// Checks that this version knows the operation. Whether the task's workload may record it is checked later.
fn operation(field: &'static str, found: &str) -> Result<String, BatchError> {
    match Op::parse(found) {
        Some(op) => Ok(op.as_str().to_owned()),
        None => Err(BatchError::Word {
            field,
            found: text(found.to_owned()),
        }),
    }
}

fn all<W, T>(wire: Vec<W>, one: impl Fn(W) -> Result<T, BatchError>) -> Result<Vec<T>, BatchError> {
    wire.into_iter().map(one).collect()
}

/// Refuses batches that no correct agent sends: each device and each event costs a row, which in most cases is never
/// deleted.
fn bounded(wire: &proto::Batch) -> Result<(), BatchError> {
    fn different<'n>(names: impl Iterator<Item = &'n str>) -> usize {
        names.collect::<HashSet<_>>().len()
    }
    let disks = different(wire.disk_samples.iter().map(|sample| sample.disk.as_str()));
    let interfaces = different(
        wire.net_samples
            .iter()
            .map(|sample| sample.interface.as_str()),
    );
    let targets = different(
        wire.target_samples
            .iter()
            .map(|sample| sample.nonce.as_str()),
    );
    for (field, found, most) in [
        ("disk_samples.disk", disks, MAX_DEVICES),
        ("net_samples.interface", interfaces, MAX_DEVICES),
        ("target_samples.nonce", targets, MAX_DEVICES),
        ("daemons", wire.daemons.len(), MAX_DAEMONS),
        ("events", wire.events.len(), MAX_EVENTS),
    ] {
        if found > most {
            return Err(BatchError::TooMany { field, found, most });
        }
    }
    Ok(())
}

fn newest(batch: &Batch) -> i64 {
    let spans = batch.op_intervals.iter().map(|i| i.at.0 + i.span_us);
    let instants = (batch.daemons.iter().map(|d| d.at.0))
        .chain(batch.daemon_samples.iter().map(|s| s.at.0))
        .chain(batch.host_samples.iter().map(|s| s.at.0))
        .chain(batch.disk_samples.iter().map(|s| s.at.0))
        .chain(batch.net_samples.iter().map(|s| s.at.0))
        .chain(batch.target_samples.iter().map(|s| s.at.0))
        .chain(batch.clock_offsets.iter().map(|o| o.at.0))
        .chain(batch.events.iter().map(|e| e.at.0))
        .chain(batch.facts.iter().map(|f| f.at.0))
        .chain(batch.losses.iter().map(|l| l.until.0))
        .chain(
            batch
                .task_ends
                .iter()
                .flat_map(|t| [t.start, t.first_done, t.ended])
                .flatten()
                .map(|at| at.0),
        );
    spans.chain(instants).max().unwrap_or(0)
}

fn op_interval(wire: proto::OpInterval) -> Result<OpInterval, BatchError> {
    let service = wire.service.ok_or(BatchError::Missing {
        field: "op_intervals.service",
    })?;
    Ok(OpInterval {
        task: TaskId(row_id("op_intervals.task_id", wire.task_id)?),
        run_uid: run_uid("op_intervals.run_uid", wire.run_uid)?,
        at: instant("op_intervals.at_us", wire.at_us)?,
        span_us: range("op_intervals.span_us", wire.span_us, 1, LONGEST_US)?,
        op: operation("op_intervals.op", &wire.op)?,
        ramp: wire.ramp,
        ops: count("op_intervals.ops", wire.ops)?,
        bytes: count("op_intervals.bytes", wire.bytes)?,
        undated_bytes: count("op_intervals.undated_bytes", wire.undated_bytes)?,
        errors: count("op_intervals.errors", wire.errors)?,
        in_flight: i64::from(wire.in_flight),
        service: distribution("op_intervals.service", service)?,
        response: wire
            .response
            .map(|response| distribution("op_intervals.response", response))
            .transpose()?,
    })
}

/// The blob is stored as it is; decoding it once here validates it and gives its percentiles.
fn distribution(
    field: &'static str,
    wire: proto::Distribution,
) -> Result<Distribution, BatchError> {
    let blob = Blob {
        v2_deflate: wire.histogram,
        count: wire.count,
        sum_ns: wire.sum_ns,
        sum_squares_ns2: wire.sum_squares_ns2,
        min_ns: wire.min_ns,
        max_ns: wire.max_ns,
        saturated: wire.saturated,
    };
    let invalid = |why: String| BatchError::Invalid { field, why };
    if blob.v2_deflate.len() > PACKED_BYTES {
        return Err(invalid(format!(
            "{} bytes are more than any histogram needs",
            blob.v2_deflate.len()
        )));
    }
    count(field, blob.count)?;
    count(field, blob.max_ns)?;
    let bound = LARGEST_SUM;
    if !(0.0..=bound).contains(&blob.sum_ns) || !(0.0..=bound).contains(&blob.sum_squares_ns2) {
        return Err(invalid(
            "its sums are negative, or larger than those of any histogram".to_owned(),
        ));
    }
    Distribution::decode(blob).map_err(|error| invalid(error.to_string()))
}

fn process(field: &'static str, pid: i32, start_ticks: u64) -> Result<Process, BatchError> {
    range(field, i64::from(pid), 0, i64::from(i32::MAX))?;
    Ok(Process {
        pid,
        start_ticks: unsigned(field, start_ticks, 0, i64::MAX)?,
    })
}

fn daemon_seen(wire: proto::DaemonSeen) -> Result<DaemonSeen, BatchError> {
    Ok(DaemonSeen {
        process: process("daemons.pid", wire.pid, wire.start_ticks)?,
        name: name("daemons.name", wire.name)?,
        instance: cut_to(NAME_BYTES, wire.instance),
        cmdline: text(wire.cmdline),
        version: cut_to(NAME_BYTES, wire.version),
        is_replaced: wire.is_replaced,
        at: instant("daemons.at_us", wire.at_us)?,
        ended: wire.ended,
        born: known_instant("daemons.born_us", wire.born_us)?,
        is_parent: wire.is_parent,
    })
}

fn clock_offset(wire: proto::ClockOffset) -> Result<ClockOffset, BatchError> {
    Ok(ClockOffset {
        at: instant("clock_offsets.at_us", wire.at_us)?,
        offset_us: range(
            "clock_offsets.offset_us",
            wire.offset_us,
            -LATEST_US,
            LATEST_US,
        )?,
        error_us: range("clock_offsets.error_us", wire.error_us, 0, LONGEST_US)?,
        round_trip_us: range(
            "clock_offsets.round_trip_us",
            wire.round_trip_us,
            0,
            LONGEST_US,
        )?,
    })
}

fn event(wire: proto::Event) -> Result<AgentEvent, BatchError> {
    // An unknown severity from a newer agent must not cause the refusal of the batch.
    let detail_json = match wire.detail_json {
        detail if detail.is_empty() => None,
        // Truncated JSON is invalid.
        detail if detail.len() > TEXT_BYTES => {
            Some(format!("{{\"left_out_bytes\":{}}}", detail.len()))
        }
        detail => {
            serde_json::from_str::<serde::de::IgnoredAny>(&detail).map_err(|error| {
                BatchError::Invalid {
                    field: "events.detail_json",
                    why: error.to_string(),
                }
            })?;
            Some(detail)
        }
    };
    let kind = WireKind::received(name("events.kind", wire.kind)?, &wire.severity);
    if kind.source() == EventSource::Collector {
        let kind = kind.as_str().to_owned();
        return Err(BatchError::Reserved { kind });
    }
    let known = |field, id| match id {
        0 => Ok(None),
        id => row_id(field, id).map(Some),
    };
    Ok(AgentEvent {
        at: instant("events.at_us", wire.at_us)?,
        run_uid: run_uid("events.run_uid", wire.run_uid)?,
        run: known("events.run_id", wire.run_id)?.map(RunId),
        step: known("events.step_id", wire.step_id)?.map(StepId),
        kind,
        message: text(wire.message),
        detail_json,
    })
}

/// May be empty.
fn run_uid(field: &'static str, found: String) -> Result<String, BatchError> {
    match found.is_empty() {
        true => Ok(found),
        false => name(field, found),
    }
}

fn fact(wire: proto::Fact) -> Result<Fact, BatchError> {
    let value = match wire.number {
        Some(number) if number.is_finite() => Value::Number(number),
        Some(number) => {
            return Err(BatchError::Invalid {
                field: "facts.number",
                why: format!("{number} is not a finite number"),
            });
        }
        None => Value::Text(name("facts.text", wire.text)?),
    };
    let unit = match wire.unit.is_empty() {
        true => None,
        false => Some(name("facts.unit", wire.unit)?),
    };
    Ok(Fact {
        at: instant("facts.at_us", wire.at_us)?,
        system: name("facts.system", wire.system)?,
        name: name("facts.name", wire.name)?,
        value,
        unit,
        run: (wire.run_id > 0).then_some(RunId(wire.run_id)),
    })
}

fn loss(wire: proto::Loss) -> Result<Loss, BatchError> {
    Ok(Loss {
        what: LossKind::parse(&wire.what).ok_or_else(|| BatchError::Word {
            field: "losses.what",
            found: text(wire.what.clone()),
        })?,
        rows: count("losses.rows", wire.rows)?,
        from: instant("losses.from_us", wire.from_us)?,
        until: instant("losses.until_us", wire.until_us)?,
    })
}

fn task_end(wire: proto::TaskEnd) -> Result<TaskEnd, BatchError> {
    let state = TaskState::parse(&wire.state)
        .filter(|state| {
            matches!(
                state,
                TaskState::Done | TaskState::Failed | TaskState::Stopped
            )
        })
        .ok_or_else(|| BatchError::Word {
            field: "task_ends.state",
            found: text(wire.state.clone()),
        })?;
    Ok(TaskEnd {
        task: TaskId(row_id("task_ends.task_id", wire.task_id)?),
        run_uid: run_uid("task_ends.run_uid", wire.run_uid)?,
        state,
        workers: wire.workers,
        start: known_instant("task_ends.start_us", wire.start_us)?,
        skew_us: range("task_ends.skew_us", wire.skew_us, -LONGEST_US, LONGEST_US)?,
        skew_error_us: range("task_ends.skew_error_us", wire.skew_error_us, 0, LONGEST_US)?,
        first_done: known_instant("task_ends.first_done_us", wire.first_done_us)?,
        ended: known_instant("task_ends.ended_us", wire.ended_us)?,
        last_begun: known_instant("task_ends.last_begun_us", wire.last_begun_us)?,
        cpu_user_us: known_counter("task_ends.cpu_user_us", wire.cpu_user_us)?,
        cpu_system_us: known_counter("task_ends.cpu_system_us", wire.cpu_system_us)?,
        wait_cpu_us: known_counter("task_ends.wait_cpu_us", wire.wait_cpu_us)?,
        harness_ns_per_op: counter("task_ends.harness_ns_per_op", wire.harness_ns_per_op)?,
        error: filled(wire.error),
        errors: all(wire.errors, |error| {
            Ok(ErrorCount {
                op: operation("task_ends.errors.op", &error.op)?,
                errno: error.errno,
                count: count("task_ends.errors.count", error.count)?,
                first: text(error.first),
            })
        })?,
    })
}
