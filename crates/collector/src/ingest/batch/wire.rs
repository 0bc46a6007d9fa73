//! From the wire to our own types: the only place of the ingest that names `proto`.
//!
//! Every number is checked for its range, every name for its length, the columns of daemon samples for being equally
//! long, every histogram for being one. Free text (command lines, messages) is cut, names that are too long are refused.

use super::{
    AgentEvent, Batch, ClockOffset, DaemonSample, DaemonSeen, DiskSample, ErrorCount, HostSample,
    Loss, NetSample, OpInterval, Process, TaskEnd,
};
use crate::model::{MeshMicros, RunId, Severity, StepId, TaskId, TaskState};
use crate::results::histogram_of;
use benchmesh_proto::v1 as proto;
use benchmesh_workloads::histogram::Blob;

/// Names, ids and kinds, in bytes.
const NAME_BYTES: usize = 256;
/// Messages and command lines, in bytes; what is longer is cut.
const TEXT_BYTES: usize = 16 << 10;
/// Of one packed histogram: far above the largest that two digits over an hour can make.
const PACKED_BYTES: usize = 32 << 10;
/// The year 2000: an agent's clock is mapped to mesh time, so nothing can be older.
const EARLIEST_US: i64 = 946_684_800_000_000;
/// The year 2200: sums of instants stay far from the end of 64 bits.
const LATEST_US: i64 = 7_258_118_400_000_000;
/// A year, the longest span or interval that is believed.
const LONGEST_US: i64 = 366 * 86_400 * 1_000_000;
/// The largest cumulative counter that is believed: a difference of two always fits 64 bits.
const LARGEST: i64 = 1 << 62;
/// Sums of squares of an hour in nanoseconds, a million million times.
const LARGEST_SUM: f64 = 1e37;
/// The most operations or bytes of one interval: sums over thousands of intervals still fit 64 bits.
const LARGEST_COUNT: i64 = 1 << 50;

/// What is wrong with a batch.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BatchError {
    #[error("{field} of the batch is missing")]
    Missing { field: &'static str },
    #[error("{field} of the batch is {found}, which is not between {least} and {most}")]
    Range {
        field: &'static str,
        found: i128,
        least: i64,
        most: i64,
    },
    #[error("{field} of the batch is {found:?}, which is none of its words")]
    Word { field: &'static str, found: String },
    #[error(
        "{field} of the batch is empty, longer than {NAME_BYTES} bytes or has control characters"
    )]
    Name { field: &'static str },
    #[error("{field} of the batch has {found} values where pid has {expected}")]
    Columns {
        field: &'static str,
        found: usize,
        expected: usize,
    },
    #[error("{field} of the batch is not valid: {why}")]
    Invalid { field: &'static str, why: String },
}

impl TryFrom<proto::Batch> for Batch {
    type Error = BatchError;

    fn try_from(wire: proto::Batch) -> Result<Self, BatchError> {
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
            clock_offsets: all(wire.clock_offsets, clock_offset)?,
            events: all(wire.events, event)?,
            losses: all(wire.losses, loss)?,
            task_ends: all(wire.task_ends, task_end)?,
            newest_us: 0,
        };
        if batch.first_sequence > batch.sequence {
            return Err(BatchError::Invalid {
                field: "first_sequence",
                why: format!(
                    "it is {} and sequence only {}",
                    batch.first_sequence, batch.sequence
                ),
            });
        }
        batch.newest_us = newest(&batch);
        Ok(batch)
    }
}

fn all<W, T>(wire: Vec<W>, one: impl Fn(W) -> Result<T, BatchError>) -> Result<Vec<T>, BatchError> {
    wire.into_iter().map(one).collect()
}

