//! Every value of a batch reaches its own column. Each has a different number, so that a mix-up is detected.

use super::{Mesh, S, T0, batch, new_step, seen, send};
use crate::distribution::Distribution;
use crate::ingest::Batch;
use crate::ingest::batch::{
    AgentEvent, ClockOffset, DaemonSample, DiskSample, ErrorCount, Fact, HostSample, Loss,
    NetSample, OpInterval, TargetSample, TaskEnd,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, HostFigures, NetFigures, TargetFigures,
};
use benchmesh_model::mesh::{LossKind, MeshMicros, RunId, StepId, TaskId, TaskState};
use benchmesh_model::systems::facts::Value;
use benchmesh_workloads::histogram::Histogram;
use sqlx::{Column, Row, TypeInfo, ValueRef};

const AT: MeshMicros = MeshMicros(T0);

/// The only row of a table as text, without its key and references.
async fn row(mesh: &Mesh, table: &str) -> Vec<String> {
    let sql = sqlx::AssertSqlSafe(format!("SELECT * FROM {table}"));
    let row = sqlx::query(sql)
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    row.columns()
        .iter()
        .filter(|column| column.name() != "id" && !column.name().ends_with("_id"))
        .map(|column| {
            let name = column.name();
            let value = row.try_get_raw(name).unwrap();
            let text = match value.type_info().name() {
                _ if value.is_null() => "-".to_owned(),
                "INTEGER" => row.get::<i64, _>(name).to_string(),
                "REAL" => row.get::<f64, _>(name).to_string(),
                "BLOB" => "blob".to_owned(),
                _ => row.get::<String, _>(name),
            };
            format!("{name}={text}")
        })
        .collect()
}

