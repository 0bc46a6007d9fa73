//! `search`: a collector that is killed between and within probes continues the same search.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::Mesh;
use crate::support::plan;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// One server: simultaneous reads are answered one after the other.
const PER_SECOND: u32 = 200;

#[test]
fn a_search_goes_on_after_the_collector_was_killed() {
    needs!("fuse");
    let fs = FuseFs::mount();
    fs.add_rule(Rule::every(
        Op::Read,
        Fault::Capacity {
            per_second: PER_SECOND,
            latency: Duration::from_millis(1),
        },
    ));
    let mut mesh = Mesh::of(&["a", "b"], fs.path());
    // The workers of four clients wait for each other, for 20 ms; at a third of the rate one of them is usually alone.
    let search = "workload = \"io\"\nmodes = [\"randread\"]\nsize = \"256k\"\nbs = \"4k\"\nnumjobs = 2\n\
                  runtime = \"2s\"\n\
                  search = { rate = \"max\", while = \"p50 < 14ms\", steps = 4 }";
    let run = mesh.begin(&plan::phase(fs.path(), search));
    mesh.until_stored(
        "the second probe runs",
        "SELECT count(*) FROM steps WHERE ordinal = 2 AND state = 'running'",
    );
    mesh.kill_collector();
    drop(run);
    mesh.restart_collector();
    mesh.until_stored(
        "the third probe is made",
        "SELECT count(*) FROM steps WHERE ordinal = 3",
    );
    mesh.kill_collector();
    mesh.restart_collector();
    assert_eq!(mesh.until_run_is(&["done", "failed"], LIMIT), "done");

    let db = mesh.db();
    // A cell that was in progress may have been repeated.
    let newest = "state = 'done' AND attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.ordinal = steps.ordinal)";
    let ordinals: Vec<i64> = db.column(&format!(
        "SELECT ordinal FROM steps WHERE {newest} ORDER BY ordinal"
    ));
    assert_eq!(ordinals, [1, 2, 3, 4]);
    // The first probe has no rate; each later rate follows from the probes before it.
    let mut rates: Vec<i64> = db.column(&format!(
        "SELECT params ->> 'rate_iops' FROM steps WHERE {newest} AND ordinal > 1 ORDER BY ordinal"
    ));
    let unpaced: i64 =
        db.one("SELECT count(*) FROM steps WHERE ordinal = 1 AND params ->> 'rate_iops' IS NULL");
    assert!(unpaced > 0);
    rates.sort_unstable();
    rates.dedup();
    assert_eq!(rates.len(), 3, "{rates:?}");
    let events = db.rows(
        "SELECT kind, detail ->> 'highest_per_s' AS highest, step_id FROM events WHERE kind LIKE 'search%'",
    );
    assert_eq!(events.len(), 1, "{events:?}");
    let last: i64 = db.one("SELECT max(id) FROM steps WHERE ordinal = 4");
    assert_eq!(events[0].integer("step_id"), last);
    // On a busy machine no rate may meet the bound.
    if events[0].text("kind") == "search-found" {
        let highest = events[0].number("highest");
        assert!(
            rates.iter().any(|rate| *rate as f64 == highest),
            "{highest} of {rates:?}"
        );
    }
}
