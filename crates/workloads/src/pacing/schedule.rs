//! One worker's row of instants.
//!
//! Even instants are computed from the whole amount so far in integers, so nothing drifts however long the load runs;
//! Poisson's are a seeded sum. Bytes stand in for operations where the rate is one of bytes: the distance after an
//! operation is the time that its bytes may take.

use super::{Change, Pace, Per, Process, Unit};
use crate::clock::MonoNanos;
use crate::random::Random;
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    fn pace(unit: Unit, per_second: u64, per: Per, process: Process) -> Pace {
        Pace {
            unit,
            per_second,
            per,
            process,
        }
    }

    /// All instants of a step's workers within `seconds`, in order.
    fn row(pace: &Pace, workers: u32, tasks: u32, seconds: u64, bytes: u64) -> Vec<u64> {
        let mut instants = Vec::new();
        for task in 0..tasks {
            for worker in 0..workers {
                let share = Share {
                    worker,
                    workers,
                    task,
                    tasks,
                };
                let mut schedule = Schedule::new(pace, share);
                schedule.set_start(MonoNanos(1000));
                while schedule.due(bytes).0 < 1000 + seconds * 1_000_000_000 {
                    instants.push(schedule.take(bytes).0 - 1000);
                }
            }
        }
        instants.sort_unstable();
        instants
    }

    #[test]
    fn a_steps_rate_is_shared_to_the_last_operation() {
        for (per, rates) in [(Per::Worker, 12), (Per::Task, 3), (Per::Step, 1)] {
            let pace = pace(Unit::Operations, 100, per, Process::Linear);
            let instants = row(&pace, 4, 3, 7, 0);
            assert_eq!(instants.len(), 700 * rates, "{per:?}");
        }
        // 7 workers cannot share 10 operations a second in whole numbers, and together do exactly 10.
        let pace = pace(Unit::Operations, 10, Per::Step, Process::Linear);
        let instants = row(&pace, 7, 1, 1, 0);
        let even: Vec<u64> = (0..10).map(|n| n * 100_000_000).collect();
        assert_eq!(instants, even);
    }

    #[test]
    fn a_changed_share_goes_on_without_a_gap_or_a_burst() {
        let second = 1_000_000_000;
        let pace = pace(Unit::Operations, 100, Per::Step, Process::Linear);
        let start = MonoNanos(second);
        // Task 1 of 4 is lost at 3 s, and told to the others for 5 s; the last of them hears it at 5.5 s.
        let change = |task: u32, told: u64| Change {
            task,
            tasks: 3,
            from: MonoNanos(6 * second),
            told: MonoNanos(told),
        };
        let survivors = [
            (0, change(0, 5 * second)),
            (2, change(1, 5 * second)),
            (3, change(2, 13 * second / 2)),
        ];
        let mut instants = Vec::new();
        for (task, change) in survivors {
            for worker in 0..2 {
                let share = Share {
                    worker,
                    workers: 2,
                    task,
                    tasks: 4,
                };
                let mut schedule = Schedule::new(&pace, share);
                schedule.set_start(start);
                let mut pending = true;
                while schedule.due(0).0 < 11 * second {
                    if pending && schedule.change(&change, 0) == Changed::Done {
                        pending = false;
                        continue;
                    }
                    instants.push(schedule.take(0).0 - second);
                }
                assert!(!pending);
            }
        }
        instants.sort_unstable();
        let in_second = |at: u64| {
            let inside = instants.iter().filter(|it| **it / second == at);
            inside.count()
        };
        assert_eq!((0..5).map(in_second).collect::<Vec<_>>(), [75; 5]);
        // The late one keeps to its old share of the first half second: 12 or 13 of 25 rather than 16 or 17 of 50.
        assert!((91..=97).contains(&in_second(5)), "{}", in_second(5));
        assert_eq!((6..10).map(in_second).collect::<Vec<_>>(), [100; 4]);
        let gaps = instants.windows(2).filter(|two| two[0] >= 6 * second);
        assert!(gaps.map(|two| two[1] - two[0]).all(|gap| gap == 10_000_000));
        // Shares of other rates stay as they are.
        let mut own = Schedule::new(
            &Pace {
                per: Per::Task,
                ..pace
            },
            Share::default(),
        );
        let before = own.clone();
        assert_eq!(own.change(&survivors[0].1, 0), Changed::Done);
        assert_eq!(own, before);
    }

    /// What is left out at once is what would have been taken one by one.
    #[test]
    fn a_late_change_leaves_out_what_was_due_before() {
        let second = 1_000_000_000;
        for (unit, per_second, bytes) in [
            (Unit::Operations, 333, 0),
            (Unit::Bytes, 1 << 30, 1),
            (Unit::Bytes, 7_777, 4096),
            (Unit::Bytes, 1 << 20, 0),
        ] {
            let pace = pace(unit, per_second, Per::Step, Process::Linear);
            let share = Share {
                worker: 1,
                workers: 3,
                task: 0,
                tasks: 2,
            };
            let change = Change {
                task: 1,
                tasks: 2,
                from: MonoNanos(2 * second),
                told: MonoNanos(2 * second + 12_345_678),
            };
            let mut changed = Schedule::new(&pace, share);
            changed.set_start(MonoNanos(second));
            changed.position = Some(u128::from(per_second) * 3);
            assert_eq!(changed.change(&change, bytes), Changed::Done);
            let mut stepped = Schedule::new(&pace, Share { task: 1, ..share });
            stepped.set_start(change.from);
            while (unit, bytes) != (Unit::Bytes, 0) && stepped.due(bytes) < change.begins() {
                stepped.take(bytes);
            }
            match (unit, bytes) {
                // As near as a byte is.
                (Unit::Bytes, 0) => {
                    let after = changed.due(0).0.checked_sub(change.begins().0);
                    assert!(after.is_some_and(|ns| ns < 1000), "{after:?}");
                }
                _ => assert_eq!(changed.due(bytes), stepped.due(bytes), "{unit:?} {bytes}"),
            }
        }
    }

    #[test]
    fn bytes_take_their_time() {
        let pace = pace(Unit::Bytes, 1 << 20, Per::Worker, Process::Linear);
        assert_eq!(row(&pace, 1, 1, 1, 4096).len(), 256);
        let mut schedule = Schedule::new(&pace, Share::default());
        assert_eq!(schedule.take(1 << 20).0, 0);
        assert_eq!(schedule.take(1 << 19).0, 1_000_000_000);
        assert_eq!(schedule.take(1).0, 1_500_000_000);
        assert_eq!(schedule.mean_gap(1 << 19), Duration::from_millis(500));
    }

    #[test]
    fn nothing_drifts_in_a_year() {
        let pace = pace(Unit::Operations, 3, Per::Worker, Process::Linear);
        let mut schedule = Schedule::new(&pace, Share::default());
        for _ in 0..3_000_000 {
            schedule.take(0);
        }
        assert_eq!(schedule.due(0).0, 1_000_000 * 1_000_000_000);
    }

    #[test]
    fn poisson_has_the_rate_and_the_spread_of_an_exponential() {
        let pace = pace(Unit::Operations, 1000, Per::Step, Process::Poisson);
        let instants = row(&pace, 3, 2, 100, 0);
        // The count of a Poisson process has the standard deviation sqrt(100 000) = 316.
        assert!(
            (98_400..101_600).contains(&instants.len()),
            "{}",
            instants.len()
        );
        let gaps: Vec<f64> = instants
            .windows(2)
            .map(|two| (two[1] - two[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        // e^-1 of them are longer than the mean.
        assert!((longer - 0.368).abs() < 0.01, "{longer}");
        assert_eq!(instants, row(&pace, 3, 2, 100, 0));
    }

    proptest! {
        #[test]
        fn whatever_the_split_the_total_is_exact(
            workers in 1_u32..9, tasks in 1_u32..9, per_second in 1_u64..500, seconds in 1_u64..5,
        ) {
            let pace = pace(Unit::Operations, per_second, Per::Step, Process::Linear);
            let instants = row(&pace, workers, tasks, seconds, 0);
            prop_assert_eq!(instants.len() as u64, per_second * seconds);
            let first = instants.windows(2).map(|two| two[1] - two[0]);
            let gap = 1_000_000_000 / per_second;
            prop_assert!(first.into_iter().all(|it| it.abs_diff(gap) <= 1));
        }
    }
}
