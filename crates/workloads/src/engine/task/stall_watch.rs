//! Finds operations that neither end nor make progress, and those that outlast a stop.

use crate::engine::stall::{Stall, StallEvent, TaskPhase};
use crate::engine::workload::Load;
use crate::measure::clock::MonoNanos;
use crate::measure::recorder::{Consumer, InFlightOp};
use std::collections::BTreeMap;
use std::time::Duration;

/// An operation still in flight this long after a stop hangs in the kernel, because none begins after a stop.
const OUTLASTS_STOP_AFTER: Duration = Duration::from_millis(500);

/// Checks the operations in flight. An operation whose offset has changed since the last check is no stall, however
/// long it takes.
#[derive(Debug)]
pub(super) struct StallDetector {
    after: Duration,
    /// By worker.
    seen: BTreeMap<u32, SeenOp>,
    /// When operations were last checked.
    polled_at: MonoNanos,
    /// The operations that outlast a stop were reported.
    outlasting_reported: bool,
}

/// State of an operation at the last check.
#[derive(Debug)]
struct SeenOp {
    in_flight: InFlightOp,
    /// When it began, or was first seen at its current offset. Of an operation that waited at the last check: that
    /// check.
    since: MonoNanos,
    reported: Option<Stall>,
}

impl SeenOp {
    fn stall(&self, worker: u32, path_of: &dyn Fn(u32, u64) -> Option<String>) -> Stall {
        let op = self.in_flight;
        Stall {
            phase: TaskPhase::Operation { worker, op: op.op },
            call: None,
            since: self.since,
            path: op.file.and_then(|file| path_of(worker, file)),
            offset: op.offset,
            hangs: true,
        }
    }
}

impl StallDetector {
    pub(super) fn new(after: Duration) -> StallDetector {
        StallDetector {
            after,
            seen: BTreeMap::new(),
            polled_at: MonoNanos(0),
            outlasting_reported: false,
        }
    }

    /// Events since the last check.
    pub(super) fn poll(
        &mut self,
        now: MonoNanos,
        consumers: &[Consumer],
        load: &dyn Load,
    ) -> Vec<StallEvent> {
        let in_flight = consumers.iter().map(Consumer::in_flight);
        let paths = |worker, file| load.path_of(worker, file);
        self.compare(now, in_flight, &paths)
    }

    fn compare(
        &mut self,
        now: MonoNanos,
        in_flight: impl Iterator<Item = Option<InFlightOp>>,
        path_of: &dyn Fn(u32, u64) -> Option<String>,
    ) -> Vec<StallEvent> {
        let mut events = Vec::new();
        for (worker, in_flight) in (0_u32..).zip(in_flight) {
            let known = self.seen.remove(&worker);
            let mut seen = match (known, in_flight) {
                (Some(seen), Some(it)) if seen.in_flight == it => seen,
                (known, other) => {
                    let is_same = |seen: &SeenOp| {
                        let same = |it: &InFlightOp| (it.op, it.since);
                        other.as_ref().map(same) == Some(same(&seen.in_flight))
                    };
                    let went_on = known.as_ref().is_some_and(is_same);
                    let was_idle = known.is_none();
                    events.extend(known.and_then(|seen| seen.reported).map(StallEvent::Over));
                    let Some(it) = other else {
                        continue;
                    };
                    SeenOp {
                        in_flight: it,
                        since: match (went_on, was_idle) {
                            (true, _) => now,
                            // It has begun, or gone on after a wait, since the last check.
                            (false, true) => it.since.max(self.polled_at),
                            (false, false) => it.since,
                        },
                        reported: None,
                    }
                }
            };
            if seen.reported.is_none() && now.since(seen.since) >= self.after {
                let stall = seen.stall(worker, path_of);
                events.push(StallEvent::Begun(stall.clone()));
                seen.reported = Some(stall);
            }
            self.seen.insert(worker, seen);
        }
        self.polled_at = now;
        events
    }

    /// The operations in flight at the last check, if the load was stopped [`OUTLASTS_STOP_AFTER`] before it. Returns
    /// them once.
    pub(super) fn outlasting_stop(
        &mut self,
        stopped: Option<MonoNanos>,
        load: &dyn Load,
    ) -> Vec<Stall> {
        let is_due =
            |stopped: MonoNanos| self.polled_at >= stopped.saturating_add(OUTLASTS_STOP_AFTER);
        if self.outlasting_reported || !stopped.is_some_and(is_due) {
            return Vec::new();
        }
        let paths = |worker, file| load.path_of(worker, file);
        let seen = self.seen.iter();
        let outlasting: Vec<Stall> = seen.map(|(worker, op)| op.stall(*worker, &paths)).collect();
        self.outlasting_reported = !outlasting.is_empty();
        outlasting
    }

