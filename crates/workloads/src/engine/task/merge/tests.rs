#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::measure::recorder::Recorder;
use crate::measure::recorder::tests::{PERIOD_NS, recorder};
use proptest::prelude::*;

/// A merge of recorders with periods of 1000 ns that all started at instant 0.
struct Bench {
    merge: Merge,
    recorders: Vec<Recorder>,
    consumers: Vec<Consumer>,
}

impl Bench {
    fn new(workers: usize, ramp_ns: u64) -> Bench {
        let (recorders, consumers) = (0..workers).map(|_| recorder(ramp_ns)).unzip();
        Bench {
            merge: Merge::new(
                MonoNanos(0),
                Duration::from_nanos(PERIOD_NS),
                Some(Duration::from_nanos(ramp_ns)),
                Arc::default(),
                Op::Read,
            ),
            recorders,
            consumers,
        }
    }

    /// Collects at `now`; returns index, operations and in flight of the emitted intervals.
    fn poll(&mut self, now: Duration) -> Vec<(u64, u64, u32)> {
        let mut seen = Vec::new();
        self.merge.collect(&self.consumers);
        let now = MonoNanos(0).saturating_add(now);
        let sink = &mut |interval: Interval| {
            assert_eq!(interval.ops, interval.service.count());
            seen.push((interval.index, interval.ops, interval.in_flight));
        };
        self.merge.emit_due(now, &self.consumers, sink);
        seen
    }
}

/// After the grace of period 0 and before its latest instant.
const SOON: Duration = Duration::from_millis(201);
const LATE: Duration = Duration::from_millis(2001);

#[test]
fn a_period_is_emitted_once_all_workers_have_handed_it_over() {
    let mut bench = Bench::new(2, 0);
    for recorder in &mut bench.recorders {
        recorder.record(Op::Read, 0, 500);
    }
    bench.recorders[0].record(Op::Read, 600, 1_000_000_000);
    assert_eq!(bench.poll(GRACE), []);
    assert_eq!(bench.poll(SOON), []);
    let next = bench.merge.next_poll();
    assert_eq!(next, MonoNanos(0).saturating_add(SOON + POLL_INTERVAL));
    bench.recorders[1].record(Op::Read, 600, 1_000_000_000);
    let seen = bench.poll(SOON);
    assert_eq!(seen[..2], [(0, 2, 2), (1, 0, 2)]);
    assert_eq!(bench.poll(SOON), []);
}

#[test]
fn a_late_worker_is_counted_in_flight_with_what_it_did_before() {
    let mut bench = Bench::new(2, 0);
    for recorder in &mut bench.recorders {
        recorder.record(Op::Read, 0, 500);
    }
    bench.recorders[0].record(Op::Read, 1_400_000, 1_500_000);
    bench.recorders[1].announce(Op::Read, 700);
    let first = bench.poll(LATE);
    assert_eq!(first[0], (0, 2, 1));
    bench.recorders[1].record(Op::Read, 700, 1_500_000);
    let later = bench.end();
    assert_eq!(later, [(1500, 2)]);
}

#[test]
fn a_stall_is_an_interval_without_operations() {
    let mut bench = Bench::new(1, 0);
    bench.recorders[0].announce(Op::Write, 5);
    let seen = bench.poll(LATE);
    assert_eq!(seen.first(), Some(&(0, 0, 1)));
    assert!(
        seen.iter()
            .all(|(_, ops, in_flight)| (*ops, *in_flight) == (0, 1))
    );
}

#[test]
fn untimed_work_is_no_operation_in_flight() {
    let mut bench = Bench::new(1, 0);
    let Bench {
        merge,
        recorders,
        consumers,
    } = &mut bench;
    let mut seen = Vec::new();
    // A worker that opens its next file for seconds.
    recorders[0].untimed(Op::Open, || {
        let now = MonoNanos::now();
        merge.start = MonoNanos(now.0 - 10_000_000_000);
        merge.period = Duration::from_secs(5);
        merge.collect(consumers);
        let sink = &mut |interval: Interval| seen.push((interval.op, interval.in_flight));
        merge.emit_all(MonoNanos(now.0 + 6_000_000_000), consumers, sink);
    });
    assert_eq!(seen, [(Op::Read, 0); 3]);
}

