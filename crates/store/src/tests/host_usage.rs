//! Figures of hosts and disks: they are computed from two samples within the step and the time between those two, and
//! never exceed the possible maximum.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{Mesh, S, T0, batch, interval, new_step, task_end};
use crate::ingest::batch::{DiskSample, NetSample};
use crate::rows::StepChange;
use benchmesh_model::figures::{DiskFigures, Figures, NetFigures};
use benchmesh_model::mesh::MeshMicros;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rusqlite::Connection;
use sqlx::Row;

fn disk(at: i64, name: &str, bytes: i64, busy_us: i64) -> DiskSample {
    DiskSample {
        at: MeshMicros(at),
        disk: name.to_owned(),
        stacked: name.starts_with("loop"),
        figures: DiskFigures {
            read_bytes: bytes,
            write_bytes: bytes,
            busy_us,
            ..DiskFigures::from_values(std::iter::repeat(0))
        },
    }
}

/// A step of 8 ms whose disks were also sampled by the periodic sampler: bytes moved in a tenth of a second are not
/// the step's rate.
#[tokio::test]
async fn what_a_short_step_moved_is_divided_by_the_time_of_its_samples() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mesh.begun(step).await;
    let mut one = batch("s", 1);
    let mut short = interval(tasks[0], T0, "create", 100, 1000);
    short.span_us = 8_000;
    one.op_intervals = vec![short];
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 8_000)];
    let mib = 1 << 20;
    for (at, moved, busy) in [
        (T0 - 90_000, 0, 0),
        (T0 + 100, 400, 60_000),
        (T0 + 9_000, 404, 64_000),
        (T0 + 95_000, 900, 120_000),
    ] {
        let mut host = super::host_sample(at);
        host.figures.user_us = busy * 4;
        host.figures.idle_us = at - T0 + S;
        one.host_samples.push(host);
        one.disk_samples
            .push(disk(at + 50, "vda", moved * mib, busy));
        one.disk_samples
            .push(disk(at + 50, "loop0", moved * mib, busy));
    }
    super::send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 8_000).await;
    let row = sqlx::query("SELECT * FROM v_host_usage")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    let figure = |column: &str| row.get::<Option<f64>, _>(column);
    // 4 MiB in 8.9 ms. The disk counts, and not also the loop device on it.
    let written = figure("disk_written_mib_per_s").unwrap();
    assert!((written - 4.0 / 0.0089).abs() < 0.01, "{written}");
    assert_eq!(figure("sampled_s"), Some(0.0089));
    for column in [
        "user_percent",
        "busy_percent",
        "busiest_disk_percent",
        "user_s",
    ] {
        assert_eq!(
            figure(column),
            None,
            "{column}: ticks of 10 ms tell nothing of 9 ms"
        );
    }
}

/// Two samples of a disk and an interface 10 ms apart, at the end of a step, and the periodic one a second later.
#[tokio::test]
async fn a_fragment_of_the_timeline_has_no_rate() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mesh.begun(step).await;
    let mut one = batch("s", 1);
    one.op_intervals = vec![
        interval(tasks[0], T0, "create", 100, 1000),
        interval(tasks[0], T0 + S, "create", 1, 1000),
    ];
    one.task_ends = vec![task_end(tasks[0], 100, T0 + S + 10_000)];
    let mib = 1 << 20;
    for (at, moved) in [(T0, 0), (T0 + S, 20), (T0 + S + 10_000, 77)] {
        let mut host = super::host_sample(at);
        host.figures.idle_us = at - T0 + S;
        one.host_samples.push(host);
        one.disk_samples.push(disk(at, "vda", moved * mib, 0));
        one.net_samples.push(net(at, moved * mib));
    }
    super::send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + S + 10_000).await;
    type Span = (String, f64, i64, Option<f64>, Option<f64>);
    let rows: Vec<Span> = sqlx::query_as(
        "SELECT kind, span_s, at_us, busy_percent, in_mib_per_s FROM v_host_timeline ORDER BY kind, at_us",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let row = |kind: &str, busy: Option<f64>, rate: Option<f64>| {
        let kind = kind.to_owned();
        [
            (kind.clone(), 1.0, T0 + S, busy, rate),
            (kind, 0.01, T0 + S + 10_000, None, None),
        ]
    };
    let expected = [
        row("cpu", Some(0.0), None),
        row("disk", Some(0.0), Some(20.0)),
        row("interface", None, Some(20.0)),
    ];
    assert_eq!(rows, expected.concat());
}

/// The values of all columns of the query's rows, except NULL.
fn highest(file: &Connection, sql: &str) -> Vec<f64> {
    let mut statement = file.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut all = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        all.extend((0..columns).filter_map(|column| row.get::<_, Option<f64>>(column).unwrap()));
    }
    all
}

