//! Reports operations that a stop does not interrupt: workers end only between two operations, so an operation may be
//! stuck in the kernel.

use super::{SlotState, Slots, TaskSlot};
use crate::spool::SpoolEntry;
use crate::telemetry::{Event, TaskId, TelemetryRow, clipped};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::InFlight;
use std::time::Duration;

/// An operation still in flight this long after a stop is stuck, because no new operation begins after the stop.
const STUCK_AFTER: Duration = Duration::from_millis(500);
/// Maximum number of operations listed in full; the rest are counted.
const NAMED: usize = 16;

impl Slots {
    /// Stops a task and reports operations that do not end.
    pub(super) fn stop_slot(&mut self, id: TaskId, reason: &str) {
        let Some(slot) = self.tasks.get_mut(&id) else {
            return;
        };
        let first = slot.is_live();
        slot.stop(reason);
        let TaskSlot { asked, state, .. } = slot;
        let SlotState::Running { stopper, .. } = state else {
            return;
        };
        if !first {
            return;
        }
        let (stopper, scope) = (stopper.clone(), asked.scope.clone());
        let (entries, map) = (self.deps.entries.clone(), self.map().ok());
        tokio::spawn(async move {
            tokio::time::sleep(STUCK_AFTER).await;
            let now = MonoNanos::now();
            let Some(message) = stuck_message(id, &stopper.in_flight(), now) else {
                return;
            };
            tracing::warn!(task = %id, "{message}");
            if let Some(map) = map {
                let event = Event {
                    at: map.to_mesh(now),
                    scope,
                    kind: EventKind::OperationStuck.into(),
                    message: clipped(message),
                    detail: String::new(),
                };
                // A closed spool accepts no rows: the agent is shutting down.
                let _ = entries
                    .send(SpoolEntry::Rows(vec![TelemetryRow::Event(event)]))
                    .await;
            }
        });
    }
}

/// A message about the stuck operations; `None` if there are none.
fn stuck_message(task: TaskId, in_flight: &[InFlight], now: MonoNanos) -> Option<String> {
    // Operations begun after the stop are reported too, with their age.
    let named: Vec<String> = in_flight
        .iter()
        .take(NAMED)
        .map(|one| {
            let since = now.since(one.since).as_secs_f64();
            format!(
                "worker {}: {} for {since:.1} s",
                one.worker,
                one.op.as_str()
            )
        })
        .collect();
    if named.is_empty() {
        return None;
    }
    let more = match in_flight.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Some(format!(
        "task {task} was stopped, and the kernel still holds operations of it: {}{more}",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_workloads::op::Op;

    #[test]
    fn stuck_operations_are_named_with_their_worker_and_age() {
        let stuck = |worker| InFlight {
            worker,
            op: Op::Read,
            since: MonoNanos(1_000_000_000),
        };
        let now = MonoNanos(3_500_000_000);
        assert_eq!(stuck_message(TaskId(7), &[], now), None);
        assert_eq!(
            stuck_message(TaskId(7), &[stuck(0), stuck(3)], now).as_deref(),
            Some(
                "task 7 was stopped, and the kernel still holds operations of it: worker 0: read for 2.5 s, worker 3: read for 2.5 s"
            )
        );
        let many: Vec<InFlight> = (0..20).map(stuck).collect();
        assert!(
            stuck_message(TaskId(7), &many, now)
                .unwrap_or_default()
                .ends_with("and 4 more")
        );
    }
}
