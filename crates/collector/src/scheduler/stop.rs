//! The end of tasks: awaited, stopped, or let go; and the end of a run that someone wished to stop.

use super::{
    drive::{Drive, Ending, Fact, Held},
    ends::{Crew, TaskOutcome},
    loss::Verdict,
    step::StepEnd,
};
use crate::{
    clock::until,
    model::{AgentId, RunState, Severity, StepId, StepState, TaskId, TaskState},
    plan::PlannedStep,
    sessions::{
        Call,
        command::{Answer, CallError, Command, RefusalKind},
    },
    store::{
        StoreError,
        rows::{FinishedStep, StepChange, StepRow, TaskRow},
    },
};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// A task that was told to stop has ended by then, or its agent is stuck.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// A step bounded in time that takes longer by this much, or a tenth, hangs somewhere.
const OVERTIME: Duration = Duration::from_secs(30);
/// A spool that does not get shorter for so long does not come.
const ROWS_WITHIN: Duration = Duration::from_secs(60);

/// How long it is until the step's tasks start.
fn until_start(drive: &Drive, row: &StepRow) -> Duration {
    drive
        .board
        .look(|view| view.step.as_ref().filter(|step| step.id == row.id)?.start)
        .map_or(Duration::ZERO, |start| until(&drive.clock, start))
}