    /// The stall that has lasted longest.
    pub(super) fn longest(&self) -> Option<&Stall> {
        let stalls = self.seen.values().filter_map(|seen| seen.reported.as_ref());
        stalls.min_by_key(|stall| stall.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::spec::TaskError;
    use crate::engine::workload::Worker;
    use crate::measure::op::Op;

    const S: u64 = 1_000_000_000;

    struct Files;

    impl Load for Files {
        fn path_of(&self, worker: u32, file: u64) -> Option<String> {
            Some(format!("w{worker}/{file}"))
        }

        fn worker(&self, _index: u32) -> Result<Box<dyn Worker>, TaskError> {
            let why = String::from("a test of the detector alone");
            Err(TaskError::Unsupported { why })
        }
    }

    /// The events at each second of an operation that began at second 1, by its offset at that second.
    fn told(offsets: &[Option<u64>]) -> Vec<(u64, &'static str, u64)> {
        let mut detector = StallDetector::new(Duration::from_secs(3));
        let mut told = Vec::new();
        for (second, offset) in (1..).zip(offsets) {
            let in_flight = offset.map(|offset| InFlightOp {
                op: Op::Copy,
                since: MonoNanos(S),
                file: Some(0),
                offset: Some(offset),
                is_untimed: false,
            });
            let now = MonoNanos(second * S);
            for event in detector.compare(now, [in_flight].into_iter(), &|_, _| None) {
                let (word, stall) = match event {
                    StallEvent::Begun(stall) => ("stall", stall),
                    StallEvent::Over(stall) => ("over", stall),
                };
                told.push((second, word, stall.since.0 / S));
            }
        }
        told
    }

    #[test]
    fn an_operation_that_gets_further_is_no_stall_and_one_that_hangs_on_its_way_is() {
        let at = |offsets: &[u64]| offsets.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(told(&at(&[0, 1, 2, 3, 4, 5, 6, 7, 8])), []);
        assert_eq!(told(&at(&[0, 0, 0, 0, 0])), [(4, "stall", 1)]);
        let hangs = at(&[0, 1, 2, 2, 2, 2, 2, 3, 3]);
        assert_eq!(told(&hangs), [(6, "stall", 3), (8, "over", 3)]);
        let mut ends = at(&[0, 5, 5, 5, 5]);
        ends.push(None);
        assert_eq!(told(&ends), [(5, "stall", 2), (6, "over", 2)]);
    }

    /// A worker that waits for its next chunk shows no operation.
    #[test]
    fn the_wait_for_a_chunk_is_no_part_of_a_stall() {
        let waits = [Some(0), None, None, None, Some(0), Some(0)];
        assert_eq!(told(&waits), []);
        let hangs = [Some(0), None, None, Some(0), Some(0), Some(0)];
        assert_eq!(told(&hangs), [(6, "stall", 3)]);
    }

    #[test]
    fn operations_that_outlast_a_stop_are_held_and_told_once() {
        let mut detector = StallDetector::new(Duration::from_secs(60));
        let stopped = Some(MonoNanos(S));
        let mut outlasting = |milliseconds: u64, is_in_flight: bool| {
            let in_flight = is_in_flight.then_some(InFlightOp {
                op: Op::Write,
                since: MonoNanos(S / 2),
                file: Some(7),
                offset: Some(4096),
                is_untimed: false,
            });
            let now = MonoNanos(S + milliseconds * 1_000_000);
            detector.compare(now, [None, in_flight].into_iter(), &|_, _| None);
            let stalls = detector.outlasting_stop(stopped, &Files);
            stalls.iter().map(Stall::to_string).collect::<Vec<_>>()
        };
        assert_eq!(outlasting(499, true), [] as [&str; 0], "it may still end");
        // An operation that the detector does not see at first, such as one between two chunks.
        assert_eq!(outlasting(500, false), [] as [&str; 0]);
        assert_eq!(
            outlasting(700, true),
            ["worker 1: write w1/7 at offset 4096"]
        );
        assert_eq!(outlasting(900, true), [] as [&str; 0], "told twice");
    }
}
