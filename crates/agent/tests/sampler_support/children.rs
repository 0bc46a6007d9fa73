//! Child processes of known behaviour, and a sampler to watch them.
//!
//! A child is a fork of the test that only makes system calls. It ends with its guard, and in any case with the test.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use benchmesh_agent::sampler::{
    DaemonRule, DaemonSample, DaemonSeen, Sampled, Sampler, SamplerConfig, Sampling,
};

/// Long enough for any working machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The behaviour of a child until it is killed.
#[derive(Debug, Clone, Copy)]
pub enum Life {
    Sleep,
    /// Burns this share of every 20 ms.
    Burn {
        percent: u64,
    },
    /// The same with a higher priority than other processes on a busy host, if that is allowed.
    BurnFirst {
        percent: u64,
    },
    /// Burns this much, by its own CPU clock, at each request, and then sleeps.
    BurnWhenTold {
        ns: u64,
    },
    /// Forks this many children at each request, one after the other, each of which burns this much and ends.
    Fork {
        children: u32,
        ns: u64,
    },
    /// Forks a child at the first request that burns this much and lives until the second one.
    ForkOne {
        ns: u64,
    },
    /// Touches memory at a request, and then sleeps.
    Touch {
        bytes: usize,
    },
    /// Touches memory and frees it again at each request.
    TouchAndFree {
        bytes: usize,
    },
}

/// Memory shared by a child and the test.
#[derive(Debug, Default)]
pub struct Shared {
    /// Set once it has its own name: a sampler without a beat looks at it only once.
    is_named: AtomicBool,
    /// A futex on which the child waits.
    go: AtomicU32,
    done: AtomicU32,
    burnt_ns: AtomicU64,
}

#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    /// Never unmapped, because a test program is short-lived.
    shared: &'static Shared,
    reaped: bool,
}

impl Child {
    /// Starts a child with the process name `comm`: at most 15 characters.
    pub fn start(comm: &str, life: Life) -> Child {
        let name = std::ffi::CString::new(comm).unwrap();
        let shared = share();
        let parent = std::process::id().cast_signed();
        match fork() {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            // SAFETY: this is the child, which only makes system calls; the name is a C string in its copy of the
            // memory.
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                shared.is_named.store(true, Ordering::Release);
                if libc::getppid() == parent {
                    live(life, shared);
                }
                libc::_exit(0)
            },
            pid => {
                wait_until("named", || shared.is_named.load(Ordering::Acquire));
                Child {
                    pid,
                    shared,
                    reaped: false,
                }
            }
        }
    }

    /// Lets the child do its work once. Returns when it is done.
    pub fn go(&self) {
        let turn = self.shared.go.fetch_add(1, Ordering::AcqRel) + 1;
        // SAFETY: futex(2) to wake one waiter at a mapped word; nothing is written.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.shared.go.as_ptr(),
                libc::FUTEX_WAKE,
                1,
            )
        };
        wait_until("done", || self.shared.done.load(Ordering::Acquire) >= turn);
    }

    /// Its total CPU time by its own clock, at the end of its last work.
    pub fn burnt(&self) -> Duration {
        Duration::from_nanos(self.shared.burnt_ns.load(Ordering::Acquire))
    }

    /// Kills it without reaping it.
    pub fn kill(&self) {
        // SAFETY: kill(2) takes plain numbers; the pid is a child of ours that is not reaped.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Reaps it. Until then no other process can have its pid.
    pub fn reap(&mut self) {
        if !std::mem::replace(&mut self.reaped, true) {
            // SAFETY: waitpid(2) with no place for the status; the pid is a child of ours that is not reaped.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}

/// Waits for a child.
fn wait_until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !so() {
        assert!(Instant::now() < deadline, "the child is not {what}");
        std::thread::yield_now();
    }
}

fn share() -> &'static Shared {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of zeros, which is a valid `Shared`, large and aligned enough, and never unmapped.
    unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            protection,
            flags,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        &*memory.cast::<Shared>()
    }
}

