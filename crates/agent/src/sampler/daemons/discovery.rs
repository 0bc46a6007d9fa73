//! How daemons are found: by the scan of all processes, and by the kernel's events of new programs.
//!
//! Both check a process in the same way: its name, its command line, whether a rule matches, and whether it is new, a
//! restart, or the child of a process that daemonized it.

use std::time::Duration;

use benchmesh_model::systems::{self, Children, Naming, OWN};
use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use tracing::{info, warn};

use super::{Daemons, Rows};
use crate::sampler::arguments::Arguments;
use crate::sampler::clock::NANOS_PER_SECOND;
use crate::sampler::daemon::{Daemon, DaemonReading, Depth, OpenError, Tree};
use crate::sampler::instance;
use crate::sampler::life::{Life, Withheld};
use crate::sampler::parse;
use crate::sampler::proc_file::{Buffer, Keeping};
use crate::sampler::rules::{Identity, Needed, ProcessFacts};
use crate::sampler::sampled::DaemonChange;
use crate::sampler::scan::{Candidate, YOUNG};

/// A process that executes another program at this age or later did other work before. Its CPU time until then does not
/// belong to the daemon.
const FRESH: Duration = Duration::from_secs(5);

/// How a process was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    Scan,
    /// It has just executed a program or changed its name.
    Exec,
}

impl Daemons {
    /// Finds daemons that are new, have ended or changed their name.
    pub(crate) fn scan(&mut self, buffer: &mut Buffer, rows: &mut Rows) {
        let began = MonoNanos::now();
        let mut candidates = std::mem::take(&mut self.candidates);
        if let Err(errno) = self.scanner.scan(&mut candidates) {
            if !std::mem::replace(&mut self.warned_scan, true) {
                warn!(error = %errno, "processes cannot be listed: new daemons are not found");
            }
            return;
        }
        let scanner = &self.scanner;
        let gone: Vec<Daemon> = self
            .watched
            .extract_if(.., |daemon| !scanner.saw(daemon.pid))
            .collect();
        for daemon in gone {
            self.end(&daemon, rows);
        }
        for candidate in &candidates {
            self.consider(*candidate, buffer, rows);
        }
        if self.context.tree == Tree::Live {
            for candidate in candidates.iter().filter(|one| one.scans == 1) {
                if let Some(parent) = self.parent_of(candidate.pid, buffer) {
                    self.offspring.add(candidate.pid, parent);
                }
            }
        }
        self.candidates = candidates;
        self.scanned_at = Some(began);
        if self.others.is_due(MonoNanos::now()) {
            self.read_others(buffer);
        }
        let lives = self.watched.iter().map(|daemon| &daemon.life);
        rows.seen.extend(self.lineage.decide(lives));
    }

    /// Checks processes that have just executed a program or changed their name.
    pub(crate) fn begun(&mut self, pids: &[i32], buffer: &mut Buffer, rows: &mut Rows) {
        for pid in pids {
            match self.place(*pid) {
                Ok(place) if !self.is_another(place, buffer) => {
                    self.name_again(place, buffer, rows);
                }
                Ok(place) => {
                    let daemon = self.watched.remove(place);
                    self.end(&daemon, rows);
                    self.take_in(*pid, FoundBy::Exec, buffer, rows);
                }
                Err(_) => self.take_in(*pid, FoundBy::Exec, buffer, rows),
            }
        }
    }

    fn consider(&mut self, candidate: Candidate, buffer: &mut Buffer, rows: &mut Rows) {
        let pid = candidate.pid;
        if let Ok(place) = self.place(pid) {
            match candidate.scans {
                1 if self.is_another(place, buffer) => {
                    let daemon = self.watched.remove(place);
                    self.end(&daemon, rows);
                }
                // Some daemons overwrite their command line once they are up, some execute another program.
                2..=YOUNG => {
                    self.name_again(place, buffer, rows);
                    return;
                }
                _ => {
                    self.look_again(place, rows);
                    return;
                }
            }
        }
        self.take_in(pid, FoundBy::Scan, buffer, rows);
    }

