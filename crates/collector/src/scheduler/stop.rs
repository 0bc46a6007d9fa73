//! The end that someone wishes: of tasks, which are stopped and let go, and of a whole run.
//!
//! A step that is stopped passes through `cleaning`, with the reason kept from there on: a collector that is started in
//! the midst of it goes on to the end of the stop. What the tasks say of their last operation is held against the instant
//! of the wish, and told.

use super::{
    drive::{Drive, Ending, Fact, Held},
    ends::{Crew, TaskOutcome},
};
use crate::{
    model::{AgentId, MeshMicros, RunState, Severity, StepId, StepState, TaskState},
    sessions::{
        Call,
        command::{Answer, Command},
    },
    store::{
        StoreError,
        rows::{FinishedStep, StepChange, StepRow, TaskRow},
    },
};
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// A task that was told to stop has ended by then, or its agent is stuck.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(20);
/// No operation begins so long after a stop.
const QUIET_AFTER_US: i64 = 500_000;

impl Drive {
    pub(super) async fn stop_tasks(&self, held: &[Held], reason: &str) {
        join_all(held.iter().map(|held| async move {
            let command = Command::StopTask {
                task: held.task,
                reason: reason.to_owned(),
            };
            let call = Call::to(held.agent, command, STOP_WITHIN).within(STOP_WITHIN);
            if let Err(error) = self.fleet.call(call).await {
                tracing::debug!(%error, "a task was not stopped");
            }
        }))
        .await;
    }

    /// Stops tasks, waits until they have ended, and lets agents forget them, at both ends of a link. Who is away is not
    /// asked: its lease ends.
    pub(super) async fn let_go(&self, held: &[Held], reason: &str) {
        let here = |agent: AgentId| {
            self.fleet
                .member(agent)
                .is_some_and(|member| member.attached)
        };
        let there: Vec<Held> = held
            .iter()
            .copied()
            .filter(|held| here(held.agent))
            .collect();
        self.stop_tasks(&there, reason).await;
        // A task that was never armed refuses at once.
        join_all(
            there
                .iter()
                .map(|held| timeout(STOP_WITHIN, self.await_end(*held))),
        )
        .await;
        self.forget(&Crew::new(there).stopped()).await;
    }

    /// Ends the run on a wish of that instant: tasks are stopped, their data kept, directories removed.
    pub(super) async fn stop(
        &self,
        reason: &str,
        wished: MeshMicros,
    ) -> Result<Ending, StoreError> {
        self.note_halt(wished);
        self.board.say(format!("stopping: {reason}"));
        let (step, held) = {
            let alive = self.alive();
            (alive.step, alive.tasks.clone())
        };
        match step {
            Some(step) => self.stop_step(step, &held, reason).await?,
            None => self.remove_directories().await?,
        }
        Ok(Ending {
            state: RunState::Stopped,
            partial: true,
            reason: Some(reason.to_owned()),
        })
    }

    /// Whether the run was being stopped when the collector ended, and why; what has to be stopped is held again.
    pub(super) async fn take_up_stop(&self) -> Result<Option<String>, StoreError> {
        let known = self.store.steps(self.row.id).await?;
        let stopping = |row: &&StepRow| row.state == StepState::Cleaning && row.reason.is_some();
        let Some(row) = known.iter().find(stopping) else {
            return Ok(None);
        };
        self.find_directories(&known).await?;
        let tasks = self.store.tasks(row.id).await?;
        self.hold(row.id, &tasks.iter().map(Held::of_row).collect::<Vec<_>>());
        Ok(row.reason.clone())
    }

    async fn stop_step(&self, step: StepId, held: &[Held], reason: &str) -> Result<(), StoreError> {
        // Before anything else, and whatever the database takes.
        self.stop_tasks(held, reason).await;
        let row = self.store.step(step).await?;
        let measured = match row.state {
            state if state.is_end() => {
                self.forget(&Crew::new(held.iter().copied()).stopped())
                    .await;
                return self.remove_directories().await;
            }
            StepState::Running | StepState::Armed => {
                self.end_tasks(&row, held, reason).await?;
                self.tell_halted(&row).await?;
                true
            }
            // Its tasks have ended.
            StepState::Cleaning => true,
            _ => {
                self.end_tasks(&row, held, reason).await?;
                false
            }
        };
        let cleaning = StepChange {
            state: StepState::Cleaning,
            start: None,
            ended: None,
            reason: Some(reason.to_owned()),
        };
        self.store.set_step_state(step, cleaning).await?;
        self.board.change_step(step, |view| {
            view.state = StepState::Cleaning;
            view.progress.clear();
        });
        self.remove_directories().await?;
        let tasks = self.store.tasks(step).await?;
        let whole = measured && tasks.iter().all(|task| task.state == TaskState::Done);
        let state = match whole {
            // Nothing was left to do but to clean up.
            true => StepState::Done,
            false => StepState::Stopped,
        };
        let (ended, reason) = (self.clock.now(), Some(reason.to_owned()));
        self.board.change_step(step, |view| view.state = state);
        if measured {
            let finished = FinishedStep {
                state,
                partial: !whole,
                ended,
                reason,
            };
            self.store.finish_step(step, finished).await.map(drop)
        } else {
            let change = StepChange {
                state,
                start: None,
                ended: Some(ended),
                reason,
            };
            self.store.set_step_state(step, change).await
        }
    }

