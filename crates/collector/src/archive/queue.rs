//! Which run is copied next, and when. The runs themselves are what the database says is due; this remembers since when
//! they have not changed and how often they failed. No I/O: times are given.

use super::Pace;
use benchmesh_model::mesh::{MeshMicros, RunId};
use benchmesh_store::archived::RunToArchive;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// A run that ended so long ago gets no more data at once.
const OLD_US: i64 = 60_000_000;

#[derive(Debug)]
struct Waiting {
    run: RunToArchive,
    /// Since when the archive lacks it, or its change.
    since: MeshMicros,
    /// When it has not changed for long enough.
    settled: Instant,
    /// Until when its findings are waited for.
    findings_until: Instant,
    failures: u32,
    retry_at: Instant,
}

#[derive(Debug)]
pub(super) struct Queue {
    pace: Pace,
    waiting: BTreeMap<RunId, Waiting>,
    /// Failures of the archive as a whole, since the last success.
    failures: u32,
    retry_at: Option<Instant>,
}

/// Whose the failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The server is gone or refuses us: every run waits.
    Archive,
    /// One run; the others go on.
    Run,
}

impl Queue {
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            waiting: BTreeMap::new(),
            failures: 0,
            retry_at: None,
        }
    }

    /// Takes in what the database says is due. Runs that are no longer due leave the queue.
    pub fn found(&mut self, due: Vec<RunToArchive>, now: Instant, mesh_now: MeshMicros) {
        let mut former = std::mem::take(&mut self.waiting);
        for run in due {
            let known = former.remove(&run.run);
            let is_old = !run.is_archived && mesh_now.since(Some(run.ended)) > OLD_US;
            let settled = match (&known, is_old) {
                (Some(known), _) if known.run.signature == run.signature => known.settled,
                (None, true) => now,
                _ => now + self.pace.settled,
            };
            let since = match (&known, run.is_archived) {
                (Some(known), _) => known.since,
                (None, true) => mesh_now,
                (None, false) => run.ended,
            };
            let waiting = Waiting {
                since,
                settled,
                findings_until: known
                    .as_ref()
                    .map_or(now + self.pace.findings, |it| it.findings_until),
                failures: known.as_ref().map_or(0, |it| it.failures),
                retry_at: known.as_ref().map_or(now, |it| it.retry_at),
                run,
            };
            self.waiting.insert(waiting.run.run, waiting);
        }
        if self.waiting.is_empty() {
            self.failures = 0;
            self.retry_at = None;
        }
    }

    /// The run to copy now: the oldest that has failed the least.
    pub fn next(&self, now: Instant) -> Option<RunToArchive> {
        if self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let ready = self.waiting.values().filter(|it| {
            let has_findings = it.run.has_findings || now >= it.findings_until;
            now >= it.settled && now >= it.retry_at && has_findings
        });
        let next = ready.min_by_key(|it| (it.failures, it.run.ended, it.run.run));
        next.map(|it| it.run.clone())
    }

    pub fn pushed(&mut self, run: RunId) {
        self.waiting.remove(&run);
        self.failures = 0;
        self.retry_at = None;
    }

    pub fn failed(&mut self, run: RunId, whose: Failed, now: Instant) {
        let pace = self.pace;
        if let Some(waiting) = self.waiting.get_mut(&run) {
            // So that another run is tried next.
            waiting.failures = waiting.failures.saturating_add(1);
            if whose == Failed::Run {
                waiting.retry_at = now + pace.pause(waiting.failures);
            }
        }
        if whose == Failed::Archive {
            self.failures = self.failures.saturating_add(1);
            self.retry_at = Some(now + pace.pause(self.failures));
        }
    }

    /// Whether a run waits because copying it, or every run, failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0 || self.waiting.values().any(|it| it.failures > 0)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn runs(&self) -> BTreeSet<RunId> {
        self.waiting.keys().copied().collect()
    }

    /// How many runs wait that the archive has in an earlier state.
    pub fn changed(&self) -> usize {
        self.waiting
            .values()
            .filter(|it| it.run.is_archived)
            .count()
    }

    /// Since when the run waits that has waited longest.
    pub fn oldest(&self) -> Option<MeshMicros> {
        self.waiting.values().map(|it| it.since).min()
    }
}

