//! The kernel, rights, clocks and limits.

use super::Finding;
use crate::config::AgentConfig;
use crate::policy::Bytes;
use crate::sampler::CpuClock;
use benchmesh_workloads::workloads::io::probe_io_uring;
use rustix::process::{Resource, getrlimit};
use std::fs::{self, OpenOptions};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The inode of the host's own PID namespace (PROC_PID_INIT_INO of the kernel).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// A storage node with many daemons needs at least this many.
const FILES_WANTED: u64 = 65_536;

/// Size of the buffers that a ring registers.
const LOCKED_WANTED: u64 = 64 << 20;

/// Capabilities that the agent uses, by bit, and the feature that is unavailable without each.
const CAPABILITIES: [(u32, &str, &str); 5] = [
    (1, "CAP_DAC_OVERRIDE", "targets of other users"),
    (12, "CAP_NET_ADMIN", "daemons that end between two samples"),
    (19, "CAP_SYS_PTRACE", "I/O bytes and open files of daemons"),
    (
        23,
        "CAP_SYS_NICE",
        "starts without delay by other processes",
    ),
    (14, "CAP_IPC_LOCK", "large registered buffers of io_uring"),
];

pub fn examine(config: &AgentConfig) -> Vec<Finding> {
    vec![
        kernel(),
        rights(&read("/proc/self/status")),
        proc_mount(&read("/proc/mounts")),
        namespace(fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())),
        cpu_clock(),
        cpu_counter(&read(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        )),
        wall_clock(),
        open_files(getrlimit(Resource::Nofile).maximum),
        locked_memory(getrlimit(Resource::Memlock).current),
        io_uring(),
        caches(config, Path::new("/proc/sys/vm/drop_caches")),
    ]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kernel() -> Finding {
    let system = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .map_or_else(String::new, |kib: u64| {
            format!(", {}", Bytes(kib * 1024).about())
        });
    Finding::ok(
        "host",
        format!(
            "{}, Linux {}, {cpus} CPUs{memory}",
            system.nodename().to_string_lossy(),
            system.release().to_string_lossy()
        ),
    )
}

pub(super) fn rights(status: &str) -> Finding {
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or_default();
    let missing: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(bit, _, _)| effective & (1 << bit) == 0)
        .map(|(_, name, lacks)| format!("{name} ({lacks})"))
        .collect();
    if missing.is_empty() {
        return Finding::ok("rights", "every capability that the agent uses");
    }
    Finding::warn(
        "rights",
        format!("without {}", missing.join(", ")),
        "if you need these, run the agent as root, as benchmesh-agent.service does",
    )
}

pub(super) fn proc_mount(mounts: &str) -> Finding {
    let options = mounts
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&"/proc"))
        .filter_map(|fields| fields.get(3).map(|options| (*options).to_owned()))
        .next_back()
        .unwrap_or_default();
    let hides = options.split(',').find(|option| {
        option.starts_with("hidepid=") && !matches!(*option, "hidepid=0" | "hidepid=off")
    });
    match hides {
        Some(option) if !rustix::process::geteuid().is_root() => Finding::warn(
            "proc",
            format!("/proc is mounted with {option}: daemons of other users are not visible"),
            "run the agent as root, or: mount -o remount,hidepid=0 /proc",
        ),
        Some(option) => Finding::ok(
            "proc",
            format!("/proc is mounted with {option}, which does not restrict root"),
        ),
        None => Finding::ok("proc", "every process is visible"),
    }
}

pub(super) fn namespace(inode: u64) -> Finding {
    if inode == FIRST_PID_NAMESPACE {
        return Finding::ok("pid-namespace", "the host's");
    }
    Finding::warn(
        "pid-namespace",
        "a container's own: daemons outside of it are not visible",
        "share the host's: docker run --pid=host, or hostPID: true in Kubernetes",
    )
}

