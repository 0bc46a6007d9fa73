//! Counts each run's operations by their positions in the spools of this start.
//!
//! A run's losses are computed from it when the collector's database is restored from an older copy. Memory is bounded:
//! neighbouring positions of a long run are counted together, and only the newest runs are kept.

use crate::envelope::{Sequence, SpoolId};
use crate::telemetry::{Batch, RunUid};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Maximum number of remembered runs per spool.
const MAX_RUNS: usize = 32;
/// Maximum number of stretches of a run. A stretch is one batch, until there are more batches than this.
const MAX_STRETCHES: usize = 512;

/// Batches with rows of a run, and the operations in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) batches: u64,
    pub(super) operations: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.batches += other.batches;
        self.operations = self.operations.saturating_add(other.operations);
    }
}

/// The part of a run that is missing from a restored database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostOfRun {
    /// The part that was stored in the lost database.
    pub(super) vanished: Counts,
    /// The part that was only spooled.
    pub(super) undelivered: Counts,
    /// If false, a part of it may still exist, or was given up before.
    pub(super) is_exact: bool,
}

impl Default for LostOfRun {
    fn default() -> Self {
        Self {
            vanished: Counts::default(),
            undelivered: Counts::default(),
            is_exact: true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Sequence,
    last: Sequence,
    counts: Counts,
}

#[derive(Debug)]
struct OfRun {
    spool: SpoolId,
    run_uid: RunUid,
    stretches: Vec<Stretch>,
    /// Number of batches per stretch.
    width: u64,
}

/// Everything spooled since the agent started.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    runs: VecDeque<OfRun>,
    /// Batches were given up because the spool was full.
    has_given_up: bool,
}

impl Ledger {
    /// Records a batch with its position.
    pub(super) fn add(&mut self, spool: SpoolId, sequence: Sequence, batch: &Batch) {
        let mut operations: BTreeMap<&RunUid, u64> = BTreeMap::new();
        for row in &batch.op_intervals {
            let sum = operations.entry(&row.run_uid).or_default();
            *sum = sum.saturating_add(row.ops);
        }
        for row in &batch.task_ends {
            operations.entry(&row.run_uid).or_default();
        }
        // Without a uid, the collector cannot match the losses to a run.
        operations.retain(|run_uid, _| !run_uid.as_str().is_empty());
        for (run_uid, operations) in operations {
            self.add_to_run(spool, run_uid, sequence, operations);
        }
    }

    fn add_to_run(
        &mut self,
        spool: SpoolId,
        run_uid: &RunUid,
        sequence: Sequence,
        operations: u64,
    ) {
        let known = |run: &&mut OfRun| run.spool == spool && run.run_uid == *run_uid;
        if let Some(run) = self.runs.iter_mut().find(known) {
            return run.add(sequence, operations);
        }
        if self.runs.len() >= MAX_RUNS {
            self.runs.pop_front();
        }
        let mut run = OfRun {
            spool,
            run_uid: run_uid.clone(),
            stretches: Vec::new(),
            width: 1,
        };
        run.add(sequence, operations);
        self.runs.push_back(run);
    }

    /// Records that batches were given up because the spool was full.
    pub(super) fn given_up(&mut self) {
        self.has_given_up = true;
    }