/// # Safety
/// Only in a child that shares no memory with other processes except `shared`.
unsafe fn live(life: Life, shared: &Shared) {
    // SAFETY: system calls on memory of this process alone.
    unsafe {
        match life {
            Life::Sleep => {}
            Life::Burn { percent } => burn(percent),
            Life::BurnFirst { percent } => {
                let first = libc::sched_param { sched_priority: 1 };
                libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first);
                burn(percent);
            }
            Life::BurnWhenTold { ns } => {
                for turn in 1u32.. {
                    wait_for_turn(turn, shared);
                    burn_once(ns, shared);
                    shared.done.store(turn, Ordering::Release);
                }
            }
            Life::Fork { children, ns } => {
                let mut of_children = 0;
                for turn in 1u32.. {
                    wait_for_turn(turn, shared);
                    for _ in 0..children {
                        let child = fork();
                        if child == 0 {
                            burn_once(ns, shared);
                            libc::_exit(0);
                        }
                        of_children += wait_for(child);
                    }
                    tell_burnt(of_children, shared);
                    shared.done.store(turn, Ordering::Release);
                }
            }
            Life::ForkOne { ns } => {
                wait_for_turn(1, shared);
                let child = fork();
                if child == 0 {
                    burn_once(ns, shared);
                    shared.done.store(1, Ordering::Release);
                    wait_for_turn(2, shared);
                    libc::_exit(0);
                }
                tell_burnt(wait_for(child), shared);
                shared.done.store(2, Ordering::Release);
            }
            Life::TouchAndFree { bytes } => {
                for turn in 1u32.. {
                    wait_for_turn(turn, shared);
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let protection = libc::PROT_READ | libc::PROT_WRITE;
                    let memory = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
                    if memory != libc::MAP_FAILED {
                        memory.cast::<u8>().write_bytes(1, bytes);
                        libc::munmap(memory, bytes);
                        shared.done.store(turn, Ordering::Release);
                    }
                }
            }
            Life::Touch { bytes } => {
                wait_for_turn(1, shared);
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let memory = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
                if memory != libc::MAP_FAILED {
                    memory.cast::<u8>().write_bytes(1, bytes);
                    shared.done.store(1, Ordering::Release);
                }
            }
        }
        loop {
            libc::pause();
        }
    }
}

/// Burns by its own CPU clock, in turns on an absolute timer, so that the amount does not depend on when it gets a CPU.
fn burn(percent: u64) {
    const TURN_NS: u64 = 20_000_000;
    let began = clock_ns(libc::CLOCK_MONOTONIC);
    let burnt = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    for turn in 1u64.. {
        let goal = burnt + turn * TURN_NS * percent / 100;
        while clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) < goal {}
        sleep_until(began + turn * TURN_NS);
    }
}

/// Burns a fixed amount, however long it waits for a CPU meanwhile.
fn burn_once(ns: u64, shared: &Shared) {
    let goal = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) + ns;
    let mut now = 0;
    while now < goal {
        now = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    }
    shared.burnt_ns.store(now, Ordering::Release);
}

/// fork(2) without the handlers of the C library, which are for processes with threads.
fn fork() -> i32 {
    // SAFETY: the child has its own copy of the memory, and only makes system calls.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    i32::try_from(pid).unwrap_or(-1)
}

/// Waits for a child. Returns its CPU time.
fn wait_for(child: i32) -> u64 {
    // SAFETY: all zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: wait4(2) with a valid place for the usage and none for the status.
    unsafe { libc::wait4(child, std::ptr::null_mut(), 0, &raw mut usage) };
    let us = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    (us(usage.ru_utime) + us(usage.ru_stime)).cast_unsigned() * 1_000
}

