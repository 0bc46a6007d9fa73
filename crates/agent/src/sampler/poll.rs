//! The sampler's wait: for an absolute timer, its owner's wake-up, the end of processes and the kernel's events of new
//! programs.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::clock::NANOS_PER_SECOND;

/// The source of an event: one of these, or a pid with the mark.
const WAKE_UP: u64 = 0;
const TIMER: u64 = 1;
const EXECS: u64 = 2;
const END: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Poll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Poll {
    pub(crate) fn new(wakeup: &OwnedFd) -> Result<Poll, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(
            &epoll,
            wakeup,
            epoll::EventData::new_u64(WAKE_UP),
            epoll::EventFlags::IN,
        )?;
        epoll::add(
            &epoll,
            &timer,
            epoll::EventData::new_u64(TIMER),
            epoll::EventFlags::IN,
        )?;
        Ok(Poll { epoll, timer })
    }

    /// Also wakes up when `events` is readable.
    pub(crate) fn add_execs(&self, events: impl AsFd) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(EXECS);
        epoll::add(&self.epoll, events, data, epoll::EventFlags::IN)
    }

    pub(crate) fn remove_execs(&self, events: impl AsFd) {
        let _ = epoll::delete(&self.epoll, events);
    }

    /// Sleeps until the instant (`None`: no instant), an order, an event, or the end of a process. Adds the pids of
    /// ended processes.
    pub(crate) fn wait(&self, until_ns: Option<u64>, ended: &mut Vec<i32>) -> Result<Woken, Errno> {
        // All zero would disarm it; the first nanosecond after boot is also in the past.
        let value = until_ns.map_or(timespec(0), |at| timespec(at.max(1)));
        let once = Itimerspec {
            it_interval: timespec(0),
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let events = match epoll::wait(&self.epoll, &mut space, None) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(Woken::default()),
            Err(errno) => return Err(errno),
        };
        let mut woken = Woken::default();
        for event in events {
            let data = event.data.u64();
            woken.by_execs |= data == EXECS;
            if data & END != 0 {
                ended.extend(i32::try_from(data & !END).ok());
            }
        }
        Ok(woken)
    }
}

/// What is readable after a wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Woken {
    pub(crate) by_execs: bool,
}

/// Wakes the poll once when all threads of a process have ended, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct ExitNotifier {
    pidfd: OwnedFd,
    poll: Arc<Poll>,
}

impl ExitNotifier {
    /// `None` if this kernel has no pidfds or no descriptor is left: the end is then found at the next sample.
    pub(crate) fn register(poll: &Arc<Poll>, pid: i32) -> Option<ExitNotifier> {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let data = epoll::EventData::new_u64(END | u64::try_from(pid).ok()?);
        epoll::add(&poll.epoll, &pidfd, data, epoll::EventFlags::IN).ok()?;
        Some(ExitNotifier {
            pidfd,
            poll: Arc::clone(poll),
        })
    }
}

impl Drop for ExitNotifier {
    /// Removes the pidfd from the poll. Closing alone is not enough: a child that was just forked may hold the same
    /// pidfd, which would then wake the poll forever, also for the next process with that pid.
    fn drop(&mut self) {
        let _ = epoll::delete(&self.poll.epoll, &self.pidfd);
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ns / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % NANOS_PER_SECOND).unwrap_or(0),
    }
}
