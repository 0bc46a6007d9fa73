//! The CPU time of daemons' children.
//!
//! When a daemon has waited for a child that ended, the kernel adds the child's CPU time to the daemon's `cutime` and
//! `cstime`. Of children that live for a moment nothing else is ever seen, so it counts as the daemon's. What a known
//! child had used when it was last read does not count again: if the child is watched it has figures of its own, and if
//! not, it used that time earlier. Children become known by a scan, and matter once they have lived for
//! [`DAEMON_AGE`] after it.
//!
//! A daemon that ignores the ends of its children has no such time, and neither has one whose children daemonize.

use super::cpu::{CpuClock, TickLength};
use super::life::DAEMON_AGE;
use super::parse::Stat;
use benchmesh_workloads::clock::MonoNanos;

/// Maximum number of known children; the time of further ones counts as their daemon's when they end.
const MAX_KNOWN: usize = 4096;
/// It adopts and waits for all orphans of the host.
const INIT: i32 = 1;

/// The known children of all watched daemons.
#[derive(Debug, Default)]
pub(crate) struct Offspring {
    known: Vec<KnownChild>,
}

#[derive(Debug)]
struct KnownChild {
    pid: i32,
    parent: i32,
    clock: CpuClock,
    found_at: MonoNanos,
    /// Its clock when it was last read: that of another process with its pid is behind.
    clock_ns: u64,
    /// Its CPU time that does not count again; of a watched one, what was published.
    known_ns: u64,
}

impl Offspring {
    /// Adds a child of a watched daemon.
    pub(crate) fn add(&mut self, pid: i32, parent: i32) {
        let is_known = self.known.iter().any(|child| child.pid == pid);
        if parent == INIT || is_known || self.known.len() >= MAX_KNOWN {
            return;
        }
        let clock = CpuClock::of(pid);
        if let Some((clock, clock_ns)) = clock.and_then(|clock| Some((clock, clock.read_ns()?))) {
            self.known.push(KnownChild {
                pid,
                parent,
                clock,
                found_at: MonoNanos::now(),
                clock_ns,
                known_ns: 0,
            });
        }
    }

    /// Reads the CPU time of the children. `published`: of a watched one.
    pub(crate) fn read(&mut self, published: impl Fn(i32) -> Option<u64>) {
        let now = MonoNanos::now();
        for child in &mut self.known {
            let Some(clock_ns) = child.clock.read_ns().filter(|now| *now >= child.clock_ns) else {
                continue;
            };
            child.clock_ns = clock_ns;
            child.known_ns = match published(child.pid) {
                Some(published) => published.max(clock_ns),
                None if now.since(child.found_at) >= DAEMON_AGE => clock_ns,
                None => 0,
            };
        }
    }

    /// The last published CPU time of a watched child that has ended.
    pub(crate) fn ended(&mut self, pid: i32, published_ns: u64) {
        for child in self.known.iter_mut().filter(|child| child.pid == pid) {
            child.known_ns = child.known_ns.max(published_ns);
        }
    }

    /// Removes a daemon's children that it has waited for. Returns the CPU time that was known of them.
    fn take_gone(&mut self, parent: i32) -> u64 {
        let is_gone = |child: &mut KnownChild| {
            child.parent == parent && child.clock.read_ns().is_none_or(|now| now < child.clock_ns)
        };
        let gone = self.known.extract_if(.., is_gone);
        gone.map(|child| child.known_ns).sum()
    }

    /// Forgets the children of a daemon that has ended.
    pub(crate) fn forget(&mut self, parent: i32) {
        self.known.retain(|child| child.parent != parent);
    }

    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

/// The CPU time of one daemon's children that counts as its own. It never decreases.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChildrenTime {
    pub(crate) counted_ns: u64,
    /// Known of children that have ended.
    known_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
}

impl ChildrenTime {
    /// Takes the times of a reading of the daemon.
    pub(crate) fn advance(
        &mut self,
        pid: i32,
        stat: &Stat,
        offspring: &mut Offspring,
        tick: TickLength,
    ) {
        if pid == INIT {
            return;
        }
        self.known_ns = self.known_ns.saturating_add(offspring.take_gone(pid));
        (self.user_ticks, self.system_ticks) =
            (stat.children_user_ticks, stat.children_system_ticks);
        let all = tick.ns(self.user_ticks.saturating_add(self.system_ticks));
        self.counted_ns = all.saturating_sub(self.known_ns).max(self.counted_ns);
    }

    /// The counted time in ticks, divided into user and system as the kernel's is.
    pub(crate) fn ticks(self, tick: TickLength) -> (u64, u64) {
        let all = u128::from(self.user_ticks) + u128::from(self.system_ticks);
        let counted = self.counted_ns / tick.ns(1).max(1);
        let system = (u128::from(counted) * u128::from(self.system_ticks))
            .checked_div(all)
            .unwrap_or(0);
        let system = u64::try_from(system).unwrap_or(u64::MAX).min(counted);
        (counted - system, system)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::num::NonZeroU32;

    fn stat(children_user_ticks: u64, children_system_ticks: u64) -> Stat {
        Stat {
            state: b'S',
            parent: 1,
            is_kernel: false,
            minor_faults: 0,
            major_faults: 0,
            user_ticks: 0,
            system_ticks: 0,
            children_user_ticks,
            children_system_ticks,
            threads: 1,
            start_ticks: 7,
        }
    }

    #[test]
    fn what_was_known_of_a_child_does_not_count_again() {
        let tick = TickLength::from_rate(NonZeroU32::new(100).unwrap());
        let mut offspring = Offspring::default();
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut time = ChildrenTime::default();
        // Unknown children have used 200 ms.
        time.advance(7, &stat(15, 5), &mut offspring, tick);
        assert_eq!(time.counted_ns, 200_000_000);
        assert_eq!(time.ticks(tick), (15, 5));
        // A young child that nobody watches is not known yet.
        offspring.add(pid, 7);
        offspring.read(|_| None);
        assert_eq!(offspring.known.first().unwrap().known_ns, 0);
        // A watched child with 3 s lives, ends and is waited for.
        offspring.read(|_| Some(3_000_000_000));
        time.advance(7, &stat(15, 5), &mut offspring, tick);
        assert_eq!(time.counted_ns, 200_000_000);
        child.kill().unwrap();
        child.wait().unwrap();
        time.advance(7, &stat(315, 15), &mut offspring, tick);
        assert_eq!(time.counted_ns, 300_000_000);
        // A daemon that does not wait for its children loses nothing.
        time.advance(7, &stat(0, 0), &mut offspring, tick);
        assert_eq!(time.counted_ns, 300_000_000);
    }
}
