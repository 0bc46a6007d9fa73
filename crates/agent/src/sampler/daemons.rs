//! The daemons of the host: found by name or rule, watched until they end.
//!
//! It keeps descriptors for as many as the limit of open files allows, leaving room for the rest of the agent, and
//! opens the files of the others anew at each sample. What it holds is bounded by the processes that live.

use std::path::PathBuf;
use std::sync::Arc;

use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use rustix::process::Resource;
use tracing::{info, warn};

use super::arguments::Arguments;
use super::beat::Call;
use super::cpu::TickLength;
use super::daemon::{
    Daemon, Depth, KEPT_PER_DAEMON, Means, OpenError, Reading, SwitchSource, Tree,
};
use super::instance::Naming;
use super::open_files::FdSizes;
use super::parse;
use super::poll::Poll;
use super::proc_file::{Buffer, Keeping};
use super::rules::{Called, Interest, Process, Rules};
use super::sampled::{DaemonSample, DaemonSeen};
use super::scan::{Candidate, Scanner, YOUNG};
use super::switches::{AT_ONCE, SwitchCounts, Switches};
use super::turn::Turn;
use super::{SamplerConfig, SamplerError};

/// Descriptors left to the rest of the agent: sockets, spool, workers' files.
const FDS_OF_OTHERS: u64 = 512;

#[derive(Debug)]
pub(crate) struct Daemons {
    proc_root: PathBuf,
    rules: Rules,
    scanner: Scanner,
    candidates: Vec<Candidate>,
    /// Ascending by pid.
    watched: Vec<Daemon>,
    /// Who is read whole.
    turn: Turn,
    means: Means,
    switches: Option<Switches>,
    /// Of the daemons that are read next.
    counts: Vec<Option<SwitchCounts>>,
    own_pid: i32,
    /// How many daemons' files may be kept open.
    keep_most: usize,
    said_short: bool,
    said_scan: bool,
}

/// Where the rows of a sample go.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) seen: Vec<DaemonSeen>,
    pub(crate) samples: Vec<DaemonSample>,
}

