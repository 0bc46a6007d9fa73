//! Removal of data: of a cell after its last mode, of the run's directories at its end, with progress to look at.
//!
//! A removal lasts as long as it gets on: one that has not removed anything for `STALLED` is given up, and what stays
//! behind is an event that names it, so that no run hangs on a file system that does. An agent that was not there is told
//! to remove its part when it comes back.

use super::{
    board::RunBoard,
    drive::{Drive, Fact},
};
use crate::{
    model::Severity,
    plan::PlannedStep,
    sessions::{
        Call, Fleet,
        command::{Answer, CallError, Command, Progress},
    },
    store::StoreError,
};
use futures::future::join_all;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// A removal tells how far it is every thousand files; one that does not for so long hangs.
pub(super) const STALLED: Duration = Duration::from_secs(300);
/// A removal on a target where an operation hangs is tried for so long.
const HANGING: Duration = Duration::from_secs(10);

/// The event of a directory that stays behind; its detail has the run's uid and the path.
pub(super) const LEFT: &str = "directory-left";
/// The event of its removal later.
pub(super) const GONE: &str = "directory-removed";

/// What several agents have removed at once, for those who watch.
#[derive(Debug)]
struct Removals {
    board: Arc<RunBoard>,
}

impl Removals {
    fn begin(board: &Arc<RunBoard>) -> Self {
        board.change(|view| view.removed_files = Some(0));
        Self {
            board: Arc::clone(board),
        }
    }

    fn add(&self, files: u64) {
        self.board.change(|view| {
            view.removed_files = Some(view.removed_files.unwrap_or(0).saturating_add(files));
        });
    }
}

impl Drop for Removals {
    fn drop(&mut self) {
        self.board.change(|view| view.removed_files = None);
    }
}

/// Asks an agent to remove something, for as long as it gets on. `removed` is told how many files more are gone.
pub(super) async fn remove(
    fleet: &Fleet,
    call: Call,
    stalled: Duration,
    removed: impl Fn(u64),
) -> Result<Answer, CallError> {
    let (agent, doing) = (call.agent, call.command.doing());
    let (progress, mut told) = watch::channel(Progress::default());
    let call = fleet.call(call.telling(progress));
    tokio::pin!(call);
    let mut done = 0_u64;
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            changed = timeout(stalled, told.changed()) => match changed {
                Ok(Ok(())) => {
                    let now = told.borrow_and_update().done;
                    removed(now.saturating_sub(done));
                    // An agent that was asked again begins to count anew.
                    done = now;
                }
                // The call is over, and answers next.
                Ok(Err(_)) => return call.await,
                Err(_) => {
                    return Err(CallError::Deadline {
                        agent: fleet
                            .member(agent)
                            .map_or_else(|| agent.to_string(), |member| member.hello.name),
                        doing,
                        within: stalled,
                    });
                }
            }
        }
    }
}

impl Drive {
    /// Removes the run's directories; what stays behind is told.
    pub(super) async fn remove_directories(&self) -> Result<(), StoreError> {
        let all = self.directories.all();
        if all.is_empty() {
            return Ok(());
        }
        let removals = Removals::begin(&self.board);
        let removed = join_all(all.iter().map(|(path, share)| {
            let removals = &removals;
            async move {
                let mut removers = vec![share.owner];
                removers.extend(share.members.iter().filter(|agent| **agent != share.owner));
                let mut problem = None;
                for agent in removers {
                    let command = Command::RemoveRunDirectory {
                        run_uid: self.row.uid.clone(),
                        path: path.clone(),
                    };
                    let call = Call::to(agent, command, self.loss_after());
                    // Where an operation hangs, removing may hang too.
                    let patience = match self.is_stalled() {
                        true => HANGING,
                        false => STALLED,
                    };
                    match remove(&self.fleet, call, patience, |files| removals.add(files)).await {
                        Ok(_) => return None,
                        // What the others say of it explains less than its owner's word.
                        Err(error) => {
                            problem.get_or_insert((path, share.owner, error));
                        }
                    }
                }
                problem
            }
        }))
        .await;
        for (path, owner, error) in removed.into_iter().flatten() {
            let remedy = if error.is_lost() {
                "it is removed when the agent is back"
            } else {
                "remove it by hand"
            };
            let detail = json!({ "run_uid": self.row.uid, "path": path });
            self.event_with(
                Fact {
                    step: None,
                    agent: Some(owner),
                    severity: Severity::Warning,
                    kind: LEFT,
                    message: format!(
                        "the run's directory {path}/benchmesh-{} stays on agent `{}`: {error}; {remedy}",
                        self.row.uid,
                        self.team.name(owner)
                    ),
                },
                Some(detail.to_string()),
            )
            .await?;
        }
        self.directories.forget();
        Ok(())
    }

    /// Removes what the tasks of a cell laid out, each its own part; what could not be removed goes with the directory.
    pub(super) async fn clean_cell(
        &self,
        step: &PlannedStep,
        attempt: u32,
    ) -> Result<(), StoreError> {
        // Where an operation hangs, all is left to the one short try at the end of the run.
        if step.path.is_empty() || self.is_stalled() {
            return Ok(());
        }
        let removals = Removals::begin(&self.board);
        let cleaned = step.tasks.iter().filter_map(|task| {
            let agent = self.team.id(&task.agent)?;
            if !self.directories.has(&step.path, agent) || self.told_lost().contains(&agent) {
                return None;
            }
            let command = Command::RemoveCell {
                run_uid: self.row.uid.clone(),
                path: step.path.clone(),
                cell: step.directory(task.load, attempt),
                task_index: task.index,
            };
            let removals = &removals;
            Some(async move {
                let call = Call::to(agent, command, self.loss_after());
                let removed = remove(&self.fleet, call, STALLED, |files| removals.add(files)).await;
                (agent, removed)
            })
        });
        for (agent, answer) in join_all(cleaned).await {
            // That an agent is lost has been told; its part goes when it is back, or with the directory.
            if let Err(error) = answer
                && !error.is_lost()
            {
                self.event(Fact {
                    step: None,
                    agent: Some(agent),
                    severity: Severity::Warning,
                    kind: "cell-left",
                    message: format!(
                        "the data of {} stay until the run ends: {error}",
                        step.title()
                    ),
                })
                .await?;
            }
        }
        Ok(())
    }
}
