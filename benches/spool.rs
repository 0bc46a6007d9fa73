//! What an agent's spool on a disk adds to the p99 of a load on another disk, compared with a spool in memory.
//!
//! `cargo bench --bench spool [-- --pairs N] [--state DIRECTORY] [--target DIRECTORY]`, default 120 pairs of windows
//! of 2 s. `--state` must be on a disk (default: the system's temporary directory), `--target` on another one that
//! supports O_DIRECT. The default target is a loop device in memory, which needs root and is noisy: its requests wait
//! for threads of the kernel. Two agents sample ten daemons at 1 Hz and send the intervals of a load, one with its
//! state on the disk and one in /dev/shm, as the databases; one of them is stopped (SIGSTOP) while the other runs, in
//! alternating order. Meanwhile this program reads blocks of 4 KiB, one after the other. Bar: below 1 % in the median
//! of all pairs.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures, prints, and panics when it cannot"
)]

mod arguments;
mod paired;
#[path = "../tests"]
mod shared {
    pub mod support;
}

use arguments::value;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::random::Random;
use paired::{median_95, verdict};
use shared::support::daemons;
use shared::support::loop_device::Mounted;
use shared::support::mesh::{Agent, Mesh};
use shared::support::plan;
use shared::support::process::Process;
use shared::support::wait::pass;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const DAEMONS: usize = 10;
const FILE_BYTES: usize = 64 << 20;
const BLOCK: usize = 4096;
/// An agent that was stopped catches up within this time.
const SETTLE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
/// Between windows: reads are not recorded.
const NO_WINDOW: usize = usize::MAX;

/// Durations of reads in nanoseconds: one list for each window.
type Windows = Vec<Vec<u64>>;

fn main() {
    // `cargo test --benches` only wants to know that it links.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let pairs = value(&arguments, "--pairs").unwrap_or(120_usize);
    let state: Option<PathBuf> = value(&arguments, "--state");
    let disk = tempfile::tempdir_in(state.unwrap_or_else(std::env::temp_dir)).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let chosen: Option<PathBuf> = value(&arguments, "--target");
    let made = chosen
        .is_none()
        .then(|| Mounted::on_memory_loop("ext4", 256 << 20));
    let target = chosen.or_else(|| made.as_ref().map(Mounted::path)).unwrap();
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    assert_ne!(
        device(disk.path()),
        device(&target),
        "--state and --target are on one disk"
    );
    let _daemons = daemons::awake(disk.path(), DAEMONS);

    let [of_disk, of_memory, load] = ["of-disk", "of-memory", "load"].map(|name| {
        let path = memory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    });
    let mut of_disk = Mesh::with_database_in(Some(&of_disk));
    let mut of_memory = Mesh::beside_with_database_in(&of_disk, Some(&of_memory));
    let _runs = [(&mut of_disk, disk.path()), (&mut of_memory, memory.path())]
        .map(|(mesh, state)| begin(mesh, &state.join("state"), &load));
    let agents = [of_disk.agent("a"), of_memory.agent("a")];
    let before = agents.map(written_bytes);
    let [on_disk, in_memory] = measure(&target, disk.path(), agents, pairs);
    let [disk_bytes, memory_bytes] = agents.map(written_bytes);
    let (to_disk, others) = (disk_bytes - before[0], memory_bytes - before[1]);
    println!("written by the agents: {to_disk} bytes with the spool on disk, {others} in memory");
    print(on_disk, in_memory);
    // Both write a log.
    assert!(to_disk > 4 * others, "--state is on no disk");
}

/// Starts an agent and a run, and waits for the samples of all daemons.
fn begin(mesh: &mut Mesh, state: &Path, load: &Path) -> Process {
    mesh.launch(Agent::named("a").allow(load).state_dir(state));
    mesh.until_attached(&["a"]);
    let run = mesh.begin(&plan::endless_writes(load));
    mesh.until_stored(
        "all daemons are sampled, and the load has intervals",
        &format!(
            "SELECT count(DISTINCT d.id) >= {DAEMONS} AND EXISTS (SELECT 1 FROM op_intervals)
             FROM daemons AS d JOIN daemon_samples AS s ON s.daemon_id = d.id WHERE d.name = 'ceph-osd'"
        ),
    );
    run
}

