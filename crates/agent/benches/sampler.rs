//! CPU time of one complete sample: daemons, host, disks, interfaces, and handing over. Criterion gets the sampler
//! thread's own CPU time, so that waking it and waiting for it do not count.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench may panic")]

#[path = "sampler_support/sleepers.rs"]
mod sleepers;

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use benchmesh_agent::sampler::{DaemonRule, Mark, Sampler, SamplerConfig, Sampling};
use benchmesh_workloads::clock::{MonoNanos, sleep_until};
use criterion::{BenchmarkId, Criterion, Throughput};
use sleepers::Sleepers;

/// Number of daemons, threads of each, and wake-up interval. A sample is taken when all have run since the last one, or
/// when none has, which is less work.
const CASES: [(usize, usize, Option<Duration>); 7] = [
    (0, 1, None),
    (1, 1, Some(Duration::from_millis(2))),
    (50, 1, None),
    (50, 1, Some(Duration::from_millis(5))),
    (200, 1, None),
    (200, 1, Some(Duration::from_millis(20))),
    (50, 100, Some(Duration::from_millis(20))),
];

fn one_sample(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sampler/one sample");
    group
        .sample_size(10)
        .measurement_time(Duration::from_millis(500))
        .warm_up_time(Duration::from_millis(300));
    for (daemons, threads, wake) in CASES {
        let awake = if wake.is_some() { "awake" } else { "asleep" };
        let name =
            BenchmarkId::from_parameter(format!("{daemons} daemons of {threads} threads, {awake}"));
        let _sleepers = Sleepers::start(daemons, threads, wake);
        let (send, samples) = sync_channel(16);
        let rule = DaemonRule {
            name: sleepers::comm(),
            comm: Some(sleepers::comm()),
            ..DaemonRule::default()
        };
        let config = SamplerConfig {
            rules: vec![rule],
            // Scans are measured separately: the program sampler_cost includes everything.
            scan_every: Duration::from_secs(3600),
            sampling: Sampling {
                period: None,
                ..Sampling::default()
            },
            ..SamplerConfig::default()
        };
        let sampler = Sampler::start(config, move |sampled| drop(send.try_send(sampled))).unwrap();
        let sample = || {
            sleep_until(MonoNanos::now().saturating_add(wake.unwrap_or_default() * 5 / 2));
            sampler.mark(Mark::StepEnd(MonoNanos::now()));
            // A sample without a host row reports the end of another daemon.
            samples
                .iter()
                .find(|sampled| sampled.host.is_some())
                .unwrap()
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
    if sleepers::has_slept() {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    one_sample(&mut criterion);
    criterion.final_summary();
}
