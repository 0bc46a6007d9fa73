//! The sampler's thread: waits for the next instant, an order or the end of a daemon, samples, hands over the rows.
//!
//! Only that wait blocks. Scans for new daemons run between two samples, so that they never delay one.

use std::sync::Arc;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use tracing::{debug, warn};

use super::carriers::{Carriers, INTERFACES};
use super::clock::thread_cpu_ns;
use super::cpu::TickLength;
use super::daemons::{Daemons, Rows};
use super::devices::{Disks, Interfaces};
use super::execs::Execs;
use super::host::Host;
use super::links::Links;
use super::poll::Poll;
use super::proc_file::Buffer;
use super::sampled::{Cost, Sampled};
use super::ticker::{Due, Ticker, Trigger};
use super::{MIN_PERIOD, Mark, Orders, SamplerConfig, SamplerError, Sampling};

/// A scan starts only if the next sample is at least this far away; it takes about 2 ms for a thousand processes.
const CLEAR_OF_BEAT: Duration = Duration::from_millis(10);
/// A daemon that ended is often restarted: scan soon, but not for each of many that end together.
const AFTER_AN_END: Duration = Duration::from_millis(250);
const BETWEEN_SCANS: Duration = Duration::from_secs(1);

pub(crate) struct SamplerThread {
    orders: Arc<Orders>,
    scan_every: Duration,
    poll: Arc<Poll>,
    sampling: Sampling,
    ticker: Ticker,
    buffer: Buffer,
    host: Host,
    disks: Option<Disks>,
    interfaces: Option<Interfaces>,
    carriers: Carriers,
    links: Links,
    /// Start of the running step.
    in_step: Option<MonoNanos>,
    daemons: Daemons,
    /// Rows of a scan, handed over with the next sample.
    rows: Rows,
    /// Daemons whose end was notified.
    ended: Vec<i32>,
    execs: Execs,
    /// The next sample is that of an end.
    awaited: bool,
    scan_at: Option<MonoNanos>,
    /// `None`: no scan since host-wide sampling began. The first scan comes before the first sample.
    scanned_at: Option<MonoNanos>,
    cost: Cost,
}

impl SamplerThread {
    /// Opens everything in the calling thread, so that the caller gets any error.
    pub(crate) fn new(
        config: &SamplerConfig,
        orders: Arc<Orders>,
    ) -> Result<SamplerThread, SamplerError> {
        let poll = Poll::new(&orders.wakeup).map_err(|source| SamplerError::Setup {
            what: "timer and wake-up descriptors",
            source,
        })?;
        let poll = Arc::new(poll);
        let daemons = Daemons::new(config, Arc::clone(&poll))?;
        Ok(SamplerThread {
            orders,
            scan_every: config.scan_every,
            poll,
            // Sampling is off until the first order.
            sampling: Sampling {
                host_wide: false,
                interfaces: false,
                period: None,
            },
            ticker: Ticker::default(),
            buffer: Buffer::new(),
            host: Host::open(&config.proc_root, TickLength::of_this_kernel()),
            disks: open_list(
                "diskstats",
                Disks::open(&config.proc_root, &config.sys_root()),
            ),
            interfaces: open_list("net/dev", Interfaces::open(&config.proc_root)),
            carriers: Carriers::new(INTERFACES),
            links: Links::default(),
            in_step: None,
            daemons,
            rows: Rows::default(),
            ended: Vec::new(),
            execs: Execs::default(),
            awaited: false,
            scan_at: None,
            scanned_at: None,
            cost: Cost::default(),
        })
    }

