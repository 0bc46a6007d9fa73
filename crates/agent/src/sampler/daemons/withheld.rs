//! Processes that are too young to be daemons: their rows are withheld until they have run for
//! [`DAEMON_AGE`](crate::sampler::life::DAEMON_AGE).
//!
//! A process that prints something and leaves, that daemonizes another and ends at once, or that fails at its start is
//! nobody's daemon. None of its rows leaves the sampler, so it has no cost, no event, and is in no count. If it has a
//! parent that is a daemon, its CPU time is the parent's (`offspring`).

use benchmesh_workloads::clock::MonoNanos;

use super::{Daemons, Rows};
use crate::sampler::daemon::Daemon;
use crate::sampler::life::Withheld;
use crate::sampler::sampled::{DaemonChange, DaemonSample, DaemonSeen};

impl Daemon {
    /// Hands over a sample, or withholds it.
    pub(super) fn put(&mut self, sample: DaemonSample, rows: &mut Rows) {
        match &mut self.withheld {
            Some(withheld) => withheld.samples.push(sample),
            None => rows.samples.push(sample),
        }
    }

    /// Describes it again, unless its first description is withheld.
    pub(super) fn describe(&self, change: DaemonChange, rows: &mut Rows) {
        if self.withheld.is_none() {
            rows.seen.push(DaemonSeen {
                change,
                ..self.seen(MonoNanos::now(), false)
            });
        }
    }
}

impl Daemons {
    /// When the next process is old enough to be a daemon.
    pub(crate) fn next_of_age(&self) -> Option<MonoNanos> {
        let young = self.watched.iter().filter_map(|one| one.withheld.as_ref());
        young.map(Withheld::until).min()
    }

    /// Hands over the rows of processes that are old enough by now, parents first.
    pub(crate) fn release(&mut self, rows: &mut Rows) {
        let now = MonoNanos::now();
        let is_due = |one: &Daemon| one.withheld.as_ref().is_some_and(|it| it.until() <= now);
        let due = self.watched.iter().filter(|daemon| is_due(daemon));
        let mut due: Vec<(MonoNanos, i32)> = due.map(|one| (one.life.born, one.pid)).collect();
        due.sort_unstable();
        for (_, pid) in due {
            self.release_one(pid, rows);
        }
    }

    pub(super) fn release_one(&mut self, pid: i32, rows: &mut Rows) {
        let Ok(place) = self.place(pid) else { return };
        let Some(withheld) = self
            .watched
            .get_mut(place)
            .and_then(|it| it.withheld.take())
        else {
            return;
        };
        let Some(daemon) = self.watched.get(place) else {
            return;
        };
        let mut seen = daemon.seen(withheld.begun.unwrap_or(withheld.found_at), false);
        if let Some(begun) = withheld.begun {
            if begun == daemon.life.born {
                // Its counters were zero at that time, and all use since then is this daemon's.
                seen.age_us = 0;
            }
            let others = self.watched.iter().filter(|other| other.pid != pid);
            let reported = others.filter(|other| other.withheld.is_none());
            seen.change = self
                .lineage
                .birth(&daemon.life, reported.map(|other| &other.life));
        }
        rows.seen.push(seen);
        rows.samples.extend(withheld.samples);
        if self.place(daemon.parent).is_ok() {
            self.offspring.add(pid, daemon.parent);
        }
    }
}
