//! The highest rate of a server of known capacity that answers reads one at a time, found by a search. Tolerance: the
//! rate lies between half of the capacity, the share that the plan allows, and all of it.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::Mesh;
use crate::support::plan;
use benchmesh_testing::{measured, timing};
use std::time::Duration;

const PER_SECOND: u32 = 200;

#[test]
fn the_highest_rate_within_a_bound_is_found() {
    needs!("fuse");
    measured(|| {
        let fs = FuseFs::mount();
        fs.add_rule(Rule::every(
            Op::Read,
            Fault::Capacity {
                per_second: PER_SECOND,
                latency: Duration::from_millis(1),
            },
        ));
        let mesh = Mesh::of(&["a", "b"], fs.path());
        // Without a rate eight reads wait for each other, for 40 ms; below the capacity hardly any read waits. The p50,
        // because a short stall of this machine delays more than one percent of the reads of a probe.
        let load = "workload = \"io\"\nmodes = [\"randread\"]\nsize = \"256k\"\nbs = \"4k\"\nnumjobs = 4\n\
                    runtime = \"3s\"\n";
        let search = "search = { rate = \"max\", while = \"p50 < 25ms\", within = \"10%\" }";
        let mut run = mesh.begin(&plan::phase(fs.path(), &format!("{load}{search}")));
        let ended = run.exit_within(Duration::from_secs(120)).unwrap();
        assert_eq!(ended.code(), Some(0), "{}", run.log());

        let db = mesh.db();
        let event = &db.rows(
            "SELECT kind, message, detail ->> 'highest_per_s' AS highest, detail ->> 'latency_ms' AS latency,
                    json_array_length(detail, '$.probes') AS probes
             FROM events WHERE kind IN ('search-found', 'search-not-found')",
        )[0];
        assert!(run.log().contains(&event.text("message")), "{}", run.log());
        timing!(
            event.text("kind") == "search-found",
            "{}",
            event.text("message")
        );
        let highest = event.number("highest");
        timing!(
            (0.6..1.02).contains(&(highest / f64::from(PER_SECOND))),
            "{highest}: {}",
            event.text("message")
        );
        assert!(event.number("latency") < 25.0, "{event:?}");

        // Only the probes that the search made are steps, and the load curve does not repeat them.
        let steps: i64 = db.one("SELECT count(*) FROM steps WHERE state = 'done'");
        assert_eq!(steps, event.integer("probes"));
        let others: i64 = db.one("SELECT count(*) FROM steps WHERE state <> 'done'");
        assert_eq!(others, 0);
        let report = mesh.command(&["report"]).out;
        for words in [
            "Highest rate",
            "p50 < 25ms",
            "found",
            "the probes",
            "passed",
        ] {
            assert!(report.contains(words), "{words}: {report}");
        }
        assert!(!report.contains("Load curves"), "{report}");
        let json = mesh.command(&["report", "--format", "json"]).out;
        assert!(
            json.contains("\"searches\"") && json.contains("\"search_probes\""),
            "{json}"
        );
        mesh.assert_no_complaints();
        Ok(())
    });
}
