//! One frozen mapping between the agent's monotonic clock and mesh time.
//!
//! It is a constant offset, so both directions are monotonic and lose only the nanoseconds below a microsecond.

use super::DRIFT_PER_SECOND_NS;
use crate::telemetry::MeshMicros;
use benchmesh_workloads::clock::MonoNanos;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Mesh time minus the agent's monotonic clock, as measured at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshMap {
    pub(super) offset_ns: i64,
    /// When its exchange was made.
    pub(super) measured: MonoNanos,
    /// Half the round trip of that exchange, which bounds the offset's error at that instant.
    pub(super) half_trip_ns: u64,
    /// Number of gaps that the agent had seen. Mappings of different eras do not describe the same pair of clocks.
    pub(super) era: u32,
}

impl MeshMap {
    /// Whether no gap separates this mapping from the other.
    #[must_use]
    pub fn is_of_era(self, other: Self) -> bool {
        self.era == other.era
    }

    /// The instant in mesh time, rounded down.
    #[must_use]
    pub fn to_mesh(self, at: MonoNanos) -> MeshMicros {
        let ns = i128::from(at.0) + i128::from(self.offset_ns);
        MeshMicros(clamp(ns.div_euclid(1000)))
    }

    /// The instant on the agent's clock; `None` outside its range.
    #[must_use]
    pub fn to_mono(self, at: MeshMicros) -> Option<MonoNanos> {
        let ns = i128::from(at.0) * 1000 - i128::from(self.offset_ns);
        u64::try_from(ns).ok().map(MonoNanos)
    }

    /// How much later `other` places an instant of mesh time on the agent's clock, in nanoseconds.
    #[must_use]
    pub fn later_by_ns(self, other: Self) -> i64 {
        self.offset_ns.saturating_sub(other.offset_ns)
    }

    /// The same mapping, with every instant later on the agent's clock by `ns`.
    #[must_use]
    pub fn moved(self, ns: i64) -> Self {
        Self {
            offset_ns: self.offset_ns.saturating_sub(ns),
            ..self
        }
    }

    /// Maximum error at `at`: half the round trip plus the drift since, in microseconds rounded up.
    #[must_use]
    pub fn error_us(self, at: MonoNanos) -> i64 {
        i64::try_from(self.error_ns(at).div_ceil(1000)).unwrap_or(i64::MAX)
    }

    /// The same in nanoseconds.
    #[must_use]
    pub fn error_ns(self, at: MonoNanos) -> u64 {
        self.half_trip_ns
            .saturating_add(drift_ns(self.measured, at))
    }

    /// Maximum error at the instant of the measurement.
    #[must_use]
    pub fn least_error_ns(self) -> u64 {
        self.half_trip_ns
    }
}

/// Maximum drift between two instants.
pub(super) fn drift_ns(from: MonoNanos, until: MonoNanos) -> u64 {
    let apart = u128::from(from.0.abs_diff(until.0));
    let drift = apart * u128::from(DRIFT_PER_SECOND_NS) / NANOS_PER_SECOND;
    u64::try_from(drift).unwrap_or(u64::MAX)
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(offset_ns: i64) -> MeshMap {
        MeshMap {
            offset_ns,
            measured: MonoNanos(0),
            half_trip_ns: 1500,
            era: 0,
        }
    }

    #[test]
    fn the_error_grows_with_the_drift() {
        let map = map(0);
        assert_eq!(map.error_us(MonoNanos(0)), 2);
        assert_eq!(map.error_us(MonoNanos(10_000_000_000)), 1002);
        assert_eq!(map.to_mono(MeshMicros(-1)), None);
    }

    proptest! {
        #[test]
        fn both_ways_and_never_back(offset in any::<i64>(), a in 0..1_u64 << 60, step in 0..1_u64 << 40) {
            let map = map(offset / 4);
            let (a, b) = (MonoNanos(a), MonoNanos(a + step));
            prop_assert!(map.to_mesh(a) <= map.to_mesh(b));
            if let Some(back) = map.to_mono(map.to_mesh(a)) {
                prop_assert!(back <= a && a.0 - back.0 < 1000);
            }
        }

        #[test]
        fn nothing_overflows(offset in any::<i64>(), mono in any::<u64>(), mesh in any::<i64>()) {
            let map = map(offset);
            let _ = map.to_mesh(MonoNanos(mono));
            let _ = map.to_mono(MeshMicros(mesh));
            let _ = map.error_us(MonoNanos(mono));
        }
    }
}
