//! Mesh time: the only clock of the database. It never goes back and never jumps.
//!
//! It is CLOCK_BOOTTIME plus a constant that is chosen once per boot and persisted as an anchor, so a collector
//! restarted within a boot continues the same time line, regardless of the wall clock. The wall clock is read when a
//! time line begins and is then monitored: a step is recorded and has no other effect.

use crate::rows::Anchor;
use benchmesh_model::mesh::MeshMicros;
use rustix::time::{ClockId, clock_gettime};
use std::{fs, io, time::Duration};

/// Maximum lead of the database over the wall clock when a new time line begins.
const MAX_AHEAD_US: i64 = 24 * 3600 * 1_000_000;
/// Minimum change of the wall clock against mesh time between two checks that counts as a step, not a slew.
const STEP_US: i64 = 500_000;

/// Why mesh time cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    #[error(
        "the database is {} ahead of this machine's clock ({}): correct the clock and start again; if the clock is \
        right and the database was written under a wrong one, begin another with --db",
        days(*ahead_us), utc(*wall_us)
    )]
    Ahead { ahead_us: i64, wall_us: i64 },
    #[error("cannot read /proc/sys/kernel/random/boot_id")]
    BootId { source: io::Error },
}

fn days(us: i64) -> String {
    let hours = us / 3_600_000_000;
    if hours < 72 {
        format!("{hours} h")
    } else {
        format!("{} days", hours / 24)
    }
}

/// Formats an instant since the epoch as RFC 3339 in UTC.
fn utc(us: i64) -> String {
    let since_epoch = Duration::from_micros(u64::try_from(us).unwrap_or(0));
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since_epoch).to_string()
}

/// Simultaneous readings of the kernel's clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelClocks {
    pub boot_id: String,
    pub boottime_ns: i64,
    pub wall_us: i64,
}

impl KernelClocks {
    /// Reads this machine's clocks.
    pub fn take() -> Result<Self, ClockError> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|source| ClockError::BootId { source })?;
        Ok(Self {
            boot_id: boot_id.trim().to_owned(),
            boottime_ns: boottime_ns(),
            wall_us: wall_us(),
        })
    }
}

fn boottime_ns() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

fn wall_us() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec
        .saturating_mul(1_000_000)
        .saturating_add(now.tv_nsec / 1000)
}

/// The anchor to continue with: the stored one if it is of this boot, otherwise a new one that is behind neither the
/// wall clock nor the database's newest time stamp.
pub fn choose_anchor(
    stored: Option<&Anchor>,
    newest: Option<MeshMicros>,
    now: &KernelClocks,
) -> Result<Anchor, ClockError> {
    if let Some(anchor) = stored
        && anchor.boot_id == now.boot_id
        && anchor.boottime_ns <= now.boottime_ns
    {
        return Ok(anchor.clone());
    }
    let held = [stored.map(|anchor| anchor.mesh_us.0), newest.map(|at| at.0)]
        .into_iter()
        .flatten()
        .max();
    let ahead_us = held.map_or(0, |held| held.saturating_sub(now.wall_us));
    if ahead_us > MAX_AHEAD_US {
        return Err(ClockError::Ahead {
            ahead_us,
            wall_us: now.wall_us,
        });
    }
    let mesh_us = held.map_or(now.wall_us, |held| now.wall_us.max(held.saturating_add(1)));
    Ok(Anchor {
        boot_id: now.boot_id.clone(),
        boottime_ns: now.boottime_ns,
        mesh_us: MeshMicros(mesh_us),
    })
}

/// Mesh time, valid for this boot.
#[derive(Clone, Debug)]
pub struct MeshClock {
    anchor: Anchor,
    drift_ppm: i64,
}

impl MeshClock {
    pub fn new(anchor: Anchor) -> Self {
        Self {
            anchor,
            drift_ppm: 0,
        }
    }

    /// The same clock with an artificial drift, for tests.
    #[must_use]
    pub fn with_drift(self, ppm: i32) -> Self {
        Self {
            drift_ppm: ppm.into(),
            ..self
        }
    }

    /// Converts an elapsed time of the kernel's clock to mesh time, in nanoseconds.
    fn elapsed_ns(&self, kernel_ns: i64) -> i64 {
        let gained = i128::from(kernel_ns) * i128::from(self.drift_ppm) / 1_000_000;
        kernel_ns.saturating_add(i64::try_from(gained).unwrap_or(0))
    }

