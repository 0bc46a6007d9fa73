//! A worker's readings of CLOCK_MONOTONIC, at half the cost of calling the clock each time.
//!
//! If the kernel's clock source is the processor's time stamp counter, a [`Reader`] reads that counter. An instant is
//! the newest clock reading (the base), at most [`SPAN_NS`] old, plus the ticks since then at the recent rate of both.
//! So it follows the clock, slews included, to a few nanoseconds; a slew within a span changes it by half a microsecond
//! at most. Instants never go back. On other machines, and as soon as clock and counter disagree, it calls the clock
//! each time.
//!
//! The counter is read without a fence, so a reading does not wait for earlier instructions or hold back later ones.
//! After a system call this makes no difference: the median is the same to 5 ns as between fenced readings.

use super::{MonoNanos, sleep_until};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a clock reading serves as the base.
const SPAN_NS: u64 = 1_000_000;
/// Distance between the two readings that a rate is computed from: an error of 20 ns at either end is less than a
/// millionth of it.
const ANCHOR_NS: u64 = 100_000_000;
/// Initial calibration window.
const CALIBRATION: Duration = Duration::from_millis(10);
/// A reading that took this many times as long as the shortest one was interrupted, and does not become a base.
const INTERRUPTED: u64 = 2;
/// A clock is slewed by less than one part in this many. Beyond that the counter is not the clock's source.
const MAX_DRIFT_SHARE: u64 = 1000;
/// Maximum difference between both clocks at a base, in addition to the drift.
const TOLERANCE_NS: u64 = 1000;
/// Rates are nanoseconds per tick, scaled by two to this power.
const RATE_BITS: u32 = 32;

/// A fast clock reader; see the module.
#[derive(Debug)]
pub struct Reader {
    /// Ticks for which a base serves; 0 if the counter is not to be trusted.
    span: u64,
    /// The clock's rate.
    rate: u64,
    /// The rate that removes the lead over the clock within a span.
    slewed_rate: u64,
    base: Pair,
    /// The instant at the base: the clock's, or a later one if the previous span ran ahead.
    from: u64,
    /// A clock reading becomes a base only if it took at most this many ticks.
    max_width: u64,
    /// An older base, from which the rate is computed.
    anchor: Pair,
    /// The latest instant returned; no earlier one may follow.
    floor: u64,
}

/// Counter and clock at the same moment.
#[derive(Debug, Clone, Copy)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Reader {
    /// Takes some 10 ms the first time in a process.
    pub fn new() -> Reader {
        Reader::at_rate(calibrated_rate().filter(|_| clock_source_is_tsc()))
    }

    fn at_rate(rate: Option<u64>) -> Reader {
        let (base, width) = quickest_pair();
        Reader {
            span: rate.map_or(0, ticks_of_a_span),
            rate: rate.unwrap_or(0),
            slewed_rate: rate.unwrap_or(0),
            base,
            from: base.ns,
            max_width: width * INTERRUPTED,
            anchor: base,
            floor: base.ns,
        }
    }

    /// Reads the clock.
    #[inline(always)]
    pub fn now(&mut self) -> MonoNanos {
        if self.span == 0 {
            return MonoNanos(MonoNanos::now().0.max(self.floor));
        }
        let since = ticks().wrapping_sub(self.base.ticks);
        if since < self.span {
            return MonoNanos(self.from + ((since * self.slewed_rate) >> RATE_BITS));
        }
        self.read_clock()
    }

    /// Reads the clock itself, and makes the reading a base if it was quick enough.
    #[cold]
    #[inline(never)]
    fn read_clock(&mut self) -> MonoNanos {
        let last = self.from + nanos(self.span, self.slewed_rate);
        let (pair, width) = read_pair();
        self.floor = self.floor.max(last).max(pair.ns);
        if width <= self.max_width {
            self.rebase(pair);
        }
        MonoNanos(self.floor)
    }

    /// Makes `pair` the base, or stops using the counter if it disagrees with the clock.
    fn rebase(&mut self, pair: Pair) {
        let ticks = pair.ticks.wrapping_sub(self.base.ticks);
        let ns = pair.ns.saturating_sub(self.base.ns);
        let ahead = self.floor.saturating_sub(pair.ns);
        let off = nanos(ticks, self.rate).abs_diff(ns);
        if off > TOLERANCE_NS + ns / MAX_DRIFT_SHARE || ahead > SPAN_NS / 10 {
            self.span = 0;
            return;
        }
        (self.base, self.from) = (pair, self.floor);
        if pair.ns.saturating_sub(self.anchor.ns) >= ANCHOR_NS
            && let Some(rate) = rate(self.anchor, pair)
        {
            (self.rate, self.anchor) = (rate, pair);
        }
        self.slewed_rate = self.rate - self.rate / SPAN_NS * ahead;
    }
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

/// Reads counter and clock at the same moment, and in how many ticks. The clock's own reading waits for all earlier
/// loads. The first counter reading must wait for them too: otherwise a load that misses the caches makes every reading
/// too wide for a base.
fn read_pair() -> (Pair, u64) {
    let before = ticks_in_order();
    let now = MonoNanos::now();
    let width = ticks().wrapping_sub(before);
    let ticks = before.wrapping_add(width / 2);
    (Pair { ticks, ns: now.0 }, width)
}

