//! The sampler's thread: waits for the next instant, an order or the end of a daemon, samples, hands over.
//!
//! One timer and one epoll; nothing else blocks. New daemons are looked for after a sample, off the beat.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tracing::warn;

use super::beat::Beat;
use super::cpu::TickLength;
use super::devices::{Disks, Interfaces};
use super::host::Host;
use super::proc_file::Buffer;
use super::sampled::{Cost, Sampled};
use super::{Orders, PERIOD_MIN, SamplerConfig, SamplerError, Sampling};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What the epoll's events stand for; daemons come after these.
const BELL: u64 = 0;
const TIMER: u64 = 1;

pub(crate) struct Watch {
    config: SamplerConfig,
    orders: Arc<Orders>,
    poll: OwnedFd,
    timer: OwnedFd,
    sampling: Sampling,
    beat: Beat,
    buffer: Buffer,
    host: Host,
    disks: Option<Disks>,
    interfaces: Option<Interfaces>,
    cost: Cost,
}

impl Watch {
    pub(crate) fn new(config: SamplerConfig, orders: Arc<Orders>) -> Result<Watch, SamplerError> {
        let setup = |what| move |source| SamplerError::Setup { what, source };
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(setup("epoll"))?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(setup("timer"))?;
        let readable = epoll::EventFlags::IN;
        epoll::add(
            &poll,
            &orders.bell,
            epoll::EventData::new_u64(BELL),
            readable,
        )
        .map_err(setup("epoll"))?;
        epoll::add(&poll, &timer, epoll::EventData::new_u64(TIMER), readable)
            .map_err(setup("epoll"))?;
        let host = Host::open(&config.proc_root, TickLength::of_this_kernel());
        let disks = open_list("diskstats", Disks::open(&config.proc_root));
        let interfaces = open_list("net/dev", Interfaces::open(&config.proc_root));
        let sampling = config.sampling;
        Ok(Watch {
            config,
            orders,
            poll,
            timer,
            sampling,
            beat: Beat::default(),
            buffer: Buffer::new(),
            host,
            disks,
            interfaces,
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
            if let Some(at) = self.beat.take_due(MonoNanos::now().0) {
                sink(self.sample(MonoNanos(at)));
                continue;
            }
            if let Err(source) = self.wait() {
                warn!(error = %source, "the sampler cannot wait for its timer and ends: samples will be missing");
                return;
            }
        }
    }

    fn obey(&mut self, sampling: Sampling, marks: &[MonoNanos]) {
        self.sampling = sampling;
        let period = sampling.period.map(|period| period.max(PERIOD_MIN));
        let period_ns = period.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
        self.beat.set_period(period_ns, MonoNanos::now().0);
        for mark in marks {
            if !self.beat.mark(mark.0) {
                warn!(
                    "too many samples are asked for ahead of time: one of them will not be taken"
                );
            }
        }
    }

    fn sample(&mut self, at: MonoNanos) -> Sampled {
        let mut sampled = Sampled {
            at,
            seen: Vec::new(),
            daemons: Vec::new(),
            host: None,
            disks: Vec::new(),
            nets: Vec::new(),
            skipped_ticks: self.beat.skipped(),
            cost: Cost::default(),
        };
        if self.sampling.host_wide {
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
        self.cost.cpu_ns = thread_cpu_ns();
        sampled.cost = self.cost;
        sampled
    }

    /// Sleeps until the next instant, an order or the end of a daemon.
    fn wait(&mut self) -> Result<(), Errno> {
        let next = self.beat.next();
        // All zero would disarm it; the first nanosecond after boot is past as well.
        let value = next.map_or(
            Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            |at| timespec(at.max(1)),
        );
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        match epoll::wait(&self.poll, &mut space, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

fn open_list<T>(file: &'static str, opened: Result<T, Errno>) -> Option<T> {
    opened
        .inspect_err(|errno| warn!(file, error = %errno, "this list of the host cannot be opened: its rows will be missing"))
        .ok()
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ns / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % NANOS_PER_SECOND).unwrap_or(0),
    }
}

/// CPU time of the calling thread since it began.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(NANOS_PER_SECOND)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
