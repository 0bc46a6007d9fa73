//! Classifies births, restarts, and parents that only daemonize. Pure; it does not know about files.
//!
//! A forked child has a copy of its parent's memory, so the addresses of its stack and arguments are the same. The
//! kernel randomizes them for each program that it executes. They therefore distinguish a daemonized child from a
//! restart. If they are not readable, only the order of birth and end decides.

use std::collections::VecDeque;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;

use crate::sampler::life::Life;
use crate::sampler::sampled::{DaemonChange, DaemonSeen};

/// Number of remembered ends, to distinguish a restart from a new daemon.
const ENDED_LATELY: usize = 256;
/// Maximum number of ends that wait for the next scan; further ones are reported with the kind known so far.
const UNDECIDED: usize = 256;
/// Maximum age of a daemonizing parent. It waits until its daemon is up, which takes long if the daemon reads much
/// data.
const PARENT_AGE: Duration = Duration::from_secs(60);

/// A life that has ended.
#[derive(Debug, Clone)]
struct EndedLife {
    life: Life,
    at: MonoNanos,
}

#[derive(Debug)]
pub(crate) struct Lineage {
    tick: Duration,
    ended: VecDeque<EndedLife>,
    /// Ended young processes whose child may not have been found yet.
    undecided: Vec<(DaemonSeen, EndedLife)>,
}

impl EndedLife {
    /// Whether the ended process forked `child`, which has executed no other program since.
    fn has_forked(&self, child: &Life, tick: Duration) -> bool {
        let born = child.born;
        // Instants of the same tick can differ slightly, because they were converted to this clock at different times.
        if child.identity != self.life.identity || born.saturating_add(tick) < self.life.born {
            return false;
        }
        match (child.layout, self.life.layout) {
            (Some(of_child), Some(own)) => of_child == own && born <= self.at,
            // Born in the tick of the end: more likely a restart, because supervisors are quick.
            _ => born.saturating_add(tick * 2) < self.at,
        }
    }
}

impl Lineage {
    pub(crate) fn new(tick: Duration) -> Lineage {
        Lineage {
            tick,
            ended: VecDeque::new(),
            undecided: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ended.clear();
        self.undecided.clear();
    }

    /// Classifies a daemon that was born while the host was watched. `others` are watched now.
    pub(crate) fn birth<'life>(
        &self,
        new: &Life,
        mut others: impl Iterator<Item = &'life Life>,
    ) -> DaemonChange {
        let forked_by_live = others.any(|other| {
            other.identity == new.identity
                && other.born <= new.born.saturating_add(self.tick)
                && other.layout.is_some()
                && other.layout == new.layout
        });
        let forked = |ended: &EndedLife| ended.has_forked(new, self.tick);
        if forked_by_live || self.ended.iter().any(forked) {
            return DaemonChange::None;
        }
        let was_there = |ended: &EndedLife| ended.life.identity == new.identity;
        match self.ended.iter().any(was_there) {
            true => DaemonChange::Restarted,
            false => DaemonChange::Born,
        }
    }

