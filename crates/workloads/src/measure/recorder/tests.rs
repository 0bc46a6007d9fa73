#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::measure::pacing::{ArrivalProcess, Pace, Per, RateUnit, WorkerShare};
use proptest::prelude::*;

pub(crate) const PERIOD_NS: u64 = 1000;

/// A recorder whose planned start is instant 0 and whose periods are 1000 ns, for injected instants.
pub(crate) fn recorder(ramp_ns: u64) -> (Recorder, Consumer) {
    let (mut recorder, consumer) = pair(Settings {
        timing: Timing {
            ramp: (ramp_ns > 0).then_some(Duration::from_nanos(ramp_ns)),
            runtime: None,
        },
        period: Duration::from_nanos(PERIOD_NS),
        ..Settings::of(&[Op::Read, Op::Write])
    });
    recorder.set_start(MonoNanos(0));
    (recorder, consumer)
}

impl Recorder {
    /// Records an operation that lasted from `began` to `ended`.
    pub(crate) fn record(&mut self, op: Op, began: u64, ended: u64) {
        self.end_at(MonoNanos(ended), op, Began::at(MonoNanos(began)), 10);
    }

    fn error_at(
        &mut self,
        now: MonoNanos,
        op: Op,
        began: Began,
        facts: &ErrorFacts<'_>,
    ) -> Result<(), OpError> {
        self.failed_at(now, op, began);
        self.ledger.get().errors.add(op, now, self.streak, facts)
    }

    /// Shows an operation as in flight since `began`.
    pub(crate) fn announce(&mut self, op: Op, began: u64) {
        self.shared.show(op, MonoNanos(began));
    }
}

/// One interval taken: index, periods, ramp, and per kind operations, errors and in flight.
#[derive(Debug, PartialEq)]
struct SeenInterval {
    index: u64,
    periods: u32,
    ramp: bool,
    ops: [u64; 2],
    errors: u64,
    in_flight: [u32; 2],
}

fn take(consumer: &Consumer) -> Vec<SeenInterval> {
    taken(|sink| consumer.take(sink))
}

fn taken(take: impl FnOnce(&mut dyn FnMut(&Buffer))) -> Vec<SeenInterval> {
    let mut seen = Vec::new();
    take(&mut |buffer| {
        let [read, write] = &buffer.series[..] else {
            panic!("two kinds")
        };
        assert_eq!(read.bytes, 10 * read.service.count());
        seen.push(SeenInterval {
            index: buffer.index,
            periods: buffer.periods,
            ramp: buffer.ramp,
            ops: [read.service.count(), write.service.count()],
            errors: read.errors + write.errors,
            in_flight: [read.in_flight, write.in_flight],
        });
    });
    seen
}

fn seen(index: u64, periods: u32, ops: [u64; 2], in_flight: [u32; 2]) -> SeenInterval {
    SeenInterval {
        index,
        periods,
        ramp: false,
        ops,
        errors: 0,
        in_flight,
    }
}

#[test]
fn an_operation_belongs_to_the_period_in_which_it_ended() {
    let (mut recorder, consumer) = recorder(0);
    recorder.record(Op::Read, 0, 10);
    recorder.record(Op::Write, 10, 999);
    assert_eq!((take(&consumer), consumer.handed_over()), (vec![], 0));
    recorder.record(Op::Read, 999, 1000);
    assert_eq!(take(&consumer), [seen(0, 1, [1, 1], [1, 0])]);
    assert_eq!(consumer.handed_over(), 1);
    recorder.record(Op::Write, 5200, 5300);
    assert_eq!(take(&consumer), [seen(1, 1, [1, 0], [0, 0])]);
    assert_eq!(consumer.handed_over(), 5);
    recorder.finish();
    assert_eq!(take(&consumer), [seen(5, 1, [0, 1], [0, 0])]);
    assert_eq!(consumer.handed_over(), u64::MAX);
}

