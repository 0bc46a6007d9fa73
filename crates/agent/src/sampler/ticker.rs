//! Decides when to sample: ticks aligned to whole periods of the monotonic clock, and marks in between. Pure arithmetic
//! on nanoseconds, without timers or clocks.
//!
//! If several ticks have passed, one sample is taken and the others are counted as skipped. Two samples are never taken
//! for one instant.

/// Maximum number of pending marks. A step needs two, so this is far more than enough; further ones are refused.
pub(crate) const MARKS_MAX: usize = 1024;

/// A sample that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at_ns: u64,
    pub(crate) trigger: Trigger,
}

/// The cause of a sample, the least first. If several coincide, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trigger {
    /// Daemons only, and only their CPU time and memory.
    Burst,
    Tick,
    Mark,
}

#[derive(Debug, Default)]
pub(crate) struct Ticker {
    period_ns: Option<u64>,
    /// The next tick; meaningful only with a period.
    next_ns: u64,
    /// Requested instants, ascending.
    marks: Vec<u64>,
    /// Samples with growing distances from the start of a step.
    burst: Option<Burst>,
    skipped: u64,
}

/// Samples after the start of a step, at distances that grow with the step's age: whenever it ends, the two samples
/// around its end are at most a fixed part of its length apart.
#[derive(Debug, Clone, Copy)]
struct Burst {
    start_ns: u64,
    next_ns: u64,
}

impl Burst {
    /// The distance to the sample after `now_ns`.
    fn distance_ns(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.start_ns) / BURST_PART).max(BURST_LEAST_NS)
    }
}

/// Distance of two samples of a burst, as a part of the step's age: 6 %. The CPU time of a daemon that stops at once
/// when its step ends is then interpolated within 1.6 % (a quarter of it) of the time that it could have used.
const BURST_PART: u64 = 16;
/// Minimum distance. A sample of a burst costs a third of a whole one.
const BURST_LEAST_NS: u64 = 50_000_000;

impl Ticker {
    /// Ticks from the first whole period after `now_ns`; `None`: no ticks.
    pub(crate) fn set_period(&mut self, period_ns: Option<u64>, now_ns: u64) {
        let period_ns = period_ns.map(|period| period.max(1));
        if period_ns == self.period_ns {
            return;
        }
        self.period_ns = period_ns;
        if let Some(period) = period_ns {
            self.next_ns = next_tick(now_ns, period);
        }
    }

    pub(crate) fn ticks(&self) -> bool {
        self.period_ns.is_some()
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes one sample at `at_ns`. Returns whether the mark fitted into the queue.
    pub(crate) fn mark(&mut self, at_ns: u64) -> bool {
        match self.marks.binary_search(&at_ns) {
            Ok(_) => true,
            Err(_) if self.marks.len() >= MARKS_MAX => false,
            Err(place) => {
                self.marks.insert(place, at_ns);
                true
            }
        }
    }

    /// Takes a sample when a step starts at `at_ns`, and more at growing distances until they are a period apart, or
    /// until [`Ticker::end_burst`]. Without a period it is an ordinary mark.
    pub(crate) fn start_burst(&mut self, at_ns: u64) -> bool {
        if self.period_ns.is_some() {
            self.burst = Some(Burst {
                start_ns: at_ns,
                next_ns: at_ns.saturating_add(BURST_LEAST_NS),
            });
        }
        self.mark(at_ns)
    }

    /// The step has ended.
    pub(crate) fn end_burst(&mut self) {
        self.burst = None;
    }

    /// The instant of the next wake-up; `None` if nothing is pending.
    pub(crate) fn next(&self) -> Option<u64> {
        let tick = self.period_ns.map(|_| self.next_ns);
        let mark = self.marks.first().copied();
        let burst = self.burst.map(|burst| burst.next_ns);
        [tick, mark, burst].into_iter().flatten().min()
    }

    /// The sample that is due at `now_ns`, if any, at the latest of the ticks and marks that have passed. The one
    /// sample that the caller takes now answers all of them.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        let come = self.marks.partition_point(|mark| *mark <= now_ns);
        let mark = self.marks.drain(..come).next_back();
        let burst = self.take_burst(now_ns);
        let tick = self.take_tick(now_ns);
        let triggers = [
            (burst, Trigger::Burst),
            (tick, Trigger::Tick),
            (mark, Trigger::Mark),
        ];
        let came = triggers.iter().filter(|(at, _)| at.is_some());
        let trigger = came.map(|(_, trigger)| *trigger).max()?;
        let at_ns = burst.max(tick).max(mark)?;
        Some(Due { at_ns, trigger })
    }

