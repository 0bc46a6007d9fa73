//! Cost of sampling under realistic conditions: many processes, once a second, including scans and the host.
//!
//! ```text
//! cargo bench -p benchmesh-agent --bench sampler_cost -- \
//!     --daemons 200 --threads 1 --wake-ms 300 --seconds 10 --rounds 5
//! ```
//!
//! `--step 1`: each round is the beginning of a step, with its dense samples; the baseline stays at one a second.
//!
//! Our sampler and the baseline alternate in the same run over the same processes: first over daemons that are awake,
//! then over as many that sleep throughout, which have a separate row. Both figures are the total CPU time of the
//! thread that does the work, divided by the number of the bench's own daemons. Other daemons on this host that are
//! sampled (such as the bench itself) can only increase our figure. The baseline opens, reads and closes the files at
//! each sample, as most tools do. It does not search for daemons, because it gets their pids. It reads only the main
//! thread's context switches, because /proc has nothing better.

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

use benchmesh_agent::sampler::{
    DaemonRule, HostSample, Mark, Sampled, Sampler, SamplerConfig, Sampling,
};
use benchmesh_workloads::clock::MonoNanos;
use sleepers::Sleepers;

#[derive(Clone, Copy)]
struct Setup {
    daemons: usize,
    threads: usize,
    seconds: u64,
    rounds: usize,
    period: Duration,
    /// `None`: they sleep.
    wake: Option<Duration>,
    /// With the dense samples after a step's start, which is the beginning of each round.
    in_step: bool,
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
    // `cargo test --benches` only checks that it runs.
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
        in_step: number("--step", 0) > 0,
    };
    for setup in [
        setup,
        Setup {
            wake: None,
            ..setup
        },
    ]
    .iter()
    .skip(usize::from(setup.wake.is_none()))
    {
        rounds(setup);
    }
}

fn rounds(setup: &Setup) {
    let sleepers = Sleepers::start(setup.daemons, setup.threads, setup.wake);
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| is_pid(entry.file_name().as_encoded_bytes()))
        .count();
    let life = match setup.wake {
        Some(every) => format!("wake every {every:?}"),
        None => "sleep".to_owned(),
    };
    println!(
        "{} daemons of {} threads that {life}, among {processes} processes; sampled every {:?} for {} s, {} rounds",
        setup.daemons, setup.threads, setup.period, setup.seconds, setup.rounds
    );
    println!(
        "{:>15} {:>24} {:>24} {:>7} {:>10}",
        "round", "sampler us/daemon/s (%)", "baseline us/daemon/s (%)", "ratio", "host busy"
    );
    let state = if setup.wake.is_some() {
        "awake"
    } else {
        "asleep"
    };
    let (send, samples) = sync_channel::<Sampled>(4096);
    let sampler = start(send);
    let mut rounds: [Vec<f64>; 5] = Default::default();
    for round in 1..=setup.rounds {
        let (ours, busy) = ours(setup, &sampler, &samples);
        let theirs = baseline(setup, &sleepers.pids());
        let row = [
            ours.each_us,
            ours.percent,
            theirs.each_us,
            theirs.percent,
            busy,
        ];
        print_row(&format!("{state} {round}"), row);
        for (values, value) in rounds.iter_mut().zip(row) {
            values.push(value);
        }
    }
    print_row(
        &format!("{state} median"),
        rounds.map(|mut values| {
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        }),
    );
}

fn is_pid(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_digit)
}

fn print_row(name: &str, [ours_us, ours_percent, theirs_us, theirs_percent, busy]: [f64; 5]) {
    let ours = format!("{ours_us:.2} ({ours_percent:.3} %)");
    let theirs = format!("{theirs_us:.2} ({theirs_percent:.3} %)");
    println!(
        "{name:>15} {ours:>24} {theirs:>24} {:>7.3} {busy:>8.0} %",
        ours_us / theirs_us
    );
}

/// CPU time of one thread: per daemon and second, and for all daemons as a share of one core.
struct Cpu {
    each_us: f64,
    percent: f64,
}

impl Cpu {
    fn of(cpu_ns: u64, span: Duration, daemons: usize) -> Cpu {
        let us_per_second = cpu_ns as f64 / 1000.0 / span.as_secs_f64();
        Cpu {
            each_us: us_per_second / daemons.max(1) as f64,
            percent: us_per_second / 10_000.0,
        }
    }
}

const AT_REST: Sampling = Sampling {
    host_wide: true,
    interfaces: true,
    period: None,
};

fn start(send: SyncSender<Sampled>) -> Sampler {
    let rule = DaemonRule {
        name: sleepers::comm(),
        comm: Some(sleepers::comm()),
        ..DaemonRule::default()
    };
    let config = SamplerConfig {
        rules: vec![rule],
        sampling: AT_REST,
        ..SamplerConfig::default()
    };
    Sampler::start(config, move |sampled| drop(send.try_send(sampled))).unwrap()
}

/// Measures between two samples, which excludes the start with its first scan but includes the scan every 5 s.
///
/// Also returns how busy the host was meanwhile: other processes that use the caches and the other thread of the core
/// double the cost of both sides.
fn ours(setup: &Setup, sampler: &Sampler, samples: &Receiver<Sampled>) -> (Cpu, f64) {
    let asked = MonoNanos::now();
    sampler.set(Sampling {
        period: Some(setup.period),
        ..AT_REST
    });
    // A sample between two ticks reports the end of another daemon.
    let next = |at: MonoNanos| {
        samples
            .iter()
            .find(|sampled| sampled.host.is_some() && sampled.at >= at)
            .unwrap()
    };
    let first = next(asked);
    if setup.in_step {
        sampler.mark(Mark::StepStart(MonoNanos::now()));
    }
    let last = next(first.at.saturating_add(Duration::from_secs(setup.seconds)));
    sampler.mark(Mark::StepEnd(MonoNanos::now()));
    sampler.set(AT_REST);
    for sampled in [&first, &last] {
        assert!(
            sampled.daemons.len() >= setup.daemons,
            "{} of {} were found",
            sampled.daemons.len(),
            setup.daemons
        );
    }
    let cpu_ns = last.cost.cpu_ns - first.cost.cpu_ns;
    let busy = host_busy_percent(&first.host.unwrap(), &last.host.unwrap());
    (
        Cpu::of(cpu_ns, last.at.since(first.at), setup.daemons),
        busy,
    )
}

fn host_busy_percent(from: &HostSample, until: &HostSample) -> f64 {
    let working = |host: &HostSample| {
        host.figures.user_us
            + host.figures.nice_us
            + host.figures.system_us
            + host.figures.irq_us
            + host.figures.softirq_us
            + host.figures.steal_us
    };
    let resting = |host: &HostSample| host.figures.idle_us + host.figures.iowait_us;
    let worked = working(until) - working(from);
    let rested = resting(until) - resting(from);
    worked as f64 / (worked + rested) as f64 * 100.0
}

fn baseline(setup: &Setup, pids: &[u32]) -> Cpu {
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
            Cpu::of(thread_cpu_ns() - cpu, at.since(began), pids.len())
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