    /// Nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.anchor
            .mesh_us
            .0
            .saturating_mul(1000)
            .saturating_add(self.elapsed_ns(boottime_ns().saturating_sub(self.anchor.boottime_ns)))
    }

    pub fn now(&self) -> MeshMicros {
        MeshMicros(self.now_ns() / 1000)
    }

    /// The same time line, anchored to the current moment. Persisted periodically, so that a boot with a wrong wall
    /// clock does not start before the stored data.
    pub fn anchor_now(&self) -> Anchor {
        let boottime_ns = boottime_ns();
        let elapsed_us = boottime_ns.saturating_sub(self.anchor.boottime_ns) / 1000;
        Anchor {
            boot_id: self.anchor.boot_id.clone(),
            // A whole number of microseconds from the first anchor, so that repeated rounding adds no drift.
            boottime_ns: self.anchor.boottime_ns.saturating_add(elapsed_us * 1000),
            mesh_us: MeshMicros(
                self.anchor
                    .mesh_us
                    .0
                    .saturating_add(self.elapsed_ns(elapsed_us * 1000) / 1000),
            ),
        }
    }

    /// How far the wall clock is ahead of mesh time, in microseconds.
    pub fn wall_ahead_us(&self) -> i64 {
        wall_us().saturating_sub(self.now().0)
    }
}

/// Monitors the wall clock against mesh time.
#[derive(Debug)]
pub struct WallClockMonitor {
    ahead_us: i64,
}

impl WallClockMonitor {
    /// `ahead_us`: the current value of `MeshClock::wall_ahead_us`.
    pub fn new(ahead_us: i64) -> Self {
        Self { ahead_us }
    }

    /// The step since the last check, in microseconds, if any.
    pub fn check(&mut self, ahead_us: i64) -> Option<i64> {
        let step = ahead_us.saturating_sub(self.ahead_us);
        self.ahead_us = ahead_us;
        (step.abs() >= STEP_US).then_some(step)
    }
}

/// Time left until `at`; zero if it is past.
pub fn until(clock: &MeshClock, at: MeshMicros) -> Duration {
    let left = at.0.saturating_sub(clock.now().0);
    Duration::from_micros(u64::try_from(left).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn reading(boot: &str, boottime_ns: i64, wall_us: i64) -> KernelClocks {
        KernelClocks {
            boot_id: boot.to_owned(),
            boottime_ns,
            wall_us,
        }
    }

    fn anchor(boot: &str, boottime_ns: i64, mesh_us: i64) -> Anchor {
        Anchor {
            boot_id: boot.to_owned(),
            boottime_ns,
            mesh_us: MeshMicros(mesh_us),
        }
    }

    #[test]
    fn a_new_database_begins_at_the_wall_clock() {
        let got = choose_anchor(None, None, &reading("a", 5, 1000)).unwrap();
        assert_eq!(got, anchor("a", 5, 1000));
    }

    #[test]
    fn within_a_boot_the_line_continues_whatever_the_wall_clock_says() {
        let stored = anchor("a", 5_000, 77);
        for wall in [0, 77, 400 * 24 * HOUR] {
            assert_eq!(
                choose_anchor(Some(&stored), None, &reading("a", 9_000, wall)).unwrap(),
                stored
            );
        }
    }

    #[test]
    fn a_new_boot_goes_on_behind_neither_the_clock_nor_the_data() {
        let stored = anchor("a", 5, 10 * HOUR);
        let check = |newest: i64, wall: i64, expected: i64| {
            let newest = Some(MeshMicros(newest));
            let got = choose_anchor(Some(&stored), newest, &reading("b", 1, wall)).unwrap();
            assert_eq!(got, anchor("b", 1, expected));
        };
        check(11 * HOUR, 12 * HOUR, 12 * HOUR);
        check(11 * HOUR, 9 * HOUR, 11 * HOUR + 1);
        check(0, 9 * HOUR, 10 * HOUR + 1);
    }

    #[test]
    fn a_database_from_the_future_is_refused_with_a_remedy() {
        let stored = anchor("a", 5, 50 * HOUR);
        let error = choose_anchor(Some(&stored), None, &reading("b", 1, 20 * HOUR)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("30 h ahead"), "{text}");
        assert!(text.contains("1970-01-01T20:00:00Z"), "{text}");
        assert!(text.contains("--db"), "{text}");
    }

    #[test]
    fn the_stored_line_is_the_same_line() {
        let clock = MeshClock::new(Anchor {
            boot_id: String::from("a"),
            boottime_ns: boottime_ns(),
            mesh_us: MeshMicros(1_000_000),
        });
        let before = clock.now_ns();
        let again = MeshClock::new(clock.anchor_now());
        let apart = again.now_ns() - before;
        assert!((0..1_000_000_000).contains(&apart), "{apart}");
        assert!(clock.now() >= MeshMicros(1_000_000));
    }

    #[test]
    fn only_a_step_is_a_step() {
        let mut monitor = WallClockMonitor::new(10);
        assert_eq!(monitor.check(400_000), None);
        assert_eq!(monitor.check(800_000), None);
        assert_eq!(monitor.check(-4_200_000), Some(-5_000_000));
        assert_eq!(monitor.check(-4_200_000), None);
    }

    #[test]
    fn dates_are_right() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_763_718_036_000_000, "2025-11-21T09:40:36Z"),
        ] {
            assert_eq!(utc(us), text);
        }
    }
}
