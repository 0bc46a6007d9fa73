//! The record that replaces batches that will not arrive.

use super::file::Loss;
use crate::envelope::{Envelope, Sequence, SpoolId};
use crate::telemetry::{self, Batch, Event, LossKind, MeshMicros, RunScope, TelemetryRow};
use crate::wire;
use benchmesh_model::events::EventKind;
use serde_json::json;

/// The reason for missing batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapReason {
    Lost(Loss),
    /// The collector has refused them.
    SetAside,
    /// No trace of their rows is left.
    Missing,
}

impl GapReason {
    /// The name used in the event's detail.
    fn word(self) -> &'static str {
        match self {
            Self::Lost(Loss::Damaged) => "damaged",
            Self::Lost(Loss::Tail) => "tail",
            Self::SetAside => "refused",
            Self::Missing => "missing",
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Lost(why) => why.as_str(),
            Self::SetAside => "the collector has refused them, and the agent has set them aside",
            Self::Missing => "they are missing in the spool's file on the agent's disk",
        }
    }
}

/// A record for batches that this agent no longer has: an event at the time of discovery, and a loss that covers the
/// time in which they were measured.
pub(super) fn gap(
    (spool, first, last): (SpoolId, Sequence, Sequence),
    now: MeshMicros,
    (from, until): (MeshMicros, MeshMicros),
    reason: GapReason,
) -> Envelope {
    let count = last.0.saturating_sub(first.0).saturating_add(1);
    let mut batch = Batch::default();
    batch.push(TelemetryRow::Event(Event {
        at: now,
        scope: RunScope::default(),
        kind: EventKind::SpoolGap.into(),
        message: format!(
            "{count} batches ({first} to {last} of spool {spool}) will not come: {}",
            reason.as_str()
        ),
        detail: json!({
            "spool": spool.to_string(), "first": first.0, "last": last.0, "batches": count,
            "reason": reason.word(), "from_us": from.0, "until_us": until.0,
        })
        .to_string(),
    }));
    batch.push(TelemetryRow::Loss(telemetry::Loss {
        what: LossKind::Batches,
        rows: count,
        from,
        until,
    }));
    Envelope {
        spool,
        first,
        sequence: last,
        body: wire::batch::encode(&batch),
    }
}