impl Pace {
    /// The pause after so many failures in a row.
    fn pause(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_pause
            .saturating_mul(factor)
            .min(self.longest_pause)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: MeshMicros = MeshMicros(1_750_000_000_000_000);

    fn run(id: i64, signature: &str) -> RunToArchive {
        RunToArchive {
            run: RunId(id),
            name: format!("run {id}"),
            ended: MeshMicros(NOW.0 - 1_000_000 + id),
            signature: signature.to_owned(),
            is_archived: false,
            has_findings: true,
        }
    }

    fn next(queue: &Queue, now: Instant) -> Option<i64> {
        queue.next(now).map(|run| run.run.0)
    }

    #[test]
    fn a_run_waits_until_it_has_not_changed_for_a_while() {
        let (pace, start) = (Pace::default(), Instant::now());
        let mut queue = Queue::new(pace);
        queue.found(vec![run(1, "a")], start, NOW);
        assert_eq!(next(&queue, start), None);
        let later = start + pace.settled;
        queue.found(vec![run(1, "b")], later, NOW);
        assert_eq!(next(&queue, later), None, "it has changed");
        let later = later + pace.settled;
        queue.found(vec![run(1, "b")], later, NOW);
        assert_eq!(next(&queue, later), Some(1));
        queue.pushed(RunId(1));
        assert!(queue.is_empty() && queue.oldest().is_none());
        // What ended long ago does not wait.
        queue.found(vec![run(1, "a")], later, MeshMicros(NOW.0 + 2 * OLD_US));
        assert_eq!(next(&queue, later), Some(1));
    }

    #[test]
    fn missing_findings_are_awaited_but_not_forever() {
        let (pace, start) = (Pace::default(), Instant::now());
        let mut queue = Queue::new(pace);
        let mut without = run(1, "a");
        without.has_findings = false;
        queue.found(vec![without], start, NOW);
        assert_eq!(next(&queue, start + pace.settled), None);
        assert_eq!(next(&queue, start + pace.findings), Some(1));
    }

    #[test]
    fn while_the_archive_is_gone_every_run_waits_longer_and_longer() {
        let (pace, mut now) = (Pace::default(), Instant::now() + Duration::from_secs(60));
        let mut queue = Queue::new(pace);
        queue.found(vec![run(1, "a"), run(2, "a")], now, NOW);
        now += pace.settled;
        let mut pauses = Vec::new();
        let mut tried = Vec::new();
        for _ in 0..9 {
            let run = next(&queue, now).unwrap();
            tried.push(run);
            queue.failed(RunId(run), Failed::Archive, now);
            let from = now;
            while next(&queue, now).is_none() {
                now += Duration::from_secs(1);
            }
            pauses.push((now - from).as_secs());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(tried, [1, 2, 1, 2, 1, 2, 1, 2, 1]);
        assert!(queue.is_failing());
        queue.pushed(RunId(2));
        assert_eq!(next(&queue, now), Some(1), "no pause after a success");
        assert!(queue.is_failing(), "one of them still fails");
        queue.pushed(RunId(1));
        assert!(!queue.is_failing());
    }

    #[test]
    fn a_run_that_cannot_be_copied_delays_no_other() {
        let (pace, start) = (Pace::default(), Instant::now());
        let mut queue = Queue::new(pace);
        queue.found(vec![run(1, "a"), run(2, "a")], start, NOW);
        let now = start + pace.settled;
        assert_eq!(next(&queue, now), Some(1));
        queue.failed(RunId(1), Failed::Run, now);
        assert_eq!(next(&queue, now), Some(2));
        queue.pushed(RunId(2));
        assert_eq!(next(&queue, now), None);
        assert_eq!(next(&queue, now + pace.first_pause), Some(1));
    }

    #[test]
    fn a_run_that_is_no_longer_due_leaves_the_queue() {
        let (pace, start) = (Pace::default(), Instant::now());
        let mut queue = Queue::new(pace);
        let changed = RunToArchive {
            is_archived: true,
            ..run(2, "a")
        };
        queue.found(vec![run(1, "a"), changed.clone()], start, NOW);
        assert_eq!(
            (queue.changed(), queue.oldest()),
            (1, Some(run(1, "a").ended))
        );
        queue.failed(RunId(1), Failed::Run, start);
        queue.found(vec![changed], start, NOW);
        assert_eq!((queue.changed(), queue.oldest()), (1, Some(NOW)));
        assert!(!queue.is_failing());
        queue.failed(RunId(2), Failed::Archive, start);
        assert!(queue.is_failing());
        queue.found(Vec::new(), start, NOW);
        assert!(!queue.is_failing(), "nothing waits");
    }
}