    /// Starts to watch a process if it is a daemon.
    fn take_in(&mut self, pid: i32, found: FoundBy, buffer: &mut Buffer, rows: &mut Rows) {
        let Some((identity, cmdline)) = self.identify(pid, buffer) else {
            return;
        };
        if self.is_helper(pid, &identity, buffer) {
            return;
        }
        let Some(mut daemon) = self.open(pid, identity, buffer) else {
            return;
        };
        daemon.cmdline = cmdline;
        self.look_at_program(&mut daemon);
        let now = MonoNanos::now();
        let withheld = Withheld {
            since: match found {
                FoundBy::Scan => daemon.life.born,
                FoundBy::Exec => now,
            },
            found_at: now,
            begun: self.begun_while_watching(daemon.life.born, found),
            samples: Vec::new(),
        };
        let is_of_age = withheld.until() <= now;
        daemon.withheld = Some(withheld);
        if found == FoundBy::Exec {
            // The kernel's events may come long before the next tick.
            daemon.read_clock();
            daemon.depth = Depth::Whole;
            let read = daemon.read(None, &self.context, &mut self.offspring, buffer);
            if let DaemonReading::Sample(sample) = read {
                daemon.put(sample, rows);
            }
        }
        if let Err(place) = self.place(pid) {
            self.watched.insert(place, daemon);
        }
        // A recorded tree has no time.
        if is_of_age || self.context.tree == Tree::Foreign {
            self.release_one(pid, rows);
        }
    }

    /// The watched daemon that is the parent of a process.
    fn parent_of(&mut self, pid: i32, buffer: &mut Buffer) -> Option<i32> {
        let text = self.scanner.read(pid, "stat", buffer).ok()?;
        let parent = i32::try_from(parse::stat(text).ok()?.parent).ok()?;
        self.place(parent).ok().map(|_| parent)
    }

    /// When a process became this daemon, if that was while this host was watched: at its birth, or now if it ran
    /// another program for long.
    fn begun_while_watching(&self, born: MonoNanos, found: FoundBy) -> Option<MonoNanos> {
        let last = self
            .scanned_at
            .filter(|_| self.context.tree == Tree::Live)?;
        let now = MonoNanos::now();
        match found {
            FoundBy::Exec if now.since(born) >= FRESH => Some(now),
            FoundBy::Exec => Some(born),
            // The time of birth has the resolution of a tick.
            FoundBy::Scan => (born.saturating_add(self.tick()) >= last).then_some(born),
        }
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
        let Some((identity, cmdline)) = self.identify(pid, buffer) else {
            return;
        };
        // The pid may have been reused meanwhile, so the name may be another process's.
        if self.is_another(place, buffer) {
            return;
        }
        let Some(daemon) = self.watched.get_mut(place) else {
            return;
        };
        if identity != daemon.life.identity {
            daemon.life.identity = identity;
            daemon.cmdline = cmdline;
            daemon.describe(DaemonChange::None, rows);
        }
        self.look_again(place, rows);
    }

