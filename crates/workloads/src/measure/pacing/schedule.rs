//! The instants at which one worker's operations are due.
//!
//! Even instants are computed in integers from the total amount so far, so they don't drift however long the load runs.
//! Poisson instants are a seeded sum. If the rate counts bytes, the gap after an operation is the time that its bytes
//! may take.

use super::{ArrivalProcess, Pace, Per, RateUnit, ShareChange, chunk_bytes};
use crate::measure::clock::MonoNanos;
use crate::measure::random::Random;
use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// Separates the random numbers of arrivals from other numbers drawn for a task and a worker.
const ARRIVALS: u64 = 0x7061_6365;

/// Position of a worker within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerShare {
    pub worker: u32,
    pub workers: u32,
    pub task: u32,
    pub tasks: u32,
}

/// The instants at which one worker's operations are due.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pace: Pace,
    share: WorkerShare,
    unit: RateUnit,
    start: MonoNanos,
    /// This worker's index in the common sequence of instants, and how many workers share it.
    place: u64,
    workers: u64,
    /// Rate of all workers that share the sequence.
    per_second: u64,
    /// Position of the next operation in the common sequence, in units of `workers` units; `None` before the first.
    position: Option<u128>,
    poisson: Option<Poisson>,
}

/// Whether a change has taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Done,
    /// An operation is due before it.
    NotYet,
}

/// Arrivals of independent users.
#[derive(Debug, Clone, PartialEq)]
struct Poisson {
    random: Random,
    /// From the start to the last arrival. A double holds nanoseconds exactly for a hundred days.
    elapsed_ns: f64,
    /// Distance to the next arrival, in mean distances.
    draw: f64,
}

impl Schedule {
    /// The schedule of one share. The same share of the same pace always gives the same schedule.
    pub fn new(pace: &Pace, share: WorkerShare) -> Schedule {
        let [worker, workers, task, tasks] = [
            share.worker,
            share.workers.max(1),
            share.task,
            share.tasks.max(1),
        ]
        .map(u64::from);
        // Workers of one task are spaced as evenly as possible, with other tasks between them.
        let (place, sharing, rates) = match pace.per {
            Per::Worker => (worker * tasks + task, workers * tasks, workers * tasks),
            Per::Task => (worker, workers, 1),
            Per::Step => (worker * tasks + task, workers * tasks, 1),
        };
        let mut schedule = Schedule {
            pace: *pace,
            share,
            unit: pace.unit,
            start: MonoNanos(0),
            place,
            workers: sharing,
            per_second: pace.per_second.saturating_mul(rates),
            position: None,
            poisson: None,
        };
        if pace.process == ArrivalProcess::Poisson {
            let mut random = Random::of(&[ARRIVALS, task, worker]);
            schedule.poisson = Some(Poisson {
                draw: exponential(&mut random),
                random,
                elapsed_ns: 0.0,
            });
        }
        schedule
    }

    /// Sets the instant at which the sequence begins.
    pub(crate) fn set_start(&mut self, start: MonoNanos) {
        self.start = start;
    }

    /// Changes to another share of a step's rate, once every operation that was due before is done. Operations move
    /// `bytes`. The rate of a task or a worker does not depend on the others.
    pub(crate) fn change(&mut self, change: &ShareChange, bytes: u64) -> Changed {
        if self.pace.per != Per::Step {
            return Changed::Done;
        }
        if self.due(bytes) < change.begins() {
            return Changed::NotYet;
        }
        let share = WorkerShare {
            task: change.task,
            tasks: change.tasks,
            ..self.share
        };
        let mut next = Schedule::new(&self.pace, share);
        next.start = change.from;
        next.skip_to(change.begins(), bytes);
        *self = next;
        Changed::Done
    }

