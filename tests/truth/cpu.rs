//! CPU of a daemon, through the whole product: a process that burns a part of a CPU is found by its name and queried
//! from `v_daemon_usage`. The reference is the kernel's scheduler statistics of that process, read by the test.
//! Tolerance: 1 percentage point.

use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::Meter;
use crate::support::process::Process;
use benchmesh_testing::{measured, timing};
use std::path::Path;
use std::process::Command;

const TOLERANCE_POINTS: f64 = 1.0;

/// Burns about 35 % of a CPU: works 35 ms by the clock, rests 65 ms.
const BURNER: &str = r#"
exec 3<> <(:)
while :; do
    until=$((${EPOCHREALTIME/[.,]/} + 35000))
    while ((${EPOCHREALTIME/[.,]/} < until)); do :; done
    read -t 0.065 -u 3
done
"#;

#[test]
fn a_daemons_cpu_is_what_the_kernel_says() {
    measured(|| {
        let directory = tempfile::Builder::new()
            .prefix("bm-cpu-")
            .tempdir()
            .unwrap();
        // The kernel names a process after the executed file, so this bash appears as a ceph-osd.
        let osd = directory.path().join("ceph-osd");
        std::os::unix::fs::symlink("/bin/bash", &osd).unwrap();
        let script = directory.path().join("burner");
        std::fs::write(&script, BURNER).unwrap();
        let mut mesh = Mesh::start();
        mesh.add(Agent::named("a"));
        let mut command = Command::new(&osd);
        command
            .arg(&script)
            .args(["--cluster", "ceph", "--id", "7"]);
        let burner = Process::start("burner", command, &directory.path().join("log"));
        let schedstat = format!("/proc/{}/schedstat", burner.pid());
        let (run, meter) = Meter::during(
            || cpu_ns(Path::new(&schedstat)),
            || {
                mesh.run(
                    r#"
                [[phase]]
                workload = "null"
                runtime = "10s"
                settle = "2s"
                "#,
                )
            },
        );
        let db = mesh.db();
        let step = &db.rows(&format!(
            "SELECT id, start_us, max(t.ended_us) AS until_us FROM steps s
         JOIN (SELECT step_id, ended_us FROM tasks) t ON t.step_id = s.id WHERE run_id = {run}"
        ))[0];
        let ns_per_s = meter.rate(step.integer("start_us"), step.integer("until_us"));
        let truth = ns_per_s / 1e7;
        let usage = db.rows(&format!(
            "SELECT * FROM v_daemon_usage WHERE step_id = {} AND name = 'ceph-osd'",
            step.integer("id")
        ));
        assert_eq!(usage.len(), 1, "{usage:?}");
        assert_eq!(usage[0].text("instance"), "osd.7");
        let reported = usage[0].number("cpu_percent");
        timing!(truth > 5.0, "the burner burns: {truth}");
        timing!(
            (reported - truth).abs() <= TOLERANCE_POINTS,
            "reported {reported} %, the kernel says {truth} %"
        );
        Ok(())
    });
}

fn cpu_ns(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}
