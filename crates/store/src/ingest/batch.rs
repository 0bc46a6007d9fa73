//! A batch as checked types, with units in the names.
//!
//! `wire` converts an agent's message, or names the field that is wrong. This module does not use the database; the
//! existence of a task or a daemon is checked later.

mod wire;

pub use wire::BatchError;

use crate::distribution::Distribution;
use benchmesh_model::events::{EventKind, WireKind};
use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, HostFigures, NetFigures, TargetFigures,
};
use benchmesh_model::mesh::{LossKind, MeshMicros, RunId, StepId, TaskId, TaskState};
use benchmesh_model::systems::facts::Value;

/// The key, the index entries and the header of a stored row: what it takes beyond the values that an agent sends.
const ROW_BYTES: usize = 100;

/// One spooled unit of telemetry, stored in one transaction.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub spool_id: String,
    pub first_sequence: u64,
    pub sequence: u64,
    pub op_intervals: Vec<OpInterval>,
    pub daemons: Vec<DaemonSeen>,
    pub daemon_samples: Vec<DaemonSample>,
    pub host_samples: Vec<HostSample>,
    pub disk_samples: Vec<DiskSample>,
    pub net_samples: Vec<NetSample>,
    pub target_samples: Vec<TargetSample>,
    pub clock_offsets: Vec<ClockOffset>,
    pub events: Vec<AgentEvent>,
    pub facts: Vec<Fact>,
    pub losses: Vec<Loss>,
    pub task_ends: Vec<TaskEnd>,
    /// The latest instant in the batch.
    pub newest_us: i64,
    /// From this instant on the agent samples the host as a stand-in; it must not change older rows of the host.
    pub stands_in_since: Option<MeshMicros>,
}

impl Batch {
    /// The number of rows to be stored.
    pub fn rows(&self) -> usize {
        self.op_intervals.len()
            + self.daemons.len()
            + self.daemon_samples.len()
            + self.host_samples.len()
            + self.disk_samples.len()
            + self.net_samples.len()
            + self.target_samples.len()
            + self.clock_offsets.len()
            + self.events.len()
            + self.facts.len()
            + self.losses.len()
            + self.task_ends.len()
    }

    /// About how many bytes of the database its rows take, from the size of its message.
    pub fn bytes_to_store(&self, message_bytes: usize) -> u64 {
        let of_errors: usize = self.task_ends.iter().map(|end| end.errors.len()).sum();
        let bytes = message_bytes + (self.rows() + of_errors) * ROW_BYTES;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The cost of keeping it in a queue, in rows of a few hundred bytes.
    pub(crate) fn weight(&self) -> usize {
        let packed = |one: &Distribution| one.blob.v2_deflate.len() / 256;
        let histograms = self.op_intervals.iter().map(|interval| {
            packed(&interval.service) + interval.response.as_ref().map_or(0, packed)
        });
        let texts = (self.daemons.iter().map(|daemon| daemon.cmdline.len()))
            .chain(self.events.iter().map(|event| event.message.len()))
            .map(|bytes| bytes / 256);
        self.rows() + histograms.chain(texts).sum::<usize>()
    }
}

/// The operations of one kind that one task completed in one interval.
#[derive(Clone, Debug)]
pub struct OpInterval {
    pub task: TaskId,
    /// The uid of the task's run; empty if the agent did not send it.
    pub run_uid: String,
    pub at: MeshMicros,
    pub span_us: i64,
    pub op: String,
    pub ramp: bool,
    pub ops: i64,
    pub bytes: i64,
    /// Bytes of operations that completed in this interval, for which the time of the transfer is unknown.
    pub undated_bytes: i64,
    pub errors: i64,
    pub in_flight: i64,
    pub service: Distribution,
    pub response: Option<Distribution>,
}

/// A process on the agent's host. Pids are reused; a pid and its start time together are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: i32,
    pub start_ticks: i64,
}