    /// Skips operations that are due before `instant`, if operations move `bytes`.
    fn skip_to(&mut self, instant: MonoNanos, bytes: u64) {
        let elapsed = instant.0.saturating_sub(self.start.0);
        if let Some(poisson) = &mut self.poisson {
            // Independent arrivals may restart at any instant.
            poisson.elapsed_ns = elapsed as f64;
            return;
        }
        let step = u128::from(self.workers) * self.cost(bytes);
        let first = self.position_of(bytes);
        // The least position whose nanoseconds, rounded down, are not less.
        let units = u128::from(elapsed).saturating_mul(self.per_second.into());
        let wanted = units.div_ceil(NANOS_PER_SECOND);
        let missing = wanted.saturating_sub(first);
        // With a rate in bytes, operations of zero bytes take no time, so no number of them reaches the instant.
        let skipped = match step {
            0 => missing,
            step => missing.div_ceil(step) * step,
        };
        self.position = Some(first + skipped);
    }

    /// When the next operation, of `bytes`, is due.
    pub fn due(&self, bytes: u64) -> MonoNanos {
        let after = match &self.poisson {
            Some(poisson) => whole(poisson.next_ns(self.gap_ns(bytes))),
            None => self.nanos(self.position_of(bytes)),
        };
        self.start.saturating_add(Duration::from_nanos(after))
    }

    /// As [`due`](Self::due), and advances to the next operation.
    pub fn take(&mut self, bytes: u64) -> MonoNanos {
        let due = self.due(bytes);
        let (position, gap_ns) = (self.position_of(bytes), self.gap_ns(bytes));
        match &mut self.poisson {
            Some(poisson) => {
                poisson.elapsed_ns = poisson.next_ns(gap_ns);
                poisson.draw = exponential(&mut poisson.random);
            }
            None => {
                let step = u128::from(self.workers) * self.cost(bytes);
                self.position = Some(position + step);
            }
        }
        due
    }

    /// Advances by `count` operations of `bytes` each. Of random arrivals the mean distance is taken.
    pub(crate) fn skip(&mut self, count: u64, bytes: u64) {
        let (position, gap_ns) = (self.position_of(bytes), self.gap_ns(bytes));
        match &mut self.poisson {
            Some(poisson) => poisson.elapsed_ns += gap_ns * count as f64,
            None => {
                let step = u128::from(self.workers) * self.cost(bytes);
                self.position = Some(position + step * u128::from(count));
            }
        }
    }

    /// Bytes that one worker may move at once, if the schedule divides operations into chunks. Arrivals of independent
    /// users are instants of whole operations, and so are operations per second.
    pub(crate) fn chunk_bytes(&self) -> Option<u64> {
        let divides = self.unit == RateUnit::Bytes && self.poisson.is_none();
        divides.then(|| chunk_bytes(self.per_second / self.workers.max(1)))
    }

    /// The mean distance between two operations of this worker that move `bytes` each.
    pub fn mean_gap(&self, bytes: u64) -> Duration {
        Duration::from_nanos(whole(self.gap_ns(bytes)))
    }

    fn position_of(&self, bytes: u64) -> u128 {
        self.position
            .unwrap_or_else(|| u128::from(self.place) * self.cost(bytes))
    }

    fn cost(&self, bytes: u64) -> u128 {
        match self.unit {
            RateUnit::Operations => 1,
            RateUnit::Bytes => bytes.into(),
        }
    }

    fn nanos(&self, position: u128) -> u64 {
        let nanos = position.saturating_mul(NANOS_PER_SECOND) / u128::from(self.per_second);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn gap_ns(&self, bytes: u64) -> f64 {
        (u128::from(self.workers) * self.cost(bytes)) as f64 * 1e9 / self.per_second as f64
    }
}

impl Poisson {
    fn next_ns(&self, mean_gap_ns: f64) -> f64 {
        self.elapsed_ns + self.draw * mean_gap_ns
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and beyond the clock's end it saturates"
)]
fn whole(nanos: f64) -> u64 {
    nanos as u64
}

/// Exponentially distributed with mean 1, by inversion; never 0 or infinite.
fn exponential(random: &mut Random) -> f64 {
    let uniform = ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln()
}

#[cfg(test)]
mod tests;
