//! Selects the exchange with the smallest error in a sliding window.
//!
//! With the agent's stamps t1, t4 and the collector's t2, t3 of one exchange, the offset is half of
//! (t2 - t1) + (t3 - t4). Its error is at most half of (t4 - t1) - (t3 - t2), for any asymmetry of the path (RFC 5905,
//! section 8). Short round trips give small errors. An estimate's error grows with the drift until a newer one is
//! better.
//!
//! If the error bars of two exchanges do not overlap, one of the clocks has moved between them, and the older exchange
//! is dropped. A jump that slewing cannot explain is a [`Gap`]; the filter then discards everything measured before it.

use super::gap::{Cause, Gap};
use super::map::MeshMap;
use benchmesh_workloads::clock::MonoNanos;
use std::collections::VecDeque;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(30);
/// Capacity of the window: twice the probes of its 30 s at one a second plus one burst, and a margin.
const MAX_KEPT: usize = 96;
/// Smallest jump between two clocks that counts as a gap.
const MIN_GAP_NS: u64 = 10_000_000;
/// Maximum relative rate of slewed clocks: the kernel's limit of 500 ppm on both sides, crystal drift, and the same
/// again as a margin. A faster change is a gap.
const SLEW_PER_SECOND_NS: u64 = 2_000_000;

/// Four time stamps: the agent's on its monotonic clock, the collector's in nanoseconds of mesh time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub sent: MonoNanos,
    pub mesh_received_ns: i64,
    pub mesh_sent_ns: i64,
    pub received: MonoNanos,
    /// Suspended time of the agent's machine since boot: CLOCK_BOOTTIME minus CLOCK_MONOTONIC, at `received`.
    pub slept_ns: i64,
}

/// The current estimate of mesh time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub map: MeshMap,
    pub round_trip_ns: u64,
    /// The gap revealed by the newest exchange.
    pub gap: Option<Gap>,
}

/// The exchanges of the last half minute; no two contradict each other.
#[derive(Debug, Default)]
pub struct Filter {
    kept: VecDeque<Estimate>,
    /// From the newest exchange.
    slept_ns: i64,
    /// Number of gaps since the start.
    era: u32,
}

/// Why an exchange is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    #[error("its answer came before it was sent")]
    Backwards,
    #[error("the collector's processing time exceeds the round trip")]
    HeldTooLong,
    #[error("its instants lie outside of any clock")]
    OutOfRange,
}

impl Exchange {
    /// An exchange without delay at that second of the agent's clock; mesh time is `mesh_ahead_ns` ahead.
    #[cfg(test)]
    pub(crate) fn without_delay(second: u64, mesh_ahead_ns: i64) -> Self {
        let mono = MonoNanos(second * 1_000_000_000);
        let mesh = i64::try_from(mono.0).expect("a small number of a test") + mesh_ahead_ns;
        Self {
            sent: mono,
            mesh_received_ns: mesh,
            mesh_sent_ns: mesh,
            received: mono,
            slept_ns: 0,
        }
    }

    /// The offset and the round trip.
    fn estimate(&self, era: u32) -> Result<Estimate, ExchangeError> {
        let (t1, t4) = (i128::from(self.sent.0), i128::from(self.received.0));
        let (t2, t3) = (
            i128::from(self.mesh_received_ns),
            i128::from(self.mesh_sent_ns),
        );
        if t4 < t1 || t3 < t2 {
            return Err(ExchangeError::Backwards);
        }
        let trip = (t4 - t1) - (t3 - t2);
        let round_trip_ns = u64::try_from(trip).map_err(|_| ExchangeError::HeldTooLong)?;
        let offset = ((t2 - t1) + (t3 - t4)).div_euclid(2);
        let offset_ns = i64::try_from(offset).map_err(|_| ExchangeError::OutOfRange)?;
        let map = MeshMap {
            offset_ns,
            measured: self.received,
            half_trip_ns: round_trip_ns.div_ceil(2),
            era,
        };
        Ok(Estimate {
            map,
            round_trip_ns,
            gap: None,
        })
    }
}

