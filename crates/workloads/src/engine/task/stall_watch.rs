//! Looks for operations that do not end.

use crate::engine::stall::{Stall, StallEvent, TaskPhase};
use crate::engine::workload::Load;
use crate::measure::clock::MonoNanos;
use crate::measure::recorder::Consumer;
use std::collections::BTreeMap;
use std::time::Duration;

/// Looks at what workers have in flight.
#[derive(Debug)]
pub(super) struct StallDetector {
    after: Duration,
    stalled: BTreeMap<u32, Stall>,
}

impl StallDetector {
    pub(super) fn new(after: Duration) -> StallDetector {
        StallDetector {
            after,
            stalled: BTreeMap::new(),
        }
    }

    /// What has changed since the last look.
    pub(super) fn look(
        &mut self,
        now: MonoNanos,
        consumers: &[Consumer],
        load: &dyn Load,
    ) -> Vec<StallEvent> {
        let mut news = Vec::new();
        for (worker, consumer) in (0_u32..).zip(consumers) {
            let in_flight = consumer.in_flight();
            let known = self.stalled.get(&worker);
            if let Some(known) = known
                && in_flight.is_some_and(|it| {
                    let phase = TaskPhase::Operation { worker, op: it.op };
                    (phase, it.since) == (known.phase, known.since)
                })
            {
                continue;
            }
            news.extend(self.stalled.remove(&worker).map(StallEvent::Over));
            if let Some(it) = in_flight.filter(|it| now.since(it.since) >= self.after) {
                let stall = Stall {
                    phase: TaskPhase::Operation { worker, op: it.op },
                    call: None,
                    since: it.since,
                    path: it.file.and_then(|file| load.path_of(worker, file)),
                    offset: it.offset,
                    hangs: true,
                };
                news.push(StallEvent::Begun(stall.clone()));
                self.stalled.insert(worker, stall);
            }
        }
        news
    }

    /// The stall that has lasted longest.
    pub(super) fn longest(&self) -> Option<&Stall> {
        self.stalled.values().min_by_key(|stall| stall.since)
    }
}
