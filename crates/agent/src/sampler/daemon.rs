//! One watched process: its kept files, its CPU clock, and its last published figures.
//!
//! Every reading belongs to one known process. The clock and netlink are read by pid, so they come first and count only
//! if a kept file of the process answers afterwards, which is `statm` at every reading: a kept descriptor always
//! answers ESRCH once its process is reaped, even if the pid is reused. Files that are opened again prove nothing: then
//! `stat` is read last and its start ticks are compared. After the process has ended, a last reading of its counters is
//! taken if it is not reaped yet.
//!
//! A whole reading has every figure. A brief one has only CPU time and memory, at a third of the cost: the split of the
//! CPU time is extrapolated, and figures that were not read are -1.

mod context;
mod files;

use std::fmt::Display;
use std::path::Path;

use benchmesh_model::figures::{DaemonFigures, Figures, UNKNOWN};
use benchmesh_workloads::clock::MonoNanos;
use tracing::{info, warn};

use files::{Failure, is_over, open_error, optional, read, read_stat};

pub(crate) use context::{ReadContext, SwitchSource, Tree};
pub(crate) use files::OpenError;

use super::binary::Binary;
use super::counter::Counter;
use super::cpu::{CpuClock, CpuReading, CpuSplit, TickLength};
use super::freezer::Freezer;
use super::life::{Life, Withheld};
use super::offspring::{ChildrenTime, Offspring};
use super::open_files::OpenFiles;
use super::parse;
use super::poll::ExitNotifier;
use super::proc_file::{Buffer, Keeping, ProcFile};
use super::rules::Identity;
use super::sampled::{DaemonChange, DaemonSample, DaemonSeen};
use super::switches::SwitchCounts;

/// For a sleeping daemon, one in this many samples checks whether a signal has stopped it: reading its state costs as
/// much as all other figures together.
const STATE_EVERY: u32 = 5;
/// For a sleeping daemon, one in this many samples checks whether its cgroup is frozen. A multiple of [`STATE_EVERY`].
const FREEZER_EVERY: u32 = 20;

/// Descriptors of one watched process: stat, statm, io, fd, pidfd, and status where it is read.
pub(crate) const KEPT_PER_DAEMON: usize = 6;

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) pid: i32,
    pub(crate) start_ticks: u64,
    /// Its parent's pid, when it was found.
    pub(crate) parent: i32,
    pub(crate) life: Life,
    pub(crate) cmdline: String,
    /// The program that it runs, if that is visible.
    pub(crate) binary: Option<Binary>,
    /// Empty: unknown.
    pub(crate) version: String,
    /// Becomes readable when the process has ended.
    _end: Option<ExitNotifier>,
    stat: ProcFile,
    statm: ProcFile,
    io: Option<ProcFile>,
    /// For the memory figures at marks, and for switches where the kernel does not report them otherwise.
    status: Option<ProcFile>,
    open_files: OpenFiles,
    clock: Option<CpuClock>,
    cpu: CpuSplit,
    counters: Counters,
    clock_reading: ClockReading,
    /// Depth of the reading that follows [`Daemon::read_clock`].
    pub(crate) depth: Depth,
    /// The last whole reading, and the CPU clock at that time.
    whole: Option<DaemonFigures>,
    whole_ns: Option<u64>,
    /// Number of samples since it last ran.
    asleep_for: u32,
    freezer: Option<Freezer>,
    /// The reason why it cannot run.
    halted: Option<Halt>,
    /// A change of the kernel's state that no sample has reported yet.
    pub(crate) turned: Option<DaemonChange>,
    /// Its rows, while it is too young to be a daemon.
    pub(crate) withheld: Option<Withheld>,
    children: ChildrenTime,
    /// Its last sample was taken; it is about to be forgotten.
    pub(crate) over: bool,
    complained: bool,
}

/// A reading of the CPU clock, with its instant.
#[derive(Debug, Clone, Copy, Default)]
struct ClockReading {
    at: MonoNanos,
    total_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Counters {
    read_bytes: Counter,
    write_bytes: Counter,
    voluntary: Counter,
    involuntary: Counter,
    minor_faults: Counter,
    major_faults: Counter,
}

/// Why a process cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halt {
    /// A signal.
    Stopped,
    /// The freezer of its cgroup.
    Frozen,
}

