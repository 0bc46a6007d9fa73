//! A collector's clock that runs fast beside an agent's, or slow: the seconds of a task are those of mesh time to its end.

use crate::support::mesh::{Agent, Mesh};

/// More than any crystal, so that seconds show what days would.
const APART_PPM: i64 = 400;
const SECONDS: i64 = 12;
const RATE: i64 = 200;

/// A task that does not follow ends 4.8 ms too early.
#[test]
fn the_seconds_of_a_task_follow_a_mesh_time_that_is_faster() {
    assert_followed(APART_PPM);
}

/// A task that follows twice too fast ends 4.8 ms too early.
#[test]
fn the_seconds_of_a_task_follow_a_mesh_time_that_is_slower() {
    assert_followed(-APART_PPM);
}

/// Twelve seconds of the agent's clock are 4.8 ms more of the faster collector's, and so much less of the slower one's.
/// Tolerance: 1.5 ms, which a second at that pace and an exchange that is not the newest come to; later by what a busy
/// machine keeps a worker waiting.
fn assert_followed(ppm: i64) {
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
    assert!((-1500..100_000).contains(&late_us), "{task:?}");
    // The last is due a beat before the end.
    let last_us = task.integer("begun_us") - (SECONDS * RATE - 1) * 1_000_000 / RATE - drift_us;
    assert!((-1500..100_000).contains(&last_us), "{task:?}");
    // Each second once, none left out, and everything in one of them.
    let rows = db.rows("SELECT at_us - (SELECT start_us FROM tasks) AS at_us, ops FROM op_intervals ORDER BY at_us");
    let seconds: Vec<i64> = rows.iter().map(|row| row.integer("at_us")).collect();
    let whole: Vec<i64> = (0..)
        .take(rows.len())
        .map(|second: i64| second * 1_000_000)
        .collect();
    assert_eq!(seconds, whole);
    let ops: Vec<i64> = rows.iter().map(|row| row.integer("ops")).collect();
    assert_eq!(ops.iter().sum::<i64>(), SECONDS * RATE, "{ops:?}");
}