fn newest(batch: &Batch) -> i64 {
    let spans = batch.op_intervals.iter().map(|i| i.at.0 + i.span_us);
    let instants = (batch.daemons.iter().map(|d| d.at.0))
        .chain(batch.daemon_samples.iter().map(|s| s.at.0))
        .chain(batch.host_samples.iter().map(|s| s.at.0))
        .chain(batch.disk_samples.iter().map(|s| s.at.0))
        .chain(batch.net_samples.iter().map(|s| s.at.0))
        .chain(batch.clock_offsets.iter().map(|o| o.at.0))
        .chain(batch.events.iter().map(|e| e.at.0))
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

fn range(field: &'static str, found: i64, least: i64, most: i64) -> Result<i64, BatchError> {
    if (least..=most).contains(&found) {
        return Ok(found);
    }
    Err(BatchError::Range {
        field,
        found: i128::from(found),
        least,
        most,
    })
}

fn unsigned(field: &'static str, found: u64, least: i64, most: i64) -> Result<i64, BatchError> {
    let refused = BatchError::Range {
        field,
        found: i128::from(found),
        least,
        most,
    };
    match i64::try_from(found) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(refused),
    }
}

fn sequence(field: &'static str, found: u64) -> Result<u64, BatchError> {
    unsigned(field, found, 1, i64::MAX)?;
    Ok(found)
}

fn count(field: &'static str, found: u64) -> Result<i64, BatchError> {
    unsigned(field, found, 0, LARGEST_COUNT)
}

fn counter(field: &'static str, found: i64) -> Result<i64, BatchError> {
    range(field, found, 0, LARGEST)
}

/// -1 stands for what could not be read.
fn readable(field: &'static str, found: i64) -> Result<Option<i64>, BatchError> {
    Ok(match range(field, found, -1, LARGEST)? {
        -1 => None,
        value => Some(value),
    })
}

fn instant(field: &'static str, found: i64) -> Result<MeshMicros, BatchError> {
    range(field, found, EARLIEST_US, LATEST_US).map(MeshMicros)
}

/// 0 stands for an instant that never came.
fn known_instant(field: &'static str, found: i64) -> Result<Option<MeshMicros>, BatchError> {
    match found {
        0 => Ok(None),
        at => instant(field, at).map(Some),
    }
}

fn row_id(field: &'static str, found: i64) -> Result<i64, BatchError> {
    range(field, found, 1, i64::MAX)
}

fn name(field: &'static str, found: String) -> Result<String, BatchError> {
    if found.is_empty() || found.len() > NAME_BYTES || found.chars().any(char::is_control) {
        return Err(BatchError::Name { field });
    }
    Ok(found)
}

/// Free text: cut to its bound at a character, zero bytes (which end a text for many readers) made blanks.
fn text(mut found: String) -> String {
    if found.len() > TEXT_BYTES {
        let end = (0..=TEXT_BYTES)
            .rev()
            .find(|&at| found.is_char_boundary(at))
            .unwrap_or(0);
        found.truncate(end);
    }
    if found.contains('\0') {
        return found.replace('\0', " ");
    }
    found
}

fn filled(found: String) -> Option<String> {
    Some(text(found)).filter(|text| !text.is_empty())
}

fn op_interval(wire: proto::OpInterval) -> Result<OpInterval, BatchError> {
    let service = wire.service.ok_or(BatchError::Missing {
        field: "op_intervals.service",
    })?;
    Ok(OpInterval {
        task: TaskId(row_id("op_intervals.task_id", wire.task_id)?),
        at: instant("op_intervals.at_us", wire.at_us)?,
        span_us: range("op_intervals.span_us", wire.span_us, 1, LONGEST_US)?,
        op: name("op_intervals.op", wire.op)?,
        ramp: wire.ramp,
        ops: count("op_intervals.ops", wire.ops)?,
        bytes: count("op_intervals.bytes", wire.bytes)?,
        errors: count("op_intervals.errors", wire.errors)?,
        in_flight: i64::from(wire.in_flight),
        service: distribution("op_intervals.service", service)?,
        response: wire
            .response
            .map(|response| distribution("op_intervals.response", response))
            .transpose()?,
    })
}