/// The quickest of ten readings: the first one of a process may take long.
fn quickest_pair() -> (Pair, u64) {
    let few = (0..10).map(|_| read_pair());
    few.min_by_key(|(_, width)| *width)
        .unwrap_or_else(read_pair)
}

fn nanos(ticks: u64, rate: u64) -> u64 {
    let ns = (u128::from(ticks) * u128::from(rate)) >> RATE_BITS;
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn ticks_of_a_span(rate: u64) -> u64 {
    (SPAN_NS << RATE_BITS) / rate.max(1)
}

/// Nanoseconds per tick between two readings; `None` if no counter can have this rate.
fn rate(from: Pair, to: Pair) -> Option<u64> {
    let (ticks, ns) = (
        to.ticks.checked_sub(from.ticks)?,
        to.ns.checked_sub(from.ns)?,
    );
    let rate = (u128::from(ns) << RATE_BITS).checked_div(u128::from(ticks))?;
    // 100 MHz to 20 GHz.
    let plausible = (1 << RATE_BITS) / 20..=(10 << RATE_BITS);
    u64::try_from(rate)
        .ok()
        .filter(|rate| plausible.contains(rate))
}

/// Once per process.
fn calibrated_rate() -> Option<u64> {
    static RATE: OnceLock<Option<u64>> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (from, _) = clock_source_is_tsc().then(quickest_pair)?;
        sleep_until(MonoNanos::now().saturating_add(CALIBRATION));
        let (to, _) = quickest_pair();
        rate(from, to)
    })
}

/// Whether the kernel's clock source is this counter. The kernel changes it if it finds the counter unstable.
fn clock_source_is_tsc() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; if a process is forbidden it, the vDSO fails as well.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The counter, read after all earlier instructions.
#[cfg(target_arch = "x86_64")]
fn ticks_in_order() -> u64 {
    // SAFETY: the fence belongs to SSE2, which is part of x86-64.
    unsafe { std::arch::x86_64::_mm_lfence() };
    ticks()
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks_in_order() -> u64 {
    ticks()
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_testing::{measured, timing};

    /// Every reading lies between two clock readings, with a tolerance for their accepted error and `ahead`. An
    /// interrupt between them only widens that range.
    fn assert_follows(reader: &mut Reader, for_ms: u64, ahead: u64) {
        let until = MonoNanos::now().saturating_add(Duration::from_millis(for_ms));
        // Width of a clock reading that serves as a base, and the possible error of the rate within a span.
        let off = nanos(reader.max_width, calibrated_rate().unwrap_or(0)) + 10;
        let mut last = reader.now();
        loop {
            let before = MonoNanos::now();
            let now = reader.now();
            let after = MonoNanos::now();
            assert!(now >= last, "{now:?} after {last:?}");
            assert!(now.0 + off >= before.0, "{now:?} after {before:?}");
            let latest = after.0 + off + ahead;
            assert!(now.0 <= latest, "{now:?} before {after:?}");
            last = now;
            if after >= until {
                return;
            }
        }
    }

    #[test]
    fn readings_follow_the_kernel_clock() {
        measured(|| {
            let mut reader = Reader::new();
            assert_follows(&mut reader, 300, 0);
            sleep_until(MonoNanos::now().saturating_add(Duration::from_millis(30)));
            assert_follows(&mut reader, 20, 0);
            timing!((reader.span > 0) == clock_source_is_tsc());
            Ok(())
        });
    }

    /// Reports a skip and returns `None` if the kernel's clock has another source.
    fn tsc_rate_or_skip() -> Option<u64> {
        let rate = calibrated_rate();
        if rate.is_none() {
            benchmesh_testing::skip("tsc", "the kernel's clock has another source");
        }
        rate
    }

    #[test]
    fn an_unrelated_counter_is_rejected() {
        let Some(rate) = tsc_rate_or_skip() else {
            return;
        };
        for wrong in [rate / 2, rate + rate / 100] {
            let mut reader = Reader::at_rate(Some(wrong));
            let first = reader.now();
            sleep_until(MonoNanos::now().saturating_add(Duration::from_millis(5)));
            assert!(reader.now() >= first);
            // Interrupted readings do not show the rate; later ones do.
            let until = MonoNanos::now().saturating_add(Duration::from_secs(10));
            while reader.span > 0 && MonoNanos::now() < until {
                reader.now();
            }
            assert_eq!(reader.span, 0, "{wrong} is believed, and {rate} is right");
            assert_follows(&mut reader, 5, 0);
        }
    }

    #[test]
    fn a_reader_ahead_of_the_clock_slows_down_and_never_goes_back() {
        let Some(rate) = tsc_rate_or_skip() else {
            return;
        };
        let mut reader = Reader::at_rate(Some(rate));
        let ahead = 20_000;
        reader.from += ahead;
        assert_follows(&mut reader, 10, ahead);
        assert_follows(&mut reader, 10, 0);
        assert!(reader.span > 0);
    }
}
