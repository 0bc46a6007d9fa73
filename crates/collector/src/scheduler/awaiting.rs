//! The end of a step's tasks as it comes: each is awaited, a hang is cut off, the policy may end all of them, and what
//! they measured is waited for.

use super::{
    drive::{Drive, Fact, Held},
    ends::{Crew, TaskOutcome},
    loss::Verdict,
    step::StepEnd,
    stop::STOP_WITHIN,
};
use crate::{
    clock::until,
    model::{AgentId, Severity, TaskId, TaskState},
    plan::PlannedStep,
    sessions::command::{Answer, CallError, RefusalKind},
    store::{
        StoreError,
        rows::{StepRow, TaskRow},
    },
};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// A step bounded in time that takes longer by this much, or a tenth, hangs somewhere.
const OVERTIME: Duration = Duration::from_secs(30);
/// A spool that does not get shorter for so long does not come.
const ROWS_WITHIN: Duration = Duration::from_secs(60);

/// How far the wait for a step's tasks has come.
#[derive(Debug, Default)]
struct Awaited {
    /// Why the policy ended the step.
    aborted: Option<String>,
    /// The tasks were told to stop.
    stopping: bool,
    /// What has not ended by then is cut off.
    deadline: Option<Instant>,
}

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
        let mut awaited = Awaited {
            deadline: step.expected.and_then(|expected| {
                let late = OVERTIME.max(expected / 10);
                let longest = until_start(self, row)
                    .saturating_add(expected)
                    .saturating_add(late);
                Instant::now().checked_add(longest)
            }),
            ..Awaited::default()
        };
        // Decided before the collector was started again.
        if let Some(reason) = self.aborted() {
            self.end_load(&mut awaited, crew, reason).await;
        }
        let held: Vec<Held> = crew.live().collect();
        let not_begun = self.not_begun(step, row, &held);
        tokio::pin!(not_begun);
        let mut looked = false;
        loop {
            let deadline = awaited.deadline;
            let ended = tokio::select! {
                ended = ends.next() => ended,
                silent = &mut not_begun, if !looked => {
                    looked = true;
                    self.lose_silent(row, crew, &mut awaited, silent?).await?;
                    if crew.live().next().is_none() {
                        return Ok(awaited.aborted);
                    }
                    continue;
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => None,
            };
            let live: Vec<Held> = crew.live().collect();
            let Some((held, answer)) = ended else {
                if live.is_empty() {
                    return Ok(awaited.aborted);
                }
                if !awaited.stopping {
                    awaited.stopping = true;
                    awaited.deadline = Some(Instant::now() + STOP_WITHIN);
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
                        awaited.aborted.get_or_insert(reason);
                    }
                }
                return Ok(awaited.aborted);
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
                        && awaited.aborted.is_none()
                    {
                        self.mark_stalled();
                        let agent = self.team.name(held.agent);
                        let reason = format!("agent `{agent}`: {why}");
                        self.abort(&reason).await?;
                        self.end_load(&mut awaited, crew, reason).await;
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
            if let Verdict::Abort { reason } = self.lose(row.id, crew, held.agent, &why).await? {
                self.end_load(&mut awaited, crew, reason).await;
            }
        }
    }

    /// The policy ends the step, once: what still loads is told to stop.
    async fn end_load(&self, awaited: &mut Awaited, crew: &Crew, reason: String) {
        if awaited.aborted.is_some() {
            return;
        }
        let live: Vec<Held> = crew.live().collect();
        awaited.stopping = true;
        awaited.deadline = Some(Instant::now() + STOP_WITHIN);
        self.stop_tasks(&live, &reason).await;
        awaited.aborted = Some(reason);
    }

    /// Takes those out of the step that have confirmed their start and not begun.
    async fn lose_silent(
        &self,
        row: &StepRow,
        crew: &mut Crew,
        awaited: &mut Awaited,
        silent: Vec<Held>,
    ) -> Result<(), StoreError> {
        let live: BTreeSet<TaskId> = crew.live().map(|held| held.task).collect();
        for held in silent.into_iter().filter(|held| live.contains(&held.task)) {
            let why = format!(
                "agent `{}` confirmed its start and has not begun: nothing came of its task",
                self.team.name(held.agent)
            );
            self.stop_tasks(&[held], &why).await;
            if let Verdict::Abort { reason } = self.lose(row.id, crew, held.agent, &why).await? {
                self.end_load(awaited, crew, reason).await;
            }
        }
        Ok(())
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
        let mut crew = Crew::new(tasks.iter().map(Held::of_row));
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
}