fn cpu_clock() -> Finding {
    match CpuClock::of(1).and_then(CpuClock::read_ns) {
        Some(_) => Finding::ok("cpu-clock", "CPU time of processes in nanoseconds"),
        None => Finding::warn(
            "cpu-clock",
            "the agent cannot read the CPU clocks of other processes: their CPU time has a resolution of 10 ms",
            "allow clock_gettime on other processes in the container's seccomp profile",
        ),
    }
}

pub(super) fn cpu_counter(source: &str) -> Finding {
    let source = source.trim();
    match source {
        "tsc" => Finding::ok(
            "clock-source",
            "tsc: a worker reads its clock without a system call",
        ),
        "" => Finding::ok("clock-source", "not reported by this kernel"),
        other if cfg!(target_arch = "x86_64") => Finding::warn(
            "clock-source",
            format!("{other}: each clock reading of a worker is a system call"),
            "if the machine's time stamp counter is reliable, boot with clocksource=tsc",
        ),
        other => Finding::ok("clock-source", other),
    }
}

fn wall_clock() -> Finding {
    let mut facts = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: an all-zero timex is valid and only queries; the kernel writes into it during the call and keeps no
    // pointer.
    let (state, facts) = unsafe {
        let state = libc::adjtimex(facts.as_mut_ptr());
        (state, facts.assume_init())
    };
    let is_disciplined = state >= 0 && facts.status & libc::STA_UNSYNC == 0;
    if is_disciplined {
        return Finding::ok(
            "clock",
            format!(
                "synchronised; its error is at most {} ms",
                facts.maxerror / 1000
            ),
        );
    }
    Finding::warn(
        "clock",
        "the wall clock is not synchronised: it decides whether certificates are valid, and a \
         collector dates runs by it",
        "run chrony or systemd-timesyncd; starts and intervals do not depend on it",
    )
}

pub(super) fn open_files(maximum: Option<u64>) -> Finding {
    match maximum {
        Some(count) if count < FILES_WANTED => Finding::warn(
            "open-files",
            format!(
                "at most {count}: loads with many workers and hosts with many daemons need more"
            ),
            format!("LimitNOFILE={FILES_WANTED} in the unit, or ulimit -n"),
        ),
        Some(count) => Finding::ok("open-files", format!("up to {count}")),
        None => Finding::ok("open-files", "no limit"),
    }
}

pub(super) fn locked_memory(current: Option<u64>) -> Finding {
    match current {
        Some(bytes) if bytes < LOCKED_WANTED && !rustix::process::geteuid().is_root() => {
            Finding::warn(
                "locked-memory",
                format!(
                    "at most {}: io_uring pins its buffers for each operation",
                    Bytes(bytes).about()
                ),
                "LimitMEMLOCK=infinity in the unit, or ulimit -l",
            )
        }
        Some(bytes) => Finding::ok("locked-memory", format!("up to {}", Bytes(bytes).about())),
        None => Finding::ok("locked-memory", "no limit"),
    }
}

fn io_uring() -> Finding {
    match probe_io_uring() {
        Ok(()) => Finding::ok("io_uring", "the kernel supports it"),
        Err(problem) => {
            let (found, remedy) = problem.split_once("): ").unwrap_or((&problem, ""));
            let close = if remedy.is_empty() { "" } else { ")" };
            Finding::warn("io_uring", format!("{found}{close}"), remedy)
        }
    }
}

pub(super) fn caches(config: &AgentConfig, control: &Path) -> Finding {
    let is_writable = OpenOptions::new().write(true).open(control).is_ok();
    match (config.policy.allow_drop_caches, is_writable) {
        (true, true) => Finding::ok("caches", "this user can drop them, and the agent allows it"),
        (true, false) => Finding::fail(
            "caches",
            format!(
                "the agent allows dropping caches but cannot write {}",
                control.display()
            ),
            "run the agent as root, without ProtectKernelTunables= in its unit",
        ),
        (false, true) => Finding::ok(
            "caches",
            "this user can drop them, but plans may not (allow-drop-caches)",
        ),
        (false, false) => Finding::ok("caches", "this user cannot drop them, and plans may not"),
    }
}
