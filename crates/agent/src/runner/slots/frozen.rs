//! Detects an agent that did not run for a while during a step: stopped by a signal, a debugger or a hypervisor, or
//! starved of CPU.
//!
//! Its workers were frozen too, so the step's figures do not describe the target. Nothing else reveals this: no
//! operation failed, and the session may have survived.

use super::{SlotState, Slots};
use crate::spool::SpoolEntry;
use crate::telemetry::{Event, RunScope, TelemetryRow};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::time::Duration;

/// How often the runner polls its clock while a load runs.
pub(in crate::runner) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than a busy host delays a poll.
const FROZEN_AFTER: Duration = Duration::from_secs(2);

impl Slots {
    /// Time until the next poll of the clock; `None` if no load runs.
    pub(in crate::runner) fn next_poll(&mut self) -> Option<Duration> {
        let runs = |state: &SlotState| matches!(state, SlotState::Running { .. });
        if !self.tasks.values().any(|slot| runs(&slot.state)) {
            self.polled = None;
            return None;
        }
        let now = MonoNanos::now();
        let polled = *self.polled.get_or_insert(now);
        Some(POLL_INTERVAL.saturating_sub(now.since(polled)))
    }

    /// Reads the clock, and records how long the agent was frozen. Called after every wait of the runner.
    pub(in crate::runner) fn poll(&mut self, now: MonoNanos) {
        let Some(polled) = self.polled else {
            return;
        };
        let gap = now.since(polled);
        if gap < POLL_INTERVAL {
            return;
        }
        self.polled = Some(now);
        if let Some(frozen) = frozen_for(gap) {
            self.note_frozen(polled, now, frozen);
        }
    }

    fn note_frozen(&self, since: MonoNanos, now: MonoNanos, frozen: Duration) {
        let seconds = frozen.as_secs_f64();
        tracing::warn!("this agent did not run for {seconds:.1} s while a load ran on it");
        let Some(map) = self.deps.dating.map() else {
            return;
        };
        let events = self.running_scopes().into_iter().map(|scope| {
            TelemetryRow::Event(Event {
                at: map.to_mesh(now),
                scope,
                kind: EventKind::ClientFrozen.into(),
                message: format!(
                    "the agent did not run for {seconds:.1} s (stopped, suspended or starved), and its workers stood \
                     still"
                ),
                detail: json!({
                    "since_us": map.to_mesh(since).0,
                    "frozen_us": u64::try_from(frozen.as_micros()).unwrap_or(u64::MAX),
                })
                .to_string(),
            })
        });
        self.record(events.collect());
    }

    /// The steps that have a load on this agent, each once.
    pub(super) fn running_scopes(&self) -> Vec<RunScope> {
        let mut scopes: Vec<RunScope> = Vec::new();
        for slot in self.tasks.values() {
            if matches!(slot.state, SlotState::Running { .. })
                && !scopes.contains(&slot.asked.scope)
            {
                scopes.push(slot.asked.scope.clone());
            }
        }
        scopes
    }

    /// Sends events without blocking the runner. The queue has room for minutes of events.
    pub(super) fn record(&self, events: Vec<TelemetryRow>) {
        if self
            .deps
            .entries
            .try_send(SpoolEntry::Rows(events))
            .is_err()
        {
            tracing::warn!("no room in the spool's queue: an event is lost");
        }
    }
}

/// How long the agent was frozen, given the gap between two polls.
fn frozen_for(gap: Duration) -> Option<Duration> {
    let late = gap.saturating_sub(POLL_INTERVAL);
    (late >= FROZEN_AFTER).then_some(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_host_is_no_freeze() {
        for (gap_ms, expected) in [
            (0, None),
            (500, None),
            (2499, None),
            (2500, Some(2000)),
            (29_500, Some(29_000)),
        ] {
            assert_eq!(
                frozen_for(Duration::from_millis(gap_ms)),
                expected.map(Duration::from_millis),
                "{gap_ms}"
            );
        }
    }
}
