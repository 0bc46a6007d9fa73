//! An agent that is suspended in the middle of a step and continued: its workers were frozen, and the database shows
//! it.

use super::{LIMIT, mesh_on, paced_plan, until_stored};
use crate::needs;
use crate::support::fuse_fs::FuseFs;
use crate::support::wait::until_true;
use std::time::{Duration, Instant};

#[test]
fn a_frozen_agent_leaves_an_event() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = mesh_on(&fs);
    let mut run = mesh.begin(&paced_plan(&fs, "loss-after = \"60s\"\nlease = \"60s\""));
    mesh.until_step_is("delete", "running", LIMIT);
    until_stored(&mesh, 2);
    let frozen = Instant::now();
    mesh.agent("b").signal(libc::SIGSTOP);
    // Waits for time to pass, and for the other agent's seconds in it.
    let most: i64 = mesh.db().one("SELECT max(at_us) FROM op_intervals");
    until_true("three seconds of the other agent", LIMIT, || {
        // Rows that were late when the agent was suspended do not count.
        frozen.elapsed() >= Duration::from_secs(3)
            && mesh.db().one::<i64>("SELECT max(at_us) FROM op_intervals") >= most + 3_000_000
    });
    mesh.agent("b").signal(libc::SIGCONT);
    // It is frozen until the kernel runs it again, at the latest until its event is stored.
    until_true("the event is stored", LIMIT, || {
        let sql = "SELECT count(*) FROM events WHERE kind = 'client-frozen'";
        mesh.db().one::<i64>(sql) > 0
    });
    let longest = frozen.elapsed();
    run.exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    let rows = mesh.db().rows(
        "SELECT a.name, e.severity, s.mode, json_extract(e.detail, '$.frozen_us') AS frozen_us
         FROM events e JOIN agents a ON a.id = e.agent_id JOIN steps s ON s.id = e.step_id
         WHERE e.kind = 'client-frozen'",
    );
    assert_eq!(rows.len(), 1, "{rows:?}");
    let (name, mode) = (rows[0].text("name"), rows[0].text("mode"));
    assert_eq!((&*name, &*mode), ("b", "delete"));
    let frozen = Duration::from_micros(rows[0].integer("frozen_us").unsigned_abs());
    assert!(
        frozen >= Duration::from_secs(2) && frozen <= longest,
        "{frozen:?} of {longest:?}"
    );
}
