//! The agent's measurements, in its own types, on their way to the spool.
//!
//! Instants are mesh time, durations carry their unit, and rates do not exist. This module uses neither the wire's
//! messages nor SQLite; `wire` encodes and decodes a [`Batch`]. [`Batch::size_bound`] is never below the encoded size.

mod rows;

pub use rows::{
    At, ClockOffset, EndState, ErrorCount, Event, Fact, Loss, LossKind, MeshMicros, OpInterval,
    RunId, RunScope, RunUid, StepId, TargetSample, TaskEnd, TaskId,
};

use crate::sampler::{DaemonSample, DaemonSeen, DiskSample, HostSample, NetSample};
use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, Figures, HostFigures, NetFigures, TargetFigures,
};
use benchmesh_model::systems::facts::Value;
use benchmesh_workloads::histogram::Blob;

/// The longest text that a record carries, in bytes; the rest is cut.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Cuts a text to the length limit of a record, at a character boundary.
#[must_use]
pub fn clipped(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let end = (0..=MAX_TEXT_BYTES)
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// One record of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum TelemetryRow {
    OpInterval(OpInterval),
    TaskEnd(TaskEnd),
    Event(Event),
    Fact(Fact),
    Loss(Loss),
    ClockOffset(ClockOffset),
    Daemon(At<DaemonSeen>),
    DaemonSample(At<DaemonSample>),
    HostSample(At<HostSample>),
    DiskSample(At<DiskSample>),
    NetSample(At<NetSample>),
    TargetSample(TargetSample),
}

/// Rows that are spooled, sent and stored together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub op_intervals: Vec<OpInterval>,
    pub task_ends: Vec<TaskEnd>,
    pub events: Vec<Event>,
    pub facts: Vec<Fact>,
    pub losses: Vec<Loss>,
    pub clock_offsets: Vec<ClockOffset>,
    pub daemons: Vec<At<DaemonSeen>>,
    pub daemon_samples: Vec<At<DaemonSample>>,
    pub host_samples: Vec<At<HostSample>>,
    pub disk_samples: Vec<At<DiskSample>>,
    pub net_samples: Vec<At<NetSample>>,
    pub target_samples: Vec<TargetSample>,
    rows_bound: usize,
}

/// The envelope: spool id, sequences, the frames of the columns.
const ENVELOPE: usize = 512;
/// Maximum bytes of a field's tag and a varint.
const FIELD: usize = 11;
/// Maximum bytes of a message's own tag and length.
const FRAME: usize = 6;

impl TelemetryRow {
    /// Upper bound of its size on the wire, in bytes.
    #[must_use]
    pub fn size_bound(&self) -> usize {
        match self {
            Self::OpInterval(row) => {
                let response = row.response.as_ref().map_or(0, blob_bound);
                FRAME
                    + 10 * FIELD
                    + row.op.as_str().len()
                    + row.run_uid.as_str().len()
                    + blob_bound(&row.service)
                    + response
            }
            Self::TaskEnd(row) => {
                let error =
                    |error: &ErrorCount| FRAME + 4 * FIELD + error.op.len() + error.first.len();
                FRAME
                    + 17 * FIELD
                    + row.run_uid.as_str().len()
                    + row.error.len()
                    + row.errors.iter().map(error).sum::<usize>()
            }
            Self::Event(row) => {
                FRAME
                    + 8 * FIELD
                    + row.scope.run_uid.as_str().len()
                    + row.kind.severity().as_str().len()
                    + row.kind.as_str().len()
                    + row.message.len()
                    + row.detail.len()
            }
            Self::Fact(row) => {
                let text = match &row.value {
                    Value::Number(_) => 0,
                    Value::Text(text) => text.len(),
                };
                FRAME + 6 * FIELD + row.system.len() + row.name.len() + text + row.unit.len()
            }
            Self::Loss(row) => FRAME + 4 * FIELD + row.what.as_str().len(),
            Self::ClockOffset(_) => FRAME + 4 * FIELD,
            Self::Daemon(At { row, .. }) => {
                let texts = [&row.name, &row.instance, &row.cmdline, &row.version];
                FRAME + 9 * FIELD + texts.iter().map(|text| text.len()).sum::<usize>()
            }
            Self::DaemonSample(_) => (3 + DaemonFigures::ALL.len()) * FIELD,
            Self::HostSample(At { row, .. }) => {
                let others = row.others.iter().flat_map(|others| &others.processes);
                let names: usize = others.map(|(name, _)| name.len() + 3 * FIELD).sum();
                3 * FRAME + (3 + HostFigures::ALL.len()) * FIELD + names
            }
            Self::DiskSample(At { row, .. }) => {
                2 * FRAME + (3 + DiskFigures::ALL.len()) * FIELD + row.disk.len()
            }
            Self::NetSample(At { row, .. }) => {
                2 * FRAME + (2 + NetFigures::ALL.len()) * FIELD + row.interface.len()
            }
            Self::TargetSample(row) => {
                let texts = row.target.len() + row.nonce.len() + row.device.len();
                2 * FRAME + (4 + TargetFigures::ALL.len()) * FIELD + texts
            }
        }
    }
}

