//! CPU time of a process: the total from its CPU clock (nanoseconds), split into user and system by the ticks of
//! `stat`, which are 10 ms wide and scaled by the kernel.
//!
//! The two published counters never decrease and always add up to the total. Between two readings of `stat` the total
//! is equally exact, and the split continues with the previous share. The next reading corrects the split, as far as
//! counters that never decrease allow. The error of the split never exceeds the CPU time used between two readings.

use std::num::NonZeroU32;

/// The CPU clock of a live process. The clock follows the pid: a reading counts only if the kept `stat` of the same
/// process answers after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// `None` if the process does not exist.
    pub(crate) fn of(pid: i32) -> Option<CpuClock> {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `clock` is valid for writing for the duration of the call, which keeps no pointer.
        let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        (code == 0).then_some(CpuClock(clock))
    }

    /// Nanoseconds of CPU that all threads of the process have used, ended ones included. `None` once it is reaped.
    pub(crate) fn read_ns(self) -> Option<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for writing for the duration of the call, which keeps no pointer.
        let code = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        if code != 0 {
            return None;
        }
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let nanos = u64::try_from(time.tv_nsec).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    }
}

/// Length of a kernel tick, from ticks per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TickLength {
    ns: u64,
}

impl TickLength {
    pub(crate) fn from_rate(per_second: NonZeroU32) -> TickLength {
        TickLength {
            ns: 1_000_000_000 / u64::from(per_second.get()),
        }
    }

    /// The tick length of the running kernel.
    pub(crate) fn of_this_kernel() -> TickLength {
        let rate = u32::try_from(rustix::param::clock_ticks_per_second())
            .ok()
            .and_then(NonZeroU32::new);
        rate.map_or(TickLength { ns: 10_000_000 }, TickLength::from_rate)
    }

    pub(crate) fn ns(self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.ns)
    }

    pub(crate) fn us(self, ticks: u64) -> u64 {
        self.ns(ticks) / 1_000
    }
}

/// Minimum ticks for a usable user/system split. With fewer, the split depends on which mode happened to run at the
/// tick.
const TICKS_OF_A_SHARE: u64 = 10;

/// The last published values of one process, and its last ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuSplit {
    user_ns: u64,
    system_ns: u64,
    read: Read,
    share: SystemShare,
}

/// Total and system time at the latest reading of the ticks.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    total_ns: u64,
    system_ns: u64,
}

/// System ticks and all ticks in the latest span of at least [`TICKS_OF_A_SHARE`], and the start of the next span.
#[derive(Debug, Clone, Copy, Default)]
struct SystemShare {
    system: u64,
    all: u64,
    from_system: u64,
    from_all: u64,
}

impl SystemShare {
    fn note(&mut self, reading: CpuReading) {
        let now = reading.user_ticks.saturating_add(reading.system_ticks);
        let all = now.saturating_sub(self.from_all);
        let system = reading.system_ticks.saturating_sub(self.from_system);
        // Before the first full span, a share of few ticks is better than none.
        if all >= TICKS_OF_A_SHARE || self.from_all == 0 {
            (self.all, self.system) = (all, system.min(all));
        }
        if all >= TICKS_OF_A_SHARE {
            (self.from_all, self.from_system) = (now, reading.system_ticks);
        }
    }

    fn of(self, ns: u64) -> u64 {
        part(ns, self.system, self.all)
    }
}