/// Extra readings for a daemon that has not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    State,
    StateAndFreezer,
}

/// How much is read of a daemon that has run since its last whole reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Whole,
    /// CPU time and memory, unless the process turns out to have ended.
    Brief,
    /// Whole, plus peak resident memory and swapped memory. Only at the edges of a step, because these cost as much as
    /// all other figures.
    Mark,
}

/// The result of a reading.
#[derive(Debug)]
pub(crate) enum DaemonReading {
    Sample(DaemonSample),
    /// No usable reading this time; logged once.
    Unreadable,
    /// The process has ended; with its last sample, if it was still readable.
    Ended(Option<DaemonSample>),
}

impl Daemon {
    /// Starts to watch the process at `directory` (`/proc/PID`).
    pub(crate) fn open(
        pid: i32,
        directory: &Path,
        keeping: Keeping,
        life: Life,
        context: &mut ReadContext,
        buffer: &mut Buffer,
    ) -> Result<Daemon, OpenError> {
        let stat = ProcFile::open(&directory.join("stat"), keeping).map_err(open_error)?;
        let first = read_stat(&stat, buffer).map_err(|failure| failure.into_open_error())?;
        let statm = ProcFile::open(&directory.join("statm"), keeping).map_err(open_error)?;
        let io = optional(ProcFile::open(&directory.join("io"), keeping))?;
        if io.is_none() && !std::mem::replace(&mut context.warned_io, true) {
            info!(
                pid,
                "the agent cannot read the I/O bytes of this daemon and perhaps others: their columns are NULL; to get \
                 them, run the agent as root or with CAP_SYS_PTRACE"
            );
        }
        let status = optional(ProcFile::open(&directory.join("status"), keeping))?;
        let open_files =
            OpenFiles::open(directory, context.fd_sizes, keeping).map_err(open_error)?;
        let live = context.tree == Tree::Live;
        let notified = live && keeping == Keeping::Open;
        let end = if notified {
            ExitNotifier::register(&context.poll, pid)
        } else {
            None
        };
        let clock = if live { CpuClock::of(pid) } else { None };
        // Files opened by name between two readings of one live process belong to that process.
        let again = read_stat(&stat, buffer).map_err(|failure| failure.into_open_error())?;
        if again.start_ticks != first.start_ticks || is_over(&again) {
            return Err(OpenError::Gone);
        }
        Ok(Daemon {
            pid,
            start_ticks: first.start_ticks,
            parent: i32::try_from(first.parent).unwrap_or(0),
            life,
            cmdline: String::new(),
            binary: None,
            version: String::new(),
            _end: end,
            stat,
            statm,
            io,
            status,
            open_files,
            clock,
            cpu: CpuSplit::default(),
            counters: Counters::default(),
            clock_reading: ClockReading::default(),
            depth: Depth::Whole,
            whole: None,
            whole_ns: None,
            asleep_for: 0,
            freezer: match live {
                true => Freezer::of(directory),
                false => None,
            },
            halted: None,
            turned: None,
            withheld: None,
            children: ChildrenTime::default(),
            over: false,
            complained: false,
        })
    }

    pub(crate) fn seen(&self, at: MonoNanos, ended: bool) -> DaemonSeen {
        DaemonSeen {
            at,
            pid: self.pid,
            start_ticks: self.start_ticks,
            name: self.life.identity.name.clone(),
            instance: self.life.identity.instance.clone(),
            cmdline: self.cmdline.clone(),
            version: self.version.clone(),
            is_replaced: self.binary.as_ref().is_some_and(|file| file.is_replaced),
            ended,
            age_us: age_us(self.start_ticks, at),
            change: if ended {
                DaemonChange::Ended
            } else {
                DaemonChange::None
            },
        }
    }

    /// Reads the CPU clock, before all other figures of a sample.
    pub(crate) fn read_clock(&mut self) {
        let at = MonoNanos::now();
        self.clock_reading = ClockReading {
            at,
            total_ns: self.clock.and_then(CpuClock::read_ns),
        };
    }

