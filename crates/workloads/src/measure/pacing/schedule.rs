//! One worker's row of instants.
//!
//! Even instants are computed from the whole amount so far in integers, so nothing drifts however long the load runs;
//! Poisson's are a seeded sum. Bytes stand in for operations where the rate is one of bytes: the distance after an
//! operation is the time that its bytes may take.

use super::{Change, Pace, Per, Process, Unit};
use crate::measure::clock::MonoNanos;
use crate::measure::random::Random;
use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// Sets the arrivals apart from whatever else draws numbers for a task and a worker.
const ARRIVALS: u64 = 0x7061_6365;

/// Which worker of a step this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    pub worker: u32,
    pub workers: u32,
    pub task: u32,
    pub tasks: u32,
}

/// The instants at which one worker's operations are due.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pace: Pace,
    share: Share,
    unit: Unit,
    start: MonoNanos,
    /// This worker's place in the common row of instants, and how many workers share it.
    place: u64,
    workers: u64,
    /// Of all who share the row together.
    per_second: u64,
    /// Where the next operation stands in the common row, in units of `workers` units; `None` before the first.
    position: Option<u128>,
    poisson: Option<Poisson>,
}

/// Whether a change has taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Done,
    /// Something is due before it.
    NotYet,
}

/// Arrivals as independent users' come.
#[derive(Debug, Clone, PartialEq)]
struct Poisson {
    random: Random,
    /// From the start to the last arrival; a double holds nanoseconds exactly for a hundred days.
    elapsed_ns: f64,
    /// The distance to the next arrival, in mean distances.
    draw: f64,
}

impl Schedule {
    /// The share of a worker. The same share of the same pace is the same schedule.
    pub fn new(pace: &Pace, share: Share) -> Schedule {
        let [worker, workers, task, tasks] = [
            share.worker,
            share.workers.max(1),
            share.task,
            share.tasks.max(1),
        ]
        .map(u64::from);
        // Workers of one task are as far apart as they can be, and tasks stand between them.
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
        if pace.process == Process::Poisson {
            let mut random = Random::of(&[ARRIVALS, task, worker]);
            schedule.poisson = Some(Poisson {
                draw: exponential(&mut random),
                random,
                elapsed_ns: 0.0,
            });
        }
        schedule
    }

    /// Fixes the instant that the row begins at.
    pub(crate) fn set_start(&mut self, start: MonoNanos) {
        self.start = start;
    }

    /// Goes over to another share of a step's rate, once everything is done that was due before; operations move
    /// `bytes`. The rate of a task or a worker does not depend on the others.
    pub(crate) fn change(&mut self, change: &Change, bytes: u64) -> Changed {
        if self.pace.per != Per::Step {
            return Changed::Done;
        }
        if self.due(bytes) < change.begins() {
            return Changed::NotYet;
        }
        let share = Share {
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

    /// Leaves out what is due before an instant, if operations move `bytes`.
    fn skip_to(&mut self, instant: MonoNanos, bytes: u64) {
        let elapsed = instant.0.saturating_sub(self.start.0);
        if let Some(poisson) = &mut self.poisson {
            // Arrivals that are independent of each other begin anew at any instant.
            poisson.elapsed_ns = elapsed as f64;
            return;
        }
        let step = u128::from(self.workers) * self.cost(bytes);
        let first = self.position_of(bytes);
        // The least position whose nanoseconds, rounded down, are not less.
        let units = u128::from(elapsed).saturating_mul(self.per_second.into());
        let wanted = units.div_ceil(NANOS_PER_SECOND);
        let missing = wanted.saturating_sub(first);
        // What moves nothing takes no time of a rate in bytes: no number of such operations leads there.
        let skipped = match step {
            0 => missing,
            step => missing.div_ceil(step) * step,
        };
        self.position = Some(first + skipped);
    }

    /// When the next operation is due, which moves `bytes`.
    pub fn due(&self, bytes: u64) -> MonoNanos {
        let after = match &self.poisson {
            Some(poisson) => whole(poisson.next_ns(self.gap_ns(bytes))),
            None => self.nanos(self.position_of(bytes)),
        };
        self.start.saturating_add(Duration::from_nanos(after))
    }

    /// The same, and goes on to the operation after it.
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

    /// The mean distance of two operations of this worker that move `bytes` each.
    pub fn mean_gap(&self, bytes: u64) -> Duration {
        Duration::from_nanos(whole(self.gap_ns(bytes)))
    }

    fn position_of(&self, bytes: u64) -> u128 {
        self.position
            .unwrap_or_else(|| u128::from(self.place) * self.cost(bytes))
    }

    fn cost(&self, bytes: u64) -> u128 {
        match self.unit {
            Unit::Operations => 1,
            Unit::Bytes => bytes.into(),
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
