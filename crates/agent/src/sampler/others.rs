//! Unwatched processes that take CPU time: who else was busy while a load lacked CPU.
//!
//! They are read with each scan, and at the start and end of a step, by the CPU clock of each process: two system calls
//! and no file. The result names the processes that used most since the previous reading, if that was at least 1 % of a
//! CPU; processes with one name are summed. A process that starts and ends between two scans is not seen.

use super::sampled::BusyOthers;
use benchmesh_workloads::clock::MonoNanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of names in one reading.
pub(crate) const MAX_NAMED: usize = 3;
/// Processes below this part of a CPU (1 %) are ignored.
const MIN_PART: u64 = 100;
/// Maximum number of processes whose name is read: the busiest ones.
const MAX_ASKED: usize = 64;
/// After a longer gap between readings, the use since the last one is not reported: it is too old.
const MAX_SPAN: Duration = Duration::from_secs(20);
/// Minimum time between readings, because of their cost.
const MIN_SPAN: Duration = Duration::from_secs(1);
/// Tolerance, because the clocks are read one after the other.
const SLACK_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(crate) struct Others {
    /// Ascending by pid.
    before: Vec<Used>,
    now: Vec<Used>,
    read_at: Option<MonoNanos>,
    pending: Option<BusyOthers>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    pid: i32,
    /// `None`: it is watched, or has ended.
    cpu_ns: Option<u64>,
}

impl Others {
    pub(crate) fn forget(&mut self) {
        *self = Others::default();
    }

    /// Whether the newest reading is old enough for another one.
    pub(crate) fn is_due(&self, now: MonoNanos) -> bool {
        self.read_at.is_none_or(|at| now.since(at) >= MIN_SPAN)
    }

    /// Returns the processes that took CPU time since the last call.
    pub(crate) fn take(&mut self) -> Option<BusyOthers> {
        self.pending.take()
    }

    /// Reads the clocks of all processes, ascending by pid. `cpu_ns`: `None` for a process that is watched or has
    /// ended.
    pub(crate) fn read(
        &mut self,
        now: MonoNanos,
        listed: impl Iterator<Item = i32>,
        cpu_ns: impl Fn(i32) -> Option<u64>,
        mut name: impl FnMut(i32) -> Option<String>,
    ) {
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
        self.now.extend(listed.map(|pid| Used {
            pid,
            cpu_ns: cpu_ns(pid),
        }));
        let Some(from) = self.read_at.replace(now) else {
            return;
        };
        let span = now.since(from);
        if span.is_zero() || span > MAX_SPAN {
            return;
        }
        let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let mut busy = self.since_before();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let most_ns = span_ns.saturating_mul(u64::try_from(cpus).unwrap_or(1));
        // More than the available CPU time cannot have been used since: the previous scan did not list the process.
        busy.retain(|(_, used)| *used <= most_ns.saturating_add(SLACK_NS));
        let least_ns = span_ns / MIN_PART;
        // One name may have many processes that are each below the limit.
        busy.retain(|(_, used)| *used >= least_ns / 10);
        busy.sort_unstable_by_key(|(_, used)| std::cmp::Reverse(*used));
        busy.truncate(MAX_ASKED);
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (pid, used) in busy {
            if let Some(name) = name(pid) {
                *by_name.entry(program(&name)).or_default() += used;
            }
        }
        by_name.retain(|_, used| *used >= least_ns);
        let processes = by_name
            .into_iter()
            .map(|(name, used)| (name, i64::try_from(used / 1_000).unwrap_or(i64::MAX)))
            .collect();
        let found = BusyOthers {
            from,
            until: now,
            processes,
        };
        self.pending = match self.pending.take() {
            Some(before) => Some(joined(before, found)),
            None => Some(largest(found)).filter(|found| !found.processes.is_empty()),
        };
    }

    /// CPU time of each process since the previous reading; all of it for a process that is new. If a clock went back,
    /// the pid belongs to a new process. Inodes cannot show that: those of directories in `/proc` change whenever the
    /// kernel drops them from its cache.
    fn since_before(&self) -> Vec<(i32, u64)> {
        let mut before = self.before.iter().peekable();
        let used = self.now.iter().filter_map(|now| {
            while before.next_if(|old| old.pid < now.pid).is_some() {}
            let cpu_ns = now.cpu_ns?;
            let base = match before.next_if(|old| old.pid == now.pid) {
                Some(old) => old.cpu_ns.map(|old| if old <= cpu_ns { old } else { 0 })?,
                None => 0,
            };
            Some((now.pid, cpu_ns - base))
        });
        used.collect()
    }
}

