//! Resumption: queues an ended run again if work is left and its agents and targets are unchanged. The machine makes
//! the repeated steps when the run's turn comes.

mod targets;

use super::{
    Scheduler, admission,
    agents::RunAgents,
    machine::event::{EndedSteps, Event},
};
use crate::sessions::MemberFacts;
use async_recursion::async_recursion as boxed;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, RunId, RunState, StepState};
use benchmesh_plan::{Expansion, Plan, last_probes, with_probes};
use benchmesh_store::{
    StoreError, off_runtime,
    rows::{NewEvent, RunRow, StepRow},
};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, timeout_at};

/// How long to wait for recently seen agents: after a restart of the collector they are expected back.
const RETURN_WITHIN: Duration = Duration::from_secs(10);
const AWAY_WITHIN_US: i64 = 15_000_000;

/// Whether a run continues although its targets have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangedTargets {
    #[default]
    Refused,
    Accepted,
}

/// A run that was queued again.
#[derive(Clone, Debug)]
pub struct Resumed {
    pub steps_done: usize,
    /// Number of steps in all loops; if a time limit ends the loops, in those so far.
    pub steps_total: usize,
    /// Changes of its targets, one sentence each.
    pub changes: Vec<String>,
}

/// Why a run cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(
        "run {run} is {state}: only an ended run can be resumed; `benchmesh watch {run}` shows its progress"
    )]
    NotEnded { run: RunId, state: RunState },
    #[error(
        "run {run} is complete: all of its {steps} steps are done; measure its plan again with `benchmesh run`"
    )]
    Complete { run: RunId, steps: usize },
    #[error("run {run} was imported from {tool}: it has no plan to continue")]
    Imported { run: RunId, tool: String },
    #[error(
        "benchmesh {} cannot continue run {run}, which benchmesh {version} started: {reason}; resume it with that \
         version",
        env!("CARGO_PKG_VERSION")
    )]
    OtherVersion {
        run: RunId,
        version: String,
        reason: String,
    },
    #[error(
        "run {run} needs {}, and {} not attached: start {} (`benchmesh agents` lists all) and resume the run again",
        names.join(", "),
        if names.len() == 1 { "it is" } else { "they are" },
        if names.len() == 1 { "it" } else { "them" }
    )]
    AgentsMissing { run: RunId, names: Vec<String> },
    #[error(
        "agent `{agent}` did not describe the targets of run {run}: {reason}; resume the run when the agent answers"
    )]
    AgentSilent {
        run: RunId,
        agent: String,
        reason: String,
    },
    #[error(
        "the targets of run {run} have changed since it began:\n  {}\nrestore them, or measure the present targets \
         with --even-if-changed",
        changes.join("\n  ")
    )]
    TargetsChanged { run: RunId, changes: Vec<String> },
    #[error("the collector could not resume the run")]
    Store { source: StoreError },
}

fn store(source: StoreError) -> ResumeError {
    ResumeError::Store { source }
}

impl Scheduler {
    /// Queues an ended run again.
    #[boxed]
    #[inline(never)]
    pub async fn resume(
        &self,
        run: RunId,
        changed: ChangedTargets,
    ) -> Result<Resumed, ResumeError> {
        let row = self.0.store.run(run).await.map_err(store)?;
        if !row.state.is_end() {
            return Err(ResumeError::NotEnded {
                run,
                state: row.state,
            });
        }
        if let Some(tool) = self.0.store.imported_from(run).await.map_err(store)? {
            return Err(ResumeError::Imported { run, tool });
        }
        let loop_number = self.0.store.newest_loop(run).await.map_err(store)?;
        let loop_number = loop_number.unwrap_or(1);
        let (plan, agents, mut expansion) = planned(&row, loop_number).await?;
        let known = self.0.store.steps_of_loop(run, loop_number).await;
        let known = known.map_err(store)?;
        let made = known.iter();
        let made = made.map(|row| (row.ordinal, row.params_json.as_str()));
        if let Some(steps) = with_probes(&expansion.steps, made) {
            expansion.steps = steps;
        }
        self.check_steps(&row, loop_number, &plan, &expansion, &known)
            .await?;
        self.check_attached(run, &agents, &expansion).await?;
        let changes = self.changed_targets(run, &plan).await?;
        if !changes.is_empty() && changed == ChangedTargets::Refused {
            return Err(ResumeError::TargetsChanged { run, changes });
        }
        self.refuse_while_blocked("nothing is resumed")
            .map_err(store)?;
        let _turn = self.0.resuming.lock().await;
        let row = self.0.store.run(run).await.map_err(store)?;
        if !row.state.is_end() {
            return Err(ResumeError::NotEnded {
                run,
                state: row.state,
            });
        }
        let events = changes.iter().map(|change| self.accepted(run, change));
        // Forget the state of its end: its stop request, and the progress shown to watchers.
        self.0.progress.forget(run);
        self.forget_stop(run);
        let is_resumed = self.0.store.resume_run(run, events.collect()).await;
        let row = self.0.store.run(run).await.map_err(store)?;
        if !is_resumed.map_err(store)? {
            return Err(ResumeError::NotEnded {
                run,
                state: row.state,
            });
        }
        let before = self.0.store.steps_before_loop(run, loop_number).await;
        let (done, flawed) = before.map_err(store)?;
        let earlier = EndedSteps::of_rows(done, &flawed);
        let progress = self.0.progress.open(&row);
        progress.set_loop(
            loop_number,
            plan.loops,
            earlier.count(),
            expansion.steps.into(),
        );
        self.show_what_it_waits_for(&row).await.map_err(store)?;
        self.request(Event::Resumed { run }).await;
        let (steps_done, steps) = self.0.store.step_counts(run).await.map_err(store)?;
        Ok(Resumed {
            steps_done,
            steps_total: progress.look(|view| view.steps_total).max(steps),
            changes,
        })
    }