/// What is kept is the blob; decoding it once here is what makes it believed.
fn distribution(field: &'static str, wire: proto::Distribution) -> Result<Blob, BatchError> {
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
            "{} bytes are more than any histogram has",
            blob.v2_deflate.len()
        )));
    }
    count(field, blob.count)?;
    count(field, blob.max_ns)?;
    let bound = LARGEST_SUM;
    if !(0.0..=bound).contains(&blob.sum_ns) || !(0.0..=bound).contains(&blob.sum_squares_ns2) {
        return Err(invalid("its sums cannot be those of its values".to_owned()));
    }
    histogram_of(&blob).map_err(|error| invalid(error.to_string()))?;
    Ok(blob)
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
        instance: text(wire.instance),
        cmdline: text(wire.cmdline),
        at: instant("daemons.at_us", wire.at_us)?,
        ended: wire.ended,
    })
}

fn daemon_samples(wire: proto::DaemonSamples) -> Result<Vec<DaemonSample>, BatchError> {
    let expected = wire.pid.len();
    let columns = [
        ("daemon_samples.start_ticks", wire.start_ticks.len()),
        ("daemon_samples.at_us", wire.at_us.len()),
        ("daemon_samples.cpu_user_us", wire.cpu_user_us.len()),
        ("daemon_samples.cpu_system_us", wire.cpu_system_us.len()),
        ("daemon_samples.rss_bytes", wire.rss_bytes.len()),
        ("daemon_samples.vsz_bytes", wire.vsz_bytes.len()),
        ("daemon_samples.threads", wire.threads.len()),
        ("daemon_samples.fds", wire.fds.len()),
        ("daemon_samples.read_bytes", wire.read_bytes.len()),
        ("daemon_samples.write_bytes", wire.write_bytes.len()),
        ("daemon_samples.vol_ctx", wire.vol_ctx.len()),
        ("daemon_samples.invol_ctx", wire.invol_ctx.len()),
        ("daemon_samples.minor_faults", wire.minor_faults.len()),
        ("daemon_samples.major_faults", wire.major_faults.len()),
    ];
    if let Some(&(field, found)) = columns.iter().find(|(_, length)| *length != expected) {
        return Err(BatchError::Columns {
            field,
            found,
            expected,
        });
    }
    let mut start_ticks = wire.start_ticks.into_iter();
    let mut at_us = wire.at_us.into_iter();
    let mut cpu_user_us = wire.cpu_user_us.into_iter();
    let mut cpu_system_us = wire.cpu_system_us.into_iter();
    let mut rss_bytes = wire.rss_bytes.into_iter();
    let mut vsz_bytes = wire.vsz_bytes.into_iter();
    let mut threads = wire.threads.into_iter();
    let mut fds = wire.fds.into_iter();
    let mut read_bytes = wire.read_bytes.into_iter();
    let mut write_bytes = wire.write_bytes.into_iter();
    let mut vol_ctx = wire.vol_ctx.into_iter();
    let mut invol_ctx = wire.invol_ctx.into_iter();
    let mut minor_faults = wire.minor_faults.into_iter();
    let mut major_faults = wire.major_faults.into_iter();
    let mut rows = Vec::with_capacity(expected);
    for pid in wire.pid {
        // All columns are of one length, so none of them runs out.
        let (at, cpu_user) = (at_us.next(), cpu_user_us.next());
        rows.push(DaemonSample {
            process: process(
                "daemon_samples.pid",
                pid,
                start_ticks.next().unwrap_or_default(),
            )?,
            at: instant("daemon_samples.at_us", at.unwrap_or_default())?,
            cpu_user_us: counter("daemon_samples.cpu_user_us", cpu_user.unwrap_or_default())?,
            cpu_system_us: next("daemon_samples.cpu_system_us", &mut cpu_system_us)?,
            rss_bytes: next("daemon_samples.rss_bytes", &mut rss_bytes)?,
            vsz_bytes: next("daemon_samples.vsz_bytes", &mut vsz_bytes)?,
            threads: next("daemon_samples.threads", &mut threads)?,
            fds: readable("daemon_samples.fds", fds.next().unwrap_or(-1))?,
            read_bytes: readable("daemon_samples.read_bytes", read_bytes.next().unwrap_or(-1))?,
            write_bytes: readable(
                "daemon_samples.write_bytes",
                write_bytes.next().unwrap_or(-1),
            )?,
            vol_ctx: readable("daemon_samples.vol_ctx", vol_ctx.next().unwrap_or(-1))?,
            invol_ctx: readable("daemon_samples.invol_ctx", invol_ctx.next().unwrap_or(-1))?,
            minor_faults: next("daemon_samples.minor_faults", &mut minor_faults)?,
            major_faults: next("daemon_samples.major_faults", &mut major_faults)?,
        });
    }
    Ok(rows)
}

