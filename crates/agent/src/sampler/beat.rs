//! When to sample: ticks aligned to whole periods of the monotonic clock, and marks in between. Pure arithmetic over
//! nanoseconds; it knows no timer and reads no clock.
//!
//! A tick that has passed is taken once, however many passed with it; the others are counted as skipped. Two samples
//! are never taken for one instant.

/// Marks that may wait at once. A step asks for two, so this is far beyond need; what exceeds it is refused.
pub(crate) const MARKS_MAX: usize = 1024;

/// A sample that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at_ns: u64,
    pub(crate) call: Call,
}

/// What called for a sample. One that both called for is a mark's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Tick,
    Mark,
}

#[derive(Debug, Default)]
pub(crate) struct Beat {
    period_ns: Option<u64>,
    /// The next tick; meaningful only with a period.
    next_ns: u64,
    /// Instants asked for, ascending.
    marks: Vec<u64>,
    skipped: u64,
}

impl Beat {
    /// Ticks from the first whole period after `now_ns`; none without a period.
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

    /// Takes one sample at `at_ns`. Returns whether there was room for the mark.
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

    /// The instant to wake at; none when nothing is to be done.
    pub(crate) fn next(&self) -> Option<u64> {
        let tick = self.period_ns.map(|_| self.next_ns);
        let mark = self.marks.first().copied();
        match (tick, mark) {
            (Some(tick), Some(mark)) => Some(tick.min(mark)),
            (tick, mark) => tick.or(mark),
        }
    }

    /// What is due at `now_ns`, if any: at the latest of the ticks and marks that have come. All of them are
    /// answered by the one sample that the caller takes now.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        let come = self.marks.partition_point(|mark| *mark <= now_ns);
        let mark = self.marks.drain(..come).next_back();
        let tick = self.take_tick(now_ns);
        let call = if mark.is_some() {
            Call::Mark
        } else {
            Call::Tick
        };
        let at_ns = tick.max(mark)?;
        Some(Due { at_ns, call })
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
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn beating(period_ns: u64, now_ns: u64) -> Beat {
        let mut beat = Beat::default();
        beat.set_period(Some(period_ns), now_ns);
        beat
    }

    fn tick(at_ns: u64) -> Option<Due> {
        let call = Call::Tick;
        Some(Due { at_ns, call })
    }

    fn mark(at_ns: u64) -> Option<Due> {
        let call = Call::Mark;
        Some(Due { at_ns, call })
    }

    #[test]
    fn ticks_are_whole_periods() {
        let mut beat = beating(1000, 12_345);
        assert_eq!(beat.next(), Some(13_000));
        assert_eq!(beat.take_due(12_999), None);
        assert_eq!(beat.take_due(13_040), tick(13_000));
        assert_eq!(beat.next(), Some(14_000));
        assert_eq!(beat.skipped(), 0);
    }

    #[test]
    fn missed_ticks_are_counted_and_not_made_up() {
        let mut beat = beating(1000, 0);
        assert_eq!(beat.take_due(5_500), tick(5_000));
        assert_eq!(beat.skipped(), 4);
        assert_eq!(beat.next(), Some(6_000));
        assert_eq!(beat.take_due(5_999), None);
    }

    #[test]
    fn a_mark_is_one_more_sample() {
        let mut beat = beating(1000, 0);
        assert!(beat.mark(300));
        assert!(beat.mark(300));
        assert_eq!(beat.next(), Some(300));
        assert_eq!(beat.take_due(310), mark(300));
        assert_eq!(beat.take_due(320), None);
        assert_eq!(beat.next(), Some(1_000));
    }

    #[test]
    fn a_mark_and_a_tick_that_came_together_are_one_sample() {
        let mut beat = beating(1000, 0);
        beat.mark(1_000);
        beat.mark(1_001);
        beat.mark(2_500);
        assert_eq!(beat.take_due(1_050), mark(1_001));
        assert_eq!(beat.next(), Some(2_000));
        assert_eq!(beat.take_due(2_500), mark(2_500));
        beat.mark(2_900);
        assert_eq!(
            beat.take_due(3_000),
            mark(3_000),
            "the tick's instant, as full as a mark"
        );
    }

    #[test]
    fn without_a_period_only_marks_count() {
        let mut beat = Beat::default();
        assert_eq!(beat.next(), None);
        assert!(beat.mark(7));
        assert_eq!(beat.next(), Some(7));
        assert_eq!(beat.take_due(8), mark(7));
        assert_eq!(beat.next(), None);
    }

    #[test]
    fn marks_are_bounded() {
        let mut beat = Beat::default();
        for at in 0..MARKS_MAX {
            assert!(beat.mark(u64::try_from(at).unwrap()));
        }
        assert!(!beat.mark(u64::MAX));
        assert!(
            beat.mark(5),
            "an instant that is already asked for needs no room"
        );
    }

    proptest! {
        /// Every tick is either taken or counted, none twice, whatever the lateness.
        #[test]
        fn no_tick_is_lost(period in 1u64..5_000, start in 0u64..1_000_000, waits in prop::collection::vec(0u64..20_000, 1..60)) {
            let mut beat = beating(period, start);
            let first = beat.next().unwrap();
            let (mut now, mut taken) = (start, 0u64);
            for wait in waits {
                now += wait;
                if let Some(Due { at_ns: at, .. }) = beat.take_due(now) {
                    taken += 1;
                    prop_assert!(at <= now && now - at < period && at % period == 0);
                }
                prop_assert!(beat.next().unwrap() > now);
            }
            let passed = if now < first { 0 } else { (now - first) / period + 1 };
            prop_assert_eq!(taken + beat.skipped(), passed);
        }
    }
}
