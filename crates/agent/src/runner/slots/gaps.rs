//! Records a gap between this agent's clock and mesh time with each affected step.

use super::Slots;
use crate::clock::Gap;
use crate::telemetry::{Event, RunScope, TelemetryRow};
use benchmesh_model::events::EventKind;

impl Slots {
    /// Records a gap that the session has detected: once for each step with a load here, or once without a step if
    /// there is none. `runner::follow` adjusts the tasks themselves.
    pub(in crate::runner) fn note_gap(&self, gap: Gap) {
        let host = rustix::system::uname();
        let message = gap.message(&host.nodename().to_string_lossy());
        tracing::warn!("{message}");
        let Ok(map) = self.map() else {
            return;
        };
        let mut scopes = self.running_scopes();
        if scopes.is_empty() {
            scopes.push(RunScope::default());
        }
        let event = |scope| {
            TelemetryRow::Event(Event {
                at: map.to_mesh(gap.at),
                scope,
                kind: EventKind::ClockGap.into(),
                message: message.clone(),
                detail: gap.detail(),
            })
        };
        self.record(scopes.into_iter().map(event).collect());
    }
}