impl Daemons {
    pub(crate) fn new(config: &SamplerConfig, poll: Arc<Poll>) -> Result<Daemons, SamplerError> {
        let rules = Rules::new(config.rules.clone())
            .map_err(|(name, source)| SamplerError::Rule { name, source })?;
        let scanner = Scanner::open(&config.proc_root).map_err(|source| SamplerError::Setup {
            what: "list of processes",
            source,
        })?;
        let own_pid = i32::try_from(std::process::id()).unwrap_or(0);
        let own = std::fs::read_link(config.proc_root.join("self")).ok();
        let tree = match own.is_some_and(|link| link.as_os_str() == own_pid.to_string().as_str()) {
            true => Tree::Live,
            false => Tree::Foreign,
        };
        let switches = if tree == Tree::Live {
            connect_switches()
        } else {
            None
        };
        let means = Means {
            poll,
            tree,
            tick: TickLength::of_this_kernel(),
            page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            fd_sizes: FdSizes::probe(&config.proc_root),
            switches: if switches.is_some() {
                SwitchSource::Kernel
            } else {
                SwitchSource::Status
            },
            said_io: false,
        };
        Ok(Daemons {
            proc_root: config.proc_root.clone(),
            rules,
            scanner,
            candidates: Vec::new(),
            watched: Vec::new(),
            turn: Turn::default(),
            means,
            switches,
            counts: Vec::new(),
            own_pid,
            keep_most: keep_most(),
            said_short: false,
            said_scan: false,
        })
    }

    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
    }

    /// Watches nothing any more, without a word; the next scan finds all of them as new.
    pub(crate) fn forget(&mut self) {
        self.watched.clear();
        self.scanner.forget();
    }

    /// All that are watched, for whoever may not have heard of them.
    pub(crate) fn announce(&self, seen: &mut Vec<DaemonSeen>) {
        let now = MonoNanos::now();
        seen.extend(self.watched.iter().map(|daemon| daemon.seen(now, false)));
    }

    pub(crate) fn sample(&mut self, call: Call, buffer: &mut Buffer, rows: &mut Rows) {
        rows.samples.reserve(self.watched.len());
        let mut any_ended = false;
        let last = self.turn.begin(call);
        let begin = self.watched.partition_point(|daemon| daemon.pid <= last);
        let (around, from) = self.watched.split_at_mut(begin);
        let chunks = from.chunks_mut(AT_ONCE).chain(around.chunks_mut(AT_ONCE));
        for daemons in chunks {
            for daemon in daemons.iter_mut() {
                daemon.glance();
                let whole = daemon.has_run() && self.turn.take(daemon.pid);
                daemon.depth = match whole || !daemon.may_be_brief() {
                    true => Depth::Whole,
                    false => Depth::Brief,
                };
            }
            let is_asked = |daemon: &Daemon| daemon.depth == Depth::Whole && daemon.has_run();
            self.counts.clear();
            if let Some(switches) = &mut self.switches {
                let asked = daemons.iter().filter(|daemon| is_asked(daemon));
                switches.of(asked.map(|daemon| daemon.pid), &mut self.counts);
            }
            let mut counts = self.counts.iter();
            for daemon in daemons {
                let counts = if is_asked(daemon) {
                    counts.next().copied().flatten()
                } else {
                    None
                };
                match daemon.read(counts, &self.means, buffer) {
                    Reading::Sample(sample) => rows.samples.push(sample),
                    Reading::Unreadable => {}
                    Reading::Ended(last) => {
                        rows.samples.extend(last);
                        rows.seen.push(daemon.seen(MonoNanos::now(), true));
                        daemon.over = true;
                        any_ended = true;
                    }
                }
            }
        }
        if any_ended {
            self.watched.retain(|daemon| !daemon.over);
        }
    }

    /// The last sample of a daemon whose end has rung.
    pub(crate) fn ended(&mut self, pid: i32, buffer: &mut Buffer, rows: &mut Rows) {
        let Ok(place) = self.place(pid) else { return };
        let Some(daemon) = self.watched.get_mut(place) else {
            return;
        };
        daemon.glance();
        daemon.depth = Depth::Whole;
        match daemon.read(None, &self.means, buffer) {
            // The bell was an earlier process's of the same pid, which has been taken down meanwhile.
            Reading::Sample(_) => return,
            Reading::Unreadable => {}
            Reading::Ended(last) => rows.samples.extend(last),
        }
        rows.seen.push(daemon.seen(MonoNanos::now(), true));
        self.watched.remove(place);
    }

    /// Looks for daemons that have come, gone or changed their name.
    pub(crate) fn scan(&mut self, buffer: &mut Buffer, rows: &mut Rows) {
        let mut candidates = std::mem::take(&mut self.candidates);
        if let Err(errno) = self.scanner.scan(&mut candidates) {
            if !std::mem::replace(&mut self.said_scan, true) {
                warn!(error = %errno, "processes cannot be listed: new daemons are not found");
            }
            return;
        }
        let scanner = &self.scanner;
        self.watched.retain(|daemon| {
            let there = scanner.saw(daemon.pid);
            if !there {
                rows.seen.push(daemon.seen(MonoNanos::now(), true));
            }
            there
        });
        for candidate in &candidates {
            self.look(*candidate, buffer, rows);
        }
        self.candidates = candidates;
    }

    fn look(&mut self, candidate: Candidate, buffer: &mut Buffer, rows: &mut Rows) {
        let pid = candidate.pid;
        if let Ok(place) = self.place(pid) {
            match candidate.scans {
                1 if self.is_another(place, buffer) => {
                    let daemon = self.watched.remove(place);
                    rows.seen.push(daemon.seen(MonoNanos::now(), true));
                }
                // Some daemons write over their command line once they are up, some become another program.
                2..=YOUNG => {
                    self.name_again(place, buffer, rows);
                    return;
                }
                _ => return,
            }
        }
        let Some((called, cmdline)) = self.identify(pid, buffer) else {
            return;
        };
        let Some(mut daemon) = self.open(pid, &called, buffer) else {
            return;
        };
        daemon.called = called;
        daemon.cmdline = cmdline;
        rows.seen.push(daemon.seen(MonoNanos::now(), false));
        if let Err(place) = self.place(pid) {
            self.watched.insert(place, daemon);
        }
    }

    fn place(&self, pid: i32) -> Result<usize, usize> {
        self.watched.binary_search_by_key(&pid, |daemon| daemon.pid)
    }

    /// Whether the pid now belongs to another process than the watched one.
    fn is_another(&mut self, place: usize, buffer: &mut Buffer) -> bool {
        let Some(daemon) = self.watched.get(place) else {
            return false;
        };
        let stat = self
            .scanner
            .read(daemon.pid, "stat", buffer)
            .ok()
            .and_then(|text| parse::stat(text).ok());
        stat.is_some_and(|stat| stat.start_ticks != daemon.start_ticks)
    }

    fn name_again(&mut self, place: usize, buffer: &mut Buffer, rows: &mut Rows) {
        let Some(pid) = self.watched.get(place).map(|daemon| daemon.pid) else {
            return;
        };
        let Some((called, cmdline)) = self.identify(pid, buffer) else {
            return;
        };
        let Some(daemon) = self.watched.get_mut(place) else {
            return;
        };
        if called != daemon.called {
            daemon.called = called;
            daemon.cmdline = cmdline;
            rows.seen.push(daemon.seen(MonoNanos::now(), false));
        }
    }

    /// What the process is called and its command line, if it is a daemon.
    fn identify(&mut self, pid: i32, buffer: &mut Buffer) -> Option<(Called, String)> {
        let comm = self.scanner.read(pid, "comm", buffer).ok()?;
        let comm = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(comm));
        let own = pid == self.own_pid && self.means.tree == Tree::Live;
        let interest = match self.rules.interest(&comm) {
            Interest::None if own => Interest::CommandLine,
            Interest::None => return None,
            interest => interest,
        };
        let comm = comm.into_owned();
        let arguments = Arguments::from_kernel(self.scanner.read(pid, "cmdline", buffer).ok()?);
        let cgroups = match interest {
            Interest::CommandLineAndCgroups => {
                self.scanner.read(pid, "cgroup", buffer).unwrap_or_default()
            }
            _ => &[],
        };
        let cgroups = String::from_utf8_lossy(cgroups);
        let process = Process {
            comm: &comm,
            arguments: &arguments,
            cgroups: &cgroups,
        };
        // The sampler's own cost is stored, whatever its program is called.
        let as_own = || {
            own.then(|| Called {
                name: "benchmesh".to_owned(),
                instance: Naming::Benchmesh.instance(&comm, &arguments),
            })
        };
        let called = self.rules.call(&process).or_else(as_own)?;
        let cmdline = if arguments.is_empty() {
            format!("[{comm}]")
        } else {
            arguments.shown()
        };
        Some((called, cmdline))
    }

    fn open(&mut self, pid: i32, called: &Called, buffer: &mut Buffer) -> Option<Daemon> {
        let directory = self.proc_root.join(pid.to_string());
        let keeping = if self.watched.len() < self.keep_most {
            Keeping::Open
        } else {
            Keeping::Anew
        };
        let mut opened = Daemon::open(pid, &directory, keeping, &mut self.means, buffer);
        let short = match &opened {
            Err(OpenError::Short(errno)) if keeping == Keeping::Open => Some(*errno),
            _ if keeping == Keeping::Anew => Some(Errno::MFILE),
            _ => None,
        };
        if let Some(errno) = short {
            if !std::mem::replace(&mut self.said_short, true) {
                info!(
                    daemons = self.watched.len(), error = %errno,
                    "too few open files are allowed to keep those of more daemons open: theirs are opened anew for each \
                    sample, which costs more CPU; raise the limit (LimitNOFILE=, ulimit -n)"
                );
            }
            if keeping == Keeping::Open {
                opened = Daemon::open(pid, &directory, Keeping::Anew, &mut self.means, buffer);
            }
        }
        match opened {
            Ok(daemon) => Some(daemon),
            Err(OpenError::Gone) => None,
            Err(OpenError::Short(errno)) => {
                warn!(pid, name = called.name, error = %errno, "a daemon cannot be watched");
                None
            }
            Err(OpenError::Other(problem)) => {
                warn!(
                    pid,
                    name = called.name,
                    problem,
                    "a daemon cannot be watched"
                );
                None
            }
        }
    }
}

fn connect_switches() -> Option<Switches> {
    Switches::connect()
        .inspect_err(|errno| {
            info!(error = %errno, "context switches of daemons with several threads are not known, and their columns are NULL; \
                run the agent as root or with CAP_NET_ADMIN to have them");
        })
        .ok()
}

/// Raises the soft limit of open files to the hard one; how many daemons may keep theirs.
fn keep_most() -> usize {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    let Some(most) = limit.current else {
        return usize::MAX;
    };
    let others = FDS_OF_OTHERS.min(most / 2);
    usize::try_from(most.saturating_sub(others)).unwrap_or(usize::MAX) / KEPT_PER_DAEMON
}
