#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::recorder::Recorder;
use crate::recorder::tests::{PERIOD_NS, recorder};

/// A merge over recorders with periods of 1000 ns that all started at instant 0.
struct Bench {
    merge: Merge,
    recorders: Vec<Recorder>,
    takers: Vec<Taker>,
}

impl Bench {
    fn new(workers: usize, ramp_ns: u64) -> Bench {
        let (recorders, takers) = (0..workers).map(|_| recorder(ramp_ns)).unzip();
        Bench {
            merge: Merge::new(
                MonoNanos(0),
                Duration::from_nanos(PERIOD_NS),
                Some(Duration::from_nanos(ramp_ns)),
                Arc::default(),
            ),
            recorders,
            takers,
        }
    }

    /// Looks at `now` past the time that every worker of period 0 has anyway; index, ops and in flight of what came.
    fn look(&mut self, now: Duration) -> Vec<(u64, u64, u32)> {
        let mut seen = Vec::new();
        self.merge.collect(&self.takers);
        let now = MonoNanos(0).saturating_add(now);
        let sink = &mut |interval: Interval| {
            assert_eq!(interval.ops, interval.service.count());
            seen.push((interval.index, interval.ops, interval.in_flight));
        };
        self.merge.emit_due(now, &self.takers, sink);
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
    assert_eq!(bench.look(GRACE), []);
    assert_eq!(bench.look(SOON), []);
    let look = bench.merge.next_look();
    assert_eq!(look, MonoNanos(0).saturating_add(SOON + LOOK));
    bench.recorders[1].record(Op::Read, 600, 1_000_000_000);
    assert_eq!(bench.look(SOON), [(0, 2, 2)]);
    assert_eq!(bench.look(SOON), []);
}

#[test]
fn a_late_worker_is_counted_in_flight_and_adds_its_part_later() {
    let mut bench = Bench::new(2, 0);
    for recorder in &mut bench.recorders {
        recorder.record(Op::Read, 0, 500);
    }
    bench.recorders[0].record(Op::Read, 2_000_000_000, 3_000_000_000);
    bench.recorders[1].announce(Op::Read, 700);
    let first = bench.look(LATE);
    assert_eq!(first[0], (0, 1, 1));
    bench.recorders[1].record(Op::Read, 700, 3_000_000_000);
    let later = bench.look(LATE);
    assert_eq!(later, [(0, 1, 0)]);
}

#[test]
fn a_stall_is_an_interval_without_operations() {
    let mut bench = Bench::new(1, 0);
    bench.recorders[0].announce(Op::Write, 5);
    let seen = bench.look(LATE);
    assert_eq!(seen.first(), Some(&(0, 0, 1)));
    assert!(
        seen.iter()
            .all(|(_, ops, in_flight)| (*ops, *in_flight) == (0, 1))
    );
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
    bench.merge.collect(&bench.takers);
    let mut seen = Vec::new();
    bench
        .merge
        .emit_all(&mut |i| seen.push((i.index, i.ramp, i.op, i.ops, i.bytes)));
    let expected = [
        (0, true, Op::Read, 3, 30),
        (0, true, Op::Write, 0, 0),
        (1, false, Op::Read, 3, 30),
        (1, true, Op::Read, 0, 0),
        (1, true, Op::Write, 3, 30),
    ];
    assert_eq!(seen, expected);
}