    /// The identity and command line of the process, if it is a daemon.
    fn identify(&mut self, pid: i32, buffer: &mut Buffer) -> Option<(Identity, String)> {
        let comm = self.scanner.read(pid, "comm", buffer).ok()?;
        let comm = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(comm));
        let own = pid == self.own_pid && self.context.tree == Tree::Live;
        let needed = match self.rules.needed(&comm) {
            Needed::None if own => Needed::CommandLine,
            Needed::None => return None,
            needed => needed,
        };
        let comm = comm.into_owned();
        let arguments = Arguments::from_kernel(self.scanner.read(pid, "cmdline", buffer).ok()?);
        let cgroups = match needed {
            Needed::CommandLineAndCgroups => {
                self.scanner.read(pid, "cgroup", buffer).unwrap_or_default()
            }
            _ => &[],
        };
        let cgroups = String::from_utf8_lossy(cgroups);
        let process = ProcessFacts {
            comm: &comm,
            arguments: &arguments,
            cgroups: &cgroups,
        };
        // The sampler's own cost is stored, whatever the name of its program.
        let as_own = || {
            own.then(|| Identity {
                name: OWN.to_owned(),
                instance: instance::of(Naming::Benchmesh, &comm, &arguments),
            })
        };
        let identity = self.rules.identify(&process).or_else(as_own)?;
        if identity.name == OWN && !own && !self.is_of_mesh(pid) {
            return None;
        }
        let cmdline = if arguments.is_empty() {
            format!("[{comm}]")
        } else {
            arguments.shown()
        };
        Some((identity, cmdline))
    }

    /// Whether it is a child that a watched daemon forked as a helper. A process that is being daemonized also counts
    /// as a helper until its parent has ended, and is checked again by then.
    fn is_helper(&mut self, pid: i32, identity: &Identity, buffer: &mut Buffer) -> bool {
        let has_helpers = |daemon: &systems::Daemon| {
            daemon.name == identity.name && daemon.children == Children::Helpers
        };
        if !systems::daemons().iter().any(has_helpers) {
            return false;
        }
        let Ok(text) = self.scanner.read(pid, "stat", buffer) else {
            return false;
        };
        let layout = parse::layout(text);
        let parent = parse::stat(text)
            .ok()
            .and_then(|stat| i32::try_from(stat.parent).ok())
            .and_then(|pid| self.place(pid).ok())
            .and_then(|place| self.watched.get(place));
        parent.is_some_and(|parent| {
            let is_same_program = layout.is_none() || parent.life.layout == layout;
            parent.life.identity == *identity && is_same_program
        })
    }

    /// Whether a process of benchmesh belongs to this mesh. Processes of another mesh or of a `benchmesh run` are not
    /// watched.
    fn is_of_mesh(&self, pid: i32) -> bool {
        let pids = self.mesh_pids.as_ref();
        self.context.tree == Tree::Foreign || pids.is_none_or(|pids| pids.contains(&pid))
    }

    fn open(&mut self, pid: i32, identity: Identity, buffer: &mut Buffer) -> Option<Daemon> {
        let directory = self.proc_root.join(pid.to_string());
        let keeping = if self.watched.len() < self.keep_most {
            Keeping::Open
        } else {
            Keeping::Anew
        };
        let life = self.life(pid, identity, buffer)?;
        let name = life.identity.name.clone();
        let mut open =
            |keeping, life| Daemon::open(pid, &directory, keeping, life, &mut self.context, buffer);
        let mut opened = open(keeping, life.clone());
        let short = match &opened {
            Err(OpenError::Short(errno)) if keeping == Keeping::Open => Some(*errno),
            _ if keeping == Keeping::Anew => Some(Errno::MFILE),
            _ => None,
        };
        if let Some(errno) = short {
            if keeping == Keeping::Open {
                opened = open(Keeping::Anew, life);
            }
            if !std::mem::replace(&mut self.warned_short, true) {
                info!(
                    daemons = self.watched.len(), error = %errno,
                    "the limit of open files is too low to keep the files of more daemons open: they are opened for \
                     each sample, which costs more CPU; raise the limit (LimitNOFILE=, ulimit -n)"
                );
            }
        }
        match opened {
            Ok(daemon) => Some(daemon),
            Err(OpenError::Gone) => None,
            Err(OpenError::Short(errno)) => {
                warn!(pid, name, error = %errno, "a daemon cannot be watched");
                None
            }
            Err(OpenError::Other(problem)) => {
                warn!(pid, name, problem, "a daemon cannot be watched");
                None
            }
        }
    }

    fn life(&mut self, pid: i32, identity: Identity, buffer: &mut Buffer) -> Option<Life> {
        let text = self.scanner.read(pid, "stat", buffer).ok()?;
        let start_ticks = parse::stat(text).map_or(0, |stat| stat.start_ticks);
        Some(Life {
            identity,
            born: birth(self.context.tick.ns(start_ticks)),
            layout: parse::layout(text),
        })
    }

    pub(super) fn tick(&self) -> Duration {
        Duration::from_nanos(self.context.tick.ns(1))
    }
}

/// Converts time since boot, by which the kernel dates the starts of processes, to the monotonic clock, which stops
/// during a suspend.
fn birth(since_boot_ns: u64) -> MonoNanos {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now_ns = u64::try_from(boot.tv_sec)
        .unwrap_or(0)
        .saturating_mul(NANOS_PER_SECOND)
        .saturating_add(u64::try_from(boot.tv_nsec).unwrap_or(0));
    let age_ns = now_ns.saturating_sub(since_boot_ns);
    MonoNanos(MonoNanos::now().0.saturating_sub(age_ns))
}
