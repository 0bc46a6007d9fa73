//! What was just committed, for those who show progress or wait for a batch.
//!
//! Nothing here is a promise: a receiver that lags loses intervals, and the truth is in the database.

use crate::ingest::batch::OpInterval;
use crate::model::{MeshMicros, TaskId};
use benchmesh_workloads::histogram::Blob;
use tokio::sync::{broadcast, watch};

/// A few seconds of a large mesh; a receiver that falls behind this far loses the oldest.
const KEPT: usize = 8192;

/// One committed interval of a task's operations. `results::histogram_of` makes percentiles of `service`.
#[derive(Clone, Debug)]
pub struct LiveInterval {
    pub task: TaskId,
    pub at: MeshMicros,
    pub span_us: i64,
    pub op: String,
    pub ramp: bool,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    pub service: Blob,
}

impl From<&OpInterval> for LiveInterval {
    fn from(interval: &OpInterval) -> Self {
        Self {
            task: interval.task,
            at: interval.at,
            span_us: interval.span_us,
            op: interval.op.clone(),
            ramp: interval.ramp,
            ops: interval.ops,
            bytes: interval.bytes,
            errors: interval.errors,
            service: interval.service.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Live {
    intervals: broadcast::Sender<LiveInterval>,
    commits: watch::Sender<u64>,
    late: watch::Sender<u64>,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            intervals: broadcast::Sender::new(KEPT),
            commits: watch::Sender::new(0),
            late: watch::Sender::new(0),
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<LiveInterval> {
        self.intervals.subscribe()
    }

    /// Changes with every commit that stored a batch.
    pub(crate) fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Changes with every commit that brought data of a step that had ended.
    pub(crate) fn late_data(&self) -> watch::Receiver<u64> {
        self.late.subscribe()
    }

    pub(crate) fn late(&self) {
        self.late.send_modify(|late| *late += 1);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.intervals.receiver_count() > 0
    }

    pub(crate) fn publish(&self, interval: LiveInterval) {
        // Nobody may be watching.
        drop(self.intervals.send(interval));
    }

    pub(crate) fn committed(&self) {
        self.commits.send_modify(|commits| *commits += 1);
    }
}
