//! Compares the reported start skew with the true start of every worker.

use crate::needs;
use crate::support::mesh::Mesh;
use crate::support::starts::StartLogs;
use benchmesh_testing::{measured, timing};
use std::time::Duration;

const STARTS: usize = 5;
/// Readings are rounded down to whole microseconds on their way.
const ROUNDING_US: f64 = 2.0;

/// Three agents with clocks hours apart, under a mesh time that runs 100 ppm fast.
#[test]
fn the_reported_skew_is_the_true_one_within_its_error() {
    needs!("timens");
    measured(|| {
        let mut mesh = Mesh::with_collector_arguments(&["--clock-ppm", "100"]);
        let mut logs = StartLogs::new(mesh.directory(), 100);
        for (name, hours) in [("a", 0), ("b", 1), ("c", 26)] {
            let agent = logs.agent(name, Duration::from_secs(hours * 3600));
            mesh.launch(agent);
        }
        mesh.until_attached(&["a", "b", "c"]);
        mesh.run(&format!(
            "repeat = {STARTS}\n[[phase]]\nworkload = \"null\"\nops = 1000\nnumjobs = 2\n"
        ));
        let steps = logs.read(&mesh.db());
        assert_eq!(steps.len(), STARTS);
        for tasks in steps.values() {
            assert_eq!(tasks.len(), 3);
            for task in tasks {
                assert!(
                    task.off_us() <= task.error_us as f64 + ROUNDING_US,
                    "{task:?}"
                );
                // Half of a round trip on loopback, and the drift since it was measured.
                timing!(task.error_us < 10_000, "{task:?}");
            }
        }
        // Nothing in the database shows the offset of the agents' clocks.
        let instants =
            "SELECT max(abs(at_us - (SELECT max(ended_us) FROM runs))) FROM host_samples";
        assert!(mesh.db().one::<i64>(instants) < 120_000_000);
        Ok(())
    });
}