    /// Whether its CPU clock has advanced since its last whole reading. The counters of a process that has not run are
    /// unchanged.
    pub(crate) fn has_run(&self) -> bool {
        self.clock_reading.total_ns.is_none() || self.clock_reading.total_ns != self.whole_ns
    }

    /// Whether a brief reading is possible and surely belongs to the same process. Requires an earlier whole reading.
    pub(crate) fn may_be_brief(&self) -> bool {
        self.clock_reading.total_ns.is_some() && self.whole.is_some() && self.statm.is_kept()
    }

    /// CPU time published so far, with that of its children.
    pub(crate) fn published_ns(&self) -> u64 {
        self.cpu.published_ns()
    }

    /// Reads the process; call it after [`Daemon::read_clock`]. `switches` were read between the two, by pid.
    pub(crate) fn read(
        &mut self,
        switches: Option<SwitchCounts>,
        context: &ReadContext,
        offspring: &mut Offspring,
        buffer: &mut Buffer,
    ) -> DaemonReading {
        match self.try_read(switches, context, offspring, buffer) {
            Ok(reading) => reading,
            Err(Failure::Gone) => DaemonReading::Ended(None),
            Err(Failure::Forbidden { file }) => {
                self.complain(file, &"not permitted");
                DaemonReading::Unreadable
            }
            Err(Failure::Bad { file, problem }) => {
                self.complain(file, &problem);
                DaemonReading::Unreadable
            }
        }
    }

    fn try_read(
        &mut self,
        switches: Option<SwitchCounts>,
        context: &ReadContext,
        offspring: &mut Offspring,
        buffer: &mut Buffer,
    ) -> Result<DaemonReading, Failure> {
        let statm = read(&self.statm, "statm", buffer, parse::statm)?;
        let bytes = |pages: u64| parse::signed(pages.saturating_mul(context.page_bytes));
        let memory = DaemonFigures {
            rss_bytes: bytes(statm.resident_pages),
            vsz_bytes: bytes(statm.size_pages),
            ..self.memory_at_mark(buffer)?
        };
        // Its kept file has just answered, so it is the same process. A process without memory has ended, except for
        // kernel threads, which never have any.
        let lives = |whole: &DaemonFigures| memory.vsz_bytes > 0 || whole.vsz_bytes == 0;
        if let Some(whole) = self.whole.filter(|_| self.statm.is_kept()).filter(lives) {
            // A sleeping process can lose memory to reclaim; all other figures stay the same.
            if !self.has_run() {
                // It sleeps or is halted: only its state and that of its cgroup tell the difference.
                if let Some(due) = self.state_is_due()
                    && let Ok(stat) = read_stat(&self.stat, buffer)
                    && stat.start_ticks == self.start_ticks
                {
                    let frozen = match due {
                        Due::State => false,
                        Due::StateAndFreezer => self.is_frozen(buffer),
                    };
                    self.note_state(stat.state, frozen);
                }
                return Ok(DaemonReading::Sample(self.sample(DaemonFigures {
                    rss_bytes: memory.rss_bytes,
                    vsz_bytes: memory.vsz_bytes,
                    rss_peak_bytes: memory.rss_peak_bytes,
                    swap_bytes: memory.swap_bytes,
                    ..whole
                })));
            }
            if let (Depth::Brief, Some(total_ns)) = (self.depth, self.clock_reading.total_ns) {
                let used = self
                    .cpu
                    .carry_on(total_ns.saturating_add(self.children.counted_ns));
                return Ok(DaemonReading::Sample(self.sample(with_cpu(used, memory))));
            }
        }
        self.read_whole(memory, switches, context, offspring, buffer)
    }

