//! A disk of known speed: a loop device that the kernel throttles to 20 MB/s, direct I/O. Tolerance: 3 %.
//!
//! Several workers keep it busy, so that the throttle is the limit even while other programs want the CPU: what a single
//! worker leaves unused between two of its requests is lost to it, and rightly reported so.

use crate::needs;
use crate::support::cgroup::DiskThrottle;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};

const BYTES_PER_S: u64 = 20_000_000;
const TOLERANCE: f64 = 0.03;

#[test]
fn a_throttled_disk_is_reported_as_fast_as_it_is() {
    needs!("root", "loop", "ext4", "cgroup");
    let fs = Mounted::on_loop("ext4", 256 << 20);
    let throttle = DiskThrottle::new(&fs.device_number(), BYTES_PER_S);
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(&fs.path()));
    throttle.take(mesh.agent("a").pid());
    let run = mesh.run(&format!(
        r#"
        [targets.slow]
        system = "ext4"
        path = "{}"
        [[phase]]
        workload = "io"
        size = "16m"
        bs = "128k"
        numjobs = 4
        direct = true
        runtime = "8s"
        settle = "2s"
        modes = ["rewrite", "read", "randread"]
        "#,
        fs.path().display()
    ));
    let db = mesh.db();
    let results = db.rows(&format!(
        "SELECT mode, mib_per_s, flags FROM v_results WHERE run_id = {run}"
    ));
    assert_eq!(results.len(), 3);
    for row in &results {
        let share = row.number("mib_per_s") * f64::from(1 << 20) / 20e6;
        assert!(
            (share - 1.0).abs() <= TOLERANCE,
            "{row:?} is {share} of the device's speed: {:#?}",
            db.rows("SELECT mode, second, mib_per_s, p50_ms, max_ms FROM v_timeline")
        );
    }
    // The kernel's own count of the device over the step agrees with the sampler's.
    let moved: f64 = db.one(&format!(
        "SELECT (max(d.read_bytes) - min(d.read_bytes)) * 1e6 / (max(d.at_us) - min(d.at_us))
         FROM disk_samples d JOIN disks k ON k.id = d.disk_id
         JOIN steps s ON d.at_us BETWEEN s.start_us + 1000000 AND s.start_us + 7500000
         WHERE s.mode = 'read' AND k.name = '{}'",
        fs.device_name()
    ));
    let share = moved / 20e6;
    assert!(
        (share - 1.0).abs() <= TOLERANCE,
        "sampled {share} of the speed"
    );
}
