//! Events that the spool itself records: lost or abandoned rows, and times when its disk refused writes.

use super::SpoolActor;
use crate::spool::ledger::LostOfRun;
use crate::spool::set::Undelivered;
use crate::telemetry::{Event, RunScope, RunUid, TelemetryRow};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;

impl SpoolActor {
    /// Records that the collector's database was restored from an older copy, and the losses: in total and per run.
    pub(super) fn note_restored(
        &mut self,
        vanished: u64,
        undelivered: Undelivered,
        dropped: u32,
        of_runs: Vec<(RunUid, LostOfRun)>,
    ) {
        let batches = undelivered.batches + u64::from(dropped);
        let (bytes, spools) = (undelivered.bytes, undelivered.spools);
        tracing::warn!(
            vanished,
            batches,
            bytes,
            spools,
            "the collector's database was restored from an older copy: measurements for the lost one are kept in \
             the state directory and not delivered"
        );
        self.note(
            RunUid::default(),
            EventKind::DatabaseRestored,
            format!(
                "the collector's database was restored from an older copy: {vanished} batches that it had stored of \
                 this agent are gone with the lost one, and {batches} more ({bytes} bytes) that were measured for that \
                 were not delivered; they are kept in the agent's state directory"
            ),
            json!({"batches": batches, "bytes": bytes, "spools": spools, "vanished_batches": vanished}).to_string(),
        );
        for (run_uid, lost) in of_runs {
            let (gone, left) = (lost.vanished, lost.undelivered);
            let at_most = if lost.is_exact { "" } else { "at most " };
            self.note(
                run_uid.clone(),
                EventKind::DatabaseRestored,
                format!(
                    "the collector's database was restored from an older copy: of run {}, {at_most}{} operations in \
                     {} batches that it had stored of this agent are gone, and {} operations in {} batches were not \
                     delivered",
                    run_uid.as_str(), gone.operations, gone.batches, left.operations, left.batches,
                ),
                json!({
                    "run_uid": run_uid.as_str(),
                    "vanished_operations": gone.operations, "vanished_batches": gone.batches,
                    "operations": left.operations, "batches": left.batches,
                    "is_exact": lost.is_exact,
                })
                .to_string(),
            );
        }
    }

    /// Records that the spool has reached its limit.
    pub(super) fn note_full(&mut self) {
        if self.dating.map().is_none() {
            return;
        }
        let Some(limit) = self.set.take_full() else {
            return;
        };
        self.ledger.given_up();
        self.note(
            RunUid::default(),
            EventKind::SpoolFull,
            format!(
                "this agent's spool has reached its limit of {limit} bytes (--spool-limit): it drops the oldest \
                 undelivered data and counts them as lost"
            ),
            json!({"limit_bytes": limit}).to_string(),
        );
    }

    /// Records how long the disk refused writes.
    pub(super) fn note_blocked(&mut self) {
        if self.dating.map().is_none() {
            // Called again when mesh time is known.
            self.waits_for_clock = true;
            return;
        }
        let Some(since) = self.blocked_since.take() else {
            return;
        };
        let blocked = since.elapsed();
        self.note(
            RunUid::default(),
            EventKind::SpoolWritable,
            format!(
                "the disk of this agent's state directory accepts writes again; it refused them for {} s",
                blocked.as_secs()
            ),
            json!({"blocked_us": u64::try_from(blocked.as_micros()).unwrap_or(u64::MAX)}).to_string(),
        );
    }

    /// Records spools of earlier starts that the disk has destroyed.
    pub(super) fn note_unreadable(&mut self) {
        if self.dating.map().is_none() {
            // Called again when mesh time is known.
            self.waits_for_clock = true;
            return;
        }
        let unreadable = self.set.take_unreadable();
        if unreadable.is_empty() {
            return;
        }
        self.note(
            RunUid::default(),
            EventKind::SpoolUnreadable,
            format!(
                "{} spools of earlier starts of this agent cannot be read, and their data are lost; see the agent's \
                 log for the reason",
                unreadable.len()
            ),
            json!({"spools": unreadable.iter().map(ToString::to_string).collect::<Vec<_>>()}).to_string(),
        );
    }

    /// Records an event; `run_uid` is empty if it belongs to no run.
    fn note(&mut self, run_uid: RunUid, kind: EventKind, message: String, detail: String) {
        let Some(map) = self.dating.map() else {
            return;
        };
        let event = Event {
            at: map.to_mesh(MonoNanos::now()),
            scope: RunScope {
                run_uid,
                ..RunScope::default()
            },
            kind: kind.into(),
            message,
            detail,
        };
        self.pending.push(TelemetryRow::Event(event), None);
        self.flush_soon();
    }
}
