//! Cost of recording an operation, and of encoding and decoding a histogram.

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use benchmesh_workloads::random::Random;
use benchmesh_workloads::recorder::{Settings, pair};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

/// Typical latencies of a device: around 80 us, with a tail.
fn latencies(count: usize) -> Vec<u64> {
    let mut random = Random::new(1);
    let mut draw = move || {
        let tail = if random.below(100) == 0 { 5_000_000 } else { 0 };
        60_000 + random.below(40_000) + random.below(tail + 1)
    };
    (0..count).map(|_| draw()).collect()
}

fn filled(count: usize) -> Histogram {
    let mut histogram = Histogram::new();
    for ns in latencies(count) {
        histogram.record(ns);
    }
    histogram
}

fn histogram(c: &mut Criterion) {
    let values = latencies(4096);
    let mut next = values.iter().cycle();
    let mut target = Histogram::new();
    c.bench_function("histogram/record", |b| {
        b.iter(|| target.record(*next.next().unwrap_or(&0)));
    });
    let mut reference = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 2)
        .expect("the bounds are valid");
    c.bench_function("histogram/record/hdrhistogram", |b| {
        b.iter(|| reference.saturating_record(*next.next().unwrap_or(&0)));
    });

    let full = filled(100_000);
    let mut sum = Histogram::new();
    c.bench_function("histogram/add", |b| b.iter(|| sum.add(black_box(&full))));
    c.bench_function("histogram/quantile", |b| {
        b.iter(|| full.quantile(black_box(0.99)));
    });
    c.bench_function("histogram/to_blob/100k", |b| b.iter(|| full.to_blob()));
    let blob = full.to_blob();
    c.bench_function("histogram/from_blob/100k", |b| {
        b.iter(|| Histogram::from_blob(black_box(&blob)));
    });
}

fn recorder(c: &mut Criterion) {
    c.bench_function("clock/now", |b| b.iter(MonoNanos::now));
    let (mut recorder, consumer) = pair(Settings::of(&[Op::Null]));
    recorder.set_start(MonoNanos::now());
    let mut operations = 0_u64;
    c.bench_function("recorder/begin+end", |b| {
        b.iter(|| {
            let began = recorder.begin();
            recorder.end(Op::Null, began, 0);
            black_box(recorder.should_stop())
        });
        consumer.take(&mut |buffer| operations += buffer.series.len() as u64);
    });
    assert!(operations > 0, "the consumer has seen intervals");
}

criterion_group!(benches, histogram, recorder);
criterion_main!(benches);
