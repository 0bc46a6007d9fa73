//! Removes the run's directories at its end, with progress.
//!
//! A removal may take as long as it makes progress. After `STALLED` without a removed file it is abandoned, and an
//! event names the files left behind, so that a hanging file system cannot hang the run. A detached agent is asked to
//! remove its part when it attaches again.

use super::{
    effect::Show,
    next::Next,
    run::Run,
    stage::{DirectoryToRemove, Existence, Removal, Stage, StepEnd},
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{StepId, StepState, TaskState};
use benchmesh_store::rows::{Row, StepChange};
use serde_json::json;
use std::time::Duration;

/// A removal reports progress every thousand files. After this long without a report it counts as hung.
pub(super) const STALLED: Duration = Duration::from_secs(300);
/// Time limit of a removal on a target with a hung operation.
const HANGING: Duration = Duration::from_secs(10);

impl Run {
    /// Removes the run's directories, then ends the run. `step` is the stopped step, if any.
    pub(super) fn remove_directories(&mut self, step: Option<StepId>) {
        let shares = self.directories.shares().iter().map(|share| {
            let others = share.members.iter().filter(|agent| **agent != share.owner);
            DirectoryToRemove {
                path: share.path.clone(),
                removers: std::iter::once(share.owner)
                    .chain(others.copied())
                    .collect(),
                asked: 0,
                existence: Existence::Confirmed,
                problem: None,
            }
        });
        let unanswered = self
            .directories
            .unanswered()
            .map(|asked| DirectoryToRemove {
                path: asked.path.clone(),
                removers: vec![asked.agent],
                asked: 0,
                existence: Existence::Possible,
                problem: None,
            });
        let entries: Vec<DirectoryToRemove> = shares.chain(unanswered).collect();
        let count = entries.len();
        if count > 0 {
            self.removal_begins();
        }
        self.stage = Stage::Removing(Removal { entries, step });
        for entry in 0..count {
            self.ask_remover(entry);
        }
    }

    fn ask_remover(&mut self, entry: usize) {
        let Stage::Removing(removal) = &mut self.stage else {
            return;
        };
        let Some(one) = removal.entries.get_mut(entry) else {
            return;
        };
        let Some(agent) = one.removers.get(one.asked).copied() else {
            return;
        };
        one.asked += 1;
        let command = Command::RemoveRunDirectory {
            run_uid: self.row.uid.clone(),
            path: one.path.clone(),
        };
        // If an operation on the target hangs, the removal may hang too.
        let silence = match self.stalled {
            true => HANGING,
            false => STALLED,
        };
        let waiting = Waiting::DirectoryRemoved { entry, files: 0 };
        self.ask_long(waiting, agent, command, silence);
    }

    pub(super) fn on_directory_removed(
        &mut self,
        entry: usize,
        answer: Result<AgentAnswer, CallError>,
    ) {
        let Stage::Removing(removal) = &mut self.stage else {
            return;
        };
        let Some(one) = removal.entries.get_mut(entry) else {
            return;
        };
        match answer {
            Ok(_) => one.problem = None,
            Err(error) => {
                // Prefer the owner's error: it explains more than the others'.
                one.problem.get_or_insert(error);
                self.ask_remover(entry);
            }
        }
    }

    /// Everything removable has been removed.
    pub(super) fn removed(&mut self, removal: Removal) -> Next {
        self.removal_is_over();
        for entry in removal.entries {
            if let Some(problem) = &entry.problem {
                self.record_left_directory(&entry, problem);
            }
        }
        if !self.directories.is_empty() {
            self.directories.clear();
            self.out
                .rows
                .push(Row::DirectoriesGone { run: self.row.id });
        }
        match removal.step {
            Some(_) => self.end_stopped_step(),
            None => Next::ConcludeRun,
        }
    }

    fn record_left_directory(&mut self, entry: &DirectoryToRemove, problem: &CallError) {
        let Some(owner) = entry.removers.first().copied() else {
            return;
        };
        let remedy = if problem.is_lost() {
            self.lost_removers.push(owner);
            "benchmesh removes it when the agent is back"
        } else {
            self.failed_removers.push(owner);
            "benchmesh tries again at the end of the next run; or remove it there with `benchmesh agent clean`"
        };
        let stays = match entry.existence {
            Existence::Confirmed => "stays",
            Existence::Possible => "may stay",
        };
        let message = format!(
            "the run's directory {}/benchmesh-{} {stays} on agent `{}`: {problem}; {remedy}",
            entry.path,
            self.row.uid,
            self.agents.name(owner)
        );
        let detail = json!({ "run_uid": self.row.uid, "path": entry.path });
        let detail = Some(detail.to_string());
        self.record_event_of(None, Some(owner), EventKind::DirectoryLeft, message, detail);
    }

    /// Ends the stopped step, which has nothing left to clean up.
    fn end_stopped_step(&mut self) -> Next {
        if self.step.as_ref().is_some_and(|step| step.measured) {
            // Tasks that started at different instants are not one measurement.
            self.check_starts();
        }
        let Some(step) = &self.step else {
            return Next::ConcludeRun;
        };
        let done = |state: TaskState| state == TaskState::Done;
        let whole = step
            .tasks
            .outcomes()
            .all(|(_, outcome)| done(outcome.state));
        let (id, index, measured) = (step.id, step.index, step.measured);
        if measured {
            // A whole step had only its cleanup left.
            return Next::Finish(StepEnd::Stop { whole });
        }
        if let Some(facts) = self.facts.get_mut(index) {
            facts.state = StepState::Stopped;
        }
        self.out.rows.push(Row::Step {
            step: id,
            change: StepChange {
                state: StepState::Stopped,
                at: self.now,
                start: None,
                ended: Some(self.now),
                reason: self.stop.clone(),
            },
        });
        self.show(Show::StepGone);
        Next::ConcludeRun
    }
}
