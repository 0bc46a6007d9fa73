//! A disk of known speed: a loop device that the kernel throttles to 20 MB/s, with direct I/O. Tolerance: 3 %. The
//! agent's samples of the device equal the kernel's count within one percent.
//!
//! The throttle is the only limit by design: the device's image is in memory, and eight workers keep blocks queued at
//! it, however late one of them gets a CPU. The burst that it allows after an idle time is over before the window opens
//! (`ramp_time`). The test reads the kernel's own count of the device to confirm it.

use crate::needs;
use crate::support::cgroup::DiskThrottle;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::{Meter, bytes_moved};
use benchmesh_testing::{TimingError, measured, timing};

const BYTES_PER_S: u64 = 20_000_000;
const TOLERANCE: f64 = 0.03;
/// Tolerance of samples of a counter.
const OF_A_COUNTER: f64 = 0.01;
/// Tolerance of the device's own speed.
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
    host_figures(mesh, fs, run, &meter)
}

/// Checks the samples of the device, and the host's figures of the step, which cover the time from its first sample to
/// its last one. The latter include other disks of the host.
fn host_figures(mesh: &Mesh, fs: &Mounted, run: i64, meter: &Meter) -> Result<(), TimingError> {
    let name = fs.device_name();
    let row = &mesh.db().rows(&format!(
        "SELECT min(x.at_us) AS early, max(x.at_us) AS late,
                max(x.read_bytes + x.write_bytes) - min(x.read_bytes + x.write_bytes) AS bytes,
                max(x.busy_us) AS busy_us,
                u.disk_read_mib_per_s + u.disk_written_mib_per_s AS all_moved, u.busiest_disk_percent AS all_busy
         FROM steps s JOIN v_host_usage u ON u.step_id = s.id
         JOIN disks d ON d.host_id = u.host_id AND d.name = '{name}'
         JOIN disk_samples x ON x.disk_id = d.id AND x.at_us BETWEEN s.start_us AND s.ended_us
         WHERE s.run_id = {run}"
    ))[0];
    let (early, late) = (row.integer("early"), row.integer("late"));
    let counted = meter.rate(early, late);
    let sampled = row.number("bytes") * 1e6 / (late - early) as f64;
    timing!(
        (sampled / counted - 1.0).abs() <= OF_A_COUNTER,
        "{sampled} bytes/s sampled, the kernel counted {counted}"
    );
    // Blocks wait in the throttle rather than at the device, which is hardly busy.
    let busy_us = row.integer("busy_us");
    assert!(busy_us <= busy_ms(&name) * 1000, "{row:?}");
    let (moved, busiest) = (row.number("all_moved"), row.number("all_busy"));
    assert!(moved * f64::from(1 << 20) >= sampled * 0.999, "{row:?}");
    assert!((0.0..=100.0).contains(&busiest), "{row:?}");
    Ok(())
}

/// A step of milliseconds is too short for shares of the time, and its rates never exceed the device's.
#[test]
fn a_short_step_says_no_more_of_its_host_than_was_counted() {
    needs!("root", "loop", "ext4");
    let fs = Mounted::on_memory_loop("ext4", 64 << 20);
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(&fs.path()));
    let plan = format!(
        r#"
        repeat = 5
        [targets.quick]
        system = "ext4"
        path = "{}"
        [[phase]]
        workload = "io"
        size = "8m"
        bs = "1m"
        direct = true
        modes = ["write", "read"]
        "#,
        fs.path().display()
    );
    let before = moved_by_all();
    let run = mesh.run(&plan);
    let counted = moved_by_all() - before;
    let db = mesh.db();
    let rows = db.rows(&format!(
        "SELECT u.disk_read_mib_per_s + u.disk_written_mib_per_s AS rate, u.busiest_disk_percent AS busy,
                u.user_percent AS user, (s.ended_us - s.start_us) / 1e6 AS seconds
         FROM v_host_usage u JOIN steps s ON s.id = u.step_id WHERE u.run_id = {run}"
    ));
    assert!(!rows.is_empty());
    for row in rows {
        let seconds = row.number("seconds");
        if !row.is_null("rate") {
            let rate = row.number("rate");
            let most = counted as f64 / f64::from(1 << 20) / seconds;
            assert!(rate <= most, "{rate} MiB/s, of {most} that there can be");
        }
        if seconds < 0.1 {
            assert!(row.is_null("busy") && row.is_null("user"), "{row:?}");
        }
    }
}

/// Bytes moved by all block devices of the host.
fn moved_by_all() -> u64 {
    let devices = std::fs::read_dir("/sys/class/block").unwrap();
    let names = devices.map(|device| device.unwrap().file_name());
    names.map(|name| bytes_moved(name.to_str().unwrap())).sum()
}

/// How long a device has been busy since its creation.
fn busy_ms(device: &str) -> i64 {
    let stat = std::fs::read_to_string(format!("/sys/class/block/{device}/stat")).unwrap();
    stat.split_whitespace().nth(9).unwrap().parse().unwrap()
}
