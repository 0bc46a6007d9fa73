//! A collector's clock that runs faster or slower than an agent's: the seconds of a task follow mesh time to its end.

use crate::support::mesh::{Agent, Mesh};
use benchmesh_testing::{TimingError, measured, scheduled, timing};

/// More than the drift of any quartz, so that seconds show what would otherwise take days.
const APART_PPM: i64 = 400;
const SECONDS: i64 = 12;
const RATE: i64 = 200;
/// Maximum delay of a worker without real-time priority on a busy machine.
const LATE_US: i64 = 100_000;

/// A task that does not follow mesh time ends 4.8 ms too early.
#[test]
fn the_seconds_of_a_task_follow_a_mesh_time_that_is_faster() {
    measured(|| check_followed(APART_PPM));
}

/// A task that corrects twice as much as needed ends 4.8 ms too early.
#[test]
fn the_seconds_of_a_task_follow_a_mesh_time_that_is_slower() {
    measured(|| check_followed(-APART_PPM));
}

/// Twelve seconds of the agent's clock are 4.8 ms longer on the faster collector's clock, and 4.8 ms shorter on the
/// slower one's. Tolerance: 1 ms (the drift within a second, plus an exchange that is not the newest) and the stored
/// error bounds of two estimates of mesh time, but less than the drift of a task that does not follow; the end may be
/// later by the delay of a worker on a busy machine.
fn check_followed(ppm: i64) -> Result<(), TimingError> {
    let mut mesh = Mesh::with_collector_arguments(&[&format!("--clock-ppm={ppm}")]);
    mesh.add(Agent::named("a"));
    mesh.run(&format!(
        "[[phase]]\nworkload = \"null\"\nruntime = \"{SECONDS}s\"\nrate_iops = {RATE}\n"
    ));
    let db = mesh.db();
    let task = &db.rows(
        "SELECT ended_us - start_us AS took_us, last_begun_us - start_us AS begun_us FROM tasks",
    )[0];
    let drift_us = SECONDS * ppm;
    let late_us = task.integer("took_us") - SECONDS * 1_000_000 - drift_us;
    let error_us: i64 = db.one("SELECT max(error_us) FROM clock_offsets");
    let early_us = (1000 + 2 * error_us).min(3500);
    let allowed = -early_us..LATE_US;
    timing!(allowed.contains(&late_us), "{task:?}, {allowed:?}");
    // Each second once, none missing, and all operations in one of them.
    let rows = db.rows("SELECT at_us - (SELECT start_us FROM tasks) AS at_us, ops FROM op_intervals ORDER BY at_us");
    let seconds: Vec<i64> = rows.iter().map(|row| row.integer("at_us")).collect();
    let whole: Vec<i64> = (0..)
        .take(rows.len())
        .map(|second: i64| second * 1_000_000)
        .collect();
    assert_eq!(seconds, whole);
    let ops: Vec<i64> = rows.iter().map(|row| row.integer("ops")).collect();
    let done: i64 = ops.iter().sum();
    let least = (SECONDS * 1_000_000 - LATE_US) * RATE / 1_000_000;
    scheduled(done as u64, least as u64..=(SECONDS * RATE) as u64)?;
    let due_us = (done - 1) * 1_000_000 / RATE + drift_us;
    let last_us = task.integer("begun_us") - due_us;
    timing!(allowed.contains(&last_us), "{task:?}, {allowed:?}: {ops:?}");
    Ok(())
}
