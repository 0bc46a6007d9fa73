//! Agents that come back after they were lost: what they still hold is stopped, and what they laid out is removed.
//!
//! What a lost agent measured is not thrown away: its rows come with its spool and count up to the moment at which its
//! load ended. A task that the run under way still counts on is left to the run. Everything here is asked of the
//! database, so that it holds over a start of the collector too; an agent that does not answer is asked again when it
//! attaches the next time.

use super::{
    Inner,
    admission::expanded,
    clean::{GONE, STALLED, remove},
};
use crate::{
    model::{AgentId, RunId, Severity, StepId, TaskId, TaskState},
    sessions::{
        Call, MemberFacts,
        command::{Answer, CallError, Command},
    },
    store::{
        StoreError,
        rows::{NewEvent, RunRow, StepRow, TaskRow},
    },
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A task that was told to stop has ended by then, or an operation of it is stuck.
const END_WITHIN: Duration = Duration::from_secs(60);
/// An agent that goes away again meanwhile is asked anew when it is back.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sees to every agent that attaches, until `closing`.
pub(super) async fn tidy(inner: Arc<Inner>, closing: CancellationToken) {
    let mut changes = inner.fleet.changes();
    let mut seen: BTreeMap<AgentId, u64> = BTreeMap::new();
    let mut tidying = JoinSet::new();
    loop {
        for member in inner.fleet.members() {
            if !member.attached || seen.insert(member.id, member.session) == Some(member.session) {
                continue;
            }
            let inner = Arc::clone(&inner);
            tidying.spawn(async move {
                let agent = member.hello.name.clone();
                if let Err(error) = inner.tidy_one(member).await {
                    warn!(%agent, %error, "what it held was not looked up; it is tried when it attaches again");
                }
            });
        }
        while tidying.try_join_next().is_some() {}
        tokio::select! {
            () = closing.cancelled() => return,
            changed = changes.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// A step whose task an agent still holds although nobody waits for it.
#[derive(Debug)]
struct Stray {
    run: RunRow,
    step: StepRow,
    task: TaskRow,
}

impl Inner {
    async fn tidy_one(&self, member: MemberFacts) -> Result<(), StoreError> {
        let mut strays = Vec::new();
        for task in &member.hello.held_tasks {
            strays.extend(self.stray(TaskId(*task)).await?);
        }
        for stray in &strays {
            if let Err(error) = self.stop_stray(member.id, stray.task.id).await {
                info!(agent = %member.hello.name, %error, "a task of an earlier step stays");
                continue;
            }
            self.remove_stray(member.id, stray).await?;
            // What had ended was only not forgotten yet.
            if stray.task.state != TaskState::Lost {
                continue;
            }
            self.told(
                &member,
                stray.run.id,
                Some(stray.step.id),
                "agent-tidied",
                format!(
                    "agent `{}` is back and still held its task of step {}: it was stopped, and what it had done counts",
                    member.hello.name, stray.step.ordinal
                ),
                None,
            )
            .await?;
        }
        self.remove_left(&member).await
    }

    /// `None`: the run under way still waits for the task, or it is not known.
    async fn stray(&self, task: TaskId) -> Result<Option<Stray>, StoreError> {
        let Some(task) = self.store.task(task).await? else {
            return Ok(None);
        };
        let step = self.store.step(task.step).await?;
        let run = self.store.run(step.run).await?;
        let wanted = !run.state.is_end() && !step.state.is_end() && task.state != TaskState::Lost;
        Ok((!wanted).then_some(Stray { run, step, task }))
    }

    async fn stop_stray(&self, agent: AgentId, task: TaskId) -> Result<(), CallError> {
        let ask = |command| {
            self.fleet
                .call(Call::to(agent, command, PATIENCE).within(END_WITHIN))
        };
        let reason = String::from("the step has gone on without this agent");
        ask(Command::StopTask { task, reason }).await?;
        match ask(Command::AwaitEnd { task }).await {
            Ok(Answer::End(_)) => {}
            // One that was never armed has no end.
            Ok(_) | Err(CallError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        ask(Command::ForgetTask { task }).await.map(drop)
    }

    /// Removes what the task laid out, unless a later mode of its cell is still to use it.
    async fn remove_stray(&self, agent: AgentId, stray: &Stray) -> Result<(), StoreError> {
        let Stray { run, step, task } = stray;
        let used = !run.state.is_end()
            && self.store.steps(run.id).await?.iter().any(|other| {
                other.cell == step.cell && other.attempt == step.attempt && !other.state.is_end()
            });
        let planned = expanded(run).ok().and_then(|(_, _, expansion)| {
            expansion
                .steps
                .into_iter()
                .find(|planned| planned.ordinal == step.ordinal)
        });
        let Some(planned) = planned.filter(|planned| !planned.path.is_empty() && !used) else {
            return Ok(());
        };
        let index = usize::try_from(task.task_index).unwrap_or(usize::MAX);
        let Some(place) = planned.tasks.get(index) else {
            return Ok(());
        };
        let command = Command::RemoveCell {
            run_uid: run.uid.clone(),
            path: planned.path.clone(),
            cell: planned.directory(place.load, step.attempt),
            task_index: place.index,
        };
        let call = Call::to(agent, command, PATIENCE);
        if let Err(error) = remove(&self.fleet, call, STALLED, |_| ()).await {
            info!(%error, "the data of a lost task stay");
        }
        Ok(())
    }

    /// Removes the directories of ended runs that stayed behind because the agent was away.
    async fn remove_left(&self, member: &MemberFacts) -> Result<(), StoreError> {
        for left in self.store.directories_left(member.id).await? {
            let command = Command::RemoveRunDirectory {
                run_uid: left.run_uid.clone(),
                path: left.path.clone(),
            };
            let call = Call::to(member.id, command, PATIENCE);
            if let Err(error) = remove(&self.fleet, call, STALLED, |_| ()).await {
                info!(agent = %member.hello.name, %error, "a run's directory still stays");
                continue;
            }
            let detail = serde_json::json!({ "run_uid": left.run_uid, "path": left.path });
            self.told(
                member,
                left.run,
                None,
                GONE,
                format!(
                    "agent `{}` is back and has removed the run's directory {}/benchmesh-{}",
                    member.hello.name, left.path, left.run_uid
                ),
                Some(detail.to_string()),
            )
            .await?;
        }
        Ok(())
    }

    async fn told(
        &self,
        member: &MemberFacts,
        run: RunId,
        step: Option<StepId>,
        kind: &str,
        message: String,
        detail_json: Option<String>,
    ) -> Result<(), StoreError> {
        if let Some(board) = self.board.run(run) {
            board.say(message.clone());
        }
        self.store
            .add_event(NewEvent {
                at: self.clock.now(),
                run: Some(run),
                step,
                agent: Some(member.id),
                severity: Severity::Info,
                kind: kind.to_owned(),
                message,
                detail_json,
            })
            .await
    }
}
