//! The cost of an agent for its host: 50 daemons sampled at 1 Hz, measured by pidstat on the same processes, and the
//! agent's effect on a load that needs every core. Limits: 1 % of one core, 25 MiB resident, and 1 % of the load.
//!
//! `cargo bench --bench agent_at_rest [-- SECONDS]`, default 60 s after a warm-up of 10 s; the load runs for four times
//! as long. CPU is the kernel's own count of the process's threads. For the load, the agent runs in every other window
//! and is stopped (SIGSTOP) in the others; the cost of its collector on this host is included.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures, prints, and panics when it cannot"
)]

mod paired;
#[path = "../tests"]
mod shared {
    pub mod support;
}

use benchmesh_workloads::random::Random;
use paired::{median_95, verdict};
use shared::support::daemons;
use shared::support::mesh::{Agent, Mesh};
use shared::support::process::Process;
use shared::support::wait::{pass, try_until};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DAEMONS: usize = 50;
const SETTLE: Duration = Duration::from_secs(10);
/// Size of the file that the load reads.
const FILE_BYTES: usize = 64 << 20;
const BLOCK: usize = 4096;
/// Duration of each window with and without the agent. The agent's lease is longer.
const WINDOW: Duration = Duration::from_secs(4);

fn main() {
    let seconds = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .next_back()
        .unwrap_or(60);
    let span = Duration::from_secs(seconds);
    let directory = tempfile::tempdir().unwrap();
    let osds = daemons::awake(directory.path(), DAEMONS);
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("rest").label("role=storage"));
    // Sampling begins with the start of a run: a run that waits for its turn behind a long one keeps the sampler on.
    let run = mesh.begin("[[phase]]\nworkload = \"null\"\nops = 1\nsettle = \"1h\"\n");
    mesh.until_stored(
        "all daemons are sampled",
        &format!(
            "SELECT count(DISTINCT d.id) >= {DAEMONS} FROM daemons d JOIN daemon_samples s ON s.daemon_id = d.id
             WHERE d.name = 'ceph-osd'"
        ),
    );
    pass(SETTLE);
    let pids: Vec<String> = osds.iter().map(|osd| osd.pid().to_string()).collect();
    let agent = mesh.agent("rest").pid();
    let before = (cpu(agent), Instant::now());
    let mut pidstat = Command::new("pidstat")
        .args(["-rudh", "-p", &pids.join(","), "1", &seconds.to_string()])
        .stdout(Stdio::null())
        .spawn();
    let mut peak = 0;
    try_until::<()>(span, || {
        peak = peak.max(resident_kib(agent));
        None
    });
    let share = |spent: Duration, over: Duration| spent.as_secs_f64() / over.as_secs_f64() * 100.0;
    let own = share(cpu(agent) - before.0, before.1.elapsed());
    println!(
        "agent, {DAEMONS} daemons at 1 Hz for {seconds} s: {own:.3} % of a core, {:.1} MiB resident",
        f64::from(peak) / 1024.0
    );
    match &mut pidstat {
        Ok(child) => {
            let used = children_cpu();
            let _ = child.wait();
            let spent = children_cpu() - used;
            println!(
                "pidstat -rud on the same {DAEMONS}: {:.3} % of a core",
                share(spent, span)
            );
        }
        Err(error) => println!("pidstat: {error}"),
    }
    println!(
        "bar: below 1 % and 25 MiB: {}",
        if own < 1.0 && peak < 25 * 1024 {
            "met"
        } else {
            "MISSED"
        }
    );
    effect(mesh.agent("rest"), span * 4);
    drop(run);
}

/// The work of a load of one thread per core, in windows with and without the agent.
fn effect(agent: &Process, span: Duration) {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    std::fs::write(&file, vec![1; FILE_BYTES]).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let (ops, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 1..=cores {
            let (ops, over, file) = (&ops, &over, &file);
            scope.spawn(move || read_at_random(file.as_file(), seed as u64, ops, over));
        }
        let rate = |signal| {
            agent.signal(signal);
            pass(WINDOW / 4);
            let before = (ops.load(Ordering::Relaxed), Instant::now());
            pass(WINDOW);
            (ops.load(Ordering::Relaxed) - before.0) as f64 / before.1.elapsed().as_secs_f64()
        };
        let pair_ms = (WINDOW * 5 / 2).as_millis();
        let pairs = usize::try_from(span.as_millis().div_ceil(pair_ms)).unwrap();
        let lost: Vec<f64> = (0..pairs)
            .map(|pair| {
                // The order alternates, so that a drift of the machine affects both.
                let with_first = pair % 2 == 0;
                let first = rate(if with_first {
                    libc::SIGCONT
                } else {
                    libc::SIGSTOP
                });
                let second = rate(if with_first {
                    libc::SIGSTOP
                } else {
                    libc::SIGCONT
                });
                let ratio = if with_first {
                    first / second
                } else {
                    second / first
                };
                (1.0 - ratio) * 100.0
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        agent.signal(libc::SIGCONT);
        let [low, middle, high] = median_95(lost);
        println!(
            "a load on {cores} cores loses {middle:.3} % to the agent (95 %: {low:.3} to {high:.3}; {pairs} pairs of \
             {} s)",
            WINDOW.as_secs()
        );
        println!("bar: below 1 %: {}", verdict([low, middle, high], 1.0));
    });
}

/// Reads blocks of 4 KiB from memory, one after the other, until the load is over.
fn read_at_random(file: &File, seed: u64, ops: &AtomicU64, over: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut block = [0; BLOCK];
    while !over.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let number = random.below((FILE_BYTES / BLOCK) as u64);
            let read = file.read_at(&mut block, number * BLOCK as u64);
            assert_eq!(read.unwrap(), BLOCK);
        }
        ops.fetch_add(64, Ordering::Relaxed);
    }
}

/// CPU time of all threads of a process, in nanoseconds from the scheduler.
fn cpu(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let spent = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

fn resident_kib(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU time of all reaped children.
fn children_cpu() -> Duration {
    // SAFETY: getrusage fills the given structure.
    let usage = unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_micros(time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