    /// Records an end and returns what to report now. The end of a young process is decided by the next scan, unless
    /// its child is among `others`, which are watched.
    pub(crate) fn end<'life>(
        &mut self,
        mut seen: DaemonSeen,
        life: Life,
        others: impl Iterator<Item = &'life Life>,
    ) -> Option<DaemonSeen> {
        let is_young = seen.at.since(life.born) < PARENT_AGE;
        let ended = EndedLife { life, at: seen.at };
        if self.ended.len() == ENDED_LATELY {
            self.ended.pop_front();
        }
        self.ended.push_back(ended.clone());
        if !is_young {
            return Some(seen);
        }
        match self.decided(&ended, others) {
            Some(change) => seen.change = change,
            None if self.undecided.len() >= UNDECIDED => {}
            None => {
                self.undecided.push((seen, ended));
                return None;
            }
        }
        Some(seen)
    }

    pub(crate) fn is_undecided(&self) -> bool {
        !self.undecided.is_empty()
    }

    /// Classifies the pending ends after a scan.
    pub(crate) fn decide<'life>(
        &mut self,
        others: impl Iterator<Item = &'life Life> + Clone,
    ) -> Vec<DaemonSeen> {
        let undecided = std::mem::take(&mut self.undecided);
        let decide = |(mut seen, ended): (DaemonSeen, EndedLife)| {
            if let Some(change) = self.decided(&ended, others.clone()) {
                seen.change = change;
            }
            seen
        };
        undecided.into_iter().map(decide).collect()
    }

    /// Classifies an ended daemon by its live successors; `None` if undecided.
    fn decided<'life>(
        &self,
        ended: &EndedLife,
        others: impl Iterator<Item = &'life Life>,
    ) -> Option<DaemonChange> {
        let mut decided = None;
        for other in others {
            if ended.has_forked(other, self.tick) {
                return Some(DaemonChange::Parent);
            }
            // A child that did some work for a daemon that lives on.
            let is_copy = other.identity == ended.life.identity
                && other.layout.is_some()
                && other.layout == ended.life.layout;
            decided = is_copy.then_some(DaemonChange::None).or(decided);
        }
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::parse::AddressLayout;
    use crate::sampler::rules::Identity;

    const TICK: Duration = Duration::from_millis(10);

    fn life(instance: &str, born_ms: u64, layout: Option<u64>) -> Life {
        Life {
            identity: Identity {
                name: "ceph-osd".to_owned(),
                instance: instance.to_owned(),
            },
            born: MonoNanos(born_ms * 1_000_000),
            layout: layout.map(|stack| AddressLayout {
                stack,
                arguments: stack + 1,
            }),
        }
    }

    fn seen(at_ms: u64) -> DaemonSeen {
        DaemonSeen {
            at: MonoNanos(at_ms * 1_000_000),
            pid: 1,
            start_ticks: 1,
            name: "ceph-osd".to_owned(),
            instance: String::new(),
            cmdline: String::new(),
            version: String::new(),
            is_replaced: false,
            ended: true,
            age_us: 0,
            change: DaemonChange::Ended,
        }
    }

    /// Checks the reported changes of the parent's end and the other's birth, for either order of discovery.
    fn check(
        parent: &Life,
        end_ms: u64,
        other: &Life,
        of_parent: DaemonChange,
        of_other: DaemonChange,
    ) {
        let described = |change: DaemonChange| (change, format!("{parent:?} {other:?}"));
        // The other process is found first.
        let mut lineage = Lineage::new(TICK);
        let lives = [other.clone()];
        let end = lineage.end(seen(end_ms), parent.clone(), lives.iter());
        let end = end.or_else(|| lineage.decide(lives.iter()).pop());
        assert_eq!(
            end.map(|seen| described(seen.change)),
            Some(described(of_parent)),
            "other first"
        );
        // The end is found first.
        let mut lineage = Lineage::new(TICK);
        assert_eq!(
            lineage.end(seen(end_ms), parent.clone(), [].iter()),
            None,
            "it waits"
        );
        let birth = lineage.birth(other, [].iter());
        assert_eq!(described(birth), described(of_other));
        let end = lineage.decide(lives.iter()).pop();
        assert_eq!(
            end.map(|seen| described(seen.change)),
            Some(described(of_parent)),
            "end first"
        );
    }

    #[test]
    fn a_parent_and_a_restart_are_told_apart() {
        use DaemonChange::{Ended, None, Parent, Restarted};
        let parent = life("osd.1", 1_000, Some(7));
        // Forked immediately, and after a long wait; started again within the same tick; another instance.
        check(&parent, 1_004, &life("osd.1", 1_000, Some(7)), Parent, None);
        let mut mapped_earlier = life("osd.1", 1_000, Some(7));
        mapped_earlier.born = MonoNanos(mapped_earlier.born.0 - 1_500);
        check(&parent, 1_004, &mapped_earlier, Parent, None);
        check(
            &parent,
            30_000,
            &life("osd.1", 1_010, Some(7)),
            Parent,
            None,
        );
        check(
            &parent,
            1_004,
            &life("osd.1", 1_000, Some(8)),
            Ended,
            Restarted,
        );
        check(
            &parent,
            3_000,
            &life("osd.1", 3_010, Some(8)),
            Ended,
            Restarted,
        );
        check(
            &parent,
            1_004,
            &life("osd.2", 1_000, Some(7)),
            Ended,
            DaemonChange::Born,
        );
    }

    #[test]
    fn without_the_right_to_read_layouts_the_order_decides() {
        use DaemonChange::{Ended, None, Parent, Restarted};
        let parent = life("osd.1", 1_000, Option::None);
        let other = |born_ms| life("osd.1", born_ms, Option::None);
        check(&parent, 2_000, &other(1_500), Parent, None);
        check(&parent, 2_000, &other(1_990), Ended, Restarted);
        check(&parent, 2_000, &other(2_010), Ended, Restarted);
    }

    #[test]
    fn an_old_daemon_that_ends_is_told_at_once() {
        let mut lineage = Lineage::new(TICK);
        let old = life("osd.1", 0, Some(7));
        let ended = lineage.end(seen(100_000), old, [].iter());
        assert_eq!(ended.map(|seen| seen.change), Some(DaemonChange::Ended));
        assert!(!lineage.is_undecided());
    }

    #[test]
    fn a_fork_of_one_that_lives_is_no_start_and_its_end_no_end() {
        let mut lineage = Lineage::new(TICK);
        let (parent, child) = (life("", 0, Some(7)), life("", 500, Some(7)));
        assert_eq!(
            lineage.birth(&child, [parent.clone()].iter()),
            DaemonChange::None
        );
        let end = lineage.end(seen(700), child, [parent].iter());
        assert_eq!(end.map(|seen| seen.change), Some(DaemonChange::None));
        // A second daemon with the same name is a birth.
        let lineage = Lineage::new(TICK);
        let second = life("", 500, Some(9));
        assert_eq!(
            lineage.birth(&second, [life("", 0, Some(7))].iter()),
            DaemonChange::Born
        );
    }
}
