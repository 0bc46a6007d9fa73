//! The end of a run: after its last step, on a requested stop, or by the policy.

use super::{
    effect::Show,
    run::{Run, STOPPING},
    stage::Stage,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunState};
use benchmesh_store::rows::{NewEvent, Row, RunChange};

impl Run {
    /// Ends the run: all steps have ended or will not run, and no removable directory is left.
    pub(super) fn conclude_run(&mut self) {
        if let Some(reason) = self.stop.clone() {
            self.partial = true;
            return self.end(RunState::Stopped, Some(reason));
        }
        let ended = self.ended_steps();
        let reason = self.aborted.clone().or_else(|| ended.failures());
        self.partial |= ended.partial;
        let state = match reason {
            Some(_) => RunState::Failed,
            None => RunState::Done,
        };
        self.end(state, reason);
    }

    pub(super) fn end(&mut self, state: RunState, reason: Option<String>) {
        if let Some(reason) = &reason {
            let kind = match state {
                RunState::Failed => EventKind::RunFailed,
                RunState::Stopped => EventKind::RunStopped,
                RunState::Queued | RunState::Running | RunState::Done => EventKind::RunDone,
            };
            // Watchers receive the reason together with the end.
            self.out.rows.push(Row::Event(NewEvent {
                run: Some(self.row.id),
                ..NewEvent::new(self.now, kind, reason.clone())
            }));
        }
        let change = RunChange {
            state,
            partial: self.partial,
            reason,
            at: self.now,
        };
        self.out.rows.push(Row::Run {
            run: self.row.id,
            change: change.clone(),
        });
        self.show(Show::Ended(change));
        self.stage = Stage::Over;
    }

    /// Ends the run by the policy; the first reason counts. Stored with the loss or failure that caused it.
    pub(super) fn abort(&mut self, reason: String) {
        if self.aborted.is_some() {
            return;
        }
        let at = *self.halted.get_or_insert(self.now);
        self.partial = true;
        self.out.rows.push(Row::Abort {
            run: self.row.id,
            reason: reason.clone(),
            at,
        });
        self.aborted = Some(reason);
    }

    /// Records a requested stop; the first request counts.
    pub(super) fn stop(&mut self, reason: String, at: MeshMicros) {
        if self.stop.is_some() || matches!(self.stage, Stage::Over) {
            return;
        }
        self.halted.get_or_insert(at);
        self.show_message_at_once(format!("{STOPPING}{reason}"));
        self.stop = Some(reason);
    }
}