/// Periods move by up to a thousandth of their width each, either way. Every operation counts once, in the period in
/// which it ended at that moment, and no index is left out.
#[test]
fn periods_that_move_lose_nothing_and_count_nothing_twice() {
    for ppm in [1000_i64, -1000, 300] {
        let shift = Arc::new(Shift::default());
        let (mut recorder, consumer) = pair(Settings {
            period: Duration::from_nanos(1_000_000),
            shift: Arc::clone(&shift),
            ..Settings::of(&[Op::Read, Op::Write])
        });
        recorder.set_start(MonoNanos(0));
        let (mut total, mut by_index) = (0, std::collections::BTreeMap::new());
        // An operation every hundredth of a period, for 2000 of them.
        for number in 1..=200_000_u64 {
            let ended = number * 10_000;
            recorder.record(Op::Read, ended - 10_000, ended);
            if number % 100 == 50 {
                let periods = i64::try_from(number / 100).unwrap();
                shift.set(periods * ppm);
            }
            for seen in take(&consumer) {
                assert_eq!(seen.periods, 1, "{ppm}");
                total += seen.ops[0];
                *by_index.entry(seen.index).or_insert(0) += seen.ops[0];
            }
        }
        recorder.finish();
        for seen in take(&consumer) {
            total += seen.ops[0];
            *by_index.entry(seen.index).or_insert(0) += seen.ops[0];
        }
        assert_eq!(total, 200_000, "{ppm}");
        let last = by_index.len() as u64 - 1;
        assert_eq!(by_index.last_key_value().unwrap().0, &last, "{ppm}");
        // 2000 periods, less what they have moved.
        let left = (2_000_000_000 - shift.get()) / 1_000_000;
        assert_eq!(i64::try_from(last).unwrap(), left, "{ppm}");
        for (index, ops) in by_index.range(1..last) {
            assert!((99..=101).contains(ops), "{ppm}: {ops} in {index}");
        }
    }
}

#[test]
fn without_a_clean_buffer_the_interval_widens() {
    let (mut recorder, consumer) = recorder(0);
    for period in 0..10 {
        recorder.record(Op::Read, period * PERIOD_NS, period * PERIOD_NS + 5);
    }
    let early = take(&consumer);
    assert_eq!(early.len(), BUFFERS - 1);
    recorder.record(Op::Read, 12_000, 12_001);
    recorder.finish();
    let late = take(&consumer);
    assert_eq!(
        late,
        [seen(3, 7, [7, 0], [0, 0]), seen(12, 1, [1, 0], [0, 0])]
    );
}

#[test]
fn the_ramp_ends_within_a_period_and_without_a_clean_buffer() {
    let (mut recorder, consumer) = recorder(4500);
    for at in [5, 1005, 2005, 3005, 4005, 4499, 4501] {
        recorder.record(Op::Read, at, at);
    }
    recorder.finish();
    let seen = take(&consumer);
    assert_eq!(seen.iter().map(|s| s.ops[0]).sum::<u64>(), 7);
    let last = seen.last().unwrap();
    assert_eq!((last.ramp, last.index, last.ops[0]), (false, 4, 1));
    assert!(seen[..seen.len() - 1].iter().all(|s| s.ramp));
}

#[test]
fn what_is_in_flight_can_be_seen() {
    let (mut recorder, consumer) = recorder(0);
    assert_eq!(consumer.in_flight(), None);
    let began = recorder.begin_as(Op::Write);
    let op = Op::Write;
    let since = began.at;
    let (file, offset) = (None, None);
    assert_eq!(
        consumer.in_flight(),
        Some(InFlightOp {
            op,
            since,
            file,
            offset,
            is_untimed: false,
        })
    );
    recorder.end(Op::Write, began, 0);
    assert_eq!(consumer.in_flight(), None);
    recorder.set_position(3, 4096);
    recorder.begin();
    let seen = consumer.in_flight().unwrap();
    assert_eq!(
        (seen.op, seen.file, seen.offset),
        (Op::Read, Some(3), Some(4096))
    );
    recorder.set_file(4);
    let seen = consumer.in_flight().unwrap();
    assert_eq!((seen.file, seen.offset), (Some(4), None));
    recorder.idle();
    assert_eq!(consumer.in_flight(), None);
}

