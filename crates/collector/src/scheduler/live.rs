//! Rates to look at while a step runs, from the intervals as they are committed. Never the source of a result.

use super::board::RunBoard;
use crate::{
    model::{MeshMicros, StepState, TaskId},
    store::{LiveInterval, Store},
};
use benchmesh_workloads::histogram::Histogram;
use std::{
    collections::{HashMap, VecDeque},
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
pub(super) fn follow(store: &Store, board: Arc<RunBoard>) -> Following {
    let mut intervals = store.live();
    Following(tokio::spawn(async move {
        let mut recent: HashMap<TaskId, VecDeque<LiveInterval>> = HashMap::new();
        loop {
            let interval = match intervals.recv().await {
                Ok(interval) => interval,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let wanted = board.look(|view| {
                view.step.as_ref().is_some_and(|step| {
                    step.state == StepState::Running && step.tasks.contains(&interval.task)
                })
            });
            if !wanted {
                recent.clear();
                continue;
            }
            let (ops, bytes) = (interval.ops, interval.bytes);
            let kept = recent.entry(interval.task).or_default();
            kept.push_back(interval);
            if kept.len() > KEPT_INTERVALS {
                kept.pop_front();
            }
            forget_old(&mut recent);
            let rates = rates(&recent);
            board.change(|view| {
                if let Some(step) = view.step.as_mut() {
                    step.ops = step.ops.saturating_add(ops.max(0).unsigned_abs());
                    step.bytes = step.bytes.saturating_add(bytes.max(0).unsigned_abs());
                    step.ops_per_s = rates.ops_per_s;
                    step.bytes_per_s = rates.bytes_per_s;
                    step.p99_ms = rates.p99_ms;
                }
            });
        }
    }))
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