#[test]
fn the_end_of_all_workers_ends_every_period() {
    let mut bench = Bench::new(3, 1500);
    for recorder in bench.recorders.drain(..) {
        let mut recorder = recorder;
        recorder.record(Op::Read, 0, 500);
        recorder.record(Op::Write, 500, 1400);
        recorder.record(Op::Read, 1400, 1600);
        recorder.finish();
    }
    bench.merge.collect(&bench.consumers);
    let mut seen = Vec::new();
    bench
        .merge
        .emit_all(MonoNanos(0), &bench.consumers, &mut |i| {
            seen.push((i.index, i.ramp, i.op, i.ops, i.bytes))
        });
    let expected = [
        (0, true, Op::Read, 3, 30),
        (0, true, Op::Write, 0, 0),
        (1, false, Op::Read, 3, 30),
        (1, true, Op::Read, 0, 0),
        (1, true, Op::Write, 3, 30),
    ];
    assert_eq!(seen, expected);
}

/// A merge of workers with periods of 1000 ns, and their common shift.
fn moving(workers: usize) -> (Bench, Arc<Shift>) {
    let shift = Arc::new(Shift::default());
    let period = Duration::from_nanos(PERIOD_NS);
    let pairs = (0..workers).map(|_| {
        let (mut recorder, consumer) =
            crate::measure::recorder::pair(crate::measure::recorder::Settings {
                period,
                shift: Arc::clone(&shift),
                ..crate::measure::recorder::Settings::of(&[Op::Read, Op::Write])
            });
        recorder.set_start(MonoNanos(0));
        (recorder, consumer)
    });
    let (recorders, consumers) = pairs.unzip();
    let merge = Merge::new(MonoNanos(0), period, None, Arc::clone(&shift), Op::Read);
    let bench = Bench {
        merge,
        recorders,
        consumers,
    };
    (bench, shift)
}

impl Bench {
    /// Ends the workers; returns index and operations of all remaining intervals.
    fn end(mut self) -> Vec<(u64, u64)> {
        self.recorders.drain(..).for_each(|recorder| {
            recorder.finish();
        });
        self.merge.collect(&self.consumers);
        let mut seen = Vec::new();
        self.merge
            .emit_all(MonoNanos(0), &self.consumers, &mut |it| {
                seen.push((it.index, it.ops));
            });
        // Intervals without operations only show what was in flight.
        seen.retain(|(_, ops)| *ops > 0);
        seen
    }
}

#[test]
fn a_period_that_grows_has_what_ended_in_it_of_every_worker() {
    let (mut bench, shift) = moving(2);
    // The first worker enters the second period before the shift, the other one after it.
    bench.recorders[0].record(Op::Read, 0, 1050);
    shift.set(100);
    bench.recorders[1].record(Op::Read, 0, 1150);
    for recorder in &mut bench.recorders {
        recorder.record(Op::Read, 1160, 2050);
        recorder.record(Op::Read, 2050, 2099);
        recorder.record(Op::Read, 2099, 2101);
    }
    assert_eq!(bench.end(), [(1, 6), (2, 2)]);
}

#[test]
fn a_period_that_shrinks_counts_everything_once() {
    let (mut bench, shift) = moving(2);
    bench.recorders[0].record(Op::Read, 0, 1050);
    shift.set(-100);
    bench.recorders[1].record(Op::Read, 0, 1050);
    for recorder in &mut bench.recorders {
        recorder.record(Op::Read, 1050, 1899);
        // The first worker's second period was to end at 2000; operations already in it stay.
        recorder.record(Op::Read, 1899, 1950);
        recorder.record(Op::Read, 1950, 2050);
        recorder.record(Op::Read, 2050, 2899);
        recorder.record(Op::Read, 2899, 2901);
    }
    assert_eq!(bench.end(), [(1, 5), (2, 5), (3, 2)]);
}

#[test]
fn a_period_that_moves_is_waited_for_where_it_ends_now() {
    let (mut bench, shift) = moving(1);
    bench.recorders[0].record(Op::Read, 0, 500);
    let moved = i64::try_from(GRACE.as_nanos()).unwrap();
    shift.set(moved);
    // The period is not over, so it is not emitted, although its original end has passed.
    assert_eq!(bench.poll(SOON), []);
    let end = MonoNanos(0).saturating_add(GRACE + Duration::from_nanos(PERIOD_NS));
    assert_eq!(bench.merge.next_poll(), end.saturating_add(GRACE));
    bench.recorders[0].record(Op::Read, 500, end.0 + PERIOD_NS);
    assert_eq!(
        bench.poll(2 * GRACE + POLL_INTERVAL),
        [(0, 1, 1), (1, 0, 1)]
    );
}

