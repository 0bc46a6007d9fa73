//! What an agent's spool on a disk adds to the p99 of a load on another disk, compared with a spool in memory.
//!
//! `cargo bench --bench spool [-- --pairs N] [--state DIRECTORY] [--target DIRECTORY]`, default 120 pairs of windows of
//! 2 s. `--state` must be on a disk (default: the system's temporary directory), `--target` on another one that supports
//! O_DIRECT (default: a loop device in memory; its requests wait for threads of the kernel, so a real disk or zram is
//! steadier). Two agents sample ten daemons at 1 Hz and send the intervals of a load, one with its state on the disk and
//! one on tmpfs; one of them is stopped (SIGSTOP) while the other runs, in alternating order. Meanwhile this program
//! reads blocks of 4 KiB, one after the other. Databases are on tmpfs. Bar: below 1 %.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures, prints, and panics when it cannot"
)]

mod arguments;
#[path = "../tests"]
mod shared {
    pub mod support;
}

use arguments::value;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::random::Random;
use rustix::process::{Pid, Signal};
use shared::support::loop_device::Mounted;
use shared::support::mesh::{Agent, Mesh};
use shared::support::process::Process;
use shared::support::wait::try_until;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const DAEMONS: usize = 10;
const MIB: u64 = 1 << 20;
const FILE_BYTES: usize = 64 << 20;
const BLOCK: usize = 4096;
/// An agent that was stopped catches up within this time.
const SETTLE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
/// No window.
const NONE: usize = usize::MAX;

fn main() {
    // `cargo test --benches` only wants to know that it links.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let pairs = value(&arguments, "--pairs").unwrap_or(120_usize);
    let state: Option<PathBuf> = value(&arguments, "--state");
    let disk = tempfile::tempdir_in(state.unwrap_or_else(std::env::temp_dir)).unwrap();
    let memory = Mounted::tmpfs(512 * MIB);
    let given: Option<PathBuf> = value(&arguments, "--target");
    let made = given
        .is_none()
        .then(|| Mounted::on_memory_loop("ext4", 256 * MIB));
    let target = given.or_else(|| made.as_ref().map(Mounted::path)).unwrap();
    let _daemons = daemons(disk.path());

    let databases = ["of-disk", "of-memory"].map(|name| memory.path().join(name));
    for database in &databases {
        std::fs::create_dir(database).unwrap();
    }
    let mut of_disk = Mesh::with_database_in(Some(&databases[0]));
    let mut of_memory = Mesh::beside_with_database_in(&of_disk, Some(&databases[1]));
    let load = memory.path().join("load");
    std::fs::create_dir(&load).unwrap();
    let _runs = [
        (&mut of_disk, disk.path()),
        (&mut of_memory, &memory.path()),
    ]
    .map(|(mesh, state)| begin(mesh, &state.join("state"), &load));
    let agents = [&of_disk, &of_memory].map(|mesh| mesh.agent("a").pid());
    let (on_disk, in_memory) = measure(&target, agents, pairs);
    print(on_disk, in_memory);
}

/// Starts an agent and a run, and waits for the samples of all daemons.
fn begin(mesh: &mut Mesh, state: &Path, load: &Path) -> Process {
    mesh.launch(Agent::named("a").allow(load).state_dir(state));
    mesh.until_attached(&["a"]);
    let run = mesh.begin(&format!(
        "lease = \"100h\"\nloss-after = \"100h\"\n[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\n\
         workload = \"io\"\nmodes = [\"randwrite\"]\nsize = \"1m\"\nbs = \"4k\"\nruntime = \"90h\"\nrate_iops = 50\n",
        load.display()
    ));
    mesh.until_stored(
        "all daemons are sampled, and the load has intervals",
        &format!(
            "SELECT count(DISTINCT d.id) >= {DAEMONS} AND EXISTS (SELECT 1 FROM op_intervals)
             FROM daemons AS d JOIN daemon_samples AS s ON s.daemon_id = d.id WHERE d.name = 'ceph-osd'"
        ),
    );
    run
}