    /// Peak resident memory and swapped memory, at a mark. Unread at other samples and where they are not available.
    fn memory_at_mark(&self, buffer: &mut Buffer) -> Result<DaemonFigures, Failure> {
        let Some(file) = self.status.as_ref().filter(|_| self.depth == Depth::Mark) else {
            return Ok(DaemonFigures::UNREAD);
        };
        match read(file, "status", buffer, parse::status_memory) {
            Ok(memory) => Ok(DaemonFigures {
                rss_peak_bytes: parse::signed(memory.peak),
                swap_bytes: memory.swapped.map_or(UNKNOWN, parse::signed),
                ..DaemonFigures::UNREAD
            }),
            Err(Failure::Gone) => Err(Failure::Gone),
            // Ended processes and kernel threads lack these lines.
            Err(Failure::Forbidden { .. } | Failure::Bad { .. }) => Ok(DaemonFigures::UNREAD),
        }
    }

    /// A sample dated at the clock's reading.
    fn sample(&self, figures: DaemonFigures) -> DaemonSample {
        DaemonSample {
            at: self.clock_reading.at,
            pid: self.pid,
            start_ticks: self.start_ticks,
            figures,
        }
    }

    fn read_whole(
        &mut self,
        memory: DaemonFigures,
        switches: Option<SwitchCounts>,
        context: &ReadContext,
        offspring: &mut Offspring,
        buffer: &mut Buffer,
    ) -> Result<DaemonReading, Failure> {
        let ClockReading { at, total_ns } = self.clock_reading;
        let io = match &self.io {
            Some(file) => match read(file, "io", buffer, parse::io) {
                Err(Failure::Forbidden { .. }) => None,
                io => Some(io?),
            },
            None => None,
        };
        let fds = self.open_files.count(at.0);
        let stat = read_stat(&self.stat, buffer)?;
        if stat.start_ticks != self.start_ticks {
            return Err(Failure::Gone);
        }
        let over = is_over(&stat);
        let frozen = self.halted == Some(Halt::Frozen) && self.is_frozen(buffer);
        self.note_state(stat.state, frozen);
        // An ending process loses its memory some time before it becomes a zombie; its figures in between are not
        // usable.
        let ending = over || (memory.vsz_bytes == 0 && !stat.is_kernel);
        // With a single thread, that thread's switches are the process's.
        let switches = match &self.status {
            Some(file) if stat.threads == 1 && context.switches == SwitchSource::Status => {
                let (voluntary, involuntary) = read(file, "status", buffer, parse::switches)?;
                Some(SwitchCounts {
                    voluntary,
                    involuntary,
                })
            }
            _ => switches,
        };

        self.children
            .advance(self.pid, &stat, offspring, context.tick);
        let (user_of_children, system_of_children) = self.children.ticks(context.tick);
        let ticks = CpuReading {
            total_ns: total_ns.map(|own| own.saturating_add(self.children.counted_ns)),
            user_ticks: stat.user_ticks.saturating_add(user_of_children),
            system_ticks: stat.system_ticks.saturating_add(system_of_children),
        };
        let used = self.cpu.advance(ticks, context.tick);
        let counters = &mut self.counters;
        let counted = |counter: &mut Counter, raw: Option<u64>| {
            raw.map_or(-1, |raw| parse::signed(counter.advance(raw)))
        };
        let mut figures = DaemonFigures {
            threads: parse::signed(stat.threads),
            fds,
            read_bytes: counted(&mut counters.read_bytes, io.map(|io| io.read_bytes)),
            write_bytes: counted(&mut counters.write_bytes, io.map(|io| io.write_bytes)),
            vol_ctx: counted(
                &mut counters.voluntary,
                switches.map(|counts| counts.voluntary),
            ),
            invol_ctx: counted(
                &mut counters.involuntary,
                switches.map(|counts| counts.involuntary),
            ),
            minor_faults: counted(&mut counters.minor_faults, Some(stat.minor_faults)),
            major_faults: counted(&mut counters.major_faults, Some(stat.major_faults)),
            ..with_cpu(used, memory)
        };
        if ending {
            // Without an earlier reading its memory is unknown, and zero would be a wrong figure.
            let last = self.whole.map(|whole| {
                keep_gauges_of(&whole, &mut figures);
                self.sample(figures)
            });
            return Ok(match (over, last) {
                (true, last) => DaemonReading::Ended(last),
                (false, Some(sample)) => DaemonReading::Sample(sample),
                (false, None) => DaemonReading::Unreadable,
            });
        }
        self.asleep_for = 0;
        self.whole = Some(figures);
        self.whole_ns = total_ns;
        self.note_falls();
        Ok(DaemonReading::Sample(self.sample(figures)))
    }

