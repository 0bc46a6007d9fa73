//! Mesh time on this host: how far the agent's monotonic clock is from the collector's, and how well that is known.
//!
//! [`Filter`] turns exchanges of four time stamps into an [`Estimate`]; a [`MeshMap`] is one frozen copy of it. A
//! task begins with one; `runner::follow` moves its seconds from there, each by at most half a millisecond, and anew
//! after a [`Gap`]. [`Dating`] says which mapping dates a row. Nothing here knows of streams: `session` sends the
//! probes, and gives the estimate to the others through a watch channel.

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

/// How fast two clocks may part: 100 ppm, the worst that an undisciplined crystal does.
pub const DRIFT_PER_SECOND_NS: u64 = 100_000;

/// Probes at the start of a session, and their distance.
pub const BURST: u32 = 8;
/// Distance of the probes in the first burst.
pub const BURST_INTERVAL: Duration = Duration::from_millis(20);
/// Distance of the probes after it.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often the offset is put into the telemetry.
pub const OFFSET_INTERVAL: Duration = Duration::from_secs(10);

/// How long this machine has slept since it was booted.
#[must_use]
pub fn slept_ns() -> i64 {
    // Nothing but time passes between the two: what is read too much is a preemption, far below a gap's half.
    clock_ns(ClockId::Boottime).saturating_sub(clock_ns(ClockId::Monotonic))
}

fn clock_ns(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}
