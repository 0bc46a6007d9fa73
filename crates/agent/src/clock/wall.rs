//! Compares the agent's wall clock with mesh time: its offset, and steps when it is set.
//!
//! The wall clock dates no row. Its offset is recorded so that the database can be matched with that host's logs. A
//! step is a change against CLOCK_BOOTTIME, which slews with the wall clock and runs on during a suspend; mesh time is
//! not involved. A step produces an event and has no other effect.

use super::{Estimate, OFFSET_INTERVAL, clock_ns};
use crate::telemetry::{ClockOffset, Event, MeshMicros, RunScope, TelemetryRow};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use rustix::time::ClockId;
use serde_json::json;
use std::time::Duration;

/// Smallest difference between two readings that counts as a step.
const STEP_US: i64 = 100_000;
/// Readings further apart are not simultaneous: the thread was preempted between them.
const MAX_APART_NS: i64 = 10_000_000;

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallReading {
    /// Since the Unix epoch.
    pub wall_us: i64,
    /// Since the boot, suspends included.
    pub boot_us: i64,
}

impl WallReading {
    /// Reads both; `None` if they could not be read at one instant.
    #[must_use]
    pub fn take() -> Option<Self> {
        let before = clock_ns(ClockId::Boottime);
        let wall_us = clock_ns(ClockId::Realtime) / 1000;
        let apart = clock_ns(ClockId::Boottime).saturating_sub(before);
        (apart <= MAX_APART_NS).then_some(Self {
            wall_us,
            boot_us: before / 1000,
        })
    }

    /// How far the wall clock was set since `before`.
    fn set_since(self, before: Self) -> Option<i64> {
        let step = self.wall_us.saturating_sub(self.boot_us);
        let step = step.saturating_sub(before.wall_us.saturating_sub(before.boot_us));
        (step.saturating_abs() >= STEP_US).then_some(step)
    }
}

/// State after the last reading.
#[derive(Debug, Default)]
pub struct WallWatch {
    seen: Option<LastCheck>,
}

#[derive(Debug)]
struct LastCheck {
    /// The mesh that this clock is compared with.
    mesh: String,
    estimate: Estimate,
    reading: WallReading,
    /// When the last row was created.
    last_row_at: MonoNanos,
}

impl WallWatch {
    /// Checks the reading taken at `now`. Returns the offset periodically, at once after a gap, and at once with an
    /// event when the wall clock was set since the last check.
    pub fn check(
        &mut self,
        mesh: &str,
        estimate: &Estimate,
        now: MonoNanos,
        reading: WallReading,
    ) -> Vec<TelemetryRow> {
        let at = estimate.map.to_mesh(now);
        let seen = self.seen.take();
        let step = seen
            .as_ref()
            .and_then(|seen| reading.set_since(seen.reading));
        // A reading of another mesh's time is not comparable.
        let is_known = |seen: &LastCheck| {
            seen.mesh == mesh
                && seen.estimate.map.is_of_era(estimate.map)
                && now.since(seen.last_row_at) < OFFSET_INTERVAL
        };
        let is_due = step.is_some() || !seen.as_ref().is_some_and(is_known);
        self.seen = Some(LastCheck {
            mesh: mesh.to_owned(),
            estimate: *estimate,
            reading,
            last_row_at: match &seen {
                Some(seen) if !is_due => seen.last_row_at,
                _ => now,
            },
        });
        let mut rows = Vec::new();
        if is_due {
            rows.push(TelemetryRow::ClockOffset(ClockOffset {
                at,
                offset_us: reading.wall_us.saturating_sub(at.0),
                error_us: estimate.map.error_us(now),
                round_trip_us: i64::try_from(estimate.round_trip_ns / 1000).unwrap_or(i64::MAX),
            }));
        }
        rows.extend(step.map(|step_us| event(at, step_us)));
        rows
    }
}

