//! One large file per client on storage of known speed, which differs between clients, so that they end seconds apart.
//! The reported bytes equal the storage's own count, over the window and in each whole second, also in those in which
//! some clients have ended. Tolerance: 5 %.
//!
//! The storage is a FUSE file system that delays each write, with its own log, and a disk that the kernel throttles,
//! with the kernel's counters. Only direct I/O progresses at the speed of the disk.

use crate::needs;
use crate::support::cgroup::DiskThrottle;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::{Meter, bytes_moved};
use crate::support::plan;
use benchmesh_testing::{TimingError, measured, timing};
use std::time::Duration;

const TOLERANCE: f64 = 0.05;
const SECOND: i64 = 1_000_000;
/// For each of the three clients: the duration of each write of 64 KiB. Their files of 32 MiB take at least 6, 7.5 and
/// 9 s.
const DELAYS: [Duration; 3] = [
    Duration::from_micros(12_000),
    Duration::from_micros(15_000),
    Duration::from_micros(18_000),
];
const FILE_BYTES: i64 = 32 << 20;
/// The kernel's limit for each of three clients, written bytes per second. Their files of 1 GiB take 10.7, 12.6 and
/// 14.3 s.
const BYTES_PER_S: [u64; 3] = [100_000_000, 85_000_000, 75_000_000];
const LARGE_BYTES: i64 = 1 << 30;
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
        let moved = |from: i64, until: i64| -> f64 {
            let writes = log
                .iter()
                .filter(|call| call.op == Op::Write && (from..until).contains(&call.ended_us));
            writes.map(|call| call.amount as f64).sum()
        };
        for phase in ["create", "copy"] {
            check(&mesh, (run, phase), FILE_BYTES, moved)?;
        }
        Ok(())
    });
}

#[test]
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a test are far below 2^52"
)]
fn a_gibibyte_per_client_on_a_throttled_disk_is_reported_as_the_disk_moved_it() {
    needs!("root", "tmpfs", "loop", "ext4", "cgroup");
    measured(|| {
        let fs = Mounted::on_memory_loop("ext4", (3 << 30) + (512 << 20));
        // A sparse file takes no memory.
        let sources = Mounted::tmpfs(1 << 20);
        let source = sources.path().join("large");
        let file = std::fs::File::create(&source).unwrap();
        file.set_len(LARGE_BYTES as u64).unwrap();
        let throttles = BYTES_PER_S.map(|speed| DiskThrottle::new(&fs.device_number(), speed));
        let mut mesh = Mesh::start();
        for (name, throttle) in ["a", "b", "c"].into_iter().zip(&throttles) {
            let agent = Agent::named(name).allow(&fs.path());
            mesh.add(agent.allow_read(&sources.path()));
            throttle.take(mesh.agent(name).pid());
        }
        let plan = format!(
            r#"
            [targets.slow]
            system = "ext4"
            path = "{}"
            [[phase]]
            name = "copy"
            workload = "copy"
            modes = ["in"]
            from = "{}"
            way = "direct"
            "#,
            fs.path().display(),
            source.display()
        );
        let (run, meter) = Meter::during(|| bytes_moved(&fs.device_name()), || mesh.run(&plan));
        let moved = |from: i64, until: i64| meter.rate(from, until) * (until - from) as f64 / 1e6;
        check(&mesh, (run, "copy"), LARGE_BYTES, moved)
    });
}

/// Bytes per second of a limit, of which a file takes four seconds.
const LIMIT: f64 = 40.0 * 1_048_576.0;
const LIMITED_BYTES: i64 = 160 << 20;

/// One large file is let through evenly: in each whole second the device's own counter shows the rate of the agent's
/// policy or of the plan, and so do the stored seconds. Tolerance: a chunk, a sixteenth of a second's bytes.
#[test]
fn one_large_copy_keeps_a_policy_s_limit_and_a_plan_s_rate_in_each_second() {
    needs!("root", "tmpfs", "loop", "ext4");
    for (options, keys) in [(&["--rate=40m"][..], ""), (&[], "rate = \"40m\"")] {
        measured(|| held_back(options, keys));
    }
}

