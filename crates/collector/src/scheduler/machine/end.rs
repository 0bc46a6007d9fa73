//! What ends a run: its last step, a requested stop, or the policy.

use super::{
    effect::Show,
    run::{Run, STOPPING, is_nobody_left},
    stage::Stage,
    step::StepFacts,
};
use crate::{
    model::{MeshMicros, RunState, Severity, StepState},
    store::rows::{NewEvent, Row, RunChange},
};

impl Run {
    /// Ends the run: all steps have ended or will not run, and no directory is left that could be removed.
    pub(super) fn conclude_run(&mut self) {
        if let Some(reason) = self.stop.clone() {
            self.partial = true;
            return self.end(RunState::Stopped, Some(reason));
        }
        let reason = self.aborted.clone().or_else(|| self.failures());
        self.partial |= self.facts.iter().any(|facts| facts.partial);
        let state = match reason {
            Some(_) => RunState::Failed,
            None => RunState::Done,
        };
        self.end(state, reason);
    }

    /// What failed, in short; `None`: nothing. About a step of which nobody was left `on-loss` has decided that the run goes
    /// on: it makes the run partial, unless nothing at all was measured.
    fn failures(&self) -> Option<String> {
        let by_loss = |facts: &StepFacts| facts.reason.as_deref().is_some_and(is_nobody_left);
        let measured = self
            .facts
            .iter()
            .any(|facts| facts.state == StepState::Done);
        let failed =
            self.steps.iter().zip(&self.facts).filter(|(_, facts)| {
                facts.state == StepState::Failed && !(measured && by_loss(facts))
            });
        let more = failed.clone().count().checked_sub(1)?;
        let (step, facts) = failed.clone().next()?;
        let why = facts.reason.as_deref().unwrap_or("for an unknown reason");
        let first = format!("{} failed: {why}", step.title());
        Some(match more {
            0 => first,
            1 => format!("{first} (and 1 more step)"),
            more => format!("{first} (and {more} more steps)"),
        })
    }

    pub(super) fn end(&mut self, state: RunState, reason: Option<String>) {
        if let Some(reason) = &reason {
            let severity = match state {
                RunState::Failed => Severity::Error,
                _ => Severity::Info,
            };
            // Watchers get the reason with the end.
            self.out.rows.push(Row::Event(NewEvent {
                at: self.now,
                run: Some(self.row.id),
                step: None,
                agent: None,
                severity,
                kind: format!("run-{state}"),
                message: reason.clone(),
                detail_json: None,
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

    /// The policy ends the run; the first reason counts. Stored with the loss or failure that caused it.
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

    /// A stop is requested; the first request counts.
    pub(super) fn stop(&mut self, reason: String, at: MeshMicros) {
        if self.stop.is_some() || matches!(self.stage, Stage::Over) {
            return;
        }
        self.halted.get_or_insert(at);
        self.show_message_at_once(format!("{STOPPING}{reason}"));
        self.stop = Some(reason);
    }
}
