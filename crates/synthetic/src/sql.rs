//! Hosts, daemons and their samples. At second `n` since the beginning, daemon `d` has used
//! `n * (10000 + 3000 * (d % 10))` us of CPU, three quarters of them in user mode, and has 100 + `d % 10` MiB resident;
//! the last daemon of each host grows by 1 KiB per second. Host `h` is busy `n * 100000 * (h % 5 + 1)` us.

use crate::{Shape, T0_US};
use rusqlite::{Connection, params};

/// Process names, and the prefix of their instances; ten on each host.
const DAEMONS: [(&str, &str); 10] = [
    ("ceph-osd", "osd."),
    ("ceph-osd", "osd."),
    ("ceph-osd", "osd."),
    ("ceph-osd", "osd."),
    ("ceph-mon", "mon."),
    ("ceph-mgr", "mgr."),
    ("glusterfsd", "/bricks/b"),
    ("glusterfsd", "/bricks/b"),
    ("glusterd", ""),
    ("glusterfsd", "/bricks/b"),
];

pub(crate) fn hosts(file: &Connection, shape: &Shape) -> rusqlite::Result<()> {
    file.execute_batch("CREATE TEMP TABLE seconds (n INTEGER PRIMARY KEY)")?;
    // A sample at the start and at the end of everything.
    file.execute(
        "INSERT INTO seconds WITH RECURSIVE c (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < ?)
         SELECT n FROM c",
        [shape.seconds()],
    )?;
    let until_us = T0_US + i64::from(shape.seconds()) * 1_000_000;
    for host in 1..=shape.hosts {
        let role = if host <= shape.clients {
            "client"
        } else {
            "storage"
        };
        file.execute(
            "INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
             VALUES (?1, 'boot-' || ?1, 'pid', 'node' || ?1, 'Linux 6.18.0', 8, 34359738368)",
            [host],
        )?;
        file.execute(
            "INSERT INTO agents (id, uid, name, host_id, labels, version, first_seen_us, last_seen_us)
             VALUES (?1, 'agent-' || ?1, 'node' || ?1, ?1, json_object('role', ?2), '0.1.0', ?3, ?4)",
            params![host, role, T0_US, until_us],
        )?;
        file.execute(
            "INSERT INTO disks (id, host_id, name) VALUES (?1, ?1, 'sda')",
            [host],
        )?;
        file.execute(
            "INSERT INTO interfaces (id, host_id, net_namespace, name) VALUES (?1, ?1, 'net', 'eth0')",
            [host],
        )?;
        for (place, (name, instance)) in (0..shape.daemons_per_host).zip(DAEMONS.iter().cycle()) {
            let id = (host - 1) * shape.daemons_per_host + place;
            let instance = match *instance {
                "" => None,
                prefix => Some(format!("{prefix}{id}")),
            };
            file.execute(
                "INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, first_seen_us, last_seen_us)
                 VALUES (?1 + 1, ?2, ?3, ?4, 1000 + ?1, 1, ?5, ?6)",
                params![id, host, name, instance, T0_US, until_us],
            )?;
        }
    }
    Ok(())
}

pub(crate) fn samples(file: &Connection) -> rusqlite::Result<()> {
    file.execute_batch(&format!(
        "INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes, threads, fds,
             read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults, major_faults)
         SELECT d.id, {T0_US} + s.n * 1000000, s.n * (7500 + 2250 * (d.id % 10)), s.n * (2500 + 750 * (d.id % 10)),
                (100 + d.id % 10) * 1048576 + iif(d.id % 10 = 0, s.n * 1024, 0), 800000000, 60, 300,
                s.n * 40960, s.n * 81920, s.n * 400, s.n * 5, s.n * 90, s.n / 60
         FROM daemons AS d CROSS JOIN seconds AS s;
         INSERT INTO host_samples (host_id, at_us, user_us, nice_us, system_us, idle_us, iowait_us, irq_us, softirq_us,
             steal_us, memory_total_bytes, memory_available_bytes, memory_free_bytes, cached_bytes, dirty_bytes,
             writeback_bytes, swap_used_bytes, load1, cpu_some_us, io_some_us, io_full_us, memory_some_us, memory_full_us)
         SELECT h.id, {T0_US} + s.n * 1000000, s.n * 60000 * (h.id % 5 + 1), 0, s.n * 40000 * (h.id % 5 + 1),
                s.n * (7900000 - 100000 * (h.id % 5 + 1)), s.n * 100000, 0, 0, 0, 34359738368, 30000000000, 20000000000,
                8000000000, 1000000, 0, 0, 1.5, s.n * 1000, s.n * 2000, s.n * 1000, 0, 0
         FROM hosts AS h CROSS JOIN seconds AS s;
         INSERT INTO disk_samples (disk_id, at_us, reads, read_bytes, read_us, writes, write_bytes, write_us, in_flight,
             busy_us, queue_us, discards, flushes)
         SELECT k.id, {T0_US} + s.n * 1000000, s.n * 100, s.n * 1048576, s.n * 20000, s.n * 200, s.n * 2097152, s.n * 40000,
                1, s.n * 50000 * (k.id % 12 + 1), s.n * 60000, 0, s.n
         FROM disks AS k CROSS JOIN seconds AS s;
         INSERT INTO net_samples (interface_id, at_us, rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets,
             tx_errors, tx_dropped)
         SELECT i.id, {T0_US} + s.n * 1000000, s.n * 10485760, s.n * 8000, 0, 0, s.n * 5242880, s.n * 4000, 0, 0
         FROM interfaces AS i CROSS JOIN seconds AS s;
         INSERT INTO clock_offsets (agent_id, at_us, offset_us, error_us, round_trip_us)
         SELECT a.id, {T0_US} + s.n * 1000000, 1200 + a.id, 40, 80 FROM agents AS a CROSS JOIN seconds AS s WHERE s.n % 60 = 0"
    ))
}

/// `step_daemons`, from the samples at each step's start and end.
pub(crate) fn usage(file: &Connection) -> rusqlite::Result<()> {
    file.execute_batch(
        "INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, cpu_user_us, cpu_system_us,
             cpu_error_us, idle_cpu_us, rss_first_bytes, rss_min_bytes, rss_max_bytes, rss_last_bytes, vsz_bytes, read_bytes,
             write_bytes, vol_ctx, invol_ctx, minor_faults, major_faults, threads, fds, samples)
         SELECT s.id, d.id, iif(s.system = 'cephfs', d.name LIKE 'ceph%', s.system = 'glusterfs' AND d.name LIKE 'gluster%'),
                f.at_us, u.at_us,
                u.cpu_user_us - f.cpu_user_us, u.cpu_system_us - f.cpu_system_us, 0, 0, f.rss_bytes, f.rss_bytes,
                u.rss_bytes, u.rss_bytes, u.vsz_bytes, u.read_bytes - f.read_bytes, u.write_bytes - f.write_bytes,
                u.vol_ctx - f.vol_ctx, u.invol_ctx - f.invol_ctx, u.minor_faults - f.minor_faults,
                u.major_faults - f.major_faults, u.threads, u.fds, (u.at_us - f.at_us) / 1000000 + 1
         FROM steps AS s CROSS JOIN daemons AS d
              CROSS JOIN daemon_samples AS f ON f.daemon_id = d.id AND f.at_us = s.start_us
              CROSS JOIN daemon_samples AS u ON u.daemon_id = d.id AND u.at_us = s.last_done_us",
    )
}
