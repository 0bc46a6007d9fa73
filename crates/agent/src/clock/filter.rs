//! The exchange of least error in a sliding window.
//!
//! With the agent's stamps t1, t4 and the collector's t2, t3 of one exchange, the offset is ((t2 - t1) + (t3 - t4)) / 2
//! and cannot be off by more than half of (t4 - t1) - (t3 - t2), however the way out and the way back differ (RFC 5905,
//! section 8). A quick exchange is a good one; a good one ages by the drift, until a newer one is better.

use super::map::{MeshMap, drift_ns};
use benchmesh_workloads::clock::MonoNanos;
use std::collections::VecDeque;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(30);
/// A window of one probe a second and a burst fits twice over.
const MOST_KEPT: usize = 96;

/// Four time stamps: the agent's on its monotonic clock, the collector's in nanoseconds of mesh time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub sent: MonoNanos,
    pub mesh_received_ns: i64,
    pub mesh_sent_ns: i64,
    pub received: MonoNanos,
}

/// What is known of mesh time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub map: MeshMap,
    pub round_trip_ns: u64,
}

/// The exchanges of the last half minute.
#[derive(Debug, Default)]
pub struct Filter {
    kept: VecDeque<Estimate>,
}

/// Why an exchange says nothing.
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
    /// The offset and the round trip.
    fn estimate(&self) -> Result<Estimate, ExchangeError> {
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
        };
        Ok(Estimate { map, round_trip_ns })
    }
}

impl Filter {
    /// Takes an exchange in, and answers what is known now.
    ///
    /// # Errors
    /// When the exchange cannot be true; what is known stays.
    pub fn add(&mut self, exchange: Exchange) -> Result<Estimate, ExchangeError> {
        let estimate = exchange.estimate()?;
        let now = exchange.received;
        while self
            .kept
            .front()
            .is_some_and(|old| now.since(old.map.measured) > WINDOW)
            || self.kept.len() >= MOST_KEPT
        {
            self.kept.pop_front();
        }
        self.kept.push_back(estimate);
        let error = |it: &&Estimate| {
            it.map
                .half_trip_ns
                .saturating_add(drift_ns(it.map.measured, now))
        };
        // Of equals the newest, which has drifted least.
        Ok(self
            .kept
            .iter()
            .rev()
            .min_by_key(error)
            .copied()
            .unwrap_or(estimate))
    }
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

    /// Two clocks, of which the collector's runs `ppm` faster, and a way between them.
    struct Link {
        ppm: i64,
    }

    impl Link {
        fn mesh_ns(&self, mono: u64) -> i64 {
            MESH_AHEAD + mono as i64 + mono as i64 / 1_000_000 * self.ppm
        }

        fn exchange(&self, sent: u64, out: u64, held: u64, back: u64) -> Exchange {
            Exchange {
                sent: MonoNanos(sent),
                mesh_received_ns: self.mesh_ns(sent + out),
                mesh_sent_ns: self.mesh_ns(sent + out + held),
                received: MonoNanos(sent + out + held + back),
            }
        }

        fn off_by_ns(&self, estimate: &Estimate, at: u64) -> u64 {
            (at as i64 + estimate.map.offset_ns).abs_diff(self.mesh_ns(at))
        }
    }

    #[test]
    fn an_even_way_is_exact_and_the_collectors_own_time_does_not_count() {
        let link = Link { ppm: 0 };
        let estimate = Filter::default()
            .add(link.exchange(5_000, 700, 1_000_000, 700))
            .unwrap();
        assert_eq!(link.off_by_ns(&estimate, 0), 0);
        assert_eq!(estimate.round_trip_ns, 1400);
    }

    #[test]
    fn the_quickest_wins_until_it_is_old() {
        let link = Link { ppm: 100 };
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
        let link = Link { ppm: 0 };
        let mut filter = Filter::default();
        let good = filter.add(link.exchange(1_000, 10, 0, 10)).unwrap();
        let exchange = |sent, a, b, received| Exchange {
            sent: MonoNanos(sent),
            mesh_received_ns: a,
            mesh_sent_ns: b,
            received: MonoNanos(received),
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
        /// However uneven the way and however the clocks drift: the truth is within the stated error.
        #[test]
        fn the_error_bound_holds(
            ppm in -100_i64..=100,
            ways in prop::collection::vec((0..5_000_000_u64, 0..5_000_000_u64, 0..1_000_000_u64), 1..60),
        ) {
            let link = Link { ppm };
            let mut filter = Filter::default();
            for (second, (out, back, held)) in ways.into_iter().enumerate() {
                let sent = 1_000_000_000 * second as u64;
                let exchange = link.exchange(sent, out, held, back);
                let now = exchange.received;
                let estimate = filter.add(exchange).unwrap();
                let error_ns = estimate.map.error_us(now).unsigned_abs() * 1000;
                // Our stamps are whole, and the two clocks part during the exchange itself.
                let slack = 2_000;
                prop_assert!(link.off_by_ns(&estimate, now.0) <= error_ns + slack);
                let truth = MeshMicros(link.mesh_ns(now.0) / 1000);
                prop_assert!(estimate.map.to_mesh(now).0.abs_diff(truth.0) <= error_ns / 1000 + 3);
            }
        }
    }
}
