//! An agent that is killed during a load.

use super::mesh::Mesh;
use super::meter::wall_us;
use super::process::Process;
use super::wait::until_true;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Kills an agent when a step of reads has run for this time, and waits for the end of the run, which is done but
/// partial. Returns when the step started, and when the agent was killed, in microseconds of the wall clock.
pub fn kill_after(mesh: &mut Mesh, run: &mut Process, agent: &str, load: Duration) -> (i64, i64) {
    mesh.until_step_is("read", "running", LIMIT);
    let start: i64 = mesh.db().one("SELECT start_us FROM steps");
    let until = start + i64::try_from(load.as_micros()).unwrap();
    until_true("the load has run for long", LIMIT, || wall_us() > until);
    mesh.kill_agent(agent);
    let killed = wall_us();
    let ended = run.exit_within(LIMIT).unwrap();
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());
    (start, killed)
}