impl Drive {
    /// Waits until every task has ended. `Some`: the policy ended the step, and why. A task that is bounded in time and
    /// does not end is stopped, and given up when that does not help either: a hang costs its own agent alone.
    pub(super) async fn await_ends(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        crew: &mut Crew,
    ) -> Result<Option<String>, StoreError> {
        let mut ends: FuturesUnordered<_> = crew.live().map(|held| self.await_end(held)).collect();
        let mut aborted = self.aborted();
        let overdue = step.expected.map(|expected| {
            let late = OVERTIME.max(expected / 10);
            Instant::now() + until_start(self, row) + expected + late
        });
        let mut deadline = overdue;
        let mut stopping = false;
        // Decided before the collector was started again.
        if let Some(reason) = &aborted {
            let live: Vec<Held> = crew.live().collect();
            stopping = true;
            deadline = Some(Instant::now() + STOP_WITHIN);
            self.stop_tasks(&live, reason).await;
        }
        let held: Vec<Held> = crew.live().collect();
        let not_begun = self.not_begun(step, row, &held);
        tokio::pin!(not_begun);
        let mut looked = false;
        loop {
            let ended = tokio::select! {
                ended = ends.next() => ended,
                silent = &mut not_begun, if !looked => {
                    looked = true;
                    let live: BTreeSet<TaskId> = crew.live().map(|held| held.task).collect();
                    for held in silent?.into_iter().filter(|held| live.contains(&held.task)) {
                        let why = format!(
                            "agent `{}` confirmed its start and has not begun: nothing came of its task",
                            self.team.name(held.agent)
                        );
                        self.stop_tasks(&[held], &why).await;
                        if let Verdict::Abort { reason } =
                            self.lose(row.id, crew, held.agent, &why).await?
                            && aborted.is_none()
                        {
                            let live: Vec<Held> = crew.live().collect();
                            stopping = true;
                            deadline = Some(Instant::now() + STOP_WITHIN);
                            self.stop_tasks(&live, &reason).await;
                            aborted = Some(reason);
                        }
                    }
                    if crew.live().next().is_none() {
                        return Ok(aborted);
                    }
                    continue;
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => None,
            };
            let live: Vec<Held> = crew.live().collect();
            let Some((held, answer)) = ended else {
                if live.is_empty() {
                    return Ok(aborted);
                }
                if !stopping {
                    stopping = true;
                    deadline = Some(Instant::now() + STOP_WITHIN);
                    self.stop_tasks(&live, "it has not ended in time").await;
                    continue;
                }
                for held in live {
                    let why = format!(
                        "the task of agent `{}` does not end: it hangs",
                        self.team.name(held.agent)
                    );
                    if let Verdict::Abort { reason } =
                        self.lose(row.id, crew, held.agent, &why).await?
                    {
                        aborted.get_or_insert(reason);
                    }
                }
                return Ok(aborted);
            };
            let why = match answer {
                Ok(Answer::End(end)) => {
                    let error = (!end.error.is_empty()).then(|| end.error.clone());
                    self.store
                        .set_task_state(held.task, end.state, error)
                        .await?;
                    let stalled = end.stalled.then(|| end.error.clone());
                    crew.ended(TaskOutcome::of_end(held, end));
                    if let Some(why) = stalled
                        && aborted.is_none()
                    {
                        self.mark_stalled();
                        let agent = self.team.name(held.agent);
                        let reason = format!("agent `{agent}`: {why}");
                        self.abort(&reason).await?;
                        let live: Vec<Held> = crew.live().collect();
                        stopping = true;
                        deadline = Some(Instant::now() + STOP_WITHIN);
                        self.stop_tasks(&live, &reason).await;
                        aborted = Some(reason);
                    }
                    continue;
                }
                Ok(_) => format!(
                    "agent `{}` answered something else than it was asked",
                    self.team.name(held.agent)
                ),
                Err(CallError::Refused {
                    agent,
                    kind: RefusalKind::UnknownTask,
                    ..
                }) => format!("agent `{agent}` was started again and has lost its task"),
                Err(error) => error.to_string(),
            };
            if let Verdict::Abort { reason } = self.lose(row.id, crew, held.agent, &why).await?
                && aborted.is_none()
            {
                let live: Vec<Held> = crew.live().collect();
                stopping = true;
                deadline = Some(Instant::now() + STOP_WITHIN);
                self.stop_tasks(&live, &reason).await;
                aborted = Some(reason);
            }
        }
    }

    /// Waits until what the tasks measured is stored, so that results are whole.
    pub(super) async fn await_rows(
        &self,
        row: &StepRow,
        crew: &mut Crew,
    ) -> Result<(), StoreError> {
        let waits = crew.outcomes().into_iter().filter_map(|outcome| {
            let (spool, sequence) = outcome.last?;
            Some(async move {
                let agent = outcome.held.agent;
                (agent, self.rows_of(agent, &spool, sequence).await)
            })
        });
        for (agent, missing) in join_all(waits).await {
            if let Some(why) = missing? {
                self.mark_partial();
                self.event(Fact {
                    step: Some(row.id),
                    agent: Some(agent),
                    severity: Severity::Warning,
                    kind: "rows-missing",
                    message: format!(
                        "not everything that agent `{}` measured is here: {why}; the results are computed again when it comes",
                        self.team.name(agent)
                    ),
                })
                .await?;
            }
        }
        Ok(())
    }

    /// `None`: everything up to the sequence is stored; else why it is not.
    async fn rows_of(
        &self,
        agent: AgentId,
        spool: &str,
        sequence: u64,
    ) -> Result<Option<String>, StoreError> {
        let mut position = None;
        loop {
            let stored = tokio::select! {
                stored = timeout(ROWS_WITHIN, self.store.stored(agent, spool, sequence)) => stored,
                lost = self.fleet.lost(agent, self.loss_after()) => {
                    // Of one that went away after its last row, all is here.
                    let last = self.position(agent, spool).await?;
                    return Ok(last.is_none_or(|last| last < sequence).then(|| lost.to_string()));
                }
            };
            if let Ok(stored) = stored {
                return stored.map(|()| None);
            }
            let now = self.position(agent, spool).await?;
            if now == position {
                return Ok(Some(format!(
                    "nothing came for {} s",
                    ROWS_WITHIN.as_secs()
                )));
            }
            position = now;
        }
    }

    /// The last sequence that is stored of a spool.
    async fn position(&self, agent: AgentId, spool: &str) -> Result<Option<u64>, StoreError> {
        let positions = self.store.spool_positions(agent).await?;
        let found = positions.into_iter().find(|(known, _)| known == spool);
        Ok(found.map(|(_, last)| last))
    }

    /// After a start of the collector: waits for a running step if any of its tasks is still held. `None`: none is.
    pub(super) async fn resumed(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        tasks: &[TaskRow],
        last: bool,
    ) -> Result<Option<StepEnd>, StoreError> {
        let mut crew = Crew::new(tasks.iter().map(|task| Held {
            task: task.id,
            agent: task.agent,
            peer: task.peer,
        }));
        for task in tasks.iter().filter(|task| task.state == TaskState::Lost) {
            crew.end(
                task.id,
                TaskState::Lost,
                task.error.as_deref().unwrap_or_default(),
            );
        }
        if !self.still_held(&crew).await {
            return Ok(None);
        }
        self.event(Fact {
            step: Some(row.id),
            agent: None,
            severity: Severity::Info,
            kind: "step-resumed",
            message: format!("{} went on while the collector was away", step.title()),
        })
        .await?;
        self.finish(step, row, crew, last).await.map(Some)
    }

    /// Whether any agent has come back with the task it was given. One that has come back without, or does not come
    /// back, is lost to the step, which is for the policy to judge; but when nobody has, there is nothing to wait for.
    async fn still_held(&self, crew: &Crew) -> bool {
        let asked = crew.live().map(|held| async move {
            loop {
                if let Some(member) = self.fleet.member(held.agent)
                    && member.attached
                {
                    return member.hello.held_tasks.contains(&held.task.0);
                }
                let mut changes = self.fleet.changes();
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = self.fleet.lost(held.agent, self.loss_after()) => return false,
                }
            }
        });
        join_all(asked).await.into_iter().any(|held| held)
    }