    pub(crate) fn run(mut self, mut sink: impl FnMut(Sampled)) {
        loop {
            let wanted = self.orders.take();
            if wanted.stop {
                self.hand_over().into_iter().for_each(&mut sink);
                return;
            }
            if self.sampling.host_wide && !wanted.sampling.host_wide {
                self.hand_over().into_iter().for_each(&mut sink);
            }
            if let Some((rules, mesh_pids)) = wanted.watched {
                self.daemons.watch(rules, mesh_pids);
                self.scan_at = self.scan_at.map(|_| MonoNanos::now());
            }
            self.obey(wanted.sampling, &wanted.marks);
            if !self.ended.is_empty() {
                sink(self.last_of_the_ended());
            }
            if self.sampling.host_wide && self.scanned_at.is_none() {
                self.scan();
            }
            let now = MonoNanos::now();
            if let Some(due) = self.ticker.take_due(now.0) {
                sink(self.sample(due));
                continue;
            }
            self.look_at_begun();
            // Without ticks no next sample will report what becomes known meanwhile.
            let mut is_due = false;
            if self.may_scan(now) {
                is_due = self.daemons.is_undecided();
                self.scan();
            }
            if !self.ticker.ticks() {
                is_due |= self.daemons.next_of_age().is_some_and(|at| at <= now);
                self.daemons.release(&mut self.rows);
                if is_due {
                    let (rows, sampled) = (std::mem::take(&mut self.rows), self.blank(now));
                    sink(self.finish(sampled, rows));
                }
            }
            if let Err(source) = self.wait() {
                warn!(error = %source, "the sampler cannot wait for its timer and ends: samples will be missing");
                return;
            }
        }
    }

