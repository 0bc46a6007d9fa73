//! Rates to look at while a step runs, from the intervals as they are committed. Never the source of a result.

use super::board::{Change, RunBoard};
use crate::{
    clock::MeshClock,
    model::{MeshMicros, StepState, TaskId},
    store::{LiveInterval, Store},
};
use benchmesh_workloads::histogram::Histogram;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};
use tokio::{sync::broadcast::error::RecvError, task::JoinHandle};

/// What is shown is the mean over the last seconds.
const WINDOW_US: i64 = 3_000_000;
/// One task's intervals in the window: seconds times operations, with room.
const KEPT_INTERVALS: usize = 64;

/// Ends with its owner.
#[derive(Debug)]
pub(super) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Shows on `board` what the store commits of its step.
pub(super) fn follow(store: &Store, clock: Arc<MeshClock>, board: Arc<RunBoard>) -> Following {
    let mut intervals = store.live();
    Following(tokio::spawn(async move {
        let mut recent = Recent::default();
        loop {
            let interval = match intervals.recv().await {
                Ok(interval) => interval,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let now = clock.now();
            board.change_if(|view| {
                let Some(step) = view.step.as_mut() else {
                    return Change::None;
                };
                if step.state != StepState::Running || !step.tasks.contains(&interval.task) {
                    return Change::None;
                }
                let count = |count: i64| count.max(0).unsigned_abs();
                step.ops = step.ops.saturating_add(count(interval.ops));
                step.bytes = step.bytes.saturating_add(count(interval.bytes));
                let rates = recent.with(interval, &step.tasks);
                step.ops_per_s = rates.ops_per_s;
                step.bytes_per_s = rates.bytes_per_s;
                step.p99_ms = rates.p99_ms;
                step.heard = Some(now);
                Change::Made
            });
        }
    }))
}

/// The last intervals of each task of one step.
#[derive(Debug, Default)]
struct Recent(HashMap<TaskId, VecDeque<LiveInterval>>);

impl Recent {
    /// Takes an interval in, and tells the rates of its step, which has these tasks; those of steps before it are
    /// forgotten.
    fn with(&mut self, interval: LiveInterval, tasks: &BTreeSet<TaskId>) -> Rates {
        self.0.retain(|task, _| tasks.contains(task));
        let kept = self.0.entry(interval.task).or_default();
        kept.push_back(interval);
        if kept.len() > KEPT_INTERVALS {
            kept.pop_front();
        }
        forget_old(&mut self.0);
        rates(&self.0)
    }
}

fn end(interval: &LiveInterval) -> MeshMicros {
    MeshMicros(interval.at.0.saturating_add(interval.span_us))
}

fn forget_old(recent: &mut HashMap<TaskId, VecDeque<LiveInterval>>) {
    let newest = recent
        .values()
        .flatten()
        .map(end)
        .max()
        .unwrap_or(MeshMicros(0));
    recent.retain(|_, kept| {
        kept.retain(|interval| end(interval).0 > newest.0.saturating_sub(WINDOW_US));
        !kept.is_empty()
    });
}

#[derive(Debug, Default, PartialEq)]
struct Rates {
    ops_per_s: f64,
    bytes_per_s: f64,
    p99_ms: f64,
}

/// The sum over tasks of each task's mean rate.
#[expect(clippy::cast_precision_loss, reason = "rates to look at")]
fn rates(recent: &HashMap<TaskId, VecDeque<LiveInterval>>) -> Rates {
    let mut rates = Rates::default();
    let mut merged = Histogram::new();
    for kept in recent.values() {
        let from = kept.iter().map(|interval| interval.at.0).min().unwrap_or(0);
        let until = kept
            .iter()
            .map(|interval| end(interval).0)
            .max()
            .unwrap_or(0);
        let seconds = until.saturating_sub(from).max(1) as f64 / 1e6;
        for interval in kept {
            rates.ops_per_s += interval.ops as f64 / seconds;
            rates.bytes_per_s += interval.bytes as f64 / seconds;
            if let Ok(histogram) = crate::results::histogram_of(&interval.service) {
                merged.add(&histogram);
            }
        }
    }
    rates.p99_ms = merged.quantile(0.99) as f64 / 1e6;
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_workloads::histogram::Blob;

    fn second(task: i64, second: i64, ops: i64) -> LiveInterval {
        LiveInterval {
            task: TaskId(task),
            at: MeshMicros(second * 1_000_000),
            span_us: 1_000_000,
            op: String::from("read"),
            ramp: false,
            ops,
            bytes: ops * 4096,
            errors: 0,
            service: Blob::default(),
        }
    }

    #[test]
    fn a_step_begins_without_the_rate_of_the_one_before_it() {
        let mut recent = Recent::default();
        let first = BTreeSet::from([TaskId(1), TaskId(2)]);
        recent.with(second(1, 10, 500), &first);
        let rate = recent.with(second(2, 10, 500), &first).ops_per_s;
        assert_eq!(rate, 1000.0);
        let next = BTreeSet::from([TaskId(3), TaskId(4)]);
        assert_eq!(recent.with(second(3, 11, 200), &next).ops_per_s, 200.0);
        assert_eq!(recent.with(second(4, 11, 200), &next).ops_per_s, 400.0);
    }

    #[test]
    fn the_rate_is_of_the_last_seconds() {
        let mut recent = Recent::default();
        let tasks = BTreeSet::from([TaskId(1)]);
        for at in 0..10 {
            recent.with(second(1, at, 1000), &tasks);
        }
        for at in 10..13 {
            recent.with(second(1, at, 100), &tasks);
        }
        let rates = recent.with(second(1, 13, 100), &tasks);
        assert_eq!((rates.ops_per_s, rates.bytes_per_s), (100.0, 409_600.0));
    }
}