fn blob_bound(blob: &Blob) -> usize {
    FRAME + blob.v2_deflate.len() + 7 * FIELD
}

impl Batch {
    /// Adds one record. Losses of one kind are merged into one.
    pub fn push(&mut self, row: TelemetryRow) {
        self.rows_bound += row.size_bound();
        match row {
            TelemetryRow::OpInterval(row) => self.op_intervals.push(row),
            TelemetryRow::TaskEnd(row) => self.task_ends.push(row),
            TelemetryRow::Event(row) => self.events.push(row),
            TelemetryRow::Fact(row) => self.facts.push(row),
            TelemetryRow::Loss(row) => Loss::note(&mut self.losses, row),
            TelemetryRow::ClockOffset(row) => self.clock_offsets.push(row),
            TelemetryRow::Daemon(row) => self.daemons.push(row),
            TelemetryRow::DaemonSample(row) => self.daemon_samples.push(row),
            TelemetryRow::HostSample(row) => self.host_samples.push(row),
            TelemetryRow::DiskSample(row) => self.disk_samples.push(row),
            TelemetryRow::NetSample(row) => self.net_samples.push(row),
            TelemetryRow::TargetSample(row) => self.target_samples.push(row),
        }
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows_bound == 0
    }

    /// The time range of its rows; `None` if no row has an instant.
    #[must_use]
    pub fn span(&self) -> Option<(MeshMicros, MeshMicros)> {
        let intervals = self.op_intervals.iter().map(|row| {
            let until = row.at.0.saturating_add(row.span_us);
            (row.at, MeshMicros(until))
        });
        let instants = (self.events.iter().map(|row| row.at))
            .chain(self.facts.iter().map(|row| row.at))
            .chain(self.clock_offsets.iter().map(|row| row.at))
            .chain(self.daemons.iter().map(|row| row.at))
            .chain(self.daemon_samples.iter().map(|row| row.at))
            .chain(self.host_samples.iter().map(|row| row.at))
            .chain(self.disk_samples.iter().map(|row| row.at))
            .chain(self.net_samples.iter().map(|row| row.at))
            .chain(self.target_samples.iter().map(|row| row.at))
            .map(|at| (at, at));
        let losses = self.losses.iter().map(|row| (row.from, row.until));
        intervals
            .chain(instants)
            .chain(losses)
            .reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }

    /// Upper bound of its size on the wire, in bytes.
    #[must_use]
    pub fn size_bound(&self) -> usize {
        ENVELOPE + self.rows_bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_a_characters_end() {
        assert_eq!(clipped("short".to_owned()), "short");
        let long = clipped(format!("{}\u{e9}tail", "x".repeat(MAX_TEXT_BYTES - 1)));
        assert_eq!(long.len(), MAX_TEXT_BYTES - 1);
    }
}