fn telemetry() -> Batch {
    let daemon = seen(1, "ceph-osd", T0);
    let process = daemon.process;
    let mut all = batch("s", 1);
    all.daemons = vec![daemon];
    all.daemon_samples = vec![DaemonSample {
        process,
        at: AT,
        figures: DaemonFigures {
            cpu_user_us: 1,
            cpu_system_us: 2,
            rss_bytes: 3,
            vsz_bytes: 4,
            rss_peak_bytes: 12,
            swap_bytes: 13,
            threads: 5,
            fds: 6,
            read_bytes: -1,
            write_bytes: 8,
            vol_ctx: 9,
            invol_ctx: -1,
            minor_faults: 11,
            major_faults: -1,
        },
    }];
    all.host_samples = vec![HostSample {
        at: AT,
        figures: HostFigures {
            user_us: 1,
            nice_us: 2,
            system_us: 3,
            idle_us: 4,
            iowait_us: 5,
            irq_us: 6,
            softirq_us: 7,
            steal_us: 8,
            memory_total_bytes: 9,
            memory_available_bytes: 10,
            memory_free_bytes: 11,
            cached_bytes: 12,
            dirty_bytes: 13,
            writeback_bytes: 14,
            swap_used_bytes: 15,
            load1: 1650,
            cpu_some_us: 17,
            io_some_us: 18,
            io_full_us: -1,
            memory_some_us: 20,
            memory_full_us: 21,
            skipped_ticks: 22,
            sampler_cpu_us: 23,
        },
        busy_others: Some(r#"{"from_us":1}"#.to_owned()),
    }];
    all.disk_samples = vec![DiskSample {
        at: AT,
        disk: "sda".to_owned(),
        stacked: true,
        figures: DiskFigures {
            reads: 1,
            read_bytes: 2,
            read_us: 3,
            writes: 4,
            write_bytes: 5,
            write_us: 6,
            in_flight: 7,
            busy_us: 8,
            queue_us: 9,
            discards: 10,
            flushes: 11,
        },
    }];
    all.net_samples = vec![NetSample {
        at: AT,
        interface: "eth0".to_owned(),
        figures: NetFigures {
            rx_bytes: 1,
            rx_packets: 2,
            rx_errors: 3,
            rx_dropped: 4,
            tx_bytes: 5,
            tx_packets: 6,
            tx_errors: 7,
            tx_dropped: 8,
        },
    }];
    all.target_samples = vec![TargetSample {
        at: AT,
        target: "/mnt/t".to_owned(),
        nonce: "n".to_owned(),
        device: Some("0:50".to_owned()),
        figures: TargetFigures {
            size_bytes: 1,
            free_bytes: 2,
            files: 3,
            free_files: -1,
        },
    }];
    all.clock_offsets = vec![ClockOffset {
        at: AT,
        offset_us: -1,
        error_us: 2,
        round_trip_us: 3,
    }];
    all.facts = vec![Fact {
        at: AT,
        system: "ceph".to_owned(),
        name: "used_bytes".to_owned(),
        value: Value::Number(9_663_676_416.0),
        unit: Some("bytes".to_owned()),
        run: None,
    }];
    all.losses = vec![Loss {
        what: LossKind::HostSamples,
        rows: 1,
        from: MeshMicros(2),
        until: MeshMicros(3),
    }];
    all
}

#[tokio::test]
async fn samples_land_in_their_columns() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    rusqlite::Connection::open(mesh.path())
        .unwrap()
        .execute(
            "INSERT INTO run_directories (run_id, agent_id, path, nonce, made, free_bytes)
             VALUES (?, ?, '/mnt/t', 'n', 1, 0)",
            [run.0, agent.0],
        )
        .unwrap();
    let mut telemetry = telemetry();
    let stranger = telemetry.target_samples.first().cloned();
    telemetry
        .target_samples
        .extend(stranger.map(|sample| TargetSample {
            nonce: "of no run".to_owned(),
            ..sample
        }));
    send(&publisher, telemetry).await.unwrap();
    assert_eq!(mesh.number("SELECT count(*) FROM targets").await, 1);
    let at = format!("at_us={T0}");
    let expected: [(&str, String); 11] = [
        (
            "daemons",
            format!(
                "name=ceph-osd instance=ceph-osd.1 pid=1 start_ticks=1001 cmdline=/usr/bin/ceph-osd -i 1 first_seen_us={T0} last_seen_us={T0} ended_us=- born_us=- is_parent=0 version=- is_replaced=0"
            ),
        ),
        (
            "daemon_samples",
            format!(
                "{at} cpu_user_us=1 cpu_system_us=2 rss_bytes=3 vsz_bytes=4 threads=5 fds=6 read_bytes=- \
                 write_bytes=8 vol_ctx=9 invol_ctx=- minor_faults=11 major_faults=- rss_peak_bytes=12 swap_bytes=13"
            ),
        ),
        (
            "host_samples",
            format!(
                "{at} user_us=1 nice_us=2 system_us=3 idle_us=4 iowait_us=5 irq_us=6 softirq_us=7 steal_us=8 memory_total_bytes=9 memory_available_bytes=10 memory_free_bytes=11 cached_bytes=12 dirty_bytes=13 writeback_bytes=14 swap_used_bytes=15 load1=16.5 cpu_some_us=17 io_some_us=18 io_full_us=- memory_some_us=20 memory_full_us=21 skipped_ticks=22 sampler_cpu_us=23 busy_others={{\"from_us\":1}}"
            ),
        ),
        (
            "disk_samples",
            format!(
                "{at} reads=1 read_bytes=2 read_us=3 writes=4 write_bytes=5 write_us=6 in_flight=7 busy_us=8 queue_us=9 discards=10 flushes=11"
            ),
        ),
        ("interfaces", "net_namespace=net:1 name=eth0".to_owned()),
        (
            "net_samples",
            format!(
                "{at} rx_bytes=1 rx_packets=2 rx_errors=3 rx_dropped=4 tx_bytes=5 tx_packets=6 tx_errors=7 tx_dropped=8"
            ),
        ),
        ("targets", "path=/mnt/t nonce=n device=0:50".to_owned()),
        (
            "target_samples",
            format!("{at} size_bytes=1 free_bytes=2 files=3 free_files=-"),
        ),
        (
            "clock_offsets",
            format!("{at} offset_us=-1 error_us=2 round_trip_us=3"),
        ),
        (
            "facts",
            format!("system=ceph {at} name=used_bytes value=9663676416 unit=bytes"),
        ),
        (
            "losses",
            "what=host_samples rows=1 from_us=2 until_us=3".to_owned(),
        ),
    ];
    for (table, expected) in expected {
        assert_eq!(row(&mesh, table).await.join(" "), expected, "{table}");
    }
}

fn histogram(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for value in values {
        histogram.record(*value);
    }
    histogram
}

