//! Load without contact: it goes on for its lease, and then stops.

use super::Slots;
use benchmesh_workloads::clock::MonoNanos;
use std::time::Duration;

impl Slots {
    /// How long until the first task's lease ends, when nothing is heard until then.
    pub(in crate::runner) fn next_lease(&self) -> Option<Duration> {
        let leases = self
            .tasks
            .values()
            .filter(|slot| slot.is_live())
            .map(|slot| slot.asked.lease);
        let silent = MonoNanos::now().since(self.around.contact.last());
        leases.chain(self.receivers.lease()).min().map(|lease| {
            // A little longer, so that it has ended when it is looked at.
            lease
                .saturating_sub(silent)
                .saturating_add(Duration::from_millis(10))
        })
    }

    /// Stops what has been without contact for longer than it may.
    pub(in crate::runner) fn end_leases(&mut self) {
        let silent = MonoNanos::now().since(self.around.contact.last());
        for (id, slot) in &mut self.tasks {
            if slot.is_live() && slot.asked.lease <= silent {
                let lease = slot.asked.lease.as_secs_f64();
                tracing::warn!(task = %id, "no contact with the collector for {lease} s: its load is stopped");
                slot.stop(&format!(
                    "no contact with the collector for {lease} s (the lease)"
                ));
            }
        }
        if self.receivers.lease().is_some_and(|lease| lease <= silent) {
            self.receivers.close_all();
        }
    }
}
