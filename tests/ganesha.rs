//! A real NFS-Ganesha server, read through libnfs: it is found and named, and its CPU time is charged as the kernel
//! counts it.

use crate::needs;
use crate::support::command::must;
use crate::support::lab::{Lab, check_versions};
use crate::support::mesh::Agent;
use std::time::{Duration, Instant};

/// Duration of the reads from the export.
const READS: Duration = Duration::from_secs(6);
/// The kernel counts user and system time in ticks of 10 ms, with an error at both ends.
const TICKS_S: f64 = 0.04;
const TOLERANCE: f64 = 0.03;

/// CPU time of a process from `/proc/PID/stat`.
fn cpu_s(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // utime and stime, fields 14 and 15.
    let ticks = [fields[11], fields[12]].map(|field| field.parse::<f64>().unwrap());
    ticks.iter().sum::<f64>() / 100.0
}

/// Takes about 20 s.
#[test]
fn a_server_of_ganesha_is_charged_as_the_kernel_counts() {
    needs!("root", "ganesha", "netns");
    let lab = Lab::up("ganesha");
    let mut mesh = lab.mesh();
    let target = tempfile::tempdir().unwrap();
    mesh.add(
        Agent::named("client")
            .label("role=client")
            .allow(target.path()),
    );
    let server = Agent::named("server").label("role=storage");
    mesh.add(server.inside(lab.fact("namespace1")));
    // The run only waits: the reads of the export are the load.
    let mut run = mesh.begin(&format!(
        r#"
        [targets.local]
        system = "local"
        path = "{}"
        [clients]
        select = "role=client"
        [[phase]]
        workload = "io"
        modes = ["randwrite"]
        size = "1m"
        rate_iops = 10
        runtime = "12s"
        "#,
        target.path().display()
    ));
    mesh.until_step_is("randwrite", "running", Duration::from_secs(60));
    mesh.until_stored("the load has begun", "SELECT count(*) FROM op_intervals");
    let pid = lab.fact("pid");
    let (began, before) = (Instant::now(), cpu_s(pid));
    while began.elapsed() < READS {
        must(
            "sh",
            &[
                "-c",
                "exec nfs-cat \"$1\" > /dev/null",
                "sh",
                lab.fact("url"),
            ],
        );
    }
    let used = cpu_s(pid) - before;
    let status = run.exit_within(Duration::from_secs(60));
    assert!(status.unwrap().success(), "{}", run.log());
    let db = mesh.db();
    db.assert_sound();
    check_versions(&mesh, &["ganesha.nfsd"], "nfs-ganesha");
    let found = db.rows(&format!(
        "SELECT d.instance, u.cpu_s FROM v_daemon_usage u JOIN daemons d ON d.id = u.daemon_id
         WHERE d.name = 'ganesha.nfsd' AND d.pid = {pid}"
    ));
    let [row] = &found[..] else {
        panic!("ganesha.nfsd is in one step: {found:?}");
    };
    assert_eq!(row.text("instance"), lab.fact("config"));
    let charged = row.number("cpu_s");
    assert!(used > 0.2, "too little to compare: {used} s");
    assert!(
        (charged - used).abs() <= used * TOLERANCE + TICKS_S,
        "charged {charged} s, the kernel says {used} s"
    );
    mesh.assert_no_complaints();
}
