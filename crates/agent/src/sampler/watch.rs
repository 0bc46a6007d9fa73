//! The sampler's thread: waits for the next instant, an order or the end of a daemon, samples, hands over.
//!
//! Nothing but the one wait blocks. New daemons are looked for between two beats, so that a look never
//! delays a sample.

use std::sync::Arc;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use tracing::warn;

use super::beat::{Beat, Due};
use super::clock::thread_cpu_ns;
use super::cpu::TickLength;
use super::daemons::{Daemons, Rows};
use super::devices::{Disks, Interfaces};
use super::host::Host;
use super::poll::Poll;
use super::proc_file::Buffer;
use super::sampled::{Cost, Sampled};
use super::{Orders, PERIOD_MIN, SamplerConfig, SamplerError, Sampling};

/// A scan starts only when the next sample is at least this far away; it takes about 2 ms for a thousand processes.
const CLEAR_OF_BEAT: Duration = Duration::from_millis(10);
/// A daemon that ended is often started again: look soon, but not for each of many that end together.
const AFTER_AN_END: Duration = Duration::from_millis(250);
const BETWEEN_SCANS: Duration = Duration::from_secs(1);

pub(crate) struct Watch {
    orders: Arc<Orders>,
    scan_every: Duration,
    poll: Arc<Poll>,
    sampling: Sampling,
    beat: Beat,
    buffer: Buffer,
    host: Host,
    disks: Option<Disks>,
    interfaces: Option<Interfaces>,
    daemons: Daemons,
    /// Found by a scan, handed over with the next sample.
    rows: Rows,
    /// Daemons whose end has rung.
    ended: Vec<i32>,
    scan_at: Option<MonoNanos>,
    /// None: not since host-wide sampling began. The first scan comes before the first sample.
    scanned_at: Option<MonoNanos>,
    cost: Cost,
}

impl Watch {
    /// Opens everything in the calling thread, so that what cannot work is an error of its own and not of a thread.
    pub(crate) fn new(config: &SamplerConfig, orders: Arc<Orders>) -> Result<Watch, SamplerError> {
        let poll = Poll::new(&orders.bell).map_err(|source| SamplerError::Setup {
            what: "timer and wake-up descriptors",
            source,
        })?;
        let poll = Arc::new(poll);
        let daemons = Daemons::new(config, Arc::clone(&poll))?;
        Ok(Watch {
            orders,
            scan_every: config.scan_every,
            poll,
            // Nothing yet: the first order switches on what is wanted.
            sampling: Sampling {
                host_wide: false,
                interfaces: false,
                period: None,
            },
            beat: Beat::default(),
            buffer: Buffer::new(),
            host: Host::open(&config.proc_root, TickLength::of_this_kernel()),
            disks: open_list("diskstats", Disks::open(&config.proc_root)),
            interfaces: open_list("net/dev", Interfaces::open(&config.proc_root)),
            daemons,
            rows: Rows::default(),
            ended: Vec::new(),
            scan_at: None,
            scanned_at: None,
            cost: Cost::default(),
        })
    }

    pub(crate) fn run(mut self, mut sink: impl FnMut(Sampled)) {
        loop {
            let wanted = self.orders.take();
            if wanted.stop {
                return;
            }
            self.obey(wanted.sampling, &wanted.marks);
            if !self.ended.is_empty() {
                sink(self.last_of_the_ended());
            }
            if self.sampling.host_wide && self.scanned_at.is_none() {
                self.scan();
            }
            let now = MonoNanos::now();
            if let Some(due) = self.beat.take_due(now.0) {
                sink(self.sample(due));
                continue;
            }
            if self.may_scan(now) {
                self.scan();
            }
            if let Err(source) = self.wait() {
                warn!(error = %source, "the sampler cannot wait for its timer and ends: samples will be missing");
                return;
            }
        }
    }

