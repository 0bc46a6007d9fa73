//! Several neighbouring batches made one: intervals of the same operation become wider, samples give way.
//!
//! A pure function. Counts, bytes, errors and histograms are added, so nothing that an operation left is lost; task
//! ends, events, daemons and earlier losses stay as they are; samples come in as losses already.

use crate::telemetry::{Batch, OpInterval, Row, TaskId};
use benchmesh_workloads::histogram::{Blob, DecodeError, Histogram};
use benchmesh_workloads::op::Op;
use std::collections::HashMap;

/// What can be added up: the same task and operation, both in the ramp or not, both paced or not.
type Key = (TaskId, Op, bool, bool);

/// The sum of intervals, with its histograms open.
struct Sum {
    interval: OpInterval,
    service: Histogram,
    response: Option<Histogram>,
}

/// One batch with everything of `parts`, in their order.
pub(super) fn merge(parts: Vec<Batch>) -> Batch {
    let mut merged = Batch::default();
    let mut sums: Vec<Sum> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    for part in parts {
        for interval in part.op_intervals {
            let key = (
                interval.task,
                interval.op,
                interval.ramp,
                interval.response.is_some(),
            );
            let held = places.get(&key).and_then(|place| sums.get_mut(*place));
            match (Sum::open(&interval), held) {
                (Ok(sum), Some(held)) => held.add(sum),
                (Ok(sum), None) => {
                    places.insert(key, sums.len());
                    sums.push(sum);
                }
                // A histogram that does not open cannot be added; it travels on alone, and the collector says why.
                (Err(_), _) => merged.push(Row::OpInterval(interval)),
            }
        }
        part.task_ends
            .into_iter()
            .for_each(|row| merged.push(Row::TaskEnd(row)));
        part.events
            .into_iter()
            .for_each(|row| merged.push(Row::Event(row)));
        part.losses
            .into_iter()
            .for_each(|row| merged.push(Row::Loss(row)));
        part.daemons
            .into_iter()
            .for_each(|row| merged.push(Row::Daemon(row)));
    }
    for sum in sums {
        merged.push(Row::OpInterval(sum.close()));
    }
    merged
}

impl Sum {
    fn open(interval: &OpInterval) -> Result<Self, DecodeError> {
        let open = |blob: &Blob| Histogram::from_blob(blob);
        Ok(Self {
            service: open(&interval.service)?,
            response: interval.response.as_ref().map(open).transpose()?,
            interval: interval.clone(),
        })
    }

    fn add(&mut self, other: Self) {
        let (held, new) = (&mut self.interval, other.interval);
        let until = end_of(held).max(end_of(&new));
        if end_of(&new) >= end_of(held) {
            held.in_flight = new.in_flight;
        }
        held.at = held.at.min(new.at);
        held.span_us = until.saturating_sub(held.at.0);
        held.ops = held.ops.saturating_add(new.ops);
        held.bytes = held.bytes.saturating_add(new.bytes);
        held.undated_bytes = held.undated_bytes.saturating_add(new.undated_bytes);
        held.errors = held.errors.saturating_add(new.errors);
        self.service.add(&other.service);
        if let (Some(held), Some(new)) = (&mut self.response, &other.response) {
            held.add(new);
        }
    }

    fn close(self) -> OpInterval {
        OpInterval {
            service: self.service.to_blob(),
            response: self.response.map(|response| response.to_blob()),
            ..self.interval
        }
    }
}

fn end_of(interval: &OpInterval) -> i64 {
    interval.at.0.saturating_add(interval.span_us)
}
