//! What sampling costs in a life like the real one: so many processes, once a second, scans and host and all.
//!
//! `cargo bench -p benchmesh-agent --bench sampler_cost -- --daemons 200 --threads 1 --wake-ms 300 --seconds 10 --rounds 5`
//!
//! Ours and the baseline take turns in the same run over the same processes. Both are the CPU time of the thread that
//! does the work. The baseline opens, reads and closes the files anew, as most tools do, and does not even look for
//! daemons: it is told their pids. It has the main thread's context switches only, for want of anything better in /proc.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people, which may panic"
)]
#![allow(
    missing_docs,
    clippy::cast_precision_loss,
    reason = "a program for people"
)]

#[path = "sampler_support/sleepers.rs"]
mod sleepers;

use std::hint::black_box;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use benchmesh_agent::sampler::{DaemonRule, Sampled, Sampler, SamplerConfig, Sampling};
use benchmesh_workloads::clock::MonoNanos;
use sleepers::Sleepers;

struct Setup {
    daemons: usize,
    threads: usize,
    seconds: u64,
    rounds: usize,
    period: Duration,
    wake: Option<Duration>,
}

fn main() {
    if sleepers::has_slept() {
        return;
    }
    let number = |name: &str, default: u64| {
        let mut arguments = std::env::args()
            .skip_while(|argument| argument != name)
            .skip(1);
        arguments
            .next()
            .map_or(default, |value| value.parse().unwrap())
    };
    // `cargo test --benches` runs it to see that it runs.
    let brief = std::env::args().any(|argument| argument == "--test");
    let setup = Setup {
        daemons: usize::try_from(number("--daemons", if brief { 3 } else { 200 })).unwrap(),
        threads: usize::try_from(number("--threads", 1)).unwrap(),
        seconds: number("--seconds", if brief { 1 } else { 10 }),
        rounds: usize::try_from(number("--rounds", if brief { 1 } else { 5 })).unwrap(),
        period: Duration::from_millis(number("--period-ms", 1000)),
        wake: Some(number("--wake-ms", 300))
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis),
    };
    let sleepers = Sleepers::start(setup.daemons, setup.threads, setup.wake);
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| is_pid(entry.file_name().as_encoded_bytes()))
        .count();
    println!(
        "{} daemons of {} threads that wake every {:?}, among {processes} processes; sampled every {:?} for {} s, {} rounds",
        setup.daemons, setup.threads, setup.wake, setup.period, setup.seconds, setup.rounds
    );
    println!(
        "{:>8} {:>24} {:>24} {:>7}",
        "round", "sampler us/daemon/s (%)", "baseline us/daemon/s (%)", "ratio"
    );
    let mut rows = Vec::new();
    let (send, samples) = sync_channel::<Sampled>(4096);
    let sampler = start(send);
    for round in 1..=setup.rounds {
        let ours = ours(&setup, &sampler, &samples);
        let theirs = baseline(&setup, &sleepers.pids());
        print_row(&setup, &round.to_string(), ours, theirs);
        rows.push((ours, theirs));
    }
    let median = |part: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(part).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    print_row(&setup, "median", median(|row| row.0), median(|row| row.1));
}

fn is_pid(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_digit)
}

/// Microseconds of CPU per second of time.
fn print_row(setup: &Setup, name: &str, ours: f64, theirs: f64) {
    let each = |us: f64| {
        format!(
            "{:.2} ({:.3} %)",
            us / setup.daemons.max(1) as f64,
            us / 10_000.0
        )
    };
    println!(
        "{name:>8} {:>24} {:>24} {:>7.3}",
        each(ours),
        each(theirs),
        ours / theirs
    );
}

fn us_per_second(cpu_ns: u64, span: Duration) -> f64 {
    cpu_ns as f64 / 1000.0 / span.as_secs_f64()
}

const AT_REST: Sampling = Sampling {
    host_wide: true,
    interfaces: true,
    period: None,
};

fn start(send: SyncSender<Sampled>) -> Sampler {
    let rule = DaemonRule {
        name: sleepers::COMM.to_owned(),
        comm: Some(sleepers::COMM.to_owned()),
        ..DaemonRule::default()
    };
    let config = SamplerConfig {
        rules: vec![rule],
        sampling: AT_REST,
        ..SamplerConfig::default()
    };
    Sampler::start(config, move |sampled| drop(send.try_send(sampled))).unwrap()
}

/// Between two samples, so that the start with its first scan, which happens once, is not in it; the scan every 5 s is.
fn ours(setup: &Setup, sampler: &Sampler, samples: &Receiver<Sampled>) -> f64 {
    let asked = MonoNanos::now();
    sampler.set(Sampling {
        period: Some(setup.period),
        ..AT_REST
    });
    let first = samples.iter().find(|sampled| sampled.at >= asked).unwrap();
    assert!(
        first.daemons.len() >= setup.daemons,
        "{} of {} were found",
        first.daemons.len(),
        setup.daemons
    );
    let span = Duration::from_secs(setup.seconds);
    let last = samples
        .iter()
        .find(|sampled| sampled.at.since(first.at) >= span)
        .unwrap();
    assert!(last.daemons.len() >= setup.daemons);
    sampler.set(AT_REST);
    us_per_second(
        last.cost.cpu_ns - first.cost.cpu_ns,
        last.at.since(first.at),
    )
}

fn baseline(setup: &Setup, pids: &[u32]) -> f64 {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let began = MonoNanos::now();
            let cpu = thread_cpu_ns();
            let mut at = began;
            while at.since(began) < Duration::from_secs(setup.seconds) {
                at = at.saturating_add(setup.period);
                benchmesh_workloads::clock::sleep_until(at);
                for pid in pids {
                    for file in ["stat", "statm", "io", "status"] {
                        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
                        black_box(numbers(&text));
                    }
                    black_box(
                        std::fs::read_dir(format!("/proc/{pid}/fd"))
                            .unwrap()
                            .count(),
                    );
                }
                for file in ["stat", "meminfo", "loadavg", "diskstats", "net/dev"] {
                    black_box(numbers(
                        &std::fs::read_to_string(format!("/proc/{file}")).unwrap(),
                    ));
                }
            }
            us_per_second(thread_cpu_ns() - cpu, at.since(began))
        });
        work.join().unwrap()
    })
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
