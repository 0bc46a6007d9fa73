//! Merges neighbouring batches into one: intervals of the same operation become wider, samples are dropped. Also
//! reduces a batch to the record of its losses.
//!
//! Pure functions. Merging adds counts, bytes, errors and histograms, so no result of an operation is lost. Task ends,
//! events, facts, samples of targets and earlier losses stay as they are. Of a daemon's descriptions the first and the
//! last stay. Other samples have already been replaced by losses here. Giving up a batch keeps task ends and the
//! descriptions of daemons that still run, and counts the rest.

use crate::sampler::DaemonSeen;
use crate::telemetry::{At, Batch, Loss, LossKind, OpInterval, TaskId, TelemetryRow};
use benchmesh_workloads::histogram::{Blob, DecodeError, Histogram};
use benchmesh_workloads::op::Op;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Intervals with the same key can be added: same task and operation, both or neither in the ramp, both or neither
/// paced.
type SumKey = (TaskId, Op, bool, bool);

/// The sum of intervals, with its histograms decoded.
struct DecodedSum {
    interval: OpInterval,
    service: Histogram,
    response: Option<Histogram>,
}

/// Merges `parts` into one batch, in their order.
pub(super) fn merge(parts: Vec<Batch>) -> Batch {
    let mut merged = Batch::default();
    let mut sums: Vec<DecodedSum> = Vec::new();
    let mut places: HashMap<SumKey, usize> = HashMap::new();
    let mut daemons = Vec::new();
    for part in parts {
        for interval in part.op_intervals {
            let key = (
                interval.task,
                interval.op,
                interval.ramp,
                interval.response.is_some(),
            );
            let held = places.get(&key).and_then(|place| sums.get_mut(*place));
            match (DecodedSum::open(&interval), held) {
                (Ok(sum), Some(held)) => held.add(sum),
                (Ok(sum), None) => {
                    places.insert(key, sums.len());
                    sums.push(sum);
                }
                // A histogram that does not decode cannot be added. Its interval is sent unmerged, and the collector
                // reports the reason.
                (Err(_), _) => merged.push(TelemetryRow::OpInterval(interval)),
            }
        }
        part.task_ends
            .into_iter()
            .for_each(|row| merged.push(TelemetryRow::TaskEnd(row)));
        part.events
            .into_iter()
            .for_each(|row| merged.push(TelemetryRow::Event(row)));
        part.facts
            .into_iter()
            .for_each(|row| merged.push(TelemetryRow::Fact(row)));
        part.target_samples
            .into_iter()
            .for_each(|row| merged.push(TelemetryRow::TargetSample(row)));
        part.losses
            .into_iter()
            .for_each(|row| merged.push(TelemetryRow::Loss(row)));
        daemons.extend(part.daemons);
    }
    for row in first_and_last(daemons) {
        merged.push(TelemetryRow::Daemon(row));
    }
    for sum in sums {
        merged.push(TelemetryRow::OpInterval(sum.close()));
    }
    merged
}

/// What remains of a batch that is given up. The batch covers `batches` sequences.
pub(super) fn reduce_to_losses(batch: Batch, batches: u64) -> Batch {
    let mut left = Batch::default();
    let span = batch.span();
    let operations = batch
        .op_intervals
        .iter()
        .map(|row| row.ops.saturating_add(row.errors))
        .fold(0, u64::saturating_add);
    for loss in batch.losses {
        // The new row below counts these batches too.
        if loss.what != LossKind::Batches {
            left.push(TelemetryRow::Loss(loss));
        }
    }
    if let Some((from, until)) = span {
        for (what, rows) in [
            (LossKind::Batches, batches),
            (LossKind::Operations, operations),
        ] {
            left.push(TelemetryRow::Loss(Loss {
                what,
                rows,
                from,
                until,
            }));
        }
    }
    for row in batch.task_ends {
        left.push(TelemetryRow::TaskEnd(row));
    }
    let here = batch.daemons.into_iter().filter(|seen| !seen.row.ended);
    for row in first_and_last(here.collect()) {
        left.push(TelemetryRow::Daemon(row));
    }
    left
}

/// Keeps two rows per daemon: the first, for its start, and the last, for its latest name.
fn first_and_last(seen: Vec<At<DaemonSeen>>) -> Vec<At<DaemonSeen>> {
    let mut places: HashMap<(i32, u64), (usize, Option<usize>)> = HashMap::new();
    let mut kept: Vec<At<DaemonSeen>> = Vec::new();
    for row in seen {
        let place = places.entry((row.row.pid, row.row.start_ticks));
        match place {
            Entry::Vacant(place) => {
                place.insert((kept.len(), None));
                kept.push(row);
            }
            Entry::Occupied(mut place) => match place.get().1 {
                Some(last) => {
                    if let Some(held) = kept.get_mut(last) {
                        *held = row;
                    }
                }
                None => {
                    place.get_mut().1 = Some(kept.len());
                    kept.push(row);
                }
            },
        }
    }
    kept
}

impl DecodedSum {
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
