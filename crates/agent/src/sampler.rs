//! Watches a host from one thread of its own: storage daemons, CPU, memory, pressure, disks, interfaces.
//!
//! It reads `/proc` and returns rows; it does not know about collectors, spools or mesh time. Ticks are aligned to
//! whole periods of the monotonic clock; late ticks are skipped and counted. No content of `/proc` makes it panic: a
//! text that does not parse loses its rows and is logged once. The sink runs in the sampler's thread and must not
//! block.

mod arguments;
mod binary;
mod carriers;
mod clock;
mod counter;
mod cpu;
mod daemon;
mod daemons;
mod devices;
mod exec_events;
mod execs;
mod freezer;
mod host;
mod instance;
mod life;
mod links;
mod offspring;
mod open_files;
mod others;
mod parse;
mod poll;
mod proc_file;
mod round_robin;
mod rules;
mod sampled;
mod scan;
mod secrets;
mod stacked;
mod switches;
mod thread;
mod ticker;
mod versions;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use thiserror::Error;

pub(crate) use arguments::cut;
pub(crate) use cpu::CpuClock;
use rules::Rules;
pub use rules::{DaemonRule, RuleError};
pub use sampled::{
    BusyOthers, CarrierChange, Cost, DaemonChange, DaemonSample, DaemonSeen, DiskSample,
    HostSample, LinkChange, LinkTrouble, NetSample, Sampled,
};
pub(crate) use secrets::without_secrets;

/// With a shorter period a sample is mostly noise from the kernel's own ticks.
pub const MIN_PERIOD: Duration = Duration::from_millis(100);

/// The sampler's configuration, fixed for its lifetime.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// `/proc`. Any other path is treated as a recorded tree: CPU time is then read from `stat` alone.
    pub proc_root: PathBuf,
    /// Rules from the agent's configuration; they take precedence over the built-in names.
    pub rules: Vec<DaemonRule>,
    /// Interval of scans for new daemons.
    pub scan_every: Duration,
    pub sampling: Sampling,
    /// The processes of benchmesh to watch in addition to the sampler's own; `None`: all of them.
    pub mesh_pids: Option<BTreeSet<i32>>,
}

impl SamplerConfig {
    /// `/sys`, or the directory beside a recorded `/proc`.
    fn sys_root(&self) -> PathBuf {
        self.proc_root.with_file_name("sys")
    }
}

impl Default for SamplerConfig {
    fn default() -> Self {
        SamplerConfig {
            proc_root: PathBuf::from("/proc"),
            rules: Vec::new(),
            scan_every: Duration::from_secs(5),
            sampling: Sampling::default(),
            mesh_pids: None,
        }
    }
}

/// What to sample from now on. All agents of a host share one sampler for its daemons, disks and CPU; interfaces belong
/// to a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Daemons, CPU, memory, pressure and disks of the host.
    pub host_wide: bool,
    /// Interfaces of the network namespace in which the sampler was started.
    pub interfaces: bool,
    /// `None`: only at marks. Raised to at least [`MIN_PERIOD`].
    pub period: Option<Duration>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            host_wide: true,
            interfaces: true,
            period: Some(Duration::from_secs(1)),
        }
    }
}

/// An instant at which everything is sampled, in addition to the regular ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    StepStart(MonoNanos),
    /// The last worker of one task has ended; other tasks of the step may continue.
    TaskEnd(MonoNanos),
    StepEnd(MonoNanos),
}

#[derive(Debug, Error)]
pub enum SamplerError {
    #[error("the sampler cannot make its {what}")]
    Setup {
        what: &'static str,
        #[source]
        source: Errno,
    },
    #[error("the sampler's thread cannot be started")]
    Thread {
        #[source]
        source: std::io::Error,
    },
    #[error("daemon rule {name:?} of the agent's configuration")]
    Rule {
        name: String,
        #[source]
        source: RuleError,
    },
}

/// A running sampler. Dropping it stops it.
#[derive(Debug)]
pub struct Sampler {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread `bm-sampler`. `sink` is called in it with each sample, ordered by time, and must not block.
    /// Raises the process's soft limit of open files to the hard limit.
    pub fn start(
        config: SamplerConfig,
        sink: impl FnMut(Sampled) + Send + 'static,
    ) -> Result<Sampler, SamplerError> {
        let orders = Arc::new(Orders::new(config.sampling)?);
        let sampler = thread::SamplerThread::new(&config, Arc::clone(&orders))?;
        let thread = std::thread::Builder::new()
            .name("bm-sampler".to_owned())
            .spawn(move || sampler.run(sink))
            .map_err(|source| SamplerError::Thread { source })?;
        Ok(Sampler {
            orders,
            thread: Some(thread),
        })
    }

    /// Changes the sampling at once. Known daemons are announced again when host-wide sampling begins.
    pub fn set(&self, sampling: Sampling) {
        self.orders.give(|wanted| wanted.sampling = sampling);
    }

    /// Replaces the rules and the set of benchmesh's own processes to watch.
    ///
    /// # Errors
    /// When a rule is invalid; nothing has changed then.
    pub fn watch(
        &self,
        rules: Vec<DaemonRule>,
        mesh_pids: BTreeSet<i32>,
    ) -> Result<(), SamplerError> {
        let rules =
            Rules::new(rules).map_err(|(name, source)| SamplerError::Rule { name, source })?;
        self.orders
            .give(|wanted| wanted.watched = Some((rules, mesh_pids)));
        Ok(())
    }

    /// Takes one sample at that instant, whatever the period; at once if the instant has passed. The exact start and
    /// end of a step are marks. A start begins a burst of samples that thins out, and an end ends it.
    pub fn mark(&self, mark: Mark) {
        self.orders.give(|wanted| {
            if wanted.marks.len() < ticker::MARKS_MAX {
                wanted.marks.push(mark);
            }
        });
    }

    /// Ends the thread after the current sample. Ends of daemons that were due with the next sample are handed over.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.orders.give(|wanted| wanted.stop = true);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread; there is nothing left to save.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Orders of the owner to the thread, and the descriptor that wakes it.
#[derive(Debug)]
struct Orders {
    wanted: Mutex<Wanted>,
    wakeup: OwnedFd,
}

#[derive(Debug, Clone)]
struct Wanted {
    sampling: Sampling,
    marks: Vec<Mark>,
    /// Handed over once.
    watched: Option<(Rules, BTreeSet<i32>)>,
    stop: bool,
}

impl Orders {
    fn new(sampling: Sampling) -> Result<Orders, SamplerError> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wakeup = rustix::event::eventfd(0, flags).map_err(|source| SamplerError::Setup {
            what: "wake-up descriptor",
            source,
        })?;
        Ok(Orders {
            wanted: Mutex::new(Wanted {
                sampling,
                marks: Vec::new(),
                watched: None,
                stop: false,
            }),
            wakeup,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: impl FnOnce(&mut Wanted)) {
        order(&mut self.lock());
        // Increments by one cannot overflow the counter, and a full counter would wake the thread too.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    /// Returns the current orders; the marks are handed over once.
    fn take(&self) -> Wanted {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.wakeup, &mut count);
        let mut wanted = self.lock();
        let marks = std::mem::take(&mut wanted.marks);
        let watched = wanted.watched.take();
        Wanted {
            marks,
            watched,
            ..wanted.clone()
        }
    }
}
