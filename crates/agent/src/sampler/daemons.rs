//! The daemons of the host: found by name or rule, watched until they end.
//!
//! Files are kept open for as many daemons as the limit of open files allows, minus a reserve for the rest of the
//! agent. The files of the other daemons are opened again at each sample. The memory used is bounded by the number of
//! live processes.

mod discovery;
mod lineage;
mod programs;
mod withheld;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use rustix::process::Resource;
use tracing::info;

use super::cpu::{CpuClock, TickLength};
use super::daemon::{
    Daemon, DaemonReading, Depth, KEPT_PER_DAEMON, ReadContext, SwitchSource, Tree,
};
use super::offspring::Offspring;
use super::open_files::FdSizes;
use super::others::Others;
use super::poll::Poll;
use super::proc_file::Buffer;
use super::round_robin::RoundRobin;
use super::rules::Rules;
use super::sampled::{BusyOthers, DaemonSample, DaemonSeen};
use super::scan::{Candidate, Scanner};
use super::switches::{AT_ONCE, SwitchCounts, Switches};
use super::ticker::Trigger;
use super::versions::Versions;
use super::{SamplerConfig, SamplerError};

use lineage::Lineage;

/// Descriptors reserved for the rest of the agent: sockets, spool, workers' files.
const FDS_OF_OTHERS: u64 = 512;
#[derive(Debug)]
pub(crate) struct Daemons {
    proc_root: PathBuf,
    rules: Rules,
    scanner: Scanner,
    candidates: Vec<Candidate>,
    /// Ascending by pid.
    watched: Vec<Daemon>,
    /// Selects the daemons for a whole reading.
    round_robin: RoundRobin,
    context: ReadContext,
    switches: Option<Switches>,
    /// Switches of the daemons that are read next.
    counts: Vec<Option<SwitchCounts>>,
    /// Start of the last scan; `None` if there was none since watching began.
    scanned_at: Option<MonoNanos>,
    lineage: Lineage,
    offspring: Offspring,
    others: Others,
    versions: Versions,
    own_pid: i32,
    /// Processes of this mesh; `None`: every benchmesh process is watched.
    mesh_pids: Option<BTreeSet<i32>>,
    /// Maximum number of daemons whose files are kept open.
    keep_most: usize,
    warned_short: bool,
    warned_scan: bool,
}