const SETUP: &str = "
    INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
    VALUES (1, 'b', 'p', 'h', 'k', 3, 1);
    INSERT INTO disks (id, host_id, name) VALUES (1, 1, 'vda');
    INSERT INTO interfaces (id, host_id, net_namespace, name) VALUES (1, 1, 'n', 'eth0');
    INSERT INTO runs (id, uid, name, plan, state, created_us, started_us, version)
    VALUES (1, 'u', 'r', '', 'done', 0, 0, '0');
    INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, workload, mode, clients, cache, state, start_us,
        last_done_us, ended_us) VALUES (1, 1, 0, 1, 'p', 'c', 'io', 'read', 1, 'asis', 'done', 10000000, 10000000,
        99000000);";

/// For any length of the step, any instants of its samples, and any counters of a host: a share is between 0 and 100
/// %, and a rate is the difference between two samples divided by the time between them.
#[test]
fn no_share_is_above_all_of_it() {
    let mesh = tempfile::tempdir().unwrap();
    let path = mesh.path().join("mesh.db");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        crate::Store::open(&path).await.unwrap().close().await;
    });
    let file = Connection::open(&path).unwrap();
    file.execute_batch(SETUP).unwrap();
    let step = 1_000_i64..3_000_000;
    let samples = prop::collection::vec(
        (1_i64..1_500_000, 0_i64..9_000_000, 0_i64..4_000_000),
        2..12,
    );
    TestRunner::default()
        .run(&(step, samples), |(length, samples)| {
            let change = file.unchecked_transaction().unwrap();
            change.execute("UPDATE steps SET last_done_us = start_us + ?", [length]).unwrap();
            let (mut at, mut used, mut busy) = (9_500_000_i64, 0_i64, 0_i64);
            for (distance, cpu, disk) in samples {
                (at, used, busy) = (at + distance, used + cpu, busy + disk);
                change
                    .execute(
                        "INSERT INTO host_samples (host_id, at_us, user_us, nice_us, system_us, idle_us, iowait_us,
                             irq_us, softirq_us, steal_us, memory_total_bytes, memory_available_bytes,
                             memory_free_bytes, cached_bytes, dirty_bytes, writeback_bytes, swap_used_bytes, load1)
                         VALUES (1, ?1, ?2, ?2 / 5, ?2 / 3, ?3, ?2 / 7, 0, ?2 / 9, 0, 1, 1, 1, 1, 1, 1, 1, 0)",
                        [at, used, busy],
                    )
                    .unwrap();
                change
                    .execute(
                        "INSERT INTO disk_samples VALUES (1, ?1, 0, ?2, 0, 0, ?2, 0, 0, ?2, 0, 0, 0)",
                        [at + 7, busy],
                    )
                    .unwrap();
                change
                    .execute("INSERT INTO net_samples VALUES (1, ?1, ?2, 0, 0, 0, ?2, 0, 0, 0)", [at + 9, used])
                    .unwrap();
            }
            let shares = [
                "SELECT user_percent, system_percent, iowait_percent, steal_percent, busy_percent, \
                 busiest_disk_percent FROM v_host_usage",
                "SELECT user_percent, system_percent, iowait_percent, busy_percent FROM v_host_timeline",
            ];
            for sql in shares {
                for share in highest(&change, sql) {
                    prop_assert!((0.0..=100.000_001).contains(&share), "{share} of {sql}");
                }
            }
            // Between two samples, the counters of a disk grow by at most the bytes of 4 s.
            let fastest = highest(&change, "
                SELECT max((u.read_bytes - f.read_bytes) * 1e6 / (u.at_us - f.at_us)) / 1048576.0
                FROM disk_samples AS f JOIN disk_samples AS u ON u.at_us > f.at_us");
            for rate in highest(&change, "SELECT disk_read_mib_per_s FROM v_host_usage") {
                prop_assert!(rate <= fastest[0] * 1.000_001, "{rate} of {fastest:?}");
            }
            let rated = highest(&change, "
                SELECT span_s FROM v_host_timeline
                WHERE coalesce(busy_percent, in_mib_per_s, out_mib_per_s) IS NOT NULL");
            for span_s in rated {
                prop_assert!(span_s >= 0.1, "a fragment of {span_s} s has a share or a rate");
            }
            change.rollback().unwrap();
            Ok(())
        })
        .unwrap();
}

fn net(at: i64, received: i64) -> NetSample {
    NetSample {
        at: MeshMicros(at),
        interface: "eth0".to_owned(),
        figures: NetFigures {
            rx_bytes: received,
            tx_bytes: received / 100,
            ..NetFigures::from_values(std::iter::repeat(0))
        },
    }
}

/// Records how the agent found the step's target mounted.
fn mounted(mesh: &Mesh, run: i64, agent: i64, host: i64, step: i64, mount: (&str, &str)) {
    let file = Connection::open(mesh.path()).unwrap();
    file.execute(
        "INSERT INTO run_agents (run_id, agent_id, host_id, name, host, version, kernel, cpus, memory_bytes)
         VALUES (?, ?, ?, 'a', 'h', '1', 'k', 1, 1)",
        [run, agent, host],
    )
    .unwrap();
    file.execute(
        "INSERT INTO run_targets (run_id, agent_id, target, system, path, mount_type, mount_source)
         SELECT ?1, ?2, target, 'x', '/mnt', ?3, ?4 FROM steps WHERE id = ?5",
        rusqlite::params![run, agent, mount.0, mount.1, step],
    )
    .unwrap();
}

