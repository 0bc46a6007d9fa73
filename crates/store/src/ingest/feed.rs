//! Notifications of received and committed batches, for live views and for callers that wait for a batch.
//!
//! Delivery is best effort: a receiver that lags loses intervals and reads the database instead.

use super::batch::OpInterval;
use super::recent::RecentSamples;
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId};
use benchmesh_workloads::histogram::Blob;
use benchmesh_workloads::op::Op;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{broadcast, watch};

/// Batches of a large mesh in a few seconds. A receiver that falls further behind loses the oldest.
const BUFFERED_BATCHES: usize = 2048;

/// One interval of a task. Its figures are those of work: an interval in which the other end of a link observed
/// something ([`Op::is_work`]) only shows that the task lives.
#[derive(Clone, Debug)]
pub struct LiveInterval {
    pub task: TaskId,
    pub at: MeshMicros,
    pub span_us: i64,
    pub ops: i64,
    pub bytes: i64,
    /// The service times; `None` if there was no viewer when the batch arrived.
    pub service: Option<Blob>,
    /// The response times of a paced load, likewise.
    pub response: Option<Blob>,
}

impl LiveInterval {
    /// `has_viewers`: histograms are copied only if somebody looks at them.
    pub(crate) fn of(interval: &OpInterval, has_viewers: bool) -> Self {
        let is_work = Op::is_work(&interval.op);
        let work = |count: i64| if is_work { count } else { 0 };
        Self {
            task: interval.task,
            at: interval.at,
            span_us: interval.span_us,
            ops: work(interval.ops),
            bytes: work(interval.bytes),
            service: (is_work && has_viewers).then(|| interval.service.blob.clone()),
            response: interval
                .response
                .as_ref()
                .filter(|_| is_work && has_viewers)
                .map(|response| response.blob.clone()),
        }
    }
}

/// Publishes arriving rows and commits; cheap to clone.
#[derive(Clone, Debug)]
pub struct Feed {
    intervals: broadcast::Sender<Arc<[LiveInterval]>>,
    samples: Arc<RecentSamples>,
    arrivals: watch::Sender<u64>,
    commits: watch::Sender<u64>,
    late: watch::Sender<u64>,
    viewers: Arc<AtomicUsize>,
    /// The last committed batch of each agent: its spool and sequence.
    positions: Arc<Mutex<HashMap<AgentId, (String, u64)>>>,
}

/// A viewer of latencies, registered while this exists.
#[derive(Debug)]
pub struct Viewer(Arc<AtomicUsize>);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self {
            intervals: broadcast::Sender::new(BUFFERED_BATCHES),
            samples: Arc::default(),
            arrivals: watch::Sender::new(0),
            commits: watch::Sender::new(0),
            late: watch::Sender::new(0),
            viewers: Arc::default(),
            positions: Arc::default(),
        }
    }

    /// The newest samples.
    pub fn samples(&self) -> &RecentSamples {
        &self.samples
    }

    /// The intervals of each arriving batch, before its commit. The channel is bounded: a receiver that lags loses
    /// the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<[LiveInterval]>> {
        self.intervals.subscribe()
    }

    /// Registers a viewer. Latencies are published while there is one.
    pub fn viewer(&self) -> Viewer {
        self.viewers.fetch_add(1, Ordering::Relaxed);
        Viewer(Arc::clone(&self.viewers))
    }

    /// Changes with every arriving batch; `Store::flush` commits it.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    pub(crate) fn arrived(&self) {
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
    }

    /// Changes with every commit that stored a batch.
    pub(crate) fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Changes with every commit that stored data of a step that had ended.
    pub(crate) fn late_data(&self) -> watch::Receiver<u64> {
        self.late.subscribe()
    }

    pub(crate) fn late(&self) {
        self.late.send_modify(|late| *late += 1);
    }

    /// Whether there is a receiver of intervals.
    pub(crate) fn is_followed(&self) -> bool {
        self.intervals.receiver_count() > 0
    }

    /// Whether there is a viewer of latencies.
    pub(crate) fn has_viewers(&self) -> bool {
        self.viewers.load(Ordering::Relaxed) > 0
    }

    /// Publishes the intervals of one batch.
    pub(crate) fn publish(&self, intervals: Arc<[LiveInterval]>) {
        if !intervals.is_empty() {
            // An error means that the last receiver was dropped meanwhile.
            drop(self.intervals.send(intervals));
        }
    }

    /// Sets the last batch of an agent; call it before `committed` wakes the waiters.
    pub(crate) fn set_position(&self, agent: AgentId, spool_id: &str, sequence: u64) {
        let mut positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match positions.get_mut(&agent) {
            Some((spool, last)) if spool == spool_id => *last = sequence,
            _ => drop(positions.insert(agent, (spool_id.to_owned(), sequence))),
        }
    }

    /// The committed position of this spool, if the agent's last batch came from it.
    pub(crate) fn position(&self, agent: AgentId, spool_id: &str) -> Option<u64> {
        let positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (spool, last) = positions.get(&agent)?;
        (spool == spool_id).then_some(*last)
    }

    pub(crate) fn committed(&self) {
        self.commits.send_modify(|commits| *commits += 1);
    }
}