impl Filter {
    /// Adds an exchange and returns the current estimate.
    ///
    /// # Errors
    ///
    /// When the exchange is impossible; the estimate stays unchanged.
    pub fn add(&mut self, exchange: Exchange) -> Result<Estimate, ExchangeError> {
        let mut newest = exchange.estimate(self.era)?;
        let now = exchange.received;
        let ahead_ns = self.kept.iter().rev().find_map(|old| jump(old, &newest));
        let gap = ahead_ns.map(|ahead_ns| Gap {
            at: now,
            ahead_ns,
            cause: Cause::of(ahead_ns, exchange.slept_ns.saturating_sub(self.slept_ns)),
        });
        if gap.is_some() {
            self.kept.clear();
            self.era = self.era.saturating_add(1);
            newest.map.era = self.era;
        }
        self.slept_ns = exchange.slept_ns;
        self.kept.retain(|old| {
            now.since(old.map.measured) <= WINDOW && beyond_errors(old, &newest) == 0
        });
        if self.kept.len() >= MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(newest);
        let best = self.best(now).unwrap_or(newest);
        Ok(Estimate { gap, ..best })
    }

    /// The exchange with the smallest error at `now`; among equals the newest, which has drifted least.
    fn best(&self, now: MonoNanos) -> Option<Estimate> {
        self.kept
            .iter()
            .rev()
            .min_by_key(|it| it.map.error_ns(now))
            .copied()
    }
}

/// The jump of mesh time between two exchanges that neither their errors nor slewing explain.
fn jump(before: &Estimate, after: &Estimate) -> Option<i64> {
    let slewed = after.map.measured.since(before.map.measured);
    let slewed = slewed.as_nanos() * u128::from(SLEW_PER_SECOND_NS) / 1_000_000_000;
    let slewed = u64::try_from(slewed).unwrap_or(u64::MAX);
    let jumped = beyond_errors(before, after) > slewed.max(MIN_GAP_NS);
    jumped.then(|| before.map.later_by_ns(after.map).saturating_neg())
}

