//! One large file per client on storage of known speed, each client at another one, so that they end seconds apart: what is
//! reported is what the file system's own log says it moved, over the window and in each of its seconds. Tolerance: 5 %.

use crate::needs;
use crate::support::fuse_fs::{Call, Fault, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use benchmesh_testing::{TimingError, measured, timing};
use std::time::Duration;

const TOLERANCE: f64 = 0.05;
const SECOND: i64 = 1_000_000;
/// Of the three clients: how long each write of 64 KiB takes. Their files of 32 MiB take 6, 7.5 and 9 s at least.
const DELAYS: [Duration; 3] = [
    Duration::from_micros(12_000),
    Duration::from_micros(15_000),
    Duration::from_micros(18_000),
];
const FILE_BYTES: i64 = 32 << 20;
const PHASES: &str = r#"
    [[phase]]
    name = "create"
    workload = "files"
    modes = ["create"]
    files = 1
    size = "32m"
    bs = "64k"
    [[phase]]
    name = "copy"
    workload = "copy"
    modes = ["in"]
    files = 1
    size = "32m"
    way = "read-write"
    bs = "64k"
"#;

#[test]
fn one_large_file_per_client_is_reported_as_fast_as_it_was_moved() {
    needs!("fuse");
    measured(|| {
        let (fs, scratch) = (FuseFs::mount(), tempfile::tempdir().unwrap());
        for (task, delay) in DELAYS.into_iter().enumerate() {
            fs.add_rule(Rule {
                path: format!("/t{task}/"),
                ..Rule::every(Op::Write, Fault::Delay(delay))
            });
        }
        let mut mesh = Mesh::start();
        for name in ["a", "b", "c"] {
            mesh.add(Agent::named(name).allow(fs.path()).scratch(scratch.path()));
        }
        let run = mesh.run(&plan::on(fs.path(), "", PHASES));
        let log = fs.log();
        for phase in ["create", "copy"] {
            check(&mesh, run, phase, &log)?;
        }
        Ok(())
    });
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of a test are far below 2^52"
)]
fn check(mesh: &Mesh, run: i64, phase: &str, log: &[Call]) -> Result<(), TimingError> {
    let db = mesh.db();
    let step = &db.rows(&format!(
        "SELECT r.headline, r.ops, r.bytes, r.bytes_per_s, r.window_ops, r.zero_seconds, s.id, s.flags,
                s.all_active_from_us, s.all_active_until_us
         FROM step_results r JOIN steps s ON s.id = r.step_id
         WHERE s.run_id = {run} AND s.phase = '{phase}' AND r.bytes > 0"
    ))[0];
    let moved = |from: i64, until: i64| -> f64 {
        let writes = log
            .iter()
            .filter(|call| call.op == Op::Write && (from..until).contains(&call.ended_us));
        writes.map(|call| call.amount as f64).sum()
    };
    assert_eq!(
        (step.integer("ops"), step.integer("bytes")),
        (3, 3 * FILE_BYTES),
        "{step:?}"
    );
    assert_eq!(step.text("headline"), "window", "{step:?}");
    assert!(!step.text("flags").contains("undated"), "{step:?}");
    let from = step.integer("all_active_from_us");
    let until = step.integer("all_active_until_us");
    let window_s = (until - from) as f64 / 1e6;
    // Each was at its one file all the while.
    let files = DELAYS.map(|delay| DELAYS[0].as_secs_f64() / delay.as_secs_f64());
    let mut figures = vec![
        (
            "bytes/s".to_owned(),
            step.number("bytes_per_s"),
            moved(from, until) / window_s,
        ),
        (
            "files".to_owned(),
            step.number("window_ops"),
            files.iter().sum(),
        ),
    ];
    let timeline = db.rows(&format!(
        "SELECT at_us, span_us, bytes FROM step_intervals WHERE step_id = {} AND bytes > 0
             AND at_us + span_us <= {until} + 1000 ORDER BY at_us",
        step.integer("id")
    ));
    assert!(timeline.len() >= 5, "{timeline:?}");
    for one in timeline {
        let at = one.integer("at_us");
        assert_eq!(one.integer("span_us"), SECOND, "{one:?}");
        let truth = moved(at, at + SECOND);
        figures.push((format!("second {at}"), one.number("bytes"), truth));
    }
    for (what, reported, truth) in figures {
        timing!(
            (reported / truth - 1.0).abs() <= TOLERANCE,
            "{phase}: {what}: {reported:.1} reported, {truth:.1} in truth; {step:?}"
        );
    }
    timing!(step.integer("zero_seconds") == 0, "{step:?}");
    Ok(())
}
