//! What the sampler's thread sleeps on: an absolute timer, its owner's bell, and the end of processes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::clock::NANOS_PER_SECOND;

/// What an event stands for: one of these, or a pid with the mark.
const BELL: u64 = 0;
const TIMER: u64 = 1;
const END: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Poll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Poll {
    pub(crate) fn new(bell: &OwnedFd) -> Result<Poll, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(
            &epoll,
            bell,
            epoll::EventData::new_u64(BELL),
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

    /// Sleeps until the instant, an order, or the end of a process; none is no instant. Pids of ended ones are added.
    pub(crate) fn wait(&self, until_ns: Option<u64>, ended: &mut Vec<i32>) -> Result<(), Errno> {
        // All zero would disarm it; the first nanosecond after boot is past as well.
        let value = until_ns.map_or(timespec(0), |at| timespec(at.max(1)));
        let once = Itimerspec {
            it_interval: timespec(0),
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let events = match epoll::wait(&self.epoll, &mut space, None) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for event in events {
            let data = event.data.u64();
            if data & END != 0 {
                ended.extend(i32::try_from(data & !END).ok());
            }
        }
        Ok(())
    }
}

/// Rings once when all threads of a process have ended, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct EndBell {
    pidfd: OwnedFd,
    poll: Arc<Poll>,
}

impl EndBell {
    /// None where this kernel has no pidfds or no descriptor is left: the end is then found at the next sample.
    pub(crate) fn hang(poll: &Arc<Poll>, pid: i32) -> Option<EndBell> {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let data = epoll::EventData::new_u64(END | u64::try_from(pid).ok()?);
        epoll::add(&poll.epoll, &pidfd, data, epoll::EventFlags::IN).ok()?;
        Some(EndBell {
            pidfd,
            poll: Arc::clone(poll),
        })
    }
}

impl Drop for EndBell {
    /// Closing is not enough: a child that was just forked may hold the same pidfd, which would ring for ever, and for
    /// the next process of that pid.
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
