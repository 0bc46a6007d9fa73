#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use proptest::prelude::*;

fn pace(unit: RateUnit, per_second: u64, per: Per, process: ArrivalProcess) -> Pace {
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
            let share = WorkerShare {
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
        let pace = pace(RateUnit::Operations, 100, per, ArrivalProcess::Linear);
        let instants = row(&pace, 4, 3, 7, 0);
        assert_eq!(instants.len(), 700 * rates, "{per:?}");
    }
    // 7 workers cannot share 10 operations a second in whole numbers; together they do exactly 10.
    let pace = pace(RateUnit::Operations, 10, Per::Step, ArrivalProcess::Linear);
    let instants = row(&pace, 7, 1, 1, 0);
    let even: Vec<u64> = (0..10).map(|n| n * 100_000_000).collect();
    assert_eq!(instants, even);
}

#[test]
fn a_changed_share_goes_on_without_a_gap_or_a_burst() {
    let second = 1_000_000_000;
    let pace = pace(RateUnit::Operations, 100, Per::Step, ArrivalProcess::Linear);
    let start = MonoNanos(second);
    // Task 1 of 4 is lost at 3 s. The others receive the change that takes effect at 5 s; the last one at 5.5 s.
    let change = |task: u32, known_at: u64| ShareChange {
        task,
        tasks: 3,
        from: MonoNanos(6 * second),
        known_at: MonoNanos(known_at),
    };
    let survivors = [
        (0, change(0, 5 * second)),
        (2, change(1, 5 * second)),
        (3, change(2, 13 * second / 2)),
    ];
    let mut instants = Vec::new();
    for (task, change) in survivors {
        for worker in 0..2 {
            let share = WorkerShare {
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
    // The late task keeps its old share for the first half second: 12 or 13 of 25 rather than 16 or 17 of 50.
    assert!((91..=97).contains(&in_second(5)), "{}", in_second(5));
    assert_eq!((6..10).map(in_second).collect::<Vec<_>>(), [100; 4]);
    let gaps = instants.windows(2).filter(|two| two[0] >= 6 * second);
    assert!(gaps.map(|two| two[1] - two[0]).all(|gap| gap == 10_000_000));
    // A rate that is not the step's keeps its share.
    let mut own = Schedule::new(
        &Pace {
            per: Per::Task,
            ..pace
        },
        WorkerShare::default(),
    );
    let before = own.clone();
    assert_eq!(own.change(&survivors[0].1, 0), Changed::Done);
    assert_eq!(own, before);
}

/// Skipping at once leaves out the same instants as taking them one by one.
#[test]
fn a_late_change_leaves_out_what_was_due_before() {
    let second = 1_000_000_000;
    for (unit, per_second, bytes) in [
        (RateUnit::Operations, 333, 0),
        (RateUnit::Bytes, 1 << 30, 1),
        (RateUnit::Bytes, 7_777, 4096),
        (RateUnit::Bytes, 1 << 20, 0),
    ] {
        let pace = pace(unit, per_second, Per::Step, ArrivalProcess::Linear);
        let share = WorkerShare {
            worker: 1,
            workers: 3,
            task: 0,
            tasks: 2,
        };
        let change = ShareChange {
            task: 1,
            tasks: 2,
            from: MonoNanos(2 * second),
            known_at: MonoNanos(2 * second + 12_345_678),
        };
        let mut changed = Schedule::new(&pace, share);
        changed.set_start(MonoNanos(second));
        changed.position = Some(u128::from(per_second) * 3);
        assert_eq!(changed.change(&change, bytes), Changed::Done);
        let mut stepped = Schedule::new(&pace, WorkerShare { task: 1, ..share });
        stepped.set_start(change.from);
        while (unit, bytes) != (RateUnit::Bytes, 0) && stepped.due(bytes) < change.begins() {
            stepped.take(bytes);
        }
        match (unit, bytes) {
            // Exact to one byte.
            (RateUnit::Bytes, 0) => {
                let after = changed.due(0).0.checked_sub(change.begins().0);
                assert!(after.is_some_and(|ns| ns < 1000), "{after:?}");
            }
            _ => assert_eq!(changed.due(bytes), stepped.due(bytes), "{unit:?} {bytes}"),
        }
    }
}

#[test]
fn bytes_take_their_time() {
    let pace = pace(
        RateUnit::Bytes,
        1 << 20,
        Per::Worker,
        ArrivalProcess::Linear,
    );
    assert_eq!(row(&pace, 1, 1, 1, 4096).len(), 256);
    let mut schedule = Schedule::new(&pace, WorkerShare::default());
    assert_eq!(schedule.take(1 << 20).0, 0);
    assert_eq!(schedule.take(1 << 19).0, 1_000_000_000);
    assert_eq!(schedule.take(1).0, 1_500_000_000);
    assert_eq!(schedule.mean_gap(1 << 19), Duration::from_millis(500));
}

#[test]
fn nothing_drifts_in_a_year() {
    let pace = pace(RateUnit::Operations, 3, Per::Worker, ArrivalProcess::Linear);
    let mut schedule = Schedule::new(&pace, WorkerShare::default());
    for _ in 0..3_000_000 {
        schedule.take(0);
    }
    assert_eq!(schedule.due(0).0, 1_000_000 * 1_000_000_000);
}

#[test]
fn poisson_has_the_rate_and_the_spread_of_an_exponential() {
    let pace = pace(
        RateUnit::Operations,
        1000,
        Per::Step,
        ArrivalProcess::Poisson,
    );
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
    fn shares_of_a_rate_add_up_exactly(
        workers in 1_u32..9, tasks in 1_u32..9, per_second in 1_u64..500, seconds in 1_u64..5,
    ) {
        let pace = pace(RateUnit::Operations, per_second, Per::Step, ArrivalProcess::Linear);
        let instants = row(&pace, workers, tasks, seconds, 0);
        prop_assert_eq!(instants.len() as u64, per_second * seconds);
        let first = instants.windows(2).map(|two| two[1] - two[0]);
        let gap = 1_000_000_000 / per_second;
        prop_assert!(first.into_iter().all(|it| it.abs_diff(gap) <= 1));
    }
}