/// Index, operations and in flight of all intervals of these workers, collected once after their end.
fn rows(workers: &[&[(u64, u64)]], until: u64) -> Vec<(u64, u64, u32)> {
    let mut bench = Bench::new(workers.len(), 0);
    for (recorder, ops) in bench.recorders.drain(..).zip(workers) {
        let mut recorder = recorder;
        for (began, ended) in *ops {
            recorder.record(Op::Read, *began, *ended);
        }
        recorder.finish();
    }
    bench.merge.collect(&bench.consumers);
    let mut seen = Vec::new();
    let sink = &mut |it: Interval| seen.push((it.index, it.ops, it.in_flight));
    bench
        .merge
        .emit_all(MonoNanos(until), &bench.consumers, sink);
    seen
}

#[test]
fn every_period_has_a_row_however_a_stall_lies_in_it() {
    // One operation from 700 to 5500: it was in flight at the end of five periods.
    let stalled = [
        (0, 1, 1),
        (1, 0, 1),
        (2, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
        (5, 1, 0),
    ];
    assert_eq!(rows(&[&[(0, 500), (700, 5500)]], 5500), stalled);
    // A load without operations from 500 to 3200, which ended in the fifth period.
    let idle = [(0, 1, 0), (1, 0, 0), (2, 0, 0), (3, 1, 0)];
    assert_eq!(rows(&[&[(0, 500), (3200, 3300)]], 4100), idle);
    // Two workers that stall together.
    let both: [&[(u64, u64)]; 2] = [&[(0, 500), (700, 3500)], &[(900, 2100)]];
    assert_eq!(
        rows(&both, 3500),
        [(0, 1, 2), (1, 0, 2), (2, 1, 1), (3, 1, 0)]
    );
    // The seconds after the last operation, until the last worker has ended.
    assert_eq!(rows(&[&[(0, 500)]], 2999), [(0, 1, 0), (1, 0, 0)]);
}

#[test]
fn a_stall_that_ends_before_its_period_is_late_leaves_no_period_out() {
    let mut bench = Bench::new(1, 0);
    bench.recorders[0].record(Op::Read, 0, 500);
    bench.recorders[0].announce(Op::Read, 700);
    assert_eq!(bench.poll(SOON), []);
    // It returns 201 ms later, before any of these 1000 ns periods is late.
    bench.recorders[0].record(Op::Read, 700, 4500);
    let seen = bench.poll(SOON);
    let first: Vec<_> = seen.into_iter().take(4).collect();
    assert_eq!(first, [(0, 1, 1), (1, 0, 1), (2, 0, 1), (3, 0, 1)]);
}

proptest! {
    /// Workers advance independently while the periods keep shifting a little.
    #[test]
    fn however_periods_move_each_operation_is_counted_once_and_near_its_place(
        turns in proptest::collection::vec((0_usize..3, 50_u64..400, -50_i64..=50), 1..300),
    ) {
        let (mut bench, shift) = moving(3);
        let mut now = 0;
        let mut ended: Vec<u64> = Vec::new();
        let (mut emitted, mut period) = (Vec::new(), 0);
        for (worker, later, move_by) in turns {
            now += later;
            if now / PERIOD_NS > period {
                // Once per period, as the agent shifts them.
                period = now / PERIOD_NS;
                shift.set(shift.get() + move_by);
            }
            let place = now.checked_add_signed(-shift.get()).unwrap();
            ended.push(place);
            bench.recorders[worker].record(Op::Read, now.saturating_sub(20), now);
            bench.merge.collect(&bench.consumers);
            bench.merge.emit_due(MonoNanos(now), &bench.consumers, &mut |it| emitted.push((it.index, it.ops)));
        }
        emitted.extend(bench.end());
        let total: u64 = emitted.iter().map(|(_, ops)| ops).sum();
        prop_assert_eq!(total, ended.len() as u64);
        // Compares cumulative counts at each period's end.
        let last = ended.iter().max().unwrap() / PERIOD_NS;
        for index in 0..=last {
            let counted: u64 = emitted.iter().filter(|(at, _)| *at <= index).map(|(_, ops)| ops).sum();
            let edge = (index + 1) * PERIOD_NS;
            let before = |edge: u64| ended.iter().filter(|place| **place < edge).count() as u64;
            // A worker's period may be at most two shifts out of date.
            let slack = 100;
            prop_assert!(counted >= before(edge.saturating_sub(slack)), "{index}: {counted} of {}", before(edge));
            prop_assert!(counted <= before(edge + slack), "{index}: {counted} of {}", before(edge));
        }
    }
}
