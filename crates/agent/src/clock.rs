//! Mesh time on this host: how far the agent's monotonic clock is from the collector's, and how well that is known.
//!
//! [`Filter`] turns exchanges of four time stamps into an [`Estimate`]; a [`MeshMap`] is one frozen copy of it. A task
//! begins with one. `runner::follow` shifts its seconds from there, each by at most half a millisecond, and rebases
//! them after a [`Gap`]. [`Dating`] selects the mapping that dates a row. This module does not know about streams:
//! `session` sends the probes and publishes the estimate through a watch channel.

mod dating;
mod filter;
mod gap;
mod map;
mod wall;

pub use dating::{Dating, TaskDating};
pub use filter::{Estimate, Exchange, Filter};
pub use gap::Gap;
pub use map::MeshMap;
pub use wall::{WallReading, WallWatch};

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Maximum drift between two clocks: 100 ppm, the worst case of an undisciplined crystal.
pub const DRIFT_PER_SECOND_NS: u64 = 100_000;

/// Number of probes in the burst at the start of a session.
pub const BURST: u32 = 8;
/// Interval between the probes of the first burst.
pub const BURST_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between later probes.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often the offset is recorded in the telemetry.
pub const OFFSET_INTERVAL: Duration = Duration::from_secs(10);

/// Time that this machine has spent suspended since boot.
#[must_use]
pub fn slept_ns() -> i64 {
    // The two reads are not simultaneous; a preemption between them adds an error far below half of the gap threshold.
    clock_ns(ClockId::Boottime).saturating_sub(clock_ns(ClockId::Monotonic))
}

fn clock_ns(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}
