//! A disk of known speed: a loop device that the kernel throttles to 20 MB/s, direct I/O. Tolerance: 3 %.
//!
//! The throttle is the only limit by design: the device's image is in memory, and eight workers keep blocks waiting at it
//! however late one of them gets a CPU. What it lets through at once after a rest has passed before the window opens
//! (`ramp_time`). The kernel's own count of the device, read by the test, says that it was so.

use crate::needs;
use crate::support::cgroup::DiskThrottle;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::{Meter, bytes_moved};
use benchmesh_testing::{TimingError, measured, timing};

const BYTES_PER_S: u64 = 20_000_000;
const TOLERANCE: f64 = 0.03;
/// How near the device itself must have been to its speed.
const AT_SPEED: f64 = 0.015;

#[test]
fn a_throttled_disk_is_reported_as_fast_as_it_is() {
    needs!("root", "loop", "ext4", "cgroup");
    measured(|| {
        let fs = Mounted::on_memory_loop("ext4", 256 << 20);
        let throttle = DiskThrottle::new(&fs.device_number(), BYTES_PER_S);
        let mut mesh = Mesh::start();
        mesh.add(Agent::named("a").allow(&fs.path()));
        throttle.take(mesh.agent("a").pid());
        for mode in ["rewrite", "read", "randread"] {
            check(&mesh, &fs, mode)?;
        }
        Ok(())
    });
}

fn check(mesh: &Mesh, fs: &Mounted, mode: &str) -> Result<(), TimingError> {
    let plan = format!(
        r#"
        [targets.slow]
        system = "ext4"
        path = "{}"
        [[phase]]
        workload = "io"
        size = "8m"
        bs = "128k"
        numjobs = 8
        direct = true
        ramp_time = "2s"
        runtime = "8s"
        modes = ["{mode}"]
        "#,
        fs.path().display()
    );
    let (run, meter) = Meter::during(|| bytes_moved(&fs.device_name()), || mesh.run(&plan));
    let db = mesh.db();
    let row = &db.rows(&format!(
        "SELECT v.mib_per_s, s.all_active_from_us, s.all_active_until_us FROM v_results v
         JOIN steps s ON s.id = v.step_id WHERE v.run_id = {run}"
    ))[0];
    let reported = row.number("mib_per_s") * f64::from(1 << 20);
    let counted = meter.rate(
        row.integer("all_active_from_us"),
        row.integer("all_active_until_us"),
    );
    let off = reported / counted - 1.0;
    timing!(
        off.abs() <= TOLERANCE,
        "{mode}: {reported} bytes/s reported, the kernel counted {counted}"
    );
    let speed = 20e6;
    timing!(
        (counted / speed - 1.0).abs() <= AT_SPEED,
        "{mode}: the kernel let {counted} bytes/s through a device of {BYTES_PER_S}"
    );
    timing!(
        (reported / speed - 1.0).abs() <= TOLERANCE,
        "{mode}: {reported} bytes/s reported of a device that does {BYTES_PER_S}"
    );
    Ok(())
}