    fn obey(&mut self, sampling: Sampling, marks: &[Mark]) {
        let now = MonoNanos::now();
        let before = std::mem::replace(&mut self.sampling, sampling);
        let period = sampling.period.map(|period| period.max(MIN_PERIOD));
        let period_ns = period.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
        self.ticker.set_period(period_ns, now.0);
        for mark in marks {
            let taken = match mark {
                Mark::StepStart(at) => {
                    self.in_step = Some(*at);
                    self.ticker.start_burst(at.0)
                }
                Mark::TaskEnd(at) => self.ticker.mark(at.0),
                Mark::StepEnd(at) => {
                    self.awaited = true;
                    self.in_step = None;
                    self.ticker.end_burst();
                    self.ticker.mark(at.0)
                }
            };
            if !taken {
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
        } else if sampling.host_wide && !marks.is_empty() && !self.ticker.ticks() {
            // Without ticks, no scans run. A mark must find new daemons first.
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
            self.daemons
                .sample(due.trigger, &mut self.buffer, &mut rows);
        }
        // A burst measures daemons only; a resolution of a second is enough for the other figures.
        let whole = due.trigger != Trigger::Burst;
        if self.sampling.host_wide && whole {
            sampled.host = self.host.sample(MonoNanos::now(), &mut self.buffer);
            if let Some(host) = &mut sampled.host {
                host.others = self.daemons.busy_others(due.trigger, &mut self.buffer);
            }
            if let Some(disks) = &mut self.disks {
                sampled.disks = disks.sample(MonoNanos::now(), &mut self.buffer);
            }
        }
        if let Some(interfaces) = self
            .interfaces
            .as_mut()
            .filter(|_| self.sampling.interfaces && whole)
        {
            let now = MonoNanos::now();
            sampled.nets = interfaces.sample(now, &mut self.buffer);
            sampled.carriers = self.carriers.changes(now, &sampled.nets);
            let carriers = &self.carriers;
            sampled.links =
                (self.links).changes(self.in_step, &sampled.nets, |name| carriers.has(name));
        }
        if due.trigger == Trigger::Mark {
            sampled.awaited = std::mem::take(&mut self.awaited);
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
        self.scan_at = match self.scan_at {
            Some(at) => Some(at.min(soon)),
            None => self.daemons.is_undecided().then_some(soon),
        };
        let sampled = self.blank(now);
        self.finish(sampled, rows)
    }

    /// Returns pending rows, mainly ends of daemons, if no further sample or scan will report them.
    fn hand_over(&mut self) -> Option<Sampled> {
        // The order may have arrived before the notification of an end.
        if let Err(source) = self.poll.wait(Some(0), &mut self.ended) {
            debug!(error = %source, "the last ends of daemons cannot be looked for");
        }
        for pid in std::mem::take(&mut self.ended) {
            self.daemons.ended(pid, &mut self.buffer, &mut self.rows);
        }
        if self.daemons.is_undecided() {
            self.scan();
        }
        let rows = std::mem::take(&mut self.rows);
        if rows.seen.is_empty() && rows.samples.is_empty() {
            return None;
        }
        let sampled = self.blank(MonoNanos::now());
        Some(self.finish(sampled, rows))
    }

    fn blank(&self, at: MonoNanos) -> Sampled {
        Sampled {
            at,
            seen: Vec::new(),
            daemons: Vec::new(),
            host: None,
            disks: Vec::new(),
            nets: Vec::new(),
            carriers: Vec::new(),
            links: Vec::new(),
            skipped_ticks: self.ticker.skipped(),
            cost: self.cost,
            awaited: false,
        }
    }

    fn finish(&mut self, mut sampled: Sampled, rows: Rows) -> Sampled {
        sampled.seen = rows.seen;
        sampled.daemons = rows.samples;
        self.cost.daemons = self.daemons.watched();
        self.cost.cpu_ns = thread_cpu_ns();
        sampled.cost = self.cost;
        if let Some(host) = &mut sampled.host {
            host.figures.skipped_ticks = i64::try_from(sampled.skipped_ticks).unwrap_or(i64::MAX);
            host.figures.sampler_cpu_us =
                i64::try_from(self.cost.cpu_ns / 1_000).unwrap_or(i64::MAX);
        }
        sampled
    }

    /// Checks processes that have just executed a program. Without ticks, the sampler does not listen for them.
    fn look_at_begun(&mut self) {
        let wanted = self.sampling.host_wide && self.ticker.ticks() && self.daemons.are_live();
        self.execs.listen(wanted, &self.poll);
        let (pids, lost) = self.execs.drain(&self.poll);
        if lost && let Some(at) = self.scan_at {
            self.scan_at = Some(at.min(MonoNanos::now()));
        }
        self.daemons.begun(pids, &mut self.buffer, &mut self.rows);
    }

    fn may_scan(&self, now: MonoNanos) -> bool {
        let clear = now.saturating_add(CLEAR_OF_BEAT);
        self.scan_at.is_some_and(|at| at <= now)
            && self.ticker.next().is_none_or(|next| next > clear.0)
    }

    fn scan(&mut self) {
        self.daemons.scan(&mut self.buffer, &mut self.rows);
        self.cost.scans = self.cost.scans.saturating_add(1);
        let now = MonoNanos::now();
        self.scanned_at = Some(now);
        let goes_on = self.sampling.host_wide && self.ticker.next().is_some();
        self.scan_at = goes_on.then(|| now.saturating_add(self.scan_every));
    }

    /// Sleeps until the next instant, an order or the end of a daemon.
    fn wait(&mut self) -> Result<(), Errno> {
        let now = MonoNanos::now().0;
        // An overdue scan that was held back runs after the sample to which it gives way.
        let scan = self.scan_at.map(|at| at.0).filter(|at| *at > now);
        let of_age = self.daemons.next_of_age().map(|at| at.0);
        let of_age = of_age.filter(|_| !self.ticker.ticks());
        let next = [self.ticker.next(), scan, of_age]
            .into_iter()
            .flatten()
            .min();
        let woken = self.poll.wait(next, &mut self.ended)?;
        self.execs.has_some |= woken.by_execs;
        Ok(())
    }
}

fn open_list<T>(file: &'static str, opened: Result<T, Errno>) -> Option<T> {
    opened
        .inspect_err(|errno| warn!(file, error = %errno, "this list of the host cannot be opened: its rows will be missing"))
        .ok()
}