/// The reads while the first agent runs, and while the second one does.
fn measure(target: &Path, disk: &Path, agents: [&Process; 2], pairs: usize) -> [Windows; 2] {
    let file = tempfile::NamedTempFile::new_in(target).unwrap();
    std::fs::write(&file, vec![1; FILE_BYTES]).unwrap();
    file.as_file().sync_all().unwrap();
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&file)
        .unwrap();
    let disk = File::open(disk).unwrap();
    let (window, is_done) = (AtomicUsize::new(NO_WINDOW), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until_done(&file, pairs * 2, &window, &is_done));
        for pair in 0..pairs {
            // The order alternates, so that a drift of the machine affects both.
            for running in [pair % 2, 1 - pair % 2] {
                agents[1 - running].signal(libc::SIGSTOP);
                // Otherwise the kernel would write what one agent left while the other runs.
                rustix::fs::syncfs(&disk).unwrap();
                agents[running].signal(libc::SIGCONT);
                pass(SETTLE);
                window.store(pair * 2 + running, Ordering::Relaxed);
                pass(WINDOW);
                window.store(NO_WINDOW, Ordering::Relaxed);
            }
        }
        is_done.store(true, Ordering::Relaxed);
        for agent in agents {
            agent.signal(libc::SIGCONT);
        }
        let (mut of_first, mut of_second) = (Windows::new(), Windows::new());
        for (index, durations) in reader.join().unwrap().into_iter().enumerate() {
            let of = if index % 2 == 0 {
                &mut of_first
            } else {
                &mut of_second
            };
            of.push(durations);
        }
        [of_first, of_second]
    })
}

/// Reads blocks at random, and records the durations within each window.
fn read_until_done(
    file: &File,
    windows: usize,
    window: &AtomicUsize,
    is_done: &AtomicBool,
) -> Windows {
    let mut recorded = vec![Vec::new(); windows];
    let mut random = Random::new(1);
    let mut buffer = vec![0; BLOCK * 2];
    let from = buffer.as_ptr().align_offset(BLOCK);
    let block = &mut buffer[from..from + BLOCK];
    while !is_done.load(Ordering::Relaxed) {
        let number = random.below((FILE_BYTES / BLOCK) as u64);
        let durations = recorded.get_mut(window.load(Ordering::Relaxed));
        let began = MonoNanos::now();
        assert_eq!(file.read_at(block, number * BLOCK as u64).unwrap(), BLOCK);
        let took = MonoNanos::now().nanos_since(began);
        if let Some(durations) = durations {
            durations.push(took);
        }
    }
    recorded
}

fn print(on_disk: Windows, in_memory: Windows) {
    let added: Vec<f64> = on_disk
        .iter()
        .zip(&in_memory)
        .map(|(disk, memory)| percent(p99(disk.clone()), p99(memory.clone())))
        .collect();
    let pairs = added.len();
    let [low, middle, high] = median_95(added);
    let (of_disk, of_memory) = (p99(on_disk.concat()), p99(in_memory.concat()));
    println!(
        "the disk adds {middle:+.2} % to the p99 of a window (median; 95 %: {low:+.2} to {high:+.2}; {pairs} pairs of \
         {} s)\np99 of all reads: {:.2} us with the spool on disk, {:.2} us in memory ({:+.2} %)",
        WINDOW.as_secs(),
        of_disk as f64 / 1e3,
        of_memory as f64 / 1e3,
        percent(of_disk, of_memory),
    );
    println!("bar: below 1 %: {}", verdict([low, middle, high], 1.0));
}

fn p99(mut durations: Vec<u64>) -> u64 {
    durations.sort_unstable();
    let rank = (durations.len() * 99).div_ceil(100);
    durations[rank.saturating_sub(1)]
}

fn percent(value: u64, base: u64) -> f64 {
    (value as f64 / base as f64 - 1.0) * 100.0
}

/// What the process has written to disks.
fn written_bytes(process: &Process) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", process.pid())).unwrap();
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}