fn next(field: &'static str, column: &mut impl Iterator<Item = i64>) -> Result<i64, BatchError> {
    counter(field, column.next().unwrap_or_default())
}

fn host_sample(wire: proto::HostSample) -> Result<HostSample, BatchError> {
    if !wire.load1.is_finite() || wire.load1 < 0.0 {
        return Err(BatchError::Invalid {
            field: "host_samples.load1",
            why: format!("{} is no load", wire.load1),
        });
    }
    Ok(HostSample {
        at: instant("host_samples.at_us", wire.at_us)?,
        user_us: counter("host_samples.user_us", wire.user_us)?,
        nice_us: counter("host_samples.nice_us", wire.nice_us)?,
        system_us: counter("host_samples.system_us", wire.system_us)?,
        idle_us: counter("host_samples.idle_us", wire.idle_us)?,
        iowait_us: counter("host_samples.iowait_us", wire.iowait_us)?,
        irq_us: counter("host_samples.irq_us", wire.irq_us)?,
        softirq_us: counter("host_samples.softirq_us", wire.softirq_us)?,
        steal_us: counter("host_samples.steal_us", wire.steal_us)?,
        memory_total_bytes: counter("host_samples.memory_total_bytes", wire.memory_total_bytes)?,
        memory_available_bytes: counter(
            "host_samples.memory_available_bytes",
            wire.memory_available_bytes,
        )?,
        memory_free_bytes: counter("host_samples.memory_free_bytes", wire.memory_free_bytes)?,
        cached_bytes: counter("host_samples.cached_bytes", wire.cached_bytes)?,
        dirty_bytes: counter("host_samples.dirty_bytes", wire.dirty_bytes)?,
        writeback_bytes: counter("host_samples.writeback_bytes", wire.writeback_bytes)?,
        swap_used_bytes: counter("host_samples.swap_used_bytes", wire.swap_used_bytes)?,
        load1: wire.load1,
        cpu_some_us: readable("host_samples.cpu_some_us", wire.cpu_some_us)?,
        io_some_us: readable("host_samples.io_some_us", wire.io_some_us)?,
        io_full_us: readable("host_samples.io_full_us", wire.io_full_us)?,
        memory_some_us: readable("host_samples.memory_some_us", wire.memory_some_us)?,
        memory_full_us: readable("host_samples.memory_full_us", wire.memory_full_us)?,
    })
}