    /// Whether the state of a daemon that has not run is read: in the first sample of its sleep, then every few
    /// samples. Its cgroup is checked less often, because a freezer does not matter to a process that sleeps for long.
    fn state_is_due(&mut self) -> Option<Due> {
        let asleep_for = self.asleep_for;
        self.asleep_for = asleep_for.wrapping_add(1);
        let turn = asleep_for.wrapping_add(self.pid.unsigned_abs());
        let begins = asleep_for == 0;
        let frozen = self.halted == Some(Halt::Frozen);
        if begins || frozen || turn.is_multiple_of(FREEZER_EVERY) {
            return Some(Due::StateAndFreezer);
        }
        let is_due = self.halted.is_some() || turn.is_multiple_of(STATE_EVERY);
        is_due.then_some(Due::State)
    }

    fn is_frozen(&self, buffer: &mut Buffer) -> bool {
        let freezer = self.freezer.as_ref();
        freezer.is_some_and(|freezer| freezer.is_frozen(buffer))
    }

    fn note_state(&mut self, state: u8, frozen: bool) {
        let halted = match (state, frozen) {
            (b'T', _) => Some(Halt::Stopped),
            (_, true) => Some(Halt::Frozen),
            (_, false) => None,
        };
        if std::mem::replace(&mut self.halted, halted) != halted {
            self.turned = Some(match halted {
                Some(Halt::Stopped) => DaemonChange::Stopped,
                Some(Halt::Frozen) => DaemonChange::Frozen,
                None => DaemonChange::Continued,
            });
        }
    }

    /// Logs counters that decreased. Switches decrease when a thread ends, which is normal; the others never should.
    fn note_falls(&mut self) {
        let counters = &self.counters;
        let fell = [
            &counters.read_bytes,
            &counters.write_bytes,
            &counters.minor_faults,
            &counters.major_faults,
        ];
        if !self.complained && fell.iter().any(|counter| counter.fell()) {
            self.complain(
                "a counter",
                &"it went backwards and is held until it has caught up",
            );
        }
    }

    fn complain(&mut self, file: &str, problem: &dyn Display) {
        if !std::mem::replace(&mut self.complained, true) {
            let Identity { name, instance } = &self.life.identity;
            warn!(pid = self.pid, name, instance, file, %problem, "a daemon's sample is missing or incomplete");
        }
    }
}

/// Adds CPU time, given as user and system nanoseconds, to the other figures.
fn with_cpu((user_ns, system_ns): (u64, u64), read: DaemonFigures) -> DaemonFigures {
    DaemonFigures {
        cpu_user_us: parse::signed(user_ns / 1000),
        cpu_system_us: parse::signed(system_ns / 1000),
        ..read
    }
}

/// An ended process has no memory, threads or files. Zeros would be its lowest values ever, so the last ones are kept.
fn keep_gauges_of(latest: &DaemonFigures, last: &mut DaemonFigures) {
    last.rss_bytes = latest.rss_bytes;
    last.vsz_bytes = latest.vsz_bytes;
    last.threads = latest.threads;
    last.fds = latest.fds;
    last.vol_ctx = last.vol_ctx.max(latest.vol_ctx);
    last.invol_ctx = last.invol_ctx.max(latest.invol_ctx);
    last.read_bytes = last.read_bytes.max(latest.read_bytes);
    last.write_bytes = last.write_bytes.max(latest.write_bytes);
}

/// How long a process had run at `at`. Its start is in ticks since boot, on the clock that includes suspended time.
fn age_us(start_ticks: u64, at: MonoNanos) -> i64 {
    let ns = |clock| {
        let time = rustix::time::clock_gettime(clock);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    let suspended = ns(rustix::time::ClockId::Boottime) - ns(rustix::time::ClockId::Monotonic);
    let started = TickLength::of_this_kernel().ns(start_ticks);
    let age_us = (i128::from(at.0) + suspended.max(0) - i128::from(started)) / 1_000;
    i64::try_from(age_us).unwrap_or(0).max(0)
}
