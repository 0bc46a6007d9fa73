//! Load at a rate, against a file system that pauses: the response times contain the second that users notice, and the
//! service times only that of the operations in flight. Tolerance: the total within 1 % of the schedule.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::Mesh;
use crate::support::plan;
use benchmesh_testing::{measured, timing};
use benchmesh_workloads::histogram::Histogram;
use std::time::Duration;

const RATE: u64 = 300;
const FILES: u64 = 1500;
const WORKERS: u64 = 2;
const PAUSE: Duration = Duration::from_secs(1);

#[test]
fn a_pause_is_in_the_response_time_and_in_one_service_time_per_worker() {
    needs!("fuse");
    measured(|| {
        let fs = FuseFs::mount();
        let mesh = Mesh::of(&["a"], fs.path());
        // The call in flight of each worker is held for the second; there are no other calls.
        fs.add_rule(Rule {
            path: "benchmesh-".to_owned(),
            after: 600,
            times: WORKERS,
            ..Rule::every(Op::Unlink, Fault::Delay(PAUSE))
        });
        mesh.run(&plan::phase(
        fs.path(),
        &format!(
            "workload = \"files\"\nfiles = {FILES}\nsize = \"100\"\nnumjobs = {WORKERS}\nmodes = [\"delete\"]\n\
             rate_iops = {RATE}\nrate-per = \"step\""
        ),
    ));
        let db = mesh.db();
        let step = &db.rows("SELECT * FROM step_results WHERE op = 'delete'")[0];
        assert_eq!(
            (step.integer("ops") as u64, step.integer("errors")),
            (FILES, 0)
        );
        let took_us: i64 = db.one("SELECT max(ended_us) - min(start_us) FROM tasks");
        let due_us = (FILES - 1) as f64 * 1e6 / RATE as f64;
        let off = took_us as f64 / due_us - 1.0;
        timing!(
            (0.0..0.01).contains(&off),
            "{took_us} us for what was due in {due_us} us"
        );

        let pause_ms = PAUSE.as_secs_f64() * 1e3;
        let view = &db.rows("SELECT * FROM v_results WHERE op = 'delete'")[0];
        // 300 of 1500 operations fell due in that second; 1 % of all is 15 of them, so each of those waited at least
        // 0.95 s.
        let response = view.number("response_p99_ms");
        timing!(
            (0.9 * pause_ms..1.2 * pause_ms).contains(&response),
            "{view:?}"
        );
        timing!(view.number("p99_ms") < 0.1 * pause_ms, "{view:?}");
        assert!(view.number("max_ms") >= pause_ms, "{view:?}");
        let packed: Vec<u8> = db.one("SELECT histogram FROM step_results WHERE op = 'delete'");
        let service = Histogram::from_v2_deflate(&packed).unwrap();
        assert_eq!(service.count(), FILES);
        let all_but_one_each = (FILES - WORKERS) as f64 / FILES as f64;
        let slowest_but_those = Duration::from_nanos(service.quantile(all_but_one_each));
        timing!(slowest_but_those < PAUSE / 4, "{slowest_but_those:?}");

        // The timeline shows it in the second itself.
        let worst: f64 = db.one("SELECT max(response_p99_ms) FROM v_timeline WHERE op = 'delete'");
        assert!(worst >= 0.9 * pause_ms, "{worst}");
        mesh.assert_no_complaints();
        Ok(())
    });
}
