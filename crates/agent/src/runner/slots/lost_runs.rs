//! Removes data of runs that a restored database does not contain; no scheduler will request their removal.

use super::Slots;
use crate::command::{Answer, CommandRequest, CommandResult};
use crate::envelope::Sequence;
use crate::runner::RunnerRequest;
use crate::runner::permissions::Permissions;
use crate::targets::RunName;
use benchmesh_model::targets::Locator;
use benchmesh_workloads::clock::{self, MonoNanos};
use std::time::Duration;

/// A removal is retried, because operations of stopped tasks may still be in flight in the directory.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// Maximum number of remembered directories; a run has one for each target and file system.
const MAX_MADE: usize = 4096;

/// A run's directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::runner) struct RunPath {
    pub(super) mesh: String,
    pub(super) run_uid: String,
    pub(super) target: Locator,
}

impl RunPath {
    /// The directory that a command refers to.
    pub(super) fn of(mesh: &str, request: &CommandRequest) -> Option<Self> {
        let (CommandRequest::OpenRunDirectory {
            run_uid, target, ..
        }
        | CommandRequest::RemoveRunDirectory { run_uid, target }) = request
        else {
            return None;
        };
        Some(Self {
            mesh: mesh.to_owned(),
            run_uid: run_uid.clone(),
            target: target.clone(),
        })
    }

    /// The change that the command's outcome makes to the set of created directories.
    pub(super) fn change(self, outcome: &CommandResult, acked: Sequence) -> Option<RunnerRequest> {
        match outcome {
            Ok(Answer::RunDirectory(facts)) if facts.made => Some(RunnerRequest::Made(self, acked)),
            Ok(Answer::Done) => Some(RunnerRequest::Removed(self)),
            _ => None,
        }
    }
}

impl Slots {
    /// Records that this agent has created a run's directory, and the position of the written spool that was acked
    /// before.
    pub(in crate::runner) fn made(&mut self, path: RunPath, acked: Sequence) {
        if self.made.len() < MAX_MADE {
            self.made.insert(path, acked);
        }
    }

    pub(in crate::runner) fn removed(&mut self, path: &RunPath) {
        self.made.remove(path);
    }

    /// Stops and forgets everything, and removes the directories of runs that are missing from the restored database.
    ///
    /// Those are the directories that were created when the collector had stored more than it has now. An older run may
    /// be resumed, so its directory stays.
    pub(in crate::runner) fn database_restored(&mut self, stored: Sequence) {
        self.start_over("the collector's database was restored from an older copy");
        let lost: Vec<RunPath> = self
            .made
            .extract_if(.., |_, acked| *acked > stored)
            .map(|(path, _)| path)
            .collect();
        // The spool starts again from the beginning, so older sequences are not comparable.
        self.made.clear();
        for run in lost {
            let permissions = self.deps.permissions.clone();
            let target = Some(run.target.clone());
            let work = move || remove(&permissions, &run);
            if let Err(refusal) = self.threads.run("bm-lost-run", target, work) {
                tracing::warn!(reason = %refusal.message, "the directory of a lost run is left");
            }
        }
    }
}

fn remove(permissions: &Permissions, run: &RunPath) {
    let path = &run.target;
    let mut left = String::new();
    for _ in 0..TRIES {
        let name = RunName {
            mesh: &run.mesh,
            uid: &run.run_uid,
        };
        match permissions.remove_run(name, &run.target, &mut |_| {}) {
            Ok(()) => {
                tracing::info!(run = %run.run_uid, %path, "removed the directory of a run that the restored database does not know");
                return;
            }
            Err(refusal) => left = refusal.message,
        }
        clock::sleep_until(MonoNanos::now().saturating_add(BETWEEN_TRIES));
    }
    tracing::warn!(run = %run.run_uid, %path, reason = left, "the directory of a run that the restored database does not know is left");
}
