//! Events that a task reports beside its intervals.

use crate::clock::MeshMap;
use crate::telemetry::{Event, RunScope, clipped};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{Stall, StallEvent};
use serde_json::json;

/// Common parts of one task's events.
#[derive(Clone, Debug)]
pub(super) struct TaskEvents {
    pub scope: RunScope,
    pub map: MeshMap,
}

impl TaskEvents {
    /// The event of an operation without progress, or of its later progress or end.
    pub(super) fn stall(&self, stall: &StallEvent) -> Event {
        match stall {
            StallEvent::Begun(stall) => {
                self.event(stall, EventKind::Stall, "has made no progress for")
            }
            StallEvent::Over(stall) => {
                self.event(stall, EventKind::StallOver, "went on or ended after")
            }
        }
    }

    fn event(&self, stall: &Stall, kind: EventKind, what: &str) -> Event {
        let now = MonoNanos::now();
        let lasted = now.since(stall.since);
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let detail = json!({
            "host": host,
            "worker": stall.phase.worker(),
            "op": stall.phase.as_str(),
            "call": stall.call,
            "path": stall.path,
            "offset": stall.offset,
            "since_us": self.map.to_mesh(stall.since).0,
            "lasted_us": u64::try_from(lasted.as_micros()).unwrap_or(u64::MAX),
        });
        Event {
            at: self.map.to_mesh(now),
            kind: kind.into(),
            message: clipped(format!(
                "host {host}, {stall} {what} {} s",
                lasted.as_secs()
            )),
            scope: self.scope.clone(),
            detail: detail.to_string(),
        }
    }
}
