//! The cost of an incoming batch: decoding and checking it, and committing it.
#![allow(clippy::unwrap_used, missing_docs)]

use benchmesh_model::figures::{DaemonFigures, Figures, columns};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_proto::v1 as proto;
use benchmesh_store::Store;
use benchmesh_store::ingest::Batch;
use benchmesh_store::rows::{NewAgent, NewHost};
use benchmesh_workloads::histogram::Histogram;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use prost::Message;
use std::hint::black_box;

const T0: i64 = 1_750_000_000_000_000;

fn samples(sequence: u64, rows: i32) -> proto::Batch {
    let count = usize::try_from(rows).unwrap();
    let at = T0 + i64::try_from(sequence).unwrap() * 1_000_000;
    let column = |value: i64| vec![value; count];
    let figures = DaemonFigures {
        cpu_user_us: 3_000_000_000,
        cpu_system_us: 900_000_000,
        rss_bytes: 4_294_967_296,
        vsz_bytes: 8_589_934_592,
        threads: 60,
        fds: 300,
        read_bytes: 50_000_000_000,
        write_bytes: 70_000_000_000,
        vol_ctx: 40_000_000,
        invol_ctx: 500_000,
        minor_faults: 9_000_000,
        major_faults: 120,
        ..DaemonFigures::UNREAD
    };
    proto::Batch {
        spool_id: "spool".to_owned(),
        first_sequence: sequence,
        sequence,
        daemons: (0..if sequence == 1 { rows } else { 0 })
            .map(|pid| proto::DaemonSeen {
                pid,
                start_ticks: 7,
                name: "ceph-osd".to_owned(),
                at_us: at,
                ..proto::DaemonSeen::default()
            })
            .collect(),
        daemon_samples: Some(proto::DaemonSamples {
            pid: (0..rows).collect(),
            start_ticks: vec![7; count],
            at_us: column(at),
            figures: columns(std::iter::repeat_n(figures, count))
                .into_iter()
                .map(Into::into)
                .collect(),
        }),
        ..proto::Batch::default()
    }
}

fn interval() -> proto::Batch {
    let mut service = Histogram::new();
    for value in 0..10_000_u64 {
        service.record(50_000 + value * value % 1_000_000);
    }
    let blob = service.to_blob();
    proto::Batch {
        spool_id: "spool".to_owned(),
        first_sequence: 1,
        sequence: 1,
        op_intervals: vec![proto::OpInterval {
            task_id: 1,
            at_us: T0,
            span_us: 1_000_000,
            op: "write".to_owned(),
            ramp: false,
            ops: blob.count,
            bytes: blob.count * 4096,
            undated_bytes: 0,
            errors: 0,
            in_flight: 1,
            service: Some(proto::Distribution {
                histogram: blob.v2_deflate,
                count: blob.count,
                sum_ns: blob.sum_ns,
                sum_squares_ns2: blob.sum_squares_ns2,
                min_ns: blob.min_ns,
                max_ns: blob.max_ns,
                saturated: blob.saturated,
            }),
            response: None,
            run_uid: String::new(),
        }],
        ..proto::Batch::default()
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode and check");
    let bytes = samples(2, 100).encode_to_vec();
    group.throughput(Throughput::Elements(100));
    group.bench_function("100 daemon samples", |bencher| {
        bencher.iter(|| {
            let wire = proto::Batch::decode(black_box(bytes.as_slice())).unwrap();
            Batch::try_from(wire).unwrap()
        });
    });
    let bytes = interval().encode_to_vec();
    group.throughput(Throughput::Elements(1));
    group.bench_function("1 interval of operations", |bencher| {
        bencher.iter(|| {
            let wire = proto::Batch::decode(black_box(bytes.as_slice())).unwrap();
            Batch::try_from(wire).unwrap()
        });
    });
    group.finish();
}

fn commit(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("mesh.db");
    let (store, publisher) = runtime.block_on(async {
        let store = Store::open(&path).await.unwrap();
        let agent = NewAgent {
            uid: "uid".to_owned(),
            name: "a".to_owned(),
            host: NewHost {
                boot_id: "boot".to_owned(),
                pid_namespace: "pid".to_owned(),
                name: "host".to_owned(),
                kernel: "Linux".to_owned(),
                cpus: 2,
                memory_bytes: 1,
            },
            labels_json: "{}".to_owned(),
            version: "0".to_owned(),
            may_rename: false,
            describes_host: true,
            at: MeshMicros(T0),
        };
        let (agent, host) = store.attach_agent(agent).await.unwrap();
        let publisher = store.publisher(agent, host, String::new());
        (store, publisher)
    });
    let mut group = criterion.benchmark_group("submit to acknowledgement");
    let mut sequence = 0;
    group.throughput(Throughput::Elements(100));
    group.bench_function("100 daemon samples alone", |bencher| {
        bencher.iter_batched(
            || {
                sequence += 1;
                Batch::try_from(samples(sequence, 100)).unwrap()
            },
            |batch| {
                runtime.block_on(async { publisher.submit(batch).await.unwrap().await.unwrap() })
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
    runtime.block_on(store.close());
}

criterion_group!(benches, decode, commit);
criterion_main!(benches);
