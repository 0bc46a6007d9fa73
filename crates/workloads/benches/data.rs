//! Cost of generating and of checking data, compared with copying as many bytes.

use benchmesh_workloads::data::{Content, DataSpec, Mismatches};
use benchmesh_workloads::random::Random;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

fn spec(text: &str) -> DataSpec {
    let params = serde_json::from_str(text).expect("a table of parameters");
    DataSpec::of(&params).expect("they are valid")
}

fn data(c: &mut Criterion) {
    for bytes in SIZES {
        let mut group = c.benchmark_group(format!("data/{}k", bytes >> 10));
        group.throughput(Throughput::Bytes(bytes as u64));
        let mut block = vec![0_u8; bytes];
        let source = vec![1_u8; bytes];
        group.bench_function("copy (baseline)", |b| {
            b.iter(|| black_box(&mut block).copy_from_slice(black_box(&source)));
        });
        let mut random = Random::new(1);
        group.bench_function("random", |b| b.iter(|| random.fill(black_box(&mut block))));

        let mut offset = 0;
        let stamped = Content::new(spec("{}"), 1);
        stamped.fill(&mut block);
        group.bench_function("stamp", |b| {
            b.iter(|| {
                offset += bytes as u64;
                stamped.place(black_box(&mut block), 7, offset, 1);
            });
        });
        let pattern = Content::new(spec(r#"{"verify": true}"#), 1);
        group.bench_function("pattern", |b| {
            b.iter(|| {
                offset += bytes as u64;
                pattern.place(black_box(&mut block), 7, offset, 1);
            });
        });
        pattern.place(&mut block, 7, 0, 1);
        group.bench_function("verify", |b| {
            let mut wrong = Mismatches::default();
            b.iter(|| pattern.check(black_box(&block), 7, 0, &mut (1..=1), &mut wrong));
            assert!(wrong.is_empty());
        });
        group.finish();
    }
}

criterion_group!(benches, data);
criterion_main!(benches);
