//! CPU time of one sample, all of it: daemons, host, disks, interfaces, and handing over. What criterion is given is
//! the sampler thread's own CPU time, so that waking it up and waiting for it do not count.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench may panic")]

#[path = "sampler_support/sleepers.rs"]
mod sleepers;

use std::sync::mpsc::channel;
use std::time::Duration;

use benchmesh_agent::sampler::{DaemonRule, Sampler, SamplerConfig, Sampling};
use benchmesh_workloads::clock::MonoNanos;
use criterion::{BenchmarkId, Criterion, Throughput};
use sleepers::Sleepers;

fn one_sample(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sampler/one sample");
    for (daemons, threads) in [(0usize, 1usize), (1, 1), (50, 1), (200, 1), (50, 100)] {
        let name = BenchmarkId::from_parameter(format!("{daemons} daemons of {threads} threads"));
        let _sleepers = Sleepers::start(daemons, threads);
        let (send, samples) = channel();
        let rule = DaemonRule {
            name: sleepers::COMM.to_owned(),
            comm: Some(sleepers::COMM.to_owned()),
            ..DaemonRule::default()
        };
        let config = SamplerConfig {
            rules: vec![rule],
            // Its scans are another matter: see the program sampler_cost, which counts everything.
            scan_every: Duration::from_secs(3600),
            sampling: Sampling {
                period: None,
                ..Sampling::default()
            },
            ..SamplerConfig::default()
        };
        let sampler = Sampler::start(config, move |sampled| drop(send.send(sampled))).unwrap();
        let sample = || {
            sampler.mark(MonoNanos::now());
            samples.recv().unwrap()
        };
        assert!(sample().daemons.len() >= daemons);
        group.throughput(Throughput::Elements(u64::try_from(daemons.max(1)).unwrap()));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                let before = sample().cost.cpu_ns;
                let after = (0..count).fold(before, |_, _| sample().cost.cpu_ns);
                Duration::from_nanos(after - before)
            });
        });
        sampler.stop();
    }
    group.finish();
}

fn main() {
    sleepers::sleep_if_told();
    let mut criterion = Criterion::default().configure_from_args();
    one_sample(&mut criterion);
    criterion.final_summary();
}