    async fn stop_tasks(&self, held: &[Held], reason: &str) {
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
        let outcomes: Vec<TaskOutcome> = there
            .iter()
            .map(|held| TaskOutcome {
                held: *held,
                state: TaskState::Stopped,
                error: String::new(),
                last: None,
            })
            .collect();
        self.forget(&outcomes).await;
    }

    /// Ends the run on someone's wish: tasks are stopped, their data kept, directories removed.
    pub(super) async fn stop(&self, reason: &str) -> Result<Ending, StoreError> {
        self.board.say(format!("stopping: {reason}"));
        let (step, held) = {
            let alive = self.alive();
            (alive.step, alive.tasks.clone())
        };
        if let Some(step) = step {
            self.stop_step(step, &held, reason).await?;
        }
        self.remove_directories().await?;
        Ok(Ending {
            state: RunState::Stopped,
            partial: true,
            reason: Some(reason.to_owned()),
        })
    }

    async fn stop_step(&self, step: StepId, held: &[Held], reason: &str) -> Result<(), StoreError> {
        let row = self.store.step(step).await?;
        self.stop_tasks(held, reason).await;
        let mut crew = Crew::new(held.iter().copied());
        let started = matches!(row.state, StepState::Running | StepState::Armed);
        if started {
            let ends = join_all(
                held.iter()
                    .map(|held| timeout(STOP_WITHIN, self.await_end(*held))),
            )
            .await;
            for (held, answer) in ends.into_iter().flatten() {
                if let Ok(Answer::End(end)) = answer {
                    crew.ended(TaskOutcome::of_end(held, end));
                }
            }
            self.await_rows(&row, &mut crew).await?;
        }
        let left: Vec<Held> = crew.live().collect();
        for held in left {
            crew.end(held.task, TaskState::Stopped, reason);
        }
        let lost: BTreeSet<TaskId> = self
            .store
            .tasks(step)
            .await?
            .iter()
            .filter(|task| task.state == TaskState::Lost)
            .map(|task| task.id)
            .collect();
        let open = |outcome: &&TaskOutcome| !lost.contains(&outcome.held.task);
        // What was lost before the stop stays lost.
        for outcome in crew.outcomes().iter().filter(open) {
            self.store
                .set_task_state(outcome.held.task, outcome.state, None)
                .await?;
        }
        self.forget(&crew.outcomes()).await;
        if row.state.is_end() {
            return Ok(());
        }
        if started {
            let finished = FinishedStep {
                state: StepState::Stopped,
                partial: true,
                ended: self.clock.now(),
                reason: Some(reason.to_owned()),
            };
            self.store.finish_step(step, finished).await.map(drop)
        } else {
            let change = StepChange {
                state: StepState::Stopped,
                start: None,
                ended: Some(self.clock.now()),
                reason: Some(reason.to_owned()),
            };
            self.store.set_step_state(step, change).await
        }
    }
}