    /// Refuses a run with no work left, and one with steps that this version does not make.
    async fn check_steps(
        &self,
        row: &RunRow,
        loop_number: u32,
        plan: &Plan,
        expansion: &Expansion,
        known: &[StepRow],
    ) -> Result<(), ResumeError> {
        let run = row.id;
        let (left_out, searched) = tokio::try_join!(
            self.0.store.steps_left_out(run),
            self.0.store.steps_searched(run)
        )
        .map_err(store)?;
        let made = expansion.steps.len();
        if !known.is_empty() && known.len() != made {
            return Err(ResumeError::OtherVersion {
                run,
                version: row.version.clone(),
                reason: format!(
                    "it has {} steps in the database, but this version makes {made} steps of its plan",
                    known.len()
                ),
            });
        }
        let finished = known
            .iter()
            .filter(|step| step.state == StepState::Done || left_out.contains(&step.id));
        let elapsed = row.ran_for(row.ended.unwrap_or_else(|| self.0.clock.now()));
        let last_probes = last_probes(&expansion.steps);
        let mut last_probes = last_probes.filter_map(|index| known.get(index));
        let searches = last_probes.any(|row| !searched.contains(&row.id));
        if finished.count() < made || searches || plan.loops.go_on(loop_number, elapsed) {
            return Ok(());
        }
        let (_, steps) = self.0.store.step_counts(run).await.map_err(store)?;
        Err(ResumeError::Complete { run, steps })
    }

    /// Refuses a run if any of its agents is detached.
    async fn check_attached(
        &self,
        run: RunId,
        agents: &RunAgents,
        expansion: &Expansion,
    ) -> Result<(), ResumeError> {
        let tasks = expansion.steps.iter().flat_map(|step| step.tasks.iter());
        let names = tasks.flat_map(|task| std::iter::once(&task.agent).chain(&task.peer));
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        let wanted: Vec<(&str, Option<AgentId>)> = names
            .into_iter()
            .map(|name| (name, agents.id(name)))
            .collect();
        let until = Instant::now() + RETURN_WITHIN;
        let mut changes = self.0.fleet.changes();
        loop {
            let member = |id: Option<AgentId>| id.and_then(|id| self.0.fleet.member(id));
            let now = self.0.clock.now();
            let missing = wanted
                .iter()
                .map(|(name, id)| (*name, member(*id)))
                .filter(|(_, member)| !member.as_ref().is_some_and(|member| member.attached));
            let missing: Vec<(&str, Option<MemberFacts>)> = missing.collect();
            let may_come = missing.iter().any(|(_, member)| {
                let seen = member.as_ref().map(|member| member.last_seen);
                seen.is_some_and(|seen| now.since(Some(seen)) < AWAY_WITHIN_US)
            });
            if missing.is_empty() {
                return Ok(());
            }
            if !may_come || timeout_at(until, changes.changed()).await.is_err() {
                let names = missing.iter().map(|(name, _)| format!("agent `{name}`"));
                return Err(ResumeError::AgentsMissing {
                    run,
                    names: names.collect(),
                });
            }
        }
    }

    fn accepted(&self, run: RunId, change: &str) -> NewEvent {
        let message = format!("the run is resumed although {change}");
        NewEvent {
            run: Some(run),
            ..NewEvent::new(self.0.clock.now(), EventKind::TargetChanged, message)
        }
    }
}

/// The plan of a run, its agents, and the steps of one loop.
async fn planned(
    row: &RunRow,
    loop_number: u32,
) -> Result<(Plan, RunAgents, Expansion), ResumeError> {
    let stored = row.clone();
    let planned = off_runtime(move || admission::expanded(&stored, loop_number)).await;
    planned.map_err(|reason| ResumeError::OtherVersion {
        run: row.id,
        version: row.version.clone(),
        reason,
    })
}
