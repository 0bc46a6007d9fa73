//! The end that someone wishes: of tasks, which are stopped and let go, and of a whole run.
//!
//! The wish is kept with the run before it is answered: a collector that is started in the midst of a stop goes on to its
//! end. A step that is stopped passes through `cleaning`. What the tasks say of their last operation is held against the
//! instant of the wish, and told.

use super::{
    board::STOPPING,
    cell::is_open,
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
    /// Tells tasks to stop; who is lost is not waited for.
    pub(super) async fn stop_tasks(&self, held: &[Held], reason: &str) {
        join_all(held.iter().map(|held| async move {
            let command = Command::StopTask {
                task: held.task,
                reason: reason.to_owned(),
            };
            let patience = self.loss_after().min(STOP_WITHIN);
            let call = Call::to(held.agent, command, patience).within(STOP_WITHIN);
            if let Err(error) = self.fleet.call(call).await {
                tracing::debug!(%error, "a task was not stopped");
            }
        }))
        .await;
    }

    /// Stops tasks, waits until they have ended, and lets agents forget them, at both ends of a link. Who is away is not
    /// asked: its lease ends.
    pub(super) async fn let_go(&self, held: &[Held], reason: &str) {
        let there: Vec<Held> = held
            .iter()
            .copied()
            .filter(|held| self.is_here(held.agent))
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

    fn is_here(&self, agent: AgentId) -> bool {
        self.fleet
            .member(agent)
            .is_some_and(|member| member.attached)
    }

    /// Ends the run on a wish of that instant: tasks are stopped, their data kept, directories removed.
    pub(super) async fn stop(
        &self,
        reason: &str,
        wished: MeshMicros,
    ) -> Result<Ending, StoreError> {
        self.note_halt(wished);
        self.board.say(format!("{STOPPING}{reason}"));
        let (step, held) = {
            let alive = self.alive();
            (alive.step, alive.tasks.clone())
        };
        let (step, held) = match step {
            Some(step) => {
                // Before anything else, and whatever the database takes.
                self.stop_tasks(&held, reason).await;
                (Some(step), held)
            }
            None => self.stop_unknown(reason).await?,
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

    /// After a start of the collector agents may hold what nobody here holds yet: the tasks of the step that is open in
    /// the database are stopped, and the run's directories found, while agents come back.
    async fn stop_unknown(&self, reason: &str) -> Result<(Option<StepId>, Vec<Held>), StoreError> {
        let known = self.store.steps(self.row.id).await?;
        let Some(open) = known.iter().find(|row| is_open(row)) else {
            self.find_directories(&known).await?;
            return Ok((None, Vec::new()));
        };
        let tasks = self.store.tasks(open.id).await?;
        let held: Vec<Held> = tasks.iter().map(Held::of_row).collect();
        self.hold(open.id, &held);
        let (found, ()) = tokio::join!(
            self.find_directories(&known),
            self.stop_tasks(&held, reason)
        );
        found?;
        Ok((Some(open.id), held))
    }

    /// Ends a step whose tasks were told to stop.
    async fn stop_step(&self, step: StepId, held: &[Held], reason: &str) -> Result<(), StoreError> {
        let row = self.store.step(step).await?;
        let measured = match row.state {
            state if state.is_end() => {
                self.forget(&Crew::new(held.iter().copied()).stopped())
                    .await;
                return self.remove_directories().await;
            }
            StepState::Running | StepState::Armed => {
                // Of a load that was over at the wish there is nothing to tell.
                let tasks = self.store.tasks(step).await?;
                let over = tasks
                    .iter()
                    .all(|task| has_ended(task) && task.state != TaskState::Stopped);
                self.end_tasks(&row, held, reason).await?;
                if !over {
                    self.tell_halted(&row).await?;
                }
                true
            }
            // Its tasks have ended, unless it was stopped before they began.
            StepState::Cleaning => row.start.is_some(),
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
        // Who came back after it had been told in vain.
        let late: Vec<Held> = left
            .iter()
            .copied()
            .filter(|held| self.is_here(held.agent))
            .collect();
        self.stop_tasks(&late, reason).await;
        for held in left {
            crew.end(held.task, TaskState::Stopped, reason);
        }
        let tasks = self.store.tasks(row.id).await?;
        let ended = |outcome: &TaskOutcome| {
            tasks
                .iter()
                .any(|task| task.id == outcome.held.task && has_ended(task))
        };
        // What had ended before the stop stays as it ended; its agent may have forgotten it.
        for outcome in crew.outcomes().iter().filter(|outcome| !ended(outcome)) {
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
        let untold = tasks.iter().filter(|task| task.ended.is_none()).count();
        let severity = match late_us {
            Some(late) if late > QUIET_AFTER_US => Severity::Warning,
            _ if none_has_said(tasks.len(), untold) => Severity::Warning,
            _ => Severity::Info,
        };
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

fn has_ended(task: &TaskRow) -> bool {
    matches!(
        task.state,
        TaskState::Done | TaskState::Stopped | TaskState::Failed | TaskState::Lost
    )
}

fn none_has_said(tasks: usize, untold: usize) -> bool {
    tasks > 0 && untold == tasks
}

fn last_begun(tasks: &[TaskRow]) -> Option<MeshMicros> {
    tasks.iter().filter_map(|task| task.last_begun).max()
}

/// `late_us`: how long after the stop the last operation began.
fn told(late_us: Option<i64>, tasks: usize, untold: usize) -> String {
    if none_has_said(tasks, untold) {
        return format!(
            "the load was stopped; none of {tasks} tasks has said when its last operation began"
        );
    }
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
        check(
            None,
            3,
            "the load was stopped; none of 3 tasks has said when its last operation began",
        );
    }
}