fn event(at: MeshMicros, step_us: i64) -> TelemetryRow {
    let host = rustix::system::uname();
    TelemetryRow::Event(Event {
        at,
        scope: RunScope::default(),
        kind: EventKind::WallClockStep.into(),
        message: format!(
            "the clock of host {} was set {} by {:.3} s; mesh time goes on as before",
            host.nodename().to_string_lossy(),
            if step_us < 0 { "back" } else { "forward" },
            Duration::from_micros(step_us.unsigned_abs()).as_secs_f64(),
        ),
        detail: json!({ "step_us": step_us }).to_string(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_wrap)]

    use super::*;
    use crate::clock::{Exchange, Filter};

    const SECOND: u64 = 1_000_000_000;
    const MESH_US: i64 = 1_700_000_000_000_000;
    const HOUR_US: i64 = 3_600_000_000;

    /// Adds one exchange at that second with a mesh that is `ahead_us` ahead.
    fn add(filter: &mut Filter, second: u64, ahead_us: i64) -> Estimate {
        let mono = MonoNanos(second * SECOND);
        let mesh = (MESH_US + second as i64 * 1_000_000 + ahead_us) * 1000;
        let exchange = Exchange {
            sent: mono,
            mesh_received_ns: mesh,
            mesh_sent_ns: mesh,
            received: mono,
            slept_ns: 0,
        };
        filter.add(exchange).unwrap()
    }

    fn estimate() -> Estimate {
        add(&mut Filter::default(), 0, 0)
    }

    /// A wall clock `ahead_us` ahead of mesh time, `second` after boot.
    fn reading(second: u64, ahead_us: i64) -> WallReading {
        let boot_us = second as i64 * 1_000_000;
        WallReading {
            wall_us: MESH_US + boot_us + ahead_us,
            boot_us,
        }
    }

    /// Checks a wall clock once a second, ahead by each of these values; returns the number of rows and the step.
    fn looks(ahead_us: &[i64]) -> Vec<(usize, String)> {
        let mut watch = WallWatch::default();
        let mut rows = Vec::new();
        for (second, ahead) in ahead_us.iter().enumerate() {
            let now = MonoNanos(second as u64 * SECOND);
            let reading = reading(second as u64, *ahead);
            for row in watch.check("mesh", &estimate(), now, reading) {
                let text = match row {
                    TelemetryRow::ClockOffset(row) => format!("offset {}", row.offset_us),
                    TelemetryRow::Event(event) => {
                        // Dated by mesh time, not by the wall clock.
                        assert_eq!(event.at.0, MESH_US + second as i64 * 1_000_000);
                        assert_eq!(event.kind.as_str(), "wall-clock-step");
                        event.detail
                    }
                    other => panic!("{other:?}"),
                };
                rows.push((second, text));
            }
        }
        rows
    }

    #[test]
    fn a_clock_that_is_set_is_told_at_once_and_a_slew_is_not() {
        let row = |second, text: &str| (second, text.to_owned());
        let mut ahead = vec![0; 13];
        ahead.extend([2 * HOUR_US; 3]);
        ahead.extend([-HOUR_US; 2]);
        assert_eq!(
            looks(&ahead),
            [
                row(0, "offset 0"),
                row(10, "offset 0"),
                row(13, "offset 7200000000"),
                row(13, "{\"step_us\":7200000000}"),
                row(16, "offset -3600000000"),
                row(16, "{\"step_us\":-10800000000}"),
            ]
        );
        let slewed: Vec<i64> = (0..10).map(|second| second * 500).collect();
        assert_eq!(looks(&slewed), [row(0, "offset 0")]);
    }

    /// All clocks of a paused machine stop for 10 s, the wall clock too: this is not a step.
    #[test]
    fn a_pause_of_the_machine_is_not_a_clock_that_was_set() {
        let mut watch = WallWatch::default();
        let mut filter = Filter::default();
        let before = add(&mut filter, 1, 0);
        let rows = watch.check("mesh", &before, MonoNanos(SECOND), reading(1, 0));
        assert_eq!(rows.len(), 1);
        let after = add(&mut filter, 2, 10_000_000);
        assert!(after.gap.is_some());
        let rows = watch.check("mesh", &after, MonoNanos(2 * SECOND), reading(2, 0));
        let [TelemetryRow::ClockOffset(offset)] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(offset.offset_us, -10_000_000);
    }

    #[test]
    fn the_time_of_another_mesh_is_no_step() {
        let mut watch = WallWatch::default();
        let mut check = |mesh: &str, second: u64| {
            let now = MonoNanos(second * SECOND);
            watch
                .check(mesh, &estimate(), now, reading(second, HOUR_US))
                .len()
        };
        assert_eq!(check("one", 0), 1);
        assert_eq!(check("one", 1), 0);
        assert_eq!(check("other", 2), 1, "an offset alone");
    }

    #[test]
    fn the_clocks_of_this_machine_can_be_read_at_once() {
        let reading = (0..1000).find_map(|_| WallReading::take()).unwrap();
        assert!(reading.wall_us > 0 && reading.boot_us > 0);
    }
}