fn held_back(options: &[&str], keys: &str) -> Result<(), TimingError> {
    let fs = Mounted::on_memory_loop("ext4", 256 << 20);
    let sources = Mounted::tmpfs(1 << 20);
    let source = sources.path().join("large");
    let file = std::fs::File::create(&source).unwrap();
    file.set_len(LIMITED_BYTES as u64).unwrap();
    let mut mesh = Mesh::start();
    let mut agent = Agent::named("a")
        .allow(&fs.path())
        .allow_read(&sources.path());
    for option in options {
        agent = agent.argument(option);
    }
    mesh.add(agent);
    let plan = format!(
        r#"
        [targets.t]
        system = "ext4"
        path = "{}"
        [[phase]]
        workload = "copy"
        modes = ["in"]
        from = "{}"
        way = "direct"
        {keys}
        "#,
        fs.path().display(),
        source.display()
    );
    let (run, meter) = Meter::during(|| bytes_moved(&fs.device_name()), || mesh.run(&plan));
    let seconds = mesh.db().rows(&format!(
        "SELECT i.at_us, i.bytes FROM step_intervals i JOIN steps s ON s.id = i.step_id
         WHERE s.run_id = {run} AND i.op = 'copy' AND i.bytes > 0 AND i.span_us = {SECOND} ORDER BY i.at_us"
    ));
    assert!(seconds.len() >= 3, "{seconds:?}");
    for second in seconds.iter().take(3) {
        let at = second.integer("at_us");
        let counted = meter.rate(at, at + SECOND);
        for (what, bytes) in [("counted", counted), ("stored", second.number("bytes"))] {
            timing!(
                (bytes / LIMIT - 1.0).abs() <= 1.0 / 14.0,
                "{options:?} {keys}: {bytes} bytes {what} in the second at {at}"
            );
        }
    }
    let zero: i64 = mesh.db().one(&format!(
        "SELECT max(r.zero_seconds) FROM step_results r JOIN steps s ON s.id = r.step_id WHERE s.run_id = {run}"
    ));
    assert_eq!(zero, 0);
    Ok(())
}

/// Compares the phase's stored figures with the storage's: `moved` returns the bytes between two instants.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of a test are far below 2^52"
)]
fn check(
    mesh: &Mesh,
    (run, phase): (i64, &str),
    file_bytes: i64,
    moved: impl Fn(i64, i64) -> f64,
) -> Result<(), TimingError> {
    let db = mesh.db();
    let step = &db.rows(&format!(
        "SELECT r.headline, r.ops, r.bytes, r.bytes_per_s, r.window_ops, r.zero_seconds, s.id, s.flags,
                s.all_active_from_us, s.all_active_until_us
         FROM step_results r JOIN steps s ON s.id = r.step_id
         WHERE s.run_id = {run} AND s.phase = '{phase}' AND r.bytes > 0"
    ))[0];
    assert_eq!(
        (step.integer("ops"), step.integer("bytes")),
        (3, 3 * file_bytes),
        "{step:?}"
    );
    assert_eq!(step.text("headline"), "window", "{step:?}");
    assert!(!step.text("flags").contains("undated"), "{step:?}");
    let from = step.integer("all_active_from_us");
    let until = step.integer("all_active_until_us");
    let of_window = moved(from, until);
    let mut figures = vec![
        (
            "bytes/s".to_owned(),
            step.number("bytes_per_s"),
            of_window * 1e6 / (until - from) as f64,
        ),
        (
            "files".to_owned(),
            step.number("window_ops"),
            of_window / file_bytes as f64,
        ),
    ];
    let timeline = db.rows(&format!(
        "SELECT at_us, bytes FROM step_intervals
         WHERE step_id = {} AND bytes > 0 AND span_us = {SECOND} ORDER BY at_us",
        step.integer("id")
    ));
    let last = timeline.last().map_or(0, |one| one.integer("at_us"));
    assert!(
        timeline.len() >= 5 && last >= until,
        "none after the first client's end: {timeline:?}"
    );
    for one in timeline {
        let at = one.integer("at_us");
        let truth = moved(at, at + SECOND);
        figures.push((format!("second {at}"), one.number("bytes"), truth));
    }
    for (what, reported, truth) in figures {
        timing!(
            (reported / truth - 1.0).abs() <= TOLERANCE,
            "{phase}: {what}: {reported:.1} reported, {truth:.1} in truth; {step:?}"
        );
    }
    assert_eq!(step.integer("zero_seconds"), 0, "{step:?}");
    Ok(())
}
