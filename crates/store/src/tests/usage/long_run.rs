//! The time it takes to read usage and cost of a long run.
#![expect(
    clippy::print_stderr,
    reason = "the measured time stands in the test's output"
)]

use crate::tests::Mesh;
use benchmesh_testing::{TimingError, measured, timing};

/// 400 steps and 200 daemons: 80,000 rows of usage.
const LARGE: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
        INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
        SELECT i, 'b' || i, 'p', 'host' || i, 'Linux', 8, 1 << 33 FROM n;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
        INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us)
        SELECT i, 1 + i % 20, 'ceph-osd', 'osd.' || i, 1000 + i, 5, 'ceph-osd', 0, 5000000000 FROM n;
    INSERT INTO runs (id, uid, name, plan, state, created_us, started_us, version)
        VALUES (1, 'u', 'r', '', 'done', 0, 0, '0');
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
        INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, target, system, workload, mode, clients, cache, state,
            start_us, measured_from_us, last_done_us, ended_us)
        SELECT i, 1, i, 1, 'p', 'c', 't', 'cephfs', 'io', 'read', 3, 'asis', 'done',
            i * 10000000, i * 10000000, i * 10000000 + 9000000, i * 10000000 + 9500000 FROM n;
    INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, saturated)
        SELECT id, 'read', 3, 1000, 4096000, 0, 'window', 0 FROM steps;
    INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, cpu_user_us, cpu_system_us,
            cpu_error_us, idle_cpu_us, rss_first_bytes, rss_min_bytes, rss_max_bytes, rss_last_bytes,
            rss_peak_bytes, vsz_bytes, read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults,
            major_faults, threads, fds, samples, after_us, after_cpu_us, after_write_bytes, after_idle)
        SELECT s.id, d.id, 1, s.start_us, s.last_done_us, 100000, 50000, 10, 20, 1, 1, 1, 1, 1, 1, 5, 5, 1, 1, 1, 1, 4,
               10, 9, 0, 0, 0, 1
        FROM steps AS s CROSS JOIN daemons AS d;";

/// Limit: five times the CPU time of reading all columns of `step_daemons` in the same run. Views that compute usage
/// from samples took forty times as long as these, which read `step_daemons`.
#[test]
fn usage_and_cost_of_a_long_run_are_read_within_the_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    measured(|| runtime.block_on(read_usage_and_cost()));
}

async fn read_usage_and_cost() -> Result<(), TimingError> {
    let mesh = Mesh::new().await;
    mesh.store.close().await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    file.execute_batch(LARGE).unwrap();
    let mut baseline = 0;
    for (view, rows) in [
        ("step_daemons", 80_000),
        ("v_daemon_usage", 80_000),
        ("v_cost", 400),
    ] {
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let mut statement = file.prepare(&format!("SELECT * FROM {view}")).unwrap();
        let columns = statement.column_count();
        let mut read = statement.query([]).unwrap();
        let mut found = 0;
        while let Some(row) = read.next().unwrap() {
            for column in 0..columns {
                row.get_ref(column).unwrap();
            }
            found += 1;
        }
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let took =
            (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1_000_000;
        eprintln!("{view}: {found} rows in {took} ms of CPU");
        assert_eq!(found, rows, "{view}");
        if view == "step_daemons" {
            baseline = took;
        }
        timing!(
            took <= 5 * baseline,
            "{view} took {took} ms of CPU, the table {baseline} ms"
        );
    }
    Ok(())
}