/// The CPU time of the process and of its children so far.
fn tell_burnt(of_children: u64, shared: &Shared) {
    let own = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    shared.burnt_ns.store(own + of_children, Ordering::Release);
}

/// Sleeps while it waits, because busy waiting would add to the process's CPU time.
fn wait_for_turn(turn: u32, shared: &Shared) {
    loop {
        let seen = shared.go.load(Ordering::Acquire);
        if seen >= turn {
            return;
        }
        // SAFETY: futex(2) on a mapped word, without a time limit; it returns at once when the word has changed.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                shared.go.as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }
}

fn sleep_until(ns: u64) {
    let at = libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: `at` lives through the call; no place for the time left.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const at,
            std::ptr::null_mut(),
        )
    };
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A process name that no other test uses.
pub fn unique(stem: &str) -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("{stem}{:x}-{count}", std::process::id());
    assert!(name.len() <= 15, "{name}");
    name
}

pub fn rule(comm: &str) -> DaemonRule {
    DaemonRule {
        name: comm.to_owned(),
        comm: Some(comm.to_owned()),
        ..DaemonRule::default()
    }
}

/// Samples in the order of arrival.
pub struct Watched {
    pub sampler: Sampler,
    samples: Receiver<Sampled>,
}

impl Watched {
    pub fn start(config: SamplerConfig) -> Watched {
        // Minutes of samples at 10 Hz; a test that waits for one takes them as they arrive.
        let (send, samples) = sync_channel(4096);
        let sampler = Sampler::start(config, move |sampled| drop(send.try_send(sampled))).unwrap();
        Watched { sampler, samples }
    }

    /// Watches the children with that name, at that period.
    pub fn comm(comm: &str, period: Option<Duration>) -> Watched {
        Watched::start(SamplerConfig {
            rules: vec![rule(comm)],
            scan_every: Duration::from_millis(100),
            sampling: Sampling {
                host_wide: true,
                interfaces: true,
                period,
            },
            ..SamplerConfig::default()
        })
    }

    /// Watches a recorded tree.
    pub fn tree(root: PathBuf) -> Watched {
        Watched::start(SamplerConfig {
            proc_root: root,
            scan_every: Duration::from_millis(100),
            sampling: Sampling {
                period: Some(Duration::from_millis(100)),
                ..Sampling::default()
            },
            ..SamplerConfig::default()
        })
    }

    /// Stops the sampler. Returns the remaining samples.
    pub fn stop(self) -> Vec<Sampled> {
        self.sampler.stop();
        self.samples.try_iter().collect()
    }

    pub fn next(&self) -> Sampled {
        self.samples
            .recv_timeout(DEADLINE)
            .expect("the sampler hands over samples")
    }

    /// A sample that has already arrived.
    pub fn try_next(&self) -> Option<Sampled> {
        self.samples.try_recv().ok()
    }

    /// Waits for the first sample in which `find` returns a value.
    pub fn until<T>(&self, mut find: impl FnMut(&Sampled) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            if let Some(found) = find(&self.next()) {
                return found;
            }
        }
        panic!("nothing of that kind came within {DEADLINE:?}");
    }

    pub fn daemon(&self, pid: i32) -> DaemonSample {
        self.until(|sampled| sample_of(sampled, pid))
    }

    pub fn seen(&self, pid: i32) -> DaemonSeen {
        self.until(|sampled| seen_of(sampled, pid))
    }
}

pub fn sample_of(sampled: &Sampled, pid: i32) -> Option<DaemonSample> {
    sampled
        .daemons
        .iter()
        .find(|sample| sample.pid == pid)
        .copied()
}

pub fn seen_of(sampled: &Sampled, pid: i32) -> Option<DaemonSeen> {
    sampled.seen.iter().find(|seen| seen.pid == pid).cloned()
}

pub fn is_root() -> bool {
    // SAFETY: geteuid(2) cannot fail and touches nothing.
    unsafe { libc::geteuid() == 0 }
}