/// Merges two consecutive readings into one.
fn joined(before: BusyOthers, after: BusyOthers) -> BusyOthers {
    let mut by_name: BTreeMap<String, i64> = BTreeMap::new();
    for (name, cpu_us) in before.processes.into_iter().chain(after.processes) {
        *by_name.entry(name).or_default() += cpu_us;
    }
    largest(BusyOthers {
        from: before.from,
        until: after.until,
        processes: by_name.into_iter().collect(),
    })
}

fn largest(mut busy: BusyOthers) -> BusyOthers {
    busy.processes
        .sort_by_key(|(_, cpu_us)| std::cmp::Reverse(*cpu_us));
    busy.processes.truncate(MAX_NAMED);
    busy
}

/// The suffix distinguishes kernel threads of one kind: `kworker/u8:3-events`, `ksoftirqd/0`.
fn program(comm: &str) -> String {
    match comm.split_once('/') {
        Some((kind @ ("kworker" | "ksoftirqd" | "migration" | "irq"), _)) => kind.to_owned(),
        _ => comm.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// A process: pid, CPU time if it is not watched, name.
    type OtherProcess = (i32, Option<u64>, &'static str);

    fn read(others: &mut Others, at_s: u64, processes: &[OtherProcess]) {
        let of = |pid: i32| *processes.iter().find(|it| it.0 == pid).unwrap();
        others.read(
            MonoNanos(at_s * SECOND),
            processes.iter().map(|it| it.0),
            |pid| of(pid).1,
            |pid| Some(of(pid).2.to_owned()),
        );
    }

    fn taken(others: &mut Others) -> Vec<(String, i64)> {
        others.take().map_or_else(Vec::new, |busy| busy.processes)
    }

    #[test]
    fn who_took_most_is_named_once_by_name() {
        let mut others = Others::default();
        let at_first: [OtherProcess; 5] = [
            (1, Some(5 * SECOND), "init"),
            (7, Some(SECOND), "backup"),
            (8, None, "ceph-osd"),
            (9, Some(0), "cc1"),
            (20, Some(0), "kworker/u8:3-events"),
        ];
        read(&mut others, 100, &at_first);
        assert_eq!(taken(&mut others), []);
        read(
            &mut others,
            105,
            &[
                (1, Some(5 * SECOND + MS), "init"),
                (7, Some(SECOND + 600 * MS), "backup"),
                (8, None, "ceph-osd"),
                (9, Some(700 * MS), "cc1"),
                // New: all of its time counts.
                (10, Some(1350 * MS), "cc1"),
                // A reused pid.
                (20, Some(100 * MS), "kworker/3:1"),
            ],
        );
        let busy = others.take().unwrap();
        assert_eq!(busy.until.since(busy.from), Duration::from_secs(5));
        assert_eq!(
            busy.processes,
            [
                ("cc1".to_owned(), 2_050_000),
                ("backup".to_owned(), 600_000),
                ("kworker".to_owned(), 100_000),
            ]
        );
        assert_eq!(others.take(), None);
    }

    #[test]
    fn what_was_not_taken_yet_is_joined_and_a_long_gap_is_left_out() {
        let mut others = Others::default();
        let at = |cpu_ms: u64| [(7, Some(cpu_ms * MS), "backup")];
        read(&mut others, 100, &at(0));
        read(&mut others, 102, &at(500));
        read(&mut others, 104, &at(800));
        assert_eq!(taken(&mut others), [("backup".to_owned(), 800_000)]);
        read(&mut others, 200, &at(90_000));
        assert_eq!(taken(&mut others), []);
        // No process took 1 % of a CPU.
        read(&mut others, 205, &at(90_020));
        assert_eq!(taken(&mut others), []);
        assert!(!others.is_due(MonoNanos(205 * SECOND + SECOND / 2)));
        assert!(others.is_due(MonoNanos(206 * SECOND)));
    }

    /// A process that was watched until now is not new.
    #[test]
    fn a_process_that_is_no_longer_watched_begins_at_its_clock() {
        let mut others = Others::default();
        read(&mut others, 100, &[(8, None, "ceph-osd")]);
        read(&mut others, 102, &[(8, Some(50 * SECOND), "ceph-osd")]);
        assert_eq!(taken(&mut others), []);
        read(&mut others, 104, &[(8, Some(51 * SECOND), "ceph-osd")]);
        assert_eq!(taken(&mut others), [("ceph-osd".to_owned(), 1_000_000)]);
    }

    /// After a gap in the scans: its whole life is more than the time between two readings.
    #[test]
    fn a_process_that_was_not_listed_before_did_not_use_more_than_there_is() {
        let mut others = Others::default();
        read(&mut others, 100, &[(7, Some(0), "init")]);
        read(
            &mut others,
            102,
            &[(7, Some(0), "init"), (9, Some(216_000 * SECOND), "dockerd")],
        );
        assert_eq!(taken(&mut others), []);
    }
}