    /// Returns the losses of each run beyond `stored`, and clears the ledger, because the spools start again.
    pub(super) fn take_lost(
        &mut self,
        stored: &HashMap<SpoolId, Sequence>,
        acked: &HashMap<SpoolId, Sequence>,
    ) -> Vec<(RunUid, LostOfRun)> {
        let is_exact = !std::mem::take(&mut self.has_given_up);
        let mut lost: BTreeMap<RunUid, LostOfRun> = BTreeMap::new();
        for run in self.runs.drain(..) {
            let position = |of: &HashMap<SpoolId, Sequence>| of.get(&run.spool).copied();
            let stored = position(stored).unwrap_or_default();
            let acked = position(acked).unwrap_or_default();
            for stretch in run.stretches.iter().filter(|it| it.last > stored) {
                let sum = lost.entry(run.run_uid.clone()).or_default();
                sum.is_exact &= is_exact && stretch.is_on_one_side(stored);
                match stretch.first <= acked {
                    true => {
                        sum.is_exact &= stretch.is_on_one_side(acked);
                        sum.vanished.add(stretch.counts);
                    }
                    false => sum.undelivered.add(stretch.counts),
                }
            }
        }
        lost.into_iter().collect()
    }
}

impl OfRun {
    fn add(&mut self, sequence: Sequence, operations: u64) {
        let counts = Counts {
            batches: 1,
            operations,
        };
        match self.stretches.last_mut() {
            Some(last) if last.counts.batches < self.width => {
                last.last = sequence;
                last.counts.add(counts);
            }
            _ => self.stretches.push(Stretch {
                first: sequence,
                last: sequence,
                counts,
            }),
        }
        if self.stretches.len() > MAX_STRETCHES {
            self.width *= 2;
            let pairs = self.stretches.chunks(2).filter_map(|pair| {
                let (first, rest) = pair.split_first()?;
                let mut joined = *first;
                for stretch in rest {
                    joined.last = stretch.last;
                    joined.counts.add(stretch.counts);
                }
                Some(joined)
            });
            self.stretches = pairs.collect();
        }
    }
}

impl Stretch {
    fn is_on_one_side(&self, of: Sequence) -> bool {
        self.last <= of || self.first > of
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::telemetry::{MeshMicros, OpInterval, TaskId};
    use benchmesh_workloads::histogram::Histogram;
    use benchmesh_workloads::op::Op;
    use uuid::Uuid;

    fn batch(run_uid: &str, ops: u64) -> Batch {
        let mut batch = Batch::default();
        batch.push(crate::telemetry::TelemetryRow::OpInterval(OpInterval {
            task: TaskId(1),
            run_uid: RunUid::from(run_uid.to_owned()),
            at: MeshMicros(0),
            span_us: 1,
            op: Op::Read,
            ramp: false,
            ops,
            bytes: 0,
            undated_bytes: 0,
            errors: 0,
            in_flight: 0,
            service: Histogram::new().to_blob(),
            response: None,
        }));
        batch
    }

    fn counts(batches: u64, operations: u64) -> Counts {
        Counts {
            batches,
            operations,
        }
    }

    #[test]
    fn what_a_restored_database_does_not_have_is_counted_by_run() {
        let spool = SpoolId(Uuid::from_u128(1));
        let mut ledger = Ledger::default();
        for sequence in 1..=10 {
            let run = if sequence <= 4 { "first" } else { "second" };
            ledger.add(spool, Sequence(sequence), &batch(run, 10 * sequence));
        }
        ledger.add(spool, Sequence(11), &batch("", 7));
        let stored = HashMap::from([(spool, Sequence(3))]);
        let acked = HashMap::from([(spool, Sequence(8))]);
        let lost = ledger.take_lost(&stored, &acked);
        let of = |run: &str| lost.iter().find(|(uid, _)| uid.as_str() == run).unwrap().1;
        assert_eq!(lost.len(), 2, "{lost:?}");
        assert_eq!(of("first").vanished, counts(1, 40));
        assert_eq!(of("first").undelivered, counts(0, 0));
        assert_eq!(of("second").vanished, counts(4, 260));
        assert_eq!(of("second").undelivered, counts(2, 190));
        assert!(lost.iter().all(|(_, lost)| lost.is_exact));
        assert_eq!(ledger.take_lost(&HashMap::new(), &HashMap::new()), []);
    }

    #[test]
    fn a_long_run_is_counted_within_bounds() {
        let spool = SpoolId(Uuid::from_u128(1));
        let mut ledger = Ledger::default();
        for sequence in 1..=100_000 {
            ledger.add(spool, Sequence(sequence), &batch("long", 1));
        }
        assert!(ledger.runs[0].stretches.len() <= MAX_STRETCHES);
        let stored = HashMap::from([(spool, Sequence(50_000))]);
        let acked = HashMap::from([(spool, Sequence(u64::MAX))]);
        let lost = ledger.take_lost(&stored, &acked)[0].1;
        let surplus = lost.vanished.operations - 50_000;
        assert!(surplus < 256 && !lost.is_exact, "{lost:?}");
        for run in 0..100 {
            ledger.add(spool, Sequence(run + 1), &batch(&format!("run {run}"), 1));
        }
        assert_eq!(ledger.runs.len(), MAX_RUNS);
    }
}