/// A step of 4 s that reads 1.6 MB/s from a target with this mount, on a host that received the given number of bytes
/// from it.
async fn read_of(
    mount: (&str, &str),
    cache: &str,
    came: [i64; 2],
) -> (String, Option<f64>, Option<String>) {
    let mesh = Mesh::new().await;
    let (publisher, agent, host) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let mut planned = new_step(0, "files", "read");
    planned.cache = cache.to_owned();
    let (step, tasks) = mesh.step(run, planned, &[agent]).await;
    mounted(&mesh, run.0, agent.0, host.0, step.0, mount);
    let change = StepChange {
        state: benchmesh_model::mesh::StepState::Running,
        at: MeshMicros(T0),
        start: Some(MeshMicros(T0)),
        ended: None,
        reason: None,
    };
    mesh.store.set_step_state(step, change).await.unwrap();
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "read", 100, 1000))
        .collect();
    let read: i64 = one.op_intervals.iter().map(|one| one.bytes).sum();
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    for (at, share) in [(T0 - S, 0), (T0, 0), (T0 + 4 * S, 100), (T0 + 5 * S, 100)] {
        one.net_samples
            .push(net(at, read * share / 100 * came[0] / 100));
        one.disk_samples
            .push(disk(at, "vda", read * share / 100 * came[1] / 100, 0));
    }
    super::send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    sqlx::query_as(
        "SELECT s.flags, t.cached_percent, t.not_judged FROM v_traffic AS t \
        JOIN steps AS s ON s.id = t.step_id",
    )
    .fetch_one(mesh.store.reader())
    .await
    .unwrap()
}

/// The flags of a step of 4 s that writes 80 MB to a target with this mount, on a host whose disks wrote, and whose
/// interfaces sent, this share of it in percent.
async fn write_of(mount: (&str, &str), left: i64) -> String {
    let mesh = Mesh::new().await;
    let (publisher, agent, host) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mounted(&mesh, run.0, agent.0, host.0, step.0, mount);
    let running = StepChange {
        state: benchmesh_model::mesh::StepState::Running,
        at: MeshMicros(T0),
        start: Some(MeshMicros(T0)),
        ended: None,
        reason: None,
    };
    mesh.store.set_step_state(step, running).await.unwrap();
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
        .collect();
    for interval in &mut one.op_intervals {
        interval.bytes = 20_000_000;
    }
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    for (at, share) in [(T0 - S, 0), (T0, 0), (T0 + 4 * S, left), (T0 + 5 * S, left)] {
        let bytes = 80_000_000 * share / 100;
        // What `net` sends is a hundredth of what it receives.
        one.net_samples.push(net(at, 100 * bytes));
        one.disk_samples.push(disk(at, "vda", bytes, 0));
        one.disk_samples.push(disk(at, "loop3", bytes, 0));
    }
    super::send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    sqlx::query_scalar("SELECT flags FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_one(mesh.store.reader())
        .await
        .unwrap()
}

#[tokio::test]
async fn writes_that_did_not_leave_the_host_are_cached() {
    for (mount, left, cached) in [
        (("ext4", "/dev/vda1"), 0, true),
        (("ext4", "/dev/vda1"), 60, true),
        (("ext4", "/dev/vda1"), 101, false),
        (("nfs4", "server:/x"), 2, true),
        (("nfs4", "server:/x"), 103, false),
        (("ext4", "/dev/loop3"), 1, true),
        (("tmpfs", "tmpfs"), 0, false),
    ] {
        let flags = write_of(mount, left).await;
        assert_eq!(
            flags.contains("write-cached"),
            cached,
            "{mount:?} {left}: {flags}"
        );
    }
}

#[tokio::test]
async fn a_read_of_which_the_host_received_nothing_is_cached() {
    const FUSE: (&str, &str) = ("fuse.ceph-fuse", "ceph-fuse");
    for (mount, cache, came, suspect, percent) in [
        (FUSE, "cold", [0, 0], true, Some(100.0)),
        (FUSE, "cold", [103, 0], false, Some(0.0)),
        (FUSE, "cold", [60, 100], true, Some(40.0)),
        (FUSE, "warm", [0, 0], false, Some(100.0)),
        (("ext4", "/dev/vda1"), "asis", [0, 100], false, Some(0.0)),
        (("ext4", "/dev/vda1"), "asis", [0, 0], true, Some(100.0)),
        (("ext4", "/dev/loop3"), "asis", [0, 0], false, None),
        // Somebody else read five times as much.
        (FUSE, "cold", [500, 0], false, None),
        (("ext4", "/dev/vda1"), "asis", [0, 500], false, None),
        (("tmpfs", "tmpfs"), "asis", [0, 0], false, None),
    ] {
        let (flags, cached, not_judged) = read_of(mount, cache, came).await;
        let case = format!("{mount:?} {cache} {came:?}: {flags} {cached:?} {not_judged:?}");
        assert_eq!(flags.contains("cache-suspect"), suspect, "{case}");
        assert_eq!(cached.map(f64::round), percent, "{case}");
        assert_eq!(not_judged.is_some(), percent.is_none(), "{case}");
    }
}
