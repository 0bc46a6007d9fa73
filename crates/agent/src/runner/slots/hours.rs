//! End of the hours in which the policy allows load: stops tasks as if the host's operator had done so.

use super::Slots;
use crate::telemetry::TaskId;

impl Slots {
    /// Stops load outside the policy's hours. Called after every wait of the runner, which is short while a load runs.
    pub(in crate::runner) fn end_hours(&mut self) {
        let policy = &self.deps.permissions.policy;
        if policy.hours.are_all() {
            return;
        }
        let Err(denial) = policy.check_hours() else {
            return;
        };
        let live: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, slot)| slot.is_live())
            .map(|(id, _)| *id)
            .collect();
        for id in live {
            tracing::info!(task = %id, %denial, "the hours of the policy are over: its load is stopped");
            self.stop_slot(id, &format!("the hours of the policy are over: {denial}"));
        }
        self.receivers.close_all();
    }
}