/// Processes that look like storage daemons and do nothing.
fn daemons(directory: &Path) -> Vec<Process> {
    let program = directory.join("ceph-osd");
    std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
    let start = |id: usize| {
        let mut command = Command::new(&program);
        let script = "exec 3<> <(:); read -u 3";
        command.args(["-c", script, "ceph-osd", "--id", &id.to_string()]);
        Process::start("daemon", command, &directory.join("log"))
    };
    (0..DAEMONS).map(start).collect()
}

/// The p99 of each window, in nanoseconds: those in which the first agent runs, and the others.
fn measure(target: &Path, agents: [u32; 2], pairs: usize) -> (Vec<u64>, Vec<u64>) {
    let file = tempfile::NamedTempFile::new_in(target).unwrap();
    std::fs::write(&file, vec![1; FILE_BYTES]).unwrap();
    file.as_file().sync_all().unwrap();
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&file)
        .unwrap();
    let (window, over) = (AtomicUsize::new(NONE), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| reads(&file, pairs * 2, &window, &over));
        let during = |running: usize, number: usize| {
            signal(agents[1 - running], Signal::STOP);
            signal(agents[running], Signal::CONT);
            wait(SETTLE);
            window.store(number * 2 + running, Ordering::Relaxed);
            wait(WINDOW);
            window.store(NONE, Ordering::Relaxed);
        };
        for pair in 0..pairs {
            // The order alternates, so that a drift of the machine affects both.
            for running in [pair % 2, 1 - pair % 2] {
                during(running, pair);
            }
        }
        over.store(true, Ordering::Relaxed);
        for agent in agents {
            signal(agent, Signal::CONT);
        }
        let p99: Vec<u64> = reads.join().unwrap().into_iter().map(p99).collect();
        let of = |agent| p99.iter().skip(agent).step_by(2).copied().collect();
        (of(0), of(1))
    })
}

/// Reads blocks at random until the load is over; returns the durations within each window.
fn reads(file: &File, windows: usize, window: &AtomicUsize, over: &AtomicBool) -> Vec<Vec<u64>> {
    let mut durations = vec![Vec::new(); windows];
    let mut random = Random::new(1);
    let mut buffer = vec![0; BLOCK * 2];
    let from = buffer.as_ptr().align_offset(BLOCK);
    let block = &mut buffer[from..from + BLOCK];
    while !over.load(Ordering::Relaxed) {
        let number = random.below((FILE_BYTES / BLOCK) as u64);
        let began = MonoNanos::now();
        assert_eq!(file.read_at(block, number * BLOCK as u64).unwrap(), BLOCK);
        let took = MonoNanos::now().nanos_since(began);
        if let Some(durations) = durations.get_mut(window.load(Ordering::Relaxed)) {
            durations.push(took);
        }
    }
    durations
}

fn p99(mut durations: Vec<u64>) -> u64 {
    durations.sort_unstable();
    durations[durations.len() * 99 / 100]
}

fn print(mut on_disk: Vec<u64>, mut in_memory: Vec<u64>) {
    let pairs = on_disk.len();
    let ratio = |(&a, &b): (&u64, &u64)| a as f64 / b as f64;
    let mut ratios: Vec<f64> = on_disk.iter().zip(&in_memory).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    on_disk.sort_unstable();
    in_memory.sort_unstable();
    // Order statistics around the median that contain it with 95 % probability: 0.98 times the square root of the count
    // away.
    let (middle, reach) = (pairs / 2, pairs.isqrt());
    let added = |place: usize| (ratios[place.min(pairs - 1)] - 1.0) * 100.0;
    let us = |ns: u64| ns as f64 / 1e3;
    println!(
        "p99 {:.1} us with the spool on disk, {:.1} us in memory (medians); the disk adds {:+.2} % (95 %: {:+.2} to \
         {:+.2}; {pairs} pairs of {} s)",
        us(on_disk[middle]),
        us(in_memory[middle]),
        added(middle),
        added(middle.saturating_sub(reach)),
        added(middle + reach),
        WINDOW.as_secs(),
    );
    let verdict = if added(middle + reach) < 1.0 {
        "met"
    } else if added(middle.saturating_sub(reach)) >= 1.0 {
        "MISSED"
    } else {
        "neither shown nor refuted; more pairs or a steadier target show it"
    };
    println!("bar: below 1 %: {verdict}");
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

fn wait(span: Duration) {
    try_until::<()>(span, || None);
}