/// Destination of a sample's rows.
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
        let context = ReadContext {
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
            warned_io: false,
        };
        let lineage = Lineage::new(Duration::from_nanos(context.tick.ns(1)));
        Ok(Daemons {
            proc_root: config.proc_root.clone(),
            rules,
            scanner,
            candidates: Vec::new(),
            watched: Vec::new(),
            round_robin: RoundRobin::default(),
            context,
            switches,
            counts: Vec::new(),
            scanned_at: None,
            lineage,
            offspring: Offspring::default(),
            others: Others::default(),
            versions: Versions::default(),
            own_pid,
            mesh_pids: config.mesh_pids.clone(),
            keep_most: keep_most(),
            warned_short: false,
            warned_scan: false,
        })
    }

    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
    }

    /// Replaces the rules. The next scan checks every process again.
    pub(crate) fn watch(&mut self, rules: Rules, mesh_pids: BTreeSet<i32>) {
        self.rules = rules;
        self.mesh_pids = Some(mesh_pids);
        self.scanner.forget();
    }

    /// Stops watching all daemons without reporting ends; the next scan finds all of them as new.
    pub(crate) fn forget(&mut self) {
        self.watched.clear();
        self.scanner.forget();
        self.scanned_at = None;
        self.lineage.clear();
        self.offspring.clear();
        self.others.forget();
    }

    /// Unwatched processes that took CPU time since the last call. Read anew at a mark.
    pub(crate) fn busy_others(
        &mut self,
        trigger: Trigger,
        buffer: &mut Buffer,
    ) -> Option<BusyOthers> {
        if trigger == Trigger::Mark && self.others.is_due(MonoNanos::now()) {
            self.read_others(buffer);
        }
        self.others.take()
    }

    /// Reads the CPU time of unwatched processes from the last scan. A recorded tree has no clocks.
    fn read_others(&mut self, buffer: &mut Buffer) {
        if self.context.tree == Tree::Foreign {
            return;
        }
        let listed: Vec<i32> = self.scanner.listed().collect();
        let Daemons {
            others,
            scanner,
            watched,
            ..
        } = self;
        let is_watched = |pid: i32| watched.binary_search_by_key(&pid, |it| it.pid).is_ok();
        others.read(
            MonoNanos::now(),
            listed.into_iter(),
            |pid| match is_watched(pid) {
                true => None,
                false => CpuClock::of(pid)?.read_ns(),
            },
            |pid| {
                let comm = scanner.read(pid, "comm", buffer).ok()?;
                let comm = comm.strip_suffix(b"\n").unwrap_or(comm);
                Some(String::from_utf8_lossy(comm).into_owned())
            },
        );
    }

    /// Describes all watched daemons.
    pub(crate) fn announce(&self, seen: &mut Vec<DaemonSeen>) {
        let now = MonoNanos::now();
        let reported = self.watched.iter().filter(|one| one.withheld.is_none());
        seen.extend(reported.map(|daemon| daemon.seen(now, false)));
    }

    pub(crate) fn sample(&mut self, trigger: Trigger, buffer: &mut Buffer, rows: &mut Rows) {
        rows.samples.reserve(self.watched.len());
        self.release(rows);
        self.take_versions(rows);
        self.read_offspring();
        let mut any_ended = false;
        let last = self.round_robin.begin(trigger);
        let begin = self.watched.partition_point(|daemon| daemon.pid <= last);
        let (around, from) = self.watched.split_at_mut(begin);
        let whole_depth = match trigger {
            Trigger::Mark => Depth::Mark,
            Trigger::Burst | Trigger::Tick => Depth::Whole,
        };
        let chunks = from.chunks_mut(AT_ONCE).chain(around.chunks_mut(AT_ONCE));
        for daemons in chunks {
            for daemon in daemons.iter_mut() {
                daemon.read_clock();
                let whole = daemon.has_run() && self.round_robin.take(daemon.pid);
                let is_brief = !whole && trigger != Trigger::Mark && daemon.may_be_brief();
                daemon.depth = if is_brief { Depth::Brief } else { whole_depth };
            }
            let is_asked = |daemon: &Daemon| daemon.depth != Depth::Brief && daemon.has_run();
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
                match daemon.read(counts, &self.context, &mut self.offspring, buffer) {
                    DaemonReading::Sample(sample) => daemon.put(sample, rows),
                    DaemonReading::Unreadable => {}
                    DaemonReading::Ended(last) => {
                        if let Some(last) = last {
                            daemon.put(last, rows);
                        }
                        daemon.over = true;
                        any_ended = true;
                    }
                }
                if daemon.withheld.is_none()
                    && !daemon.over
                    && let Some(change) = daemon.turned.take()
                {
                    daemon.describe(change, rows);
                }
            }
        }
        if any_ended {
            let over: Vec<Daemon> = self.watched.extract_if(.., |daemon| daemon.over).collect();
            for daemon in &over {
                self.end(daemon, rows);
            }
        }
    }

    /// The last sample of a daemon whose end was notified.
    pub(crate) fn ended(&mut self, pid: i32, buffer: &mut Buffer, rows: &mut Rows) {
        let Ok(place) = self.place(pid) else { return };
        let Some(daemon) = self.watched.get_mut(place) else {
            return;
        };
        daemon.read_clock();
        daemon.depth = Depth::Whole;
        match daemon.read(None, &self.context, &mut self.offspring, buffer) {
            // The notification was for an earlier process with the same pid.
            DaemonReading::Sample(_) => return,
            DaemonReading::Unreadable | DaemonReading::Ended(None) => {}
            DaemonReading::Ended(Some(last)) => daemon.put(last, rows),
        }
        let daemon = self.watched.remove(place);
        self.end(&daemon, rows);
    }

    /// Reads the CPU time of the daemons' known children.
    fn read_offspring(&mut self) {
        let Daemons {
            offspring, watched, ..
        } = self;
        offspring.read(|pid| {
            let place = watched.binary_search_by_key(&pid, |one| one.pid).ok()?;
            let reported = watched.get(place).filter(|one| one.withheld.is_none());
            reported.map(Daemon::published_ns)
        });
    }

    /// Records an end: reports what is known now, and the rest after the next scan has looked for a child.
    fn end(&mut self, daemon: &Daemon, rows: &mut Rows) {
        self.offspring.forget(daemon.pid);
        if daemon.withheld.is_some() {
            return;
        }
        self.offspring.ended(daemon.pid, daemon.published_ns());
        let seen = daemon.seen(MonoNanos::now(), true);
        if self.context.tree == Tree::Foreign {
            rows.seen.push(seen);
            return;
        }
        let lives = self.watched.iter().map(|daemon| &daemon.life);
        rows.seen
            .extend(self.lineage.end(seen, daemon.life.clone(), lives));
    }

    /// Whether an end waits for the next scan before it is reported.
    pub(crate) fn is_undecided(&self) -> bool {
        self.lineage.is_undecided()
    }

    /// Whether these are this kernel's processes.
    pub(crate) fn are_live(&self) -> bool {
        self.context.tree == Tree::Live
    }

    fn place(&self, pid: i32) -> Result<usize, usize> {
        self.watched.binary_search_by_key(&pid, |daemon| daemon.pid)
    }
}

fn connect_switches() -> Option<Switches> {
    Switches::connect()
        .inspect_err(|errno| {
            info!(error = %errno, "the agent cannot read context switches of daemons with several threads: their columns are NULL; \
                to get them, run the agent as root or with CAP_NET_ADMIN");
        })
        .ok()
}

/// Raises the soft limit of open files to the hard limit. Returns how many daemons may keep their files open.
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