    /// Waits until stopped tasks have ended and what they measured is stored, keeps how, and lets agents forget them.
    async fn end_tasks(
        &self,
        row: &StepRow,
        held: &[Held],
        reason: &str,
    ) -> Result<(), StoreError> {
        let mut crew = Crew::new(held.iter().copied());
        if matches!(row.state, StepState::Running | StepState::Armed) {
            let ends = held
                .iter()
                .map(|held| timeout(STOP_WITHIN, self.await_end(*held)));
            for (held, answer) in join_all(ends).await.into_iter().flatten() {
                if let Ok(Answer::End(end)) = answer {
                    crew.ended(TaskOutcome::of_end(held, end));
                }
            }
            self.await_rows(row, &mut crew).await?;
        }
        let left: Vec<Held> = crew.live().collect();
        for held in left {
            crew.end(held.task, TaskState::Stopped, reason);
        }
        let tasks = self.store.tasks(row.id).await?;
        let lost = |outcome: &TaskOutcome| {
            tasks
                .iter()
                .any(|task| task.id == outcome.held.task && task.state == TaskState::Lost)
        };
        // What was lost before the stop stays lost.
        for outcome in crew.outcomes().iter().filter(|outcome| !lost(outcome)) {
            self.store
                .set_task_state(outcome.held.task, outcome.state, None)
                .await?;
        }
        self.forget(&crew.outcomes()).await;
        Ok(())
    }

    /// Of a load that was stopped or aborted: tells when its last operation began, by the word of its tasks.
    pub(super) async fn tell_halted(&self, row: &StepRow) -> Result<(), StoreError> {
        let Some(halted) = self.halted() else {
            return Ok(());
        };
        let tasks = self.store.tasks(row.id).await?;
        let last = last_begun(&tasks);
        let late_us = last.map(|last| last.0.saturating_sub(halted.0));
        let severity = match late_us {
            Some(late) if late > QUIET_AFTER_US => Severity::Warning,
            _ => Severity::Info,
        };
        let untold = tasks.iter().filter(|task| task.ended.is_none()).count();
        let detail = json!({
            "stopped_us": halted.0,
            "last_begun_us": last.map(|last| last.0),
            "tasks": tasks.len(),
            "tasks_untold": untold,
        });
        let fact = Fact {
            step: Some(row.id),
            agent: None,
            severity,
            kind: "load-stopped",
            message: told(late_us, tasks.len(), untold),
        };
        self.event_with(fact, Some(detail.to_string())).await
    }
}

fn last_begun(tasks: &[TaskRow]) -> Option<MeshMicros> {
    tasks.iter().filter_map(|task| task.last_begun).max()
}

/// `late_us`: how long after the stop the last operation began.
fn told(late_us: Option<i64>, tasks: usize, untold: usize) -> String {
    let of = match untold {
        0 => format!("{tasks} tasks"),
        untold => format!("{} of {tasks} tasks", tasks.saturating_sub(untold)),
    };
    match late_us {
        None => format!("the load was stopped; no operation had begun of {of}"),
        Some(late) if late <= 0 => {
            format!("the load was stopped; no operation of {of} began after that")
        }
        Some(late) => {
            let (ms, rest) = (late / 1000, late % 1000 / 100);
            format!("the load was stopped; the last operation of {of} began {ms}.{rest} ms later")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_load_went_on_is_told_with_who_has_not_said() {
        let check = |late, untold, expected: &str| assert_eq!(told(late, 3, untold), expected);
        check(
            Some(12_345),
            0,
            "the load was stopped; the last operation of 3 tasks began 12.3 ms later",
        );
        check(
            Some(-5),
            1,
            "the load was stopped; no operation of 2 of 3 tasks began after that",
        );
        check(
            None,
            0,
            "the load was stopped; no operation had begun of 3 tasks",
        );
    }
}