#[test]
fn what_is_on_the_way_is_seen_and_is_no_begin_of_an_operation() {
    let (mut recorder, consumer) = recorder(0);
    let seen = recorder.untimed(Op::Write, || consumer.in_flight());
    assert_eq!(seen.map(|seen| seen.op), Some(Op::Write));
    assert_eq!((consumer.in_flight(), consumer.last_begun()), (None, None));
    let began = recorder.begin_as(Op::Write);
    recorder.end(Op::Write, began, 0);
    let (since, seen) = recorder.untimed_since(Op::Read, || consumer.in_flight());
    assert_eq!(
        seen.map(|seen| (seen.op, seen.since)),
        Some((Op::Read, since.at))
    );
    assert_eq!(consumer.in_flight(), None);
    assert_eq!(consumer.last_begun(), Some(began.at));
}

#[test]
fn it_stops_when_told() {
    let settings = Settings::of(&[Op::Null]);
    let stop = Arc::clone(&settings.stop);
    let (mut recorder, _taker) = pair(settings);
    recorder.set_start(MonoNanos(0));
    recorder.record(Op::Null, 0, 1099);
    assert!(!recorder.should_stop());
    stop.set();
    assert!(recorder.should_stop() && stop.at() <= Some(MonoNanos::now()));
}

#[test]
fn its_time_is_over_at_the_end_of_the_runtime() {
    let (mut recorder, _taker) = pair(Settings {
        timing: Timing {
            ramp: Some(Duration::from_nanos(100)),
            runtime: Some(Duration::from_nanos(1000)),
        },
        ..Settings::of(&[Op::Null])
    });
    recorder.set_start(MonoNanos(0));
    recorder.record(Op::Null, 0, 1099);
    assert!(!recorder.should_stop());
    recorder.record(Op::Null, 0, 1100);
    assert!(recorder.should_stop());
}

#[test]
fn errors_are_counted_in_their_period() {
    let (mut recorder, consumer) = recorder(0);
    let facts = ErrorFacts {
        errno: libc::EIO,
        path: "f",
        offset: None,
    };
    for at in [10, 1010] {
        recorder
            .error_at(MonoNanos(at), Op::Read, Began::at(MonoNanos(0)), &facts)
            .unwrap();
    }
    let errors = recorder.finish();
    assert_eq!((errors.len(), errors[0].count), (1, 2));
    let counts: Vec<_> = take(&consumer)
        .iter()
        .map(|s| (s.index, s.errors, s.ops))
        .collect();
    assert_eq!(counts, [(0, 1, [0, 0]), (1, 1, [0, 0])]);
}

#[test]
fn a_mismatch_is_an_error_that_says_where_and_what() {
    use crate::target::data::{FoundData, Mismatch, Mismatches};
    let (mut recorder, consumer) = recorder(0);
    let wrong = |offsets: &[u64]| {
        let mut wrong = Mismatches::default();
        let found = FoundData::Byte {
            expected: 1,
            found: 3,
        };
        for offset in offsets.iter().copied() {
            wrong.add(Mismatch { offset, found });
        }
        wrong
    };
    // One operation with a wrong sector, and one with five.
    for offsets in [&[4096][..], &[8192, 12288, 16384, 20480, 24576]] {
        let began = recorder.begin();
        let counted = recorder.mismatch(Op::Read, began, "w0.dat", &wrong(offsets));
        counted.unwrap();
    }
    let errors = recorder.finish();
    assert_eq!(
        (errors.len(), errors[0].count, errors[0].errno),
        (1, 6, MISMATCH)
    );
    let expected = "read w0.dat at offset 4096: expected 0x01, found 0x03; \
                    read w0.dat at offset 8192: expected 0x01, found 0x03; \
                    read w0.dat at offset 12288: expected 0x01, found 0x03";
    assert_eq!(errors[0].first, expected);
    // They count as two failed operations.
    assert_eq!(take(&consumer).iter().map(|s| s.errors).sum::<u64>(), 2);
}

#[test]
#[should_panic(expected = "not in its list of operations")]
fn an_operation_that_was_not_announced_is_a_mistake() {
    recorder(0).0.record(Op::Copy, 0, 1);
}

#[test]
fn the_harness_costs_something_and_not_much() {
    let cost = harness_ns_per_op();
    assert!((1..50_000).contains(&cost), "{cost}");
}