    fn obey(&mut self, sampling: Sampling, marks: &[MonoNanos]) {
        let now = MonoNanos::now();
        let before = std::mem::replace(&mut self.sampling, sampling);
        let period = sampling.period.map(|period| period.max(PERIOD_MIN));
        let period_ns = period.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
        self.beat.set_period(period_ns, now.0);
        for mark in marks {
            if !self.beat.mark(mark.0) {
                warn!(
                    "too many samples are asked for ahead of time: one of them will not be taken"
                );
            }
        }

        if before.host_wide && !sampling.host_wide {
            self.daemons.forget();
            self.rows = Rows::default();
            (self.scan_at, self.scanned_at) = (None, None);
        } else if sampling.host_wide
            && before.host_wide
            && sampling.period.is_some()
            && before.period.is_none()
        {
            self.daemons.announce(&mut self.rows.seen);
            self.scan_at = Some(now);
        } else if sampling.host_wide && !marks.is_empty() && !self.beat.ticks() {
            // At rest nothing is looked for; what a mark shall show has to be found first.
            let stale = self
                .scanned_at
                .is_none_or(|at| now.since(at) >= self.scan_every);
            self.scan_at = if stale { Some(now) } else { self.scan_at };
        }
    }

    fn sample(&mut self, due: Due) -> Sampled {
        let mut rows = std::mem::take(&mut self.rows);
        let mut sampled = self.blank(MonoNanos(due.at_ns));
        if self.sampling.host_wide {
            self.daemons.sample(due.call, &mut self.buffer, &mut rows);
            sampled.host = self.host.sample(MonoNanos::now(), &mut self.buffer);
            if let Some(disks) = &mut self.disks {
                sampled.disks = disks.sample(MonoNanos::now(), &mut self.buffer);
            }
        }
        if let Some(interfaces) = self
            .interfaces
            .as_mut()
            .filter(|_| self.sampling.interfaces)
        {
            sampled.nets = interfaces.sample(MonoNanos::now(), &mut self.buffer);
        }
        self.cost.samples = self.cost.samples.saturating_add(1);
        self.finish(sampled, rows)
    }

    fn last_of_the_ended(&mut self) -> Sampled {
        let mut rows = std::mem::take(&mut self.rows);
        for pid in std::mem::take(&mut self.ended) {
            self.daemons.ended(pid, &mut self.buffer, &mut rows);
        }
        let now = MonoNanos::now();
        let spaced = self
            .scanned_at
            .map_or(now, |at| at.saturating_add(BETWEEN_SCANS));
        let soon = now.saturating_add(AFTER_AN_END).max(spaced);
        self.scan_at = self.scan_at.map(|at| at.min(soon));
        let sampled = self.blank(now);
        self.finish(sampled, rows)
    }

    fn blank(&self, at: MonoNanos) -> Sampled {
        Sampled {
            at,
            seen: Vec::new(),
            daemons: Vec::new(),
            host: None,
            disks: Vec::new(),
            nets: Vec::new(),
            skipped_ticks: self.beat.skipped(),
            cost: self.cost,
        }
    }

    fn finish(&mut self, mut sampled: Sampled, rows: Rows) -> Sampled {
        sampled.seen = rows.seen;
        sampled.daemons = rows.samples;
        self.cost.daemons = self.daemons.watched();
        self.cost.cpu_ns = thread_cpu_ns();
        sampled.cost = self.cost;
        sampled
    }

    fn may_scan(&self, now: MonoNanos) -> bool {
        let clear = now.saturating_add(CLEAR_OF_BEAT);
        self.scan_at.is_some_and(|at| at <= now)
            && self.beat.next().is_none_or(|next| next > clear.0)
    }

    fn scan(&mut self) {
        self.daemons.scan(&mut self.buffer, &mut self.rows);
        self.cost.scans = self.cost.scans.saturating_add(1);
        let now = MonoNanos::now();
        self.scanned_at = Some(now);
        let goes_on = self.sampling.host_wide && self.beat.next().is_some();
        self.scan_at = goes_on.then(|| now.saturating_add(self.scan_every));
    }

    /// Sleeps until the next instant, an order or the end of a daemon.
    fn wait(&mut self) -> Result<(), Errno> {
        let now = MonoNanos::now().0;
        // A scan that is due and was held back comes after the sample that it makes way for.
        let scan = self.scan_at.map(|at| at.0).filter(|at| *at > now);
        let next = match (self.beat.next(), scan) {
            (Some(beat), Some(scan)) => Some(beat.min(scan)),
            (beat, scan) => beat.or(scan),
        };
        self.poll.wait(next, &mut self.ended)
    }
}

fn open_list<T>(file: &'static str, opened: Result<T, Errno>) -> Option<T> {
    opened
        .inspect_err(|errno| warn!(file, error = %errno, "this list of the host cannot be opened: its rows will be missing"))
        .ok()
}