/// `whole` times `of` / `all`; zero if `all` is zero.
fn part(whole: u64, of: u64, all: u64) -> u64 {
    let all = u128::from(all);
    let part = (u128::from(whole) * u128::from(of)).checked_div(all);
    u64::try_from(part.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// One reading: the clock's total (`None`: use the sum of the ticks) and the ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuReading {
    pub(crate) total_ns: Option<u64>,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
}

impl CpuSplit {
    /// User and system time together.
    pub(crate) fn published_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// User and system nanoseconds to publish.
    ///
    /// The system share is that of the ticks, clamped to what the ticks allow (a count of n ticks is at least n and
    /// less than n + 1 ticks of time), then clamped so that neither counter decreases.
    pub(crate) fn advance(&mut self, reading: CpuReading, tick: TickLength) -> (u64, u64) {
        let user_floor = tick.ns(reading.user_ticks);
        let system_floor = tick.ns(reading.system_ticks);
        let ticks_ns = user_floor.saturating_add(system_floor);
        let before = self.user_ns.saturating_add(self.system_ns);
        let total = reading.total_ns.unwrap_or(ticks_ns).max(before);

        let share = part(total, system_floor, ticks_ns);
        let at_least =
            system_floor.max(total.saturating_sub(user_floor.saturating_add(tick.ns(1))));
        let at_most = system_floor
            .saturating_add(tick.ns(1))
            .min(total.saturating_sub(user_floor));
        let system = if at_least <= at_most {
            share.clamp(at_least, at_most)
        } else {
            share
        };
        self.share.note(reading);
        self.read = Read {
            total_ns: total,
            system_ns: system,
        };
        self.publish(total, system)
    }

    /// User and system nanoseconds to publish when only the clock was read.
    pub(crate) fn carry_on(&mut self, total_ns: u64) -> (u64, u64) {
        let total = total_ns.max(self.user_ns.saturating_add(self.system_ns));
        let since = total.saturating_sub(self.read.total_ns);
        let system = self.read.system_ns.saturating_add(self.share.of(since));
        self.publish(total, system)
    }

    /// Publishes `total`, which is not less than the total published before.
    fn publish(&mut self, total: u64, system: u64) -> (u64, u64) {
        let system = system.clamp(self.system_ns, total.saturating_sub(self.user_ns));
        self.system_ns = system;
        self.user_ns = total.saturating_sub(system);
        (self.user_ns, self.system_ns)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const TICK: TickLength = TickLength { ns: 10_000_000 };

    fn reading(total_ns: u64, user_ticks: u64, system_ticks: u64) -> CpuReading {
        CpuReading {
            total_ns: Some(total_ns),
            user_ticks,
            system_ticks,
        }
    }

    #[test]
    fn the_split_follows_the_ticks() {
        let mut split = CpuSplit::default();
        assert_eq!(
            split.advance(reading(4_000_000, 0, 0), TICK),
            (4_000_000, 0)
        );
        let (user, system) = split.advance(reading(1_000_000_000, 75, 25), TICK);
        assert_eq!((user, system), (750_000_000, 250_000_000));
    }

    #[test]
    fn without_a_clock_the_ticks_are_all_there_is() {
        let mut split = CpuSplit::default();
        let ticks = CpuReading {
            total_ns: None,
            user_ticks: 65_210,
            system_ticks: 31_975,
        };
        assert_eq!(
            split.advance(ticks, TICK),
            (652_100_000_000, 319_750_000_000)
        );
    }

    #[test]
    fn between_two_readings_the_share_of_the_last_span_goes_on() {
        const SECOND: u64 = 1_000_000_000;
        let mut split = CpuSplit::default();
        // A long time in user mode only, then a second with three quarters in system mode.
        split.advance(reading(100 * SECOND, 10_000, 0), TICK);
        split.advance(reading(101 * SECOND, 10_025, 75), TICK);
        assert_eq!(
            split.carry_on(102 * SECOND),
            (100 * SECOND + SECOND / 2, SECOND + SECOND / 2)
        );
        // If the clock goes backwards, the counters stay constant.
        assert_eq!(
            split.carry_on(5 * SECOND),
            (100 * SECOND + SECOND / 2, SECOND + SECOND / 2)
        );
        // That second turned out to be all user time: the system counter stays constant until the true value reaches
        // it.
        let (user, system) = split.advance(reading(102 * SECOND, 10_125, 75), TICK);
        assert_eq!(
            (user, system),
            (100 * SECOND + SECOND / 2, SECOND + SECOND / 2)
        );
        let (user, system) = split.advance(reading(103 * SECOND, 10_125, 175), TICK);
        assert_eq!(
            (user, system),
            (101 * SECOND + SECOND / 4, SECOND + 3 * SECOND / 4)
        );
    }

    #[test]
    fn a_few_ticks_are_no_share() {
        let mut split = CpuSplit::default();
        split.advance(reading(1_000_000_000, 50, 50), TICK);
        // One more tick, by chance in system mode.
        split.advance(reading(1_010_000_000, 50, 51), TICK);
        let (_, system) = split.carry_on(1_210_000_000);
        assert!(system.abs_diff(605_000_000) <= TICK.ns, "{system}");
    }

    #[test]
    fn own_clock_runs() {
        let clock = CpuClock::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        let before = clock.read_ns().unwrap();
        let mut last = before;
        while last < before + 1_000_000 {
            let now = clock.read_ns().unwrap();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        assert!(CpuClock::of(-7).is_none() || CpuClock::of(-7).unwrap().read_ns().is_none());
    }

    proptest! {
        /// For any input, both counters never decrease and add up to the highest total seen.
        #[test]
        fn both_counters_rise_and_add_up(
            readings in prop::collection::vec(
                (prop::option::of(0u64..1u64 << 50), prop::option::of((0u64..1u64 << 30, 0u64..1u64 << 30))),
                1..50,
            )
        ) {
            let mut split = CpuSplit::default();
            let (mut user, mut system) = (0, 0);
            for (total_ns, ticks) in readings {
                let ticks_ns = ticks.map_or(0, |(user, system)| TICK.ns(user) + TICK.ns(system));
                let (now_user, now_system) = match ticks {
                    Some((user_ticks, system_ticks)) => split.advance(CpuReading { total_ns, user_ticks, system_ticks }, TICK),
                    None => split.carry_on(total_ns.unwrap_or(0)),
                };
                prop_assert!(now_user >= user && now_system >= system);
                prop_assert_eq!(now_user + now_system, total_ns.unwrap_or(ticks_ns).max(user + system));
                (user, system) = (now_user, now_system);
            }
        }

        /// A process as the kernel reports it: ticks are the true times rounded down. The split is never off by a tick.
        #[test]
        fn within_a_tick_of_the_truth(steps in prop::collection::vec((0u64..3_000_000_000, 0u64..3_000_000_000), 1..40)) {
            let mut split = CpuSplit::default();
            let (mut user, mut system) = (0u64, 0u64);
            for (more_user, more_system) in steps {
                user += more_user;
                system += more_system;
                let shown = reading(user + system, user / TICK.ns, system / TICK.ns);
                let (_, published) = split.advance(shown, TICK);
                prop_assert!(published.abs_diff(system) <= TICK.ns, "{published} for {system}");
            }
        }

        /// With readings of the clock alone in between, for any behaviour of the process: the error never exceeds one
        /// tick plus the maximum time used between two readings of the ticks.
        #[test]
        fn never_further_off_than_what_was_used_in_between(
            steps in prop::collection::vec((0u64..3_000_000_000, 0u64..3_000_000_000, prop::bool::weighted(0.3)), 1..60)
        ) {
            let mut split = CpuSplit::default();
            let (mut user, mut system) = (0u64, 0u64);
            let (mut read_at, mut most) = (0, 0);
            for (more_user, more_system, with_ticks) in steps {
                user += more_user;
                system += more_system;
                let total = user + system;
                let (now_user, published) = if with_ticks {
                    read_at = total;
                    split.advance(reading(total, user / TICK.ns, system / TICK.ns), TICK)
                } else {
                    most = most.max(total - read_at);
                    split.carry_on(total)
                };
                prop_assert_eq!(now_user + published, total);
                prop_assert!(published.abs_diff(system) <= most + TICK.ns, "{published} for {system}");
            }
        }
    }
}