/// An operation, and whether the consumer takes intervals after it.
#[derive(Debug, Clone)]
struct Act {
    pause: u64,
    lasts: u64,
    writes: bool,
    takes: bool,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let short_or_long = || prop_oneof![4 => 0_u64..300, 1 => 0_u64..4000];
    let act = (
        short_or_long(),
        short_or_long(),
        any::<bool>(),
        prop::bool::weighted(0.3),
    );
    let act = act.prop_map(|(pause, lasts, writes, takes)| Act {
        pause,
        lasts,
        writes,
        takes,
    });
    prop::collection::vec(act, 0..200)
}

proptest! {
    /// Compares with a model that only keeps a list: nothing is lost, and everything is in the right interval.
    #[test]
    fn no_operation_is_lost_however_late_the_consumer(acts in acts(), ramp in prop_oneof![Just(0_u64), 1_u64..20_000]) {
        let (mut recorder, consumer) = recorder(ramp);
        let (mut model, mut taken) = (Vec::new(), Vec::new());
        let mut now = 0;
        for act in acts {
            let began = now + act.pause;
            now = began + act.lasts;
            let op = if act.writes { Op::Write } else { Op::Read };
            recorder.record(op, began, now);
            model.push((now, op));
            if act.takes {
                taken.extend(take(&consumer));
            }
        }
        recorder.finish();
        taken.extend(take(&consumer));
        let mut end = 0;
        for part in &taken {
            prop_assert!(part.index >= end || (part.index + 1 == end && !part.ramp), "{taken:?}");
            end = part.index + u64::from(part.periods);
            let within = |at: u64| {
                (part.index..end).contains(&(at / PERIOD_NS)) && (at < ramp) == part.ramp
            };
            let count = |op| model.iter().filter(|(at, kind)| *kind == op && within(*at)).count() as u64;
            prop_assert_eq!(part.ops, [count(Op::Read), count(Op::Write)]);
        }
        let total: u64 = taken.iter().map(|part| part.ops[0] + part.ops[1]).sum();
        prop_assert_eq!(total, model.len() as u64);
    }
}

#[test]
fn a_target_that_refuses_everything_is_asked_ever_more_slowly() {
    let (mut recorder, _consumer) = pair(Settings::of(&[Op::Read]));
    let start = MonoNanos::now();
    recorder.set_start(start);
    let facts = ErrorFacts {
        errno: libc::ENOTCONN,
        path: "a",
        offset: None,
    };
    for _ in 0..106 {
        let began = recorder.begin();
        recorder.error(Op::Read, began, &facts).unwrap();
    }
    // 1 + 2 + 4 + 8 + 16 + 32 ms, none of which counts for the next operation.
    assert!(MonoNanos::now().since(start) >= Duration::from_millis(63));
    let after = recorder.begin_back_to_back(Op::Read);
    assert!(after.at > recorder.last || after.at.since(start) >= Duration::from_millis(63));
    assert_eq!(recorder.finish()[0].count, 106);
}

#[test]
fn the_counts_of_a_worker_that_hangs_are_taken_once() {
    let (mut recorder, consumer) = recorder(0);
    recorder.record(Op::Read, 0, 10);
    recorder.record(Op::Write, 10, 20);
    recorder.announce(Op::Read, 30);
    let unfinished = || taken(|sink| consumer.take_unfinished(sink));
    assert_eq!(unfinished(), [seen(0, 1, [1, 1], [0, 0])]);
    assert_eq!(unfinished(), []);
    // The hang ends after three periods.
    recorder.record(Op::Read, 30, 3500);
    recorder.finish();
    let later = take(&consumer);
    assert_eq!(
        later,
        [seen(0, 1, [0, 0], [1, 0]), seen(3, 1, [1, 0], [0, 0])]
    );
}

