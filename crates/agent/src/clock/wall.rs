//! The agent's wall clock beside mesh time: how far it is off, and when somebody sets it.
//!
//! It dates nothing. What it says is recorded, so that whoever compares the database with the logs of that host knows by
//! how much they differ; a step of it is an event, and changes nothing else.

use super::{Estimate, OFFSET_EVERY};
use crate::telemetry::{ClockOffset, Event, MeshMicros, Row, Scope, Severity};
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::time::Duration;

/// What is a step between two looks at one time.
const STEP_US: i64 = 100_000;
/// A clock that is slewed moves by less than this part of the time between them: by 500 ppm where the kernel does it, by 83 ms
/// a second where chrony is in a hurry.
const SLEW: i64 = 10;

/// What was seen last.
#[derive(Debug, Default)]
pub struct WallWatch {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The mesh whose time it is held against.
    mesh: String,
    offset: ClockOffset,
    /// When a row was made last.
    last_row_at: MonoNanos,
}

impl WallWatch {
    /// Looks at `now`, when the wall clock says `wall_us`: the offset now and then, and at once with an event when the
    /// clock was set since the last look.
    pub fn look(
        &mut self,
        mesh: &str,
        estimate: &Estimate,
        now: MonoNanos,
        wall_us: i64,
    ) -> Vec<Row> {
        let at = estimate.map.to_mesh(now);
        let offset = ClockOffset {
            at,
            offset_us: wall_us.saturating_sub(at.0),
            error_us: estimate.map.error_us(now),
            round_trip_us: i64::try_from(estimate.round_trip_ns / 1000).unwrap_or(i64::MAX),
        };
        // Of another mesh's time nothing is known.
        let seen = self.seen.take().filter(|seen| seen.mesh == mesh);
        let step = seen.as_ref().and_then(|seen| step(&seen.offset, &offset));
        let due = |seen: &Seen| now.since(seen.last_row_at) >= OFFSET_EVERY;
        let is_due = step.is_some() || seen.as_ref().is_none_or(due);
        self.seen = Some(Seen {
            mesh: mesh.to_owned(),
            offset,
            last_row_at: match &seen {
                Some(seen) if !is_due => seen.last_row_at,
                _ => now,
            },
        });
        let mut rows = Vec::new();
        if is_due {
            rows.push(Row::ClockOffset(offset));
        }
        rows.extend(step.map(|step_us| event(at, step_us)));
        rows
    }
}

/// What cannot be a slew, the clocks' drift, or the errors of two readings.
fn step(before: &ClockOffset, now: &ClockOffset) -> Option<i64> {
    let step = now.offset_us.saturating_sub(before.offset_us);
    let errors = now.error_us.saturating_add(before.error_us);
    let slewed = now.at.0.saturating_sub(before.at.0).max(0) / SLEW;
    let most = STEP_US.saturating_add(slewed).saturating_add(errors);
    (step.saturating_abs() >= most).then_some(step)
}

fn event(at: MeshMicros, step_us: i64) -> Row {
    let host = rustix::system::uname();
    Row::Event(Event {
        at,
        scope: Scope::default(),
        severity: Severity::Warning,
        kind: "wall-clock-step".to_owned(),
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

    fn estimate() -> Estimate {
        let exchange = Exchange {
            sent: MonoNanos(0),
            mesh_received_ns: MESH_US * 1000,
            mesh_sent_ns: MESH_US * 1000,
            received: MonoNanos(0),
        };
        Filter::default().add(exchange).unwrap()
    }

    /// Looks once a second at a wall clock that is so far ahead; the kinds of rows, with the step.
    fn looks(ahead_us: &[i64]) -> Vec<(usize, String)> {
        let mut watch = WallWatch::default();
        let mut rows = Vec::new();
        for (second, ahead) in ahead_us.iter().enumerate() {
            let now = MonoNanos(second as u64 * SECOND);
            let wall = MESH_US + second as i64 * 1_000_000 + ahead;
            for row in watch.look("mesh", &estimate(), now, wall) {
                let text = match row {
                    Row::ClockOffset(row) => format!("offset {}", row.offset_us),
                    Row::Event(event) => {
                        // Mesh time, whatever the wall clock says.
                        assert_eq!(event.at.0, MESH_US + second as i64 * 1_000_000);
                        assert_eq!(event.kind, "wall-clock-step");
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

    #[test]
    fn a_slew_is_no_step_however_long_nobody_looked() {
        let far = |second: u64, slewed_us: i64| {
            let mut watch = WallWatch::default();
            let mut look = |second: u64, ahead: i64| {
                let wall = MESH_US + second as i64 * 1_000_000 + ahead;
                let rows = watch.look("mesh", &estimate(), MonoNanos(second * SECOND), wall);
                rows.iter().any(|row| matches!(row, Row::Event(_)))
            };
            assert!(!look(0, 0));
            look(second, slewed_us)
        };
        // An error of 100 ppm in each second comes on top.
        assert!(!far(1, 83_000) && !far(10, 830_000));
        assert!(!far(1000, 1000 * 500));
        assert!(far(1, 250_000) && far(10, 1_150_000));
    }

    #[test]
    fn the_time_of_another_mesh_is_no_step() {
        let mut watch = WallWatch::default();
        let mut look = |mesh: &str, second: u64, wall| {
            watch
                .look(mesh, &estimate(), MonoNanos(second * SECOND), wall)
                .len()
        };
        assert_eq!(look("one", 0, MESH_US), 1);
        assert_eq!(look("one", 1, MESH_US + 1_000_000), 0);
        assert_eq!(look("other", 2, MESH_US + HOUR_US), 1, "an offset alone");
    }
}
