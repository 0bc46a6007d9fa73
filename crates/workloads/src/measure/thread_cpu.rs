//! CPU time of other threads of this process, read from `/proc`.

use std::path::Path;
use std::time::Duration;

/// CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub(crate) fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }

    pub(crate) fn since(self, before: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    /// Reads the CPU time of the thread with this directory, such as `/proc/self/task/TID`. The sum comes from
    /// `schedstat` where the kernel keeps it. It is split into user and system time in the proportion of the ticks in
    /// `stat`.
    pub(crate) fn of_thread(directory: &Path) -> Option<CpuTime> {
        let ticks = Self::in_ticks(&std::fs::read_to_string(directory.join("stat")).ok()?)?;
        let schedstat = std::fs::read_to_string(directory.join("schedstat")).unwrap_or_default();
        let (sum, of_ticks) = match Schedstat::parse(&schedstat) {
            Some(schedstat) => (schedstat.on_cpu, ticks.user + ticks.system),
            None => return Some(ticks),
        };
        let system = match of_ticks.is_zero() {
            true => Duration::ZERO,
            false => sum.mul_f64(ticks.system.div_duration_f64(of_ticks)),
        };
        Some(CpuTime {
            user: sum.saturating_sub(system),
            system,
        })
    }

    /// Parses the `stat` of a thread.
    fn in_ticks(stat: &str) -> Option<CpuTime> {
        // The thread's name before it may contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut ticks = fields.split_ascii_whitespace().skip(11);
        let per_s = rustix::param::clock_ticks_per_second();
        let mut next = || {
            let ticks: u64 = ticks.next()?.parse().ok()?;
            Some(Duration::from_nanos(
                ticks.saturating_mul(1_000_000_000 / per_s),
            ))
        };
        Some(CpuTime {
            user: next()?,
            system: next()?,
        })
    }
}

/// Scheduler statistics of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedstat {
    pub on_cpu: Duration,
    /// Time spent on a run queue.
    pub waited: Duration,
}

impl Schedstat {
    /// Parses `/proc/PID/task/TID/schedstat`. `None` if the kernel keeps no such statistics and writes zeros.
    pub(crate) fn parse(text: &str) -> Option<Schedstat> {
        let mut fields = text.split_ascii_whitespace().map(str::parse);
        let (on_cpu, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
        (on_cpu > 0).then_some(Schedstat {
            on_cpu: Duration::from_nanos(on_cpu),
            waited: Duration::from_nanos(waited),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn statistics_of_a_thread_are_read_where_the_kernel_keeps_them() {
        let both = |on_cpu, waited| {
            Some(Schedstat {
                on_cpu: Duration::from_nanos(on_cpu),
                waited: Duration::from_nanos(waited),
            })
        };
        for (text, expected) in [
            ("122326 3849962 2\n", both(122_326, 3_849_962)),
            ("122326 0 2\n", both(122_326, 0)),
            ("0 0 0\n", None),
            ("122326", None),
            ("x y z", None),
            ("", None),
        ] {
            assert_eq!(Schedstat::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_sum_is_the_schedulers_and_its_parts_are_by_ticks() {
        let thread = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(thread.path().join(name), text).unwrap();
        assert_eq!(CpuTime::of_thread(thread.path()), None);
        let stat = "17 (msgr) worker) S 1 2 3 4 5 6 7 8 9 10 30 10 0 0 20 0 9 0 5 6 7\n";
        write("stat", stat);
        let millis = |user, system| {
            Some(CpuTime {
                user: Duration::from_millis(user),
                system: Duration::from_millis(system),
            })
        };
        let per_tick = 1000 / rustix::param::clock_ticks_per_second();
        let ticks = millis(30 * per_tick, 10 * per_tick);
        assert_eq!(CpuTime::of_thread(thread.path()), ticks);
        write("schedstat", "408000000 5 6\n");
        assert_eq!(CpuTime::of_thread(thread.path()), millis(306, 102));
        write("stat", "17 (x) S 1 2\n");
        assert_eq!(CpuTime::of_thread(thread.path()), None);
    }
}