/// A recorder with an operation due every 100 ns from instant 0, and with three reads and a write done.
fn behind(runtime: Option<Duration>) -> (Recorder, Consumer) {
    let pace = Pace {
        unit: RateUnit::Operations,
        per_second: 10_000_000,
        per: Per::Worker,
        process: ArrivalProcess::Linear,
    };
    let share = WorkerShare {
        workers: 1,
        tasks: 1,
        ..WorkerShare::default()
    };
    let (mut recorder, consumer) = pair(Settings {
        timing: Timing {
            ramp: None,
            runtime,
        },
        period: Duration::from_nanos(PERIOD_NS),
        schedule: Some((Schedule::new(&pace, share), 1)),
        ..Settings::of(&[Op::Read, Op::Write])
    });
    recorder.set_start(MonoNanos(0));
    for (op, at) in [
        (Op::Read, 0),
        (Op::Read, 100),
        (Op::Write, 200),
        (Op::Read, 300),
    ] {
        let mut ledger = recorder.ledger.get();
        ledger.pacer.as_mut().unwrap().take(0);
        drop(ledger);
        recorder.record(op, at, at + 10);
    }
    (recorder, consumer)
}

/// Index of each interval, and of its reads and writes the number, the least and the greatest response time.
type Responses = Vec<(u64, [(u64, u64, u64); 2])>;

fn responses(buffer: &Buffer) -> (u64, [(u64, u64, u64); 2]) {
    let of = |series: &RecordedOps| {
        let all = series.response.as_ref().unwrap();
        (all.count(), all.min_ns(), all.max_ns())
    };
    let [read, write] = &buffer.series[..] else {
        panic!("two kinds")
    };
    (buffer.index, [of(read), of(write)])
}

#[test]
fn what_was_due_when_a_hanging_load_was_stopped_counts_with_its_age() {
    let (mut recorder, consumer) = behind(None);
    recorder.announce(Op::Read, 400);
    let mut seen: Responses = Vec::new();
    let mut settle = |now| {
        seen.clear();
        let label = (now / PERIOD_NS, false);
        consumer.settle(MonoNanos(1200), MonoNanos(now), label, &mut |buffer| {
            seen.push(responses(buffer));
        });
        seen.clone()
    };
    // Of those due from 400 to 1100 three quarters are reads.
    let done = (0, [(3, 10, 10), (1, 10, 10)]);
    let [first, second] = settle(5200)[..] else {
        panic!("two intervals")
    };
    assert_eq!(first, done);
    assert_eq!((second.0, second.1[0].0, second.1[1].0), (5, 6, 2));
    let (least, greatest) = (
        second.1[0].1.min(second.1[1].1),
        second.1[0].2.max(second.1[1].2),
    );
    assert_eq!((least, greatest), (4100, 4800));
    assert_eq!(settle(6200), []);
    // When the operation ends at last it is an operation, and changes no response time.
    recorder.record(Op::Read, 400, 9000);
    recorder.finish();
    let mut late = (0, 0);
    consumer.take(&mut |buffer| {
        late.0 += buffer.series[0].ops();
        late.1 += responses(buffer).1[0].0;
    });
    assert_eq!(late, (1, 0));
}

#[test]
fn a_worker_behind_its_schedule_counts_what_its_runtime_left_undone() {
    let total = |runtime: Option<u64>, ended| {
        let (mut recorder, consumer) = behind(runtime.map(Duration::from_nanos));
        recorder.advance_to(MonoNanos(ended));
        recorder.finish();
        let mut all = (0, 0);
        consumer.take(&mut |buffer| {
            let [read, write] = responses(buffer).1;
            all = (all.0 + read.0 + write.0, read.2.max(write.2).max(all.1));
        });
        all
    };
    // Those due from 400 to 900 were not issued.
    assert_eq!(total(Some(1000), 1500), (4 + 6, 1100));
    // A load that has done all its work owes nothing.
    assert_eq!(total(None, 1500), (4, 10));
    assert_eq!(total(Some(1000), 350), (4, 10));
}

#[test]
fn a_backlog_of_any_size_is_counted_soon() {
    let (mut recorder, consumer) = behind(Some(Duration::from_secs(3600)));
    recorder.advance_to(MonoNanos(3_600_000_000_000));
    let began = std::time::Instant::now();
    recorder.finish();
    let mut all = 0;
    consumer.take(&mut |buffer| {
        let [read, write] = responses(buffer).1;
        all += read.0 + write.0;
    });
    let due = 36_000_000_000_u64;
    assert!(all.abs_diff(due) < due / 1_000_000, "{all}");
    assert!(began.elapsed() < Duration::from_secs(60));
}