/// A daemon that was found, or has ended.
#[derive(Clone, Debug)]
pub struct DaemonSeen {
    pub process: Process,
    pub name: String,
    pub instance: String,
    pub cmdline: String,
    /// The version that its program reports; empty if unknown.
    pub version: String,
    /// Its executable was removed or replaced since it started.
    pub is_replaced: bool,
    pub at: MeshMicros,
    pub ended: bool,
    /// `None` if the agent does not know it.
    pub born: Option<MeshMicros>,
    /// This process only started a daemon of the same name and instance in the background.
    pub is_parent: bool,
}

/// One reading of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSample {
    pub process: Process,
    pub at: MeshMicros,
    pub figures: DaemonFigures,
}

/// One reading of a host.
#[derive(Clone, Debug)]
pub struct HostSample {
    pub at: MeshMicros,
    pub figures: HostFigures,
    /// CPU usage of processes that are not monitored, as JSON.
    pub busy_others: Option<String>,
}

/// One reading of a disk.
#[derive(Clone, Debug)]
pub struct DiskSample {
    pub at: MeshMicros,
    pub disk: String,
    /// The disk is built on other disks of the host.
    pub stacked: bool,
    pub figures: DiskFigures,
}

/// One reading of a network interface.
#[derive(Clone, Debug)]
pub struct NetSample {
    pub at: MeshMicros,
    pub interface: String,
    pub figures: NetFigures,
}

/// One reading of a target under load.
#[derive(Clone, Debug)]
pub struct TargetSample {
    pub at: MeshMicros,
    /// The target's locator.
    pub target: String,
    /// The nonce of the run's directory on the target. Agents with the same nonce share the target's content.
    pub nonce: String,
    /// The device number of its file system on the agent's host.
    pub device: Option<String>,
    pub figures: TargetFigures,
}

/// The agent's clock against mesh time.
#[derive(Clone, Copy, Debug)]
pub struct ClockOffset {
    pub at: MeshMicros,
    pub offset_us: i64,
    pub error_us: i64,
    pub round_trip_us: i64,
}

/// A dated fact, as observed by an agent.
#[derive(Clone, Debug)]
pub struct AgentEvent {
    pub at: MeshMicros,
    /// The uid of the run that the event is about; empty if it is about none, or the agent did not send it.
    pub run_uid: String,
    pub run: Option<RunId>,
    pub step: Option<StepId>,
    pub kind: WireKind,
    pub message: String,
    pub detail_json: Option<String>,
}

impl AgentEvent {
    /// An event of the collector about an agent's batch, which belongs to no run.
    pub fn about_batch(at: MeshMicros, kind: EventKind, message: String) -> Self {
        Self {
            at,
            run_uid: String::new(),
            run: None,
            step: None,
            kind: kind.into(),
            message,
            detail_json: None,
        }
    }
}

/// A fact that a storage cluster reports about itself.
#[derive(Clone, Debug)]
pub struct Fact {
    pub at: MeshMicros,
    pub system: String,
    pub name: String,
    pub value: Value,
    /// `None` for a count or a text.
    pub unit: Option<String>,
    /// The run in which it was read, according to the agent.
    pub run: Option<RunId>,
}

/// Rows that were dropped because the spool was full.
#[derive(Clone, Debug)]
pub struct Loss {
    pub what: LossKind,
    pub rows: i64,
    pub from: MeshMicros,
    pub until: MeshMicros,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub struct TaskEnd {
    pub task: TaskId,
    /// The uid of the task's run; empty if the agent did not send it.
    pub run_uid: String,
    pub state: TaskState,
    pub workers: u32,
    pub start: Option<MeshMicros>,
    pub skew_us: i64,
    pub skew_error_us: i64,
    pub first_done: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
    pub last_begun: Option<MeshMicros>,
    pub cpu_user_us: Option<i64>,
    pub cpu_system_us: Option<i64>,
    pub wait_cpu_us: Option<i64>,
    pub harness_ns_per_op: i64,
    pub error: Option<String>,
    pub errors: Vec<ErrorCount>,
}

/// Errors of one operation with one errno.
#[derive(Clone, Debug)]
pub struct ErrorCount {
    pub op: String,
    pub errno: i32,
    pub count: i64,
    pub first: String,
}

#[cfg(test)]
mod tests;
