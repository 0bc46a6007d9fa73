//! Operations that take seconds: their bytes count when they are moved, the operations over all of their time.

use super::*;

const MIB: i64 = 1 << 20;

/// A client that copies one file of 400 MiB at a given rate. The copy may or may not end at a whole second.
struct Client {
    id: i64,
    mib_per_s: i64,
}

const CLIENTS: [Client; 3] = [
    Client {
        id: 1,
        mib_per_s: 40,
    },
    Client {
        id: 2,
        mib_per_s: 44,
    },
    Client {
        id: 3,
        mib_per_s: 48,
    },
];

/// When the bytes of an operation count.
#[derive(Clone, Copy, PartialEq)]
enum Credit {
    /// As they are moved.
    Progress,
    /// At the end, in a single call.
    AtTheEnd,
    /// In the first second, into a cache that is flushed until the end.
    InTheCache,
}

impl Client {
    fn ended_us(&self) -> i64 {
        400 * S / self.mib_per_s
    }

    fn task(&self) -> TaskFacts {
        task(self.id, 0, self.ended_us())
    }

    fn intervals(&self, credit: Credit) -> Vec<IntervalFacts> {
        let ended = self.ended_us();
        let seconds = (ended + S - 1) / S;
        let of_second = |second: i64| {
            let mut one = interval(self.id, second, 0);
            let is_last = second == seconds - 1;
            one.bytes = match credit {
                Credit::Progress => {
                    let lasted = (ended - second * S).min(S);
                    self.mib_per_s * MIB * lasted / S
                }
                Credit::AtTheEnd => {
                    if is_last {
                        400 * MIB
                    } else {
                        0
                    }
                }
                Credit::InTheCache => {
                    if second == 0 {
                        400 * MIB
                    } else {
                        0
                    }
                }
            };
            if is_last {
                one.ops = 1;
                one.service.record(ended as u64 * 1000);
                if credit != Credit::Progress {
                    one.undated_bytes = 400 * MIB;
                }
            } else {
                one.in_flight = 1;
            }
            one
        };
        (0..seconds).map(of_second).collect()
    }
}

fn copied(credit: Credit) -> (Vec<StepInterval>, StepResults) {
    let mut intervals: Vec<_> = CLIENTS
        .iter()
        .flat_map(|one| one.intervals(credit))
        .collect();
    intervals.sort_by_key(|one| one.at_us);
    sum(CLIENTS.iter().map(Client::task).collect(), &intervals)
}

fn mib(bytes: Option<f64>) -> f64 {
    bytes.unwrap() / MIB as f64
}

#[test]
fn clients_that_end_seconds_apart_are_counted_at_the_rate_at_which_they_moved_bytes() {
    let (grid, results) = copied(Credit::Progress);
    let op = &results.ops[0];
    assert_eq!(
        (op.headline, op.window_us),
        (Headline::Window, Some(400 * S / 48))
    );
    assert!((mib(op.bytes_per_s) - 132.0).abs() < 0.1, "{op:?}");
    // When the first finished, the others had done 44/48 and 40/48 of their work.
    let ops = op.window_ops.unwrap();
    assert!(
        (ops - (1.0 + 44.0 / 48.0 + 40.0 / 48.0)).abs() < 0.02,
        "{ops}"
    );
    assert!(op.window_ops_error.unwrap() < 0.1, "{op:?}");
    assert_eq!(results.flags, []);
    let seconds = op.seconds.unwrap();
    assert_eq!((seconds.count, seconds.zero), (8, 0));
    for rate in [seconds.bytes.min, seconds.bytes.max] {
        assert!((rate / MIB as f64 - 132.0).abs() < 0.1, "{seconds:?}");
    }
    // The last interval ends with the last active worker.
    let last = grid.last().unwrap();
    assert_eq!((last.at_us, last.span_us), (T0 + 9 * S, S));
    let rate = last.bytes as f64 * 1e6 / last.span_us as f64 / MIB as f64;
    assert!((40.0..45.0).contains(&rate), "{rate}");
}

#[test]
fn bytes_that_count_at_the_end_are_spread_over_their_operation() {
    let (_, results) = copied(Credit::AtTheEnd);
    let op = &results.ops[0];
    assert_eq!(op.headline, Headline::Window);
    assert!((mib(op.bytes_per_s) - 132.0).abs() < 1.5, "{op:?}");
    let error = mib(op.window_bytes_error);
    assert!((0.0..60.0).contains(&error), "{error}");
}

#[test]
fn bytes_that_a_cache_took_at_once_make_the_headline_work_over_the_last_end() {
    let (_, results) = copied(Credit::InTheCache);
    let op = &results.ops[0];
    assert_eq!(op.headline, Headline::LastDone);
    assert!((mib(op.bytes_per_s) - 120.0).abs() < 0.1, "{op:?}");
    assert_eq!(results.flags, [Flag::Undated]);
    // Many such files in a row: the share at the edges is small.
    let mut all = Vec::new();
    for file in 0..10 {
        let mut first = interval(1, 2 * file, 0);
        first.bytes = 100 * MIB;
        let mut second = interval(1, 2 * file + 1, 1);
        second.service = Histogram::new();
        second.service.record(2_000_000_000);
        (second.bytes, second.undated_bytes) = (0, 100 * MIB);
        all.extend([first, second]);
    }
    let mut one = task(1, 0, 20 * S);
    one.first_done_us = Some(T0 + 19 * S);
    let (_, results) = sum(vec![one], &all);
    let op = &results.ops[0];
    assert_eq!((op.headline, results.flags), (Headline::Window, vec![]));
    assert!((mib(op.window_bytes_error) - 75.0).abs() < 1.0, "{op:?}");
}

#[test]
fn an_interval_outside_the_window_is_not_nothing_with_certainty() {
    // It ended between 9 and 10 s, and took 8: of that, 6 to 7 s are before the window's end at 8 s.
    let mut one = interval(1, 9, 0);
    one.ops = 1;
    one.service.record(8_000_000_000);
    let part = share(&one, 1, None, (T0, T0 + 8 * S));
    assert!((part.ops - 6.5 / 8.0).abs() < 0.01, "{part:?}");
    assert!((part.ops_error - 0.5 / 8.0).abs() < 0.01, "{part:?}");
    // All of it is after the window, or nearly all.
    let after = share(&one, 1, None, (T0 - 5 * S, T0));
    assert_eq!(
        (after.ops, after.ops_error, after.bytes_error),
        (0.0, 0.0, 0.0)
    );
}

#[test]
fn a_window_of_three_seconds_leads_whether_it_is_a_millisecond_short_or_not() {
    for (ended, headline) in [
        (3 * S + 1000, Headline::Window),
        (2_999_000, Headline::Window),
        (2_600_000, Headline::Window),
        (2_100_000, Headline::LastDone),
    ] {
        let mut one = task(1, 0, ended + 1000);
        one.first_done_us = Some(T0 + ended);
        let (_, results) = sum(vec![one], &steady(1, 0..4, 100));
        assert_eq!(results.ops[0].headline, headline, "{ended}");
        let is_short = results.flags == [Flag::WindowShort];
        assert_eq!(is_short, headline == Headline::LastDone, "{ended}");
    }
}