    fn take_burst(&mut self, now_ns: u64) -> Option<u64> {
        let burst = self.burst.as_mut()?;
        let at_ns = burst.next_ns;
        if now_ns < at_ns {
            return None;
        }
        let distance_ns = burst.distance_ns(now_ns);
        burst.next_ns = now_ns.saturating_add(distance_ns);
        if self.period_ns.is_none_or(|period| period <= distance_ns) {
            self.burst = None;
        }
        Some(at_ns)
    }

    fn take_tick(&mut self, now_ns: u64) -> Option<u64> {
        let period = self.period_ns?;
        if now_ns < self.next_ns {
            return None;
        }
        let late = (now_ns - self.next_ns) / period;
        let tick = self.next_ns.saturating_add(late.saturating_mul(period));
        self.skipped = self.skipped.saturating_add(late);
        self.next_ns = tick.saturating_add(period);
        Some(tick)
    }
}

/// The first whole multiple of `period_ns` after `now_ns`.
fn next_tick(now_ns: u64, period_ns: u64) -> u64 {
    (now_ns / period_ns)
        .saturating_add(1)
        .saturating_mul(period_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;

    fn ticking(period_ns: u64, now_ns: u64) -> Ticker {
        let mut ticker = Ticker::default();
        ticker.set_period(Some(period_ns), now_ns);
        ticker
    }

    fn tick(at_ns: u64) -> Option<Due> {
        let trigger = Trigger::Tick;
        Some(Due { at_ns, trigger })
    }

    fn mark(at_ns: u64) -> Option<Due> {
        let trigger = Trigger::Mark;
        Some(Due { at_ns, trigger })
    }

    #[test]
    fn ticks_are_whole_periods() {
        let mut ticker = ticking(1000, 12_345);
        assert_eq!(ticker.next(), Some(13_000));
        assert_eq!(ticker.take_due(12_999), None);
        assert_eq!(ticker.take_due(13_040), tick(13_000));
        assert_eq!(ticker.next(), Some(14_000));
        assert_eq!(ticker.skipped(), 0);
    }

    #[test]
    fn missed_ticks_are_counted_and_not_made_up() {
        let mut ticker = ticking(1000, 0);
        assert_eq!(ticker.take_due(5_500), tick(5_000));
        assert_eq!(ticker.skipped(), 4);
        assert_eq!(ticker.next(), Some(6_000));
        assert_eq!(ticker.take_due(5_999), None);
    }

    #[test]
    fn a_mark_is_one_more_sample() {
        let mut ticker = ticking(1000, 0);
        assert!(ticker.mark(300));
        assert!(ticker.mark(300));
        assert_eq!(ticker.next(), Some(300));
        assert_eq!(ticker.take_due(310), mark(300));
        assert_eq!(ticker.take_due(320), None);
        assert_eq!(ticker.next(), Some(1_000));
    }

    #[test]
    fn a_mark_and_a_tick_that_came_together_are_one_sample() {
        let mut ticker = ticking(1000, 0);
        ticker.mark(1_000);
        ticker.mark(1_001);
        ticker.mark(2_500);
        assert_eq!(ticker.take_due(1_050), mark(1_001));
        assert_eq!(ticker.next(), Some(2_000));
        assert_eq!(ticker.take_due(2_500), mark(2_500));
        ticker.mark(2_900);
        assert_eq!(
            ticker.take_due(3_000),
            mark(3_000),
            "the tick's instant, as full as a mark"
        );
    }

    #[test]
    fn without_a_period_only_marks_count() {
        let mut ticker = Ticker::default();
        assert_eq!(ticker.next(), None);
        assert!(ticker.mark(7));
        assert_eq!(ticker.next(), Some(7));
        assert_eq!(ticker.take_due(8), mark(7));
        assert_eq!(ticker.next(), None);
    }

    const SECOND: u64 = 1_000_000_000;

    /// Whenever a step ends, the samples around its end are close, relative to its length.
    #[test]
    fn a_burst_is_dense_at_first_and_thins_out() {
        let start = 10 * SECOND + 123;
        let mut ticker = ticking(SECOND, 9 * SECOND);
        ticker.start_burst(start);
        let (mut now, mut taken) = (9 * SECOND, Vec::new());
        while now < start + 60 * SECOND {
            now = ticker.next().unwrap();
            assert!(ticker.take_due(now).is_some());
            taken.push(now);
        }
        assert!(taken.contains(&start));
        for pair in taken.windows(2).filter(|pair| pair[0] >= start) {
            let (age, distance) = (pair[1] - start, pair[1] - pair[0]);
            assert!(
                distance <= (age / 16).max(50_000_000),
                "{distance} at {age}"
            );
        }
        let first = taken
            .iter()
            .filter(|at| **at > start && **at <= start + SECOND);
        assert!((17..=22).contains(&first.count()));
        let rest = taken.iter().filter(|at| **at > start).count();
        assert!(rest < 60 + 80, "{rest} samples in a minute");
        assert!(ticker.burst.is_none(), "the ticks are dense enough");
    }

    #[test]
    fn a_burst_ends_with_its_step_and_needs_a_period() {
        let mut ticker = ticking(SECOND, 0);
        ticker.start_burst(100);
        assert_eq!(ticker.take_due(100), mark(100));
        assert_eq!(ticker.next(), Some(100 + 50_000_000));
        let burst = Due {
            at_ns: 100 + 50_000_000,
            trigger: Trigger::Burst,
        };
        assert_eq!(ticker.take_due(burst.at_ns), Some(burst));
        ticker.end_burst();
        assert_eq!(ticker.next(), Some(SECOND));
        let mut resting = Ticker::default();
        resting.start_burst(7);
        assert_eq!(resting.take_due(8), mark(7));
        assert_eq!(resting.next(), None);
    }

    #[test]
    fn marks_are_bounded() {
        let mut ticker = Ticker::default();
        for at in 0..MARKS_MAX {
            assert!(ticker.mark(u64::try_from(at).unwrap()));
        }
        assert!(!ticker.mark(u64::MAX));
        assert!(
            ticker.mark(5),
            "an instant that is already asked for needs no room"
        );
    }

    proptest! {
        /// Every tick is either taken or counted as skipped, none twice, however late the calls are.
        #[test]
        fn no_tick_is_lost(period in 1u64..5_000, start in 0u64..1_000_000, waits in prop::collection::vec(0u64..20_000, 1..60)) {
            let mut ticker = ticking(period, start);
            let first = ticker.next().unwrap();
            let (mut now, mut taken) = (start, 0u64);
            for wait in waits {
                now += wait;
                if let Some(Due { at_ns: at, .. }) = ticker.take_due(now) {
                    taken += 1;
                    prop_assert!(at <= now && now - at < period && at % period == 0);
                }
                prop_assert!(ticker.next().unwrap() > now);
            }
            let passed = if now < first { 0 } else { (now - first) / period + 1 };
            prop_assert_eq!(taken + ticker.skipped(), passed);
        }
    }
}