fn work(task: TaskId, run: RunId, step: StepId) -> Batch {
    let mut all = batch("s", 1);
    all.op_intervals = vec![OpInterval {
        task,
        run_uid: String::new(),
        at: AT,
        span_us: S,
        op: "write".to_owned(),
        ramp: true,
        ops: 2,
        bytes: 3,
        undated_bytes: 1,
        errors: 4,
        in_flight: 5,
        service: Distribution::from(&histogram(&[10, 30])),
        response: Some(Distribution::from(&histogram(&[20, 50, 80]))),
    }];
    all.events = vec![AgentEvent {
        at: AT,
        run_uid: String::new(),
        run: Some(run),
        step: Some(step),
        kind: EventKind::Stall.into(),
        message: "it hangs".to_owned(),
        detail_json: Some("{}".to_owned()),
    }];
    all.task_ends = vec![TaskEnd {
        task,
        run_uid: String::new(),
        state: TaskState::Failed,
        workers: 1,
        start: Some(MeshMicros(T0 + 2)),
        skew_us: 3,
        skew_error_us: 4,
        first_done: Some(MeshMicros(T0 + 5)),
        ended: Some(MeshMicros(T0 + 6)),
        last_begun: Some(MeshMicros(T0 + 4)),
        cpu_user_us: Some(7),
        cpu_system_us: Some(8),
        wait_cpu_us: Some(9),
        harness_ns_per_op: 10,
        error: Some("it broke".to_owned()),
        errors: vec![ErrorCount {
            op: "write".to_owned(),
            errno: 28,
            count: 4,
            first: "write x: no space".to_owned(),
        }],
    }];
    all
}

#[tokio::test]
async fn values_of_tasks_land_in_their_columns() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh.step(run, new_step(0, "io", "write"), &[agent]).await;
    send(&publisher, work(tasks[0], run, step)).await.unwrap();
    let expected: [(&str, String); 4] = [
        (
            "op_intervals",
            format!(
                "at_us={T0} span_us=1000000 op=write ramp=1 ops=2 bytes=3 undated_bytes=1 errors=4 in_flight=5 \
                 service_count=2 service_sum_ns=40 service_sum_squares_ns2=1000 service_min_ns=10 service_p50_ns=10 \
                 service_p99_ns=30 service_max_ns=30 \
                 service_saturated=0 service_histogram=blob response_count=3 response_sum_ns=150 \
                 response_sum_squares_ns2=9300 response_min_ns=20 response_p99_ns=80 response_max_ns=80 response_saturated=0 \
                 response_histogram=blob"
            ),
        ),
        (
            "tasks",
            format!(
                "task_index=0 state=failed workers=1 start_us={} skew_us=3 skew_error_us=4 first_done_us={} ended_us={} cpu_user_us=7 cpu_system_us=8 wait_cpu_us=9 harness_ns_per_op=10 error=it broke group_name=- link_bytes_per_s=- last_begun_us={} last_sequence=- part=1 client_index=-",
                T0 + 2,
                T0 + 5,
                T0 + 6,
                T0 + 4
            ),
        ),
        (
            "task_errors",
            "op=write errno=28 errors=4 first=write x: no space".to_owned(),
        ),
        (
            "events",
            format!(
                "at_us={T0} source=agent severity=warning kind=stall message=it hangs detail={{}}"
            ),
        ),
    ];
    for (table, expected) in expected {
        assert_eq!(row(&mesh, table).await.join(" "), expected, "{table}");
    }
}

/// Two parts of one interval under one key: counts, sums and histograms add up, and the widest span is stored.
#[tokio::test]
async fn late_parts_add_up_in_every_column() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh.step(run, new_step(0, "io", "write"), &[agent]).await;
    let first = work(tasks[0], run, step);
    let mut second = work(tasks[0], run, step);
    second.first_sequence = 2;
    second.sequence = 2;
    second.op_intervals[0].span_us = 2 * S;
    second.op_intervals[0].service = Distribution::from(&histogram(&[5, 100]));
    second.op_intervals[0].response = None;
    send(&publisher, first).await.unwrap();
    send(&publisher, second).await.unwrap();
    let expected = format!(
        "at_us={T0} span_us=2000000 op=write ramp=1 ops=4 bytes=6 undated_bytes=2 errors=8 in_flight=5 \
         service_count=4 service_sum_ns=145 service_sum_squares_ns2=11025 service_min_ns=5 service_p50_ns=10 \
         service_p99_ns=100 service_max_ns=100 \
         service_saturated=0 service_histogram=blob response_count=3 response_sum_ns=150 \
         response_sum_squares_ns2=9300 response_min_ns=20 response_p99_ns=80 response_max_ns=80 response_saturated=0 \
         response_histogram=blob"
    );
    assert_eq!(row(&mesh, "op_intervals").await.join(" "), expected);
    let blob: Vec<u8> = sqlx::query_scalar("SELECT service_histogram FROM op_intervals")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    let merged = Histogram::from_v2_deflate(&blob).unwrap();
    assert_eq!(merged.count(), 4);
}