fn disk_sample(wire: proto::DiskSample) -> Result<DiskSample, BatchError> {
    Ok(DiskSample {
        at: instant("disk_samples.at_us", wire.at_us)?,
        disk: name("disk_samples.disk", wire.disk)?,
        reads: counter("disk_samples.reads", wire.reads)?,
        read_bytes: counter("disk_samples.read_bytes", wire.read_bytes)?,
        read_us: counter("disk_samples.read_us", wire.read_us)?,
        writes: counter("disk_samples.writes", wire.writes)?,
        write_bytes: counter("disk_samples.write_bytes", wire.write_bytes)?,
        write_us: counter("disk_samples.write_us", wire.write_us)?,
        in_flight: counter("disk_samples.in_flight", wire.in_flight)?,
        busy_us: counter("disk_samples.busy_us", wire.busy_us)?,
        queue_us: counter("disk_samples.queue_us", wire.queue_us)?,
        discards: counter("disk_samples.discards", wire.discards)?,
        flushes: counter("disk_samples.flushes", wire.flushes)?,
    })
}

fn net_sample(wire: proto::NetSample) -> Result<NetSample, BatchError> {
    Ok(NetSample {
        at: instant("net_samples.at_us", wire.at_us)?,
        interface: name("net_samples.interface", wire.interface)?,
        rx_bytes: counter("net_samples.rx_bytes", wire.rx_bytes)?,
        rx_packets: counter("net_samples.rx_packets", wire.rx_packets)?,
        rx_errors: counter("net_samples.rx_errors", wire.rx_errors)?,
        rx_dropped: counter("net_samples.rx_dropped", wire.rx_dropped)?,
        tx_bytes: counter("net_samples.tx_bytes", wire.tx_bytes)?,
        tx_packets: counter("net_samples.tx_packets", wire.tx_packets)?,
        tx_errors: counter("net_samples.tx_errors", wire.tx_errors)?,
        tx_dropped: counter("net_samples.tx_dropped", wire.tx_dropped)?,
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
    let severity = Severity::parse(&wire.severity).ok_or_else(|| BatchError::Word {
        field: "events.severity",
        found: text(wire.severity.clone()),
    })?;
    let detail_json = match filled(wire.detail_json) {
        None => None,
        Some(detail) => {
            serde_json::from_str::<serde::de::IgnoredAny>(&detail).map_err(|error| {
                BatchError::Invalid {
                    field: "events.detail_json",
                    why: error.to_string(),
                }
            })?;
            Some(detail)
        }
    };
    let known = |field, id| match id {
        0 => Ok(None),
        id => row_id(field, id).map(Some),
    };
    Ok(AgentEvent {
        at: instant("events.at_us", wire.at_us)?,
        run: known("events.run_id", wire.run_id)?.map(RunId),
        step: known("events.step_id", wire.step_id)?.map(StepId),
        severity,
        kind: name("events.kind", wire.kind)?,
        message: text(wire.message),
        detail_json,
    })
}

fn loss(wire: proto::Loss) -> Result<Loss, BatchError> {
    Ok(Loss {
        what: name("losses.what", wire.what)?,
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
        state,
        workers: wire.workers,
        start: known_instant("task_ends.start_us", wire.start_us)?,
        skew_us: range("task_ends.skew_us", wire.skew_us, -LONGEST_US, LONGEST_US)?,
        skew_error_us: range("task_ends.skew_error_us", wire.skew_error_us, 0, LONGEST_US)?,
        first_done: known_instant("task_ends.first_done_us", wire.first_done_us)?,
        ended: known_instant("task_ends.ended_us", wire.ended_us)?,
        cpu_user_us: counter("task_ends.cpu_user_us", wire.cpu_user_us)?,
        cpu_system_us: counter("task_ends.cpu_system_us", wire.cpu_system_us)?,
        wait_cpu_us: counter("task_ends.wait_cpu_us", wire.wait_cpu_us)?,
        harness_ns_per_op: counter("task_ends.harness_ns_per_op", wire.harness_ns_per_op)?,
        error: filled(wire.error),
        errors: all(wire.errors, |error| {
            Ok(ErrorCount {
                op: name("task_ends.errors.op", error.op)?,
                errno: error.errno,
                count: count("task_ends.errors.count", error.count)?,
                first: text(error.first),
            })
        })?,
    })
}
