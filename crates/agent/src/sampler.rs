//! Watches a host from one thread of its own: storage daemons, CPU, memory, pressure, disks, interfaces.
//!
//! It reads `/proc` and hands over rows; it knows nothing of collectors, spools or mesh time. Ticks are aligned to whole
//! periods of the monotonic clock, late ones are skipped and counted. Nothing that a process can put into `/proc` makes
//! it panic: a text that does not parse costs its rows and is said once. The sink runs in the sampler's thread and must
//! not block.

mod arguments;
mod beat;
mod clock;
mod counter;
mod cpu;
mod daemon;
mod daemons;
mod devices;
mod host;
mod instance;
mod open_files;
mod parse;
mod poll;
mod proc_file;
mod rules;
mod sampled;
mod scan;
mod switches;
mod turn;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use thiserror::Error;

pub use rules::{DaemonRule, RuleError};
pub use sampled::{Cost, DaemonSample, DaemonSeen, DiskSample, HostSample, NetSample, Sampled};

/// Below this a sample is mostly noise of the kernel's own ticks.
pub const PERIOD_MIN: Duration = Duration::from_millis(100);

/// What to watch, fixed for the sampler's life.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// `/proc`. Anywhere else it is taken for a recorded tree: CPU time then comes from `stat` alone.
    pub proc_root: PathBuf,
    /// Rules of the agent's configuration; they come before the built-in names.
    pub rules: Vec<DaemonRule>,
    /// How often new daemons are looked for.
    pub scan_every: Duration,
    pub sampling: Sampling,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        SamplerConfig {
            proc_root: PathBuf::from("/proc"),
            rules: Vec::new(),
            scan_every: Duration::from_secs(5),
            sampling: Sampling::default(),
        }
    }
}

/// What to sample from now on. A host has one sampler for its daemons, disks and CPU, however many agents share it;
/// interfaces belong to a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Daemons, CPU, memory, pressure and disks of the host.
    pub host_wide: bool,
    /// Interfaces of the network namespace that the sampler was started in.
    pub interfaces: bool,
    /// None: only at marks. Held to at least [`PERIOD_MIN`].
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
    /// Starts the thread `bm-sampler`. `sink` is called in it with each sample, in the order of time, and must not
    /// block. Raises the process's soft limit of open files to the hard one.
    pub fn start(
        config: SamplerConfig,
        sink: impl FnMut(Sampled) + Send + 'static,
    ) -> Result<Sampler, SamplerError> {
        let orders = Arc::new(Orders::new(config.sampling)?);
        let watch = watch::Watch::new(&config, Arc::clone(&orders))?;
        let thread = std::thread::Builder::new()
            .name("bm-sampler".to_owned())
            .spawn(move || watch.run(sink))
            .map_err(|source| SamplerError::Thread { source })?;
        Ok(Sampler {
            orders,
            thread: Some(thread),
        })
    }

    /// Takes effect at once. Known daemons are announced again when host-wide sampling begins.
    pub fn set(&self, sampling: Sampling) {
        self.orders.give(|wanted| wanted.sampling = sampling);
    }

    /// Takes one sample at that instant, whatever the period; at once when it is past. The exact start and end of a
    /// step are marks.
    pub fn mark(&self, at: MonoNanos) {
        self.orders.give(|wanted| {
            if wanted.marks.len() < beat::MARKS_MAX {
                wanted.marks.push(at);
            }
        });
    }

    /// Ends the thread after the sample in hand.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.orders.give(|wanted| wanted.stop = true);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook; there is nothing left to save.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the owner wants of the thread, and the bell that wakes it.
#[derive(Debug)]
struct Orders {
    wanted: Mutex<Wanted>,
    bell: OwnedFd,
}

#[derive(Debug, Clone)]
struct Wanted {
    sampling: Sampling,
    marks: Vec<MonoNanos>,
    stop: bool,
}

impl Orders {
    fn new(sampling: Sampling) -> Result<Orders, SamplerError> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).map_err(|source| SamplerError::Setup {
            what: "wake-up descriptor",
            source,
        })?;
        Ok(Orders {
            wanted: Mutex::new(Wanted {
                sampling,
                marks: Vec::new(),
                stop: false,
            }),
            bell,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: impl FnOnce(&mut Wanted)) {
        order(&mut self.lock());
        // The counter cannot overflow by ones; a full one would ring all the same.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// What is wanted now; the marks are handed over once.
    fn take(&self) -> Wanted {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        let mut wanted = self.lock();
        let marks = std::mem::take(&mut wanted.marks);
        Wanted {
            marks,
            ..wanted.clone()
        }
    }
}
