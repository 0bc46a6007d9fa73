//! Leases: without contact to the collector, a load continues for the length of its lease and then stops.

use super::Slots;
use crate::spool::SpoolEntry;
use crate::telemetry::{Event, TaskId, TelemetryRow};
use benchmesh_model::events::{EventKind, LEASE_IS_OVER};
use benchmesh_workloads::clock::MonoNanos;
use std::time::Duration;

impl Slots {
    /// Time until the first task's lease ends, if there is no contact until then.
    pub(in crate::runner) fn next_lease(&self) -> Option<Duration> {
        let leases = self
            .tasks
            .values()
            .filter(|slot| slot.is_live() && !slot.lease_is_over)
            .map(|slot| slot.asked.lease);
        let silent = MonoNanos::now().since(self.deps.contact.last());
        leases.chain(self.receivers.lease()).min().map(|lease| {
            // With a margin, so that the lease has ended when it is checked.
            lease
                .saturating_sub(silent)
                .saturating_add(Duration::from_millis(10))
        })
    }

    /// Stops tasks that have been without contact for longer than their lease.
    pub(in crate::runner) fn end_leases(&mut self) {
        let silent = MonoNanos::now().since(self.deps.contact.last());
        let now = self.map().ok().map(|map| map.to_mesh(MonoNanos::now()));
        let mut events = Vec::new();
        let over: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, slot)| slot.is_live() && !slot.lease_is_over && slot.asked.lease <= silent)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            if let Some(slot) = self.tasks.get_mut(&id) {
                slot.lease_is_over = true;
                let lease = slot.asked.lease.as_secs_f64();
                tracing::warn!(task = %id, "no contact with the collector for {lease} s: its load is stopped");
                let scope = slot.asked.scope.clone();
                self.stop_slot(
                    id,
                    &format!("no contact with the collector for {lease} s {LEASE_IS_OVER}"),
                );
                events.extend(now.map(|at| {
                    TelemetryRow::Event(Event {
                        at,
                        scope,
                        kind: EventKind::LeaseOver.into(),
                        message: format!(
                            "no contact with the collector for {lease} s: the load of task {id} was stopped"
                        ),
                        detail: String::new(),
                    })
                }));
            }
        }
        // The actor never blocks: if the spool's queue is full, the log and the task's end still record it.
        if !events.is_empty() {
            let _ = self.deps.entries.try_send(SpoolEntry::Rows(events));
        }
        if self.receivers.lease().is_some_and(|lease| lease <= silent) {
            self.receivers.close_all();
        }
    }
}