/// The distance of two exchanges beyond their errors and the drift between them; zero if both can be true.
fn beyond_errors(before: &Estimate, after: &Estimate) -> u64 {
    let errors = before.map.error_ns(after.map.measured);
    let errors = errors.saturating_add(after.map.half_trip_ns);
    let apart = before.map.later_by_ns(after.map).unsigned_abs();
    apart.saturating_sub(errors)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::cast_possible_wrap,
        clippy::cast_possible_truncation
    )]

    use super::*;
    use crate::telemetry::MeshMicros;
    use proptest::prelude::*;

    const MESH_AHEAD: i64 = 1_700_000_000_000_000_000;

    /// Two clocks, the collector's running `ppm` faster, and a network path between them.
    struct SimulatedLink {
        ppm: i64,
    }

    impl SimulatedLink {
        fn mesh_ns(&self, mono: u64) -> i64 {
            MESH_AHEAD + mono as i64 + mono as i64 / 1_000_000 * self.ppm
        }

        fn exchange(&self, sent: u64, out: u64, held: u64, back: u64) -> Exchange {
            Exchange {
                sent: MonoNanos(sent),
                mesh_received_ns: self.mesh_ns(sent + out),
                mesh_sent_ns: self.mesh_ns(sent + out + held),
                received: MonoNanos(sent + out + held + back),
                slept_ns: 0,
            }
        }

        fn off_by_ns(&self, estimate: &Estimate, at: u64) -> u64 {
            (at as i64 + estimate.map.offset_ns).abs_diff(self.mesh_ns(at))
        }
    }

    #[test]
    fn an_even_way_is_exact_and_the_collectors_own_time_does_not_count() {
        let link = SimulatedLink { ppm: 0 };
        let estimate = Filter::default()
            .add(link.exchange(5_000, 700, 1_000_000, 700))
            .unwrap();
        assert_eq!(link.off_by_ns(&estimate, 0), 0);
        assert_eq!(estimate.round_trip_ns, 1400);
    }

    #[test]
    fn the_quickest_wins_until_it_is_old() {
        let link = SimulatedLink { ppm: 100 };
        let mut filter = Filter::default();
        filter.add(link.exchange(0, 1_000, 0, 1_000)).unwrap();
        let second = 1_000_000_000;
        let slow = filter
            .add(link.exchange(second, 400_000, 0, 100_000))
            .unwrap();
        assert_eq!(
            slow.round_trip_ns, 2_000,
            "half of 500 us is worse than 1 us and 100 us of drift"
        );
        let later = filter
            .add(link.exchange(4 * second, 400_000, 0, 100_000))
            .unwrap();
        assert_eq!(
            later.round_trip_ns, 500_000,
            "after 4 s the drift may be 400 us"
        );
        let after = filter
            .add(link.exchange(40 * second, 1 << 30, 0, 1 << 30))
            .unwrap();
        assert_eq!(after.round_trip_ns, 2 << 30, "the window has passed");
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let link = SimulatedLink { ppm: 0 };
        let mut filter = Filter::default();
        let good = filter.add(link.exchange(1_000, 10, 0, 10)).unwrap();
        let exchange = |sent, a, b, received| Exchange {
            sent: MonoNanos(sent),
            mesh_received_ns: a,
            mesh_sent_ns: b,
            received: MonoNanos(received),
            slept_ns: 0,
        };
        for (bad, why) in [
            (exchange(10, 0, 0, 9), ExchangeError::Backwards),
            (exchange(10, 5, 4, 20), ExchangeError::Backwards),
            (exchange(10, 0, 11, 20), ExchangeError::HeldTooLong),
            (
                exchange(10, i64::MIN, i64::MAX, 20),
                ExchangeError::HeldTooLong,
            ),
            (
                exchange(u64::MAX, i64::MIN, i64::MIN, u64::MAX),
                ExchangeError::OutOfRange,
            ),
        ] {
            assert_eq!(filter.add(bad), Err(why));
        }
        assert_eq!(
            filter
                .add(link.exchange(2_000, 10, 0, 10))
                .unwrap()
                .map
                .offset_ns,
            good.map.offset_ns
        );
    }

    proptest! {
        /// For any path asymmetry and clock drift, the true offset lies within the reported error.
        #[test]
        fn the_error_bound_holds(
            ppm in -100_i64..=100,
            ways in prop::collection::vec((0..5_000_000_u64, 0..5_000_000_u64, 0..1_000_000_u64), 1..60),
        ) {
            let link = SimulatedLink { ppm };
            let mut filter = Filter::default();
            for (second, (out, back, held)) in ways.into_iter().enumerate() {
                let sent = 1_000_000_000 * second as u64;
                let exchange = link.exchange(sent, out, held, back);
                let now = exchange.received;
                let estimate = filter.add(exchange).unwrap();
                let error_ns = estimate.map.error_us(now).unsigned_abs() * 1000;
                // Stamps are whole nanoseconds, and the clocks drift during the exchange itself.
                let slack = 2_000;
                prop_assert!(link.off_by_ns(&estimate, now.0) <= error_ns + slack);
                let truth = MeshMicros(link.mesh_ns(now.0) / 1000);
                prop_assert!(estimate.map.to_mesh(now).0.abs_diff(truth.0) <= error_ns / 1000 + 3);
            }
        }

        /// Clocks that drift at the kernel's slew rate over a path with any load: no gap.
        #[test]
        fn a_slew_is_no_gap(
            ppm in -1_000_i64..=1_000,
            ways in prop::collection::vec((0..50_000_000_u64, 0..5_000_000_u64, 1..20_u64), 1..60),
        ) {
            let link = SimulatedLink { ppm };
            let mut filter = Filter::default();
            let mut second = 0;
            for (out, back, pause) in ways {
                second += pause;
                let estimate = filter.add(link.exchange(1_000_000_000 * second, out, 0, back)).unwrap();
                prop_assert_eq!(estimate.gap, None);
            }
        }

        /// A clock jumps: the first exchange after it reports the gap once, and later estimates are correct.
        #[test]
        fn a_jump_is_a_gap_and_what_was_before_is_forgotten(
            ppm in -100_i64..=100,
            ways in prop::collection::vec((0..3_000_000_u64, 0..3_000_000_u64), 2..40),
            at in 0..1000_usize,
            jump_ms in prop_oneof![20..4_000_000_i64, -4_000_000..-20_i64],
        ) {
            let (at, jump_ns) = (1 + at % (ways.len() - 1), jump_ms * 1_000_000);
            let link = SimulatedLink { ppm };
            let mut filter = Filter::default();
            for (index, (out, back)) in ways.into_iter().enumerate() {
                let jumped = if index < at { 0 } else { jump_ns };
                let honest = link.exchange(1_000_000_000 * (index as u64 + 1), out, 0, back);
                let exchange = Exchange {
                    mesh_received_ns: honest.mesh_received_ns + jumped,
                    mesh_sent_ns: honest.mesh_sent_ns + jumped,
                    ..honest
                };
                let now = exchange.received;
                let estimate = filter.add(exchange).unwrap();
                prop_assert_eq!(estimate.gap.is_some(), index == at);
                if let Some(gap) = estimate.gap {
                    prop_assert_eq!(gap.at, now);
                    prop_assert!((gap.ahead_ns - jump_ns).abs() < 10_000_000);
                }
                prop_assert_eq!(estimate.map.era, u32::from(index >= at));
                let truth = link.mesh_ns(now.0) + jumped;
                let known = now.0 as i64 + estimate.map.offset_ns;
                prop_assert!(known.abs_diff(truth) <= estimate.map.error_ns(now) + 2_000);
            }
        }
    }

    /// The difference is below the gap threshold and above the errors: the old exchange is invalid, however small its
    /// error.
    #[test]
    fn of_two_that_contradict_each_other_the_older_is_dropped() {
        let second = 1_000_000_000;
        let mut filter = Filter::default();
        let link = SimulatedLink { ppm: 0 };
        filter.add(link.exchange(second, 1_000, 0, 1_000)).unwrap();
        let honest = link.exchange(2 * second, 50_000, 0, 50_000);
        let moved = Exchange {
            mesh_received_ns: honest.mesh_received_ns + 5_000_000,
            mesh_sent_ns: honest.mesh_sent_ns + 5_000_000,
            ..honest
        };
        let known = filter.add(moved).unwrap();
        assert_eq!(known.gap, None);
        assert_eq!(known.round_trip_ns, 100_000);
        assert_eq!(known.map.offset_ns, MESH_AHEAD + 5_000_000);
    }

    /// A session broke during a pause: the first exchange of the next session reveals it.
    #[test]
    fn a_gap_is_seen_over_minutes_without_an_exchange() {
        let second = 1_000_000_000;
        let mut filter = Filter::default();
        let link = SimulatedLink { ppm: 30 };
        filter
            .add(link.exchange(second, 40_000, 0, 40_000))
            .unwrap();
        let honest = link.exchange(300 * second, 40_000, 0, 40_000);
        let after = Exchange {
            mesh_received_ns: honest.mesh_received_ns + 10_000_000_000,
            mesh_sent_ns: honest.mesh_sent_ns + 10_000_000_000,
            slept_ns: 10_000_000_000,
            ..honest
        };
        let gap = filter.add(after).unwrap().gap.unwrap();
        assert_eq!(gap.cause, Cause::Suspended);
        assert!(gap.ahead_ns.abs_diff(10_000_000_000) < 20_000_000);
    }
}
