//! One run from its rows to its end: which step comes next, and what ends the run early.
//!
//! The run is always in one `Stage`. A stage registers what it waits for. When none of that is left, its part of the
//! machine ends it and returns the next action (`next`). State that has to survive the collector goes into the rows of
//! the same event.

use super::{
    effect::{Effect, Lookup, Output, Show},
    ended::EndedSteps,
    event::{LoadedRun, Policy, RunPlan, Token},
    lead::{ARM_TRIES, LeadEstimate},
    members::Members,
    next::Next,
    shares::Directories,
    stage::Stage,
    step_rows::new_steps,
    tasks::TaskHandle,
    waiting::{Waiting, WaitingScope},
};
use crate::agents::RunAgents;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, RunState, StepId};
use benchmesh_plan::{Loops, PlannedStep, mounted_otherwise};
use benchmesh_store::rows::{NewRunAgent, Row, RunChange, RunRow, StepRow, TaskRow, steps_done};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

pub(super) use super::step::{ActiveStep, StepFacts};

/// Prefix of the message about a requested stop; the reason follows.
pub(crate) const STOPPING: &str = "stopping: ";
/// Source of unique token numbers.
#[derive(Debug, Default)]
pub(super) struct Tokens(u64);

impl Tokens {
    pub fn from(first: u64) -> Self {
        Self(first)
    }

    pub fn next(&mut self) -> Token {
        self.0 += 1;
        Token(self.0)
    }
}

/// A run that is being driven.
#[derive(Debug)]
pub(super) struct Run {
    pub out: Output,
    pub now: MeshMicros,
    pub tokens: Tokens,
    pub waiting: BTreeMap<Token, Waiting>,
    pub members: Arc<Members>,
    pub row: RunRow,
    pub policy: Policy,
    pub agents: RunAgents,
    pub loops: Loops,
    /// The current loop, from 1.
    pub loop_number: u32,
    /// Whether it is the last one, on request.
    pub ends_after_loop: bool,
    /// The ended steps of the loops before it.
    pub earlier: EndedSteps,
    /// The steps of the current loop. `facts` and all step indices refer to it too.
    pub steps: Arc<[PlannedStep]>,
    /// The parts of the plan that are left out because they cannot be measured.
    left_out: Vec<String>,
    pub facts: Vec<StepFacts>,
    /// All steps before this index have ended.
    pub first_open: usize,
    pub directories: Directories,
    /// Agents that were lost when they were to remove the run's directory.
    pub lost_removers: Vec<AgentId>,
    /// Agents that could not remove the run's directories.
    pub failed_removers: Vec<AgentId>,
    pub partial: bool,
    /// Why the policy ends the run.
    pub aborted: Option<String>,
    /// The reason of a requested stop.
    pub stop: Option<String>,
    /// When a request or the policy ended the load.
    pub halted: Option<MeshMicros>,
    /// Why the step under way cannot continue.
    pub failing: Option<String>,
    /// Whether an operation hangs on a target; any command that touches it may hang as well.
    pub stalled: bool,
    /// Lost agents whose loss has an event.
    pub known_lost: BTreeSet<AgentId>,
    /// Agents that held up a step and are excluded from the rest of the run, with the reason.
    pub barred: BTreeMap<AgentId, String>,
    /// How often each agent left a start unconfirmed since a load last began.
    pub unconfirmed: BTreeMap<AgentId, u32>,
    /// Speeds read since the last step with links.
    pub link_speeds: BTreeMap<AgentId, Option<i64>>,
    pub lead: LeadEstimate,
    pub stage: Stage,
    pub step: Option<ActiveStep>,
    /// How often the current cell was repeated since the collector started.
    pub attempts: u32,
    pub removing: u32,
    /// The last probes of searches that have ended.
    pub searched: BTreeSet<StepId>,
}

impl Run {
    /// Continues a run from its rows.
    pub fn load(loaded: LoadedRun, members: Arc<Members>, tokens: Tokens, now: MeshMicros) -> Self {
        let (plan, refused) = match loaded.plan {
            Ok(plan) => (Some(plan), None),
            Err(reason) => (None, Some(reason)),
        };
        let plan = plan.unwrap_or_else(RunPlan::none);
        let row = loaded.row;
        let mut run = Self {
            out: Output::default(),
            now,
            tokens,
            waiting: BTreeMap::new(),
            members,
            policy: plan.policy,
            agents: plan.agents,
            loops: plan.loops,
            loop_number: loaded.loop_number,
            ends_after_loop: loaded.ends_after_loop,
            earlier: loaded.earlier,
            facts: loaded.steps.iter().map(StepFacts::from_row).collect(),
            first_open: 0,
            directories: Directories::of_rows(&loaded.directories),
            // The steps of a resumed run determine at its end whether it is partial.
            partial: row.partial && row.paused_from.is_none(),
            // A run that was running when the collector ended may have been aborted already.
            aborted: row
                .reason
                .clone()
                .filter(|_| row.state == RunState::Running),
            stop: row.stop_reason.clone(),
            halted: row.halted,
            failing: None,
            stalled: false,
            known_lost: BTreeSet::new(),
            barred: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            link_speeds: BTreeMap::new(),
            lead: LeadEstimate::default(),
            stage: Stage::Between,
            step: None,
            attempts: 0,
            removing: 0,
            searched: loaded.searched,
            steps: plan.steps,
            left_out: plan.left_out,
            lost_removers: Vec::new(),
            failed_removers: Vec::new(),
            row,
        };
        match refused {
            Some(reason) => run.fail_as_stored(&loaded.tasks, &loaded.directories, reason),
            None => run.begin(&loaded.steps, &loaded.tasks, &loaded.left_out),
        }
        run.advance_stages();
        run
    }

    fn begin(&mut self, rows: &[StepRow], tasks: &[TaskRow], left_out: &BTreeSet<StepId>) {
        let is_queued = self.row.state == RunState::Queued;
        if let (true, Some(reason)) = (is_queued, self.stop.clone()) {
            self.partial = self.row.partial;
            return self.end(RunState::Stopped, Some(reason));
        }
        if !rows.is_empty() && rows.len() != self.steps.len() {
            let reason = format!(
                "the run has {} steps in the database, but this version of benchmesh makes {} steps of its plan: \
                 continue it with the version that started it",
                rows.len(),
                self.steps.len()
            );
            return self.end(RunState::Failed, Some(reason));
        }
        let (run, now) = (self.row.id, self.now);
        self.row.started.get_or_insert(now);
        let paused_from = self.row.paused_from;
        self.row.end_pause(now);
        self.out.rows.push(Row::Run {
            run,
            change: RunChange {
                state: RunState::Running,
                partial: self.partial,
                reason: self.aborted.clone(),
                at: now,
            },
        });
        self.then(Effect::LossAfter(Some(self.policy.loss_after)));
        if let Some(seed) = self.row.order_seed {
            self.show_message(format!("cells run in a random order (seed {seed})"));
        }
        self.show(Show::Began {
            at: self.row.started.unwrap_or(now),
            paused_us: self.row.paused_us,
            steps_done: self.earlier.done + steps_done(rows),
        });
        if rows.is_empty() {
            let loss_after = self.policy.loss_after;
            self.lookup(
                Waiting::Environment,
                Lookup::Environment { run, loss_after },
            );
            self.stage = Stage::Beginning;
            return;
        }
        if let Some(reason) = self.stop.clone() {
            self.show_message_at_once(format!("{STOPPING}{reason}"));
        }
        if is_queued {
            return self.take_up_again(paused_from, left_out);
        }
        if let Some(index) = self.facts.iter().position(StepFacts::is_open) {
            let next = self.resume_step(index, tasks);
            self.follow_all(next);
        }
    }

    /// Stores the environment and the steps in one transaction, so that a run with steps has its environment.
    pub fn on_environment(&mut self, agents: Vec<NewRunAgent>) {
        let run = self.row.id;
        let token = self.wait_for(Waiting::StepsMade {
            range: 0..self.steps.len(),
            only: Vec::new(),
            attempt: 1,
        });
        self.out.made.push(token);
        let otherwise =
            mounted_otherwise(&self.steps, self.agents.members().map(|(_, facts)| facts));
        for sentence in otherwise {
            self.record_event(None, EventKind::TargetNotMounted, sentence);
        }
        for sentence in std::mem::take(&mut self.left_out) {
            self.record_event(None, EventKind::ModeLeftOut, sentence);
        }
        self.out.rows.push(Row::Environment { run, agents });
        self.out.rows.push(Row::Steps {
            run,
            steps: new_steps(self.steps.iter(), 1),
        });
    }

    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over) && !self.waiting.values().any(Waiting::is_cleanup)
    }

    /// Ends stages until one has to wait.
    pub fn advance_stages(&mut self) {
        loop {
            self.act_on_requests();
            self.return_clients();
            let waits = |waiting: &Waiting| waiting.scope() == WaitingScope::Stage;
            let is_held = || self.waiting.values().any(waits) || self.awaits_returns();
            if matches!(self.stage, Stage::Over) || is_held() {
                return;
            }
            self.advance();
        }
    }

    fn advance(&mut self) {
        let next = self.end_stage();
        self.follow_all(next);
    }

    fn follow_all(&mut self, mut next: Option<Next>) {
        while let Some(what) = next {
            next = self.follow(what);
        }
    }

    /// Ends the stage. `None` if the run is in another stage or keeps waiting.
    fn end_stage(&mut self) -> Option<Next> {
        match self.stage.clone() {
            Stage::Beginning | Stage::Between | Stage::RepeatingCell | Stage::CleaningFailed => {
                self.removal_is_over();
                self.next_step();
                None
            }
            Stage::PlanningLoop | Stage::Searching => {
                self.next_step();
                None
            }
            Stage::PausingLoops => {
                self.pause_is_over();
                None
            }
            Stage::LinkSpeeds => self.make_tasks(),
            Stage::MakingTasks => self.open_directories(),
            Stage::Opening(pass) => self.opened(pass),
            Stage::Listening => {
                self.prepare();
                None
            }
            Stage::Preparing => self.prepared(),
            Stage::Settling => Some(Next::DropCaches),
            Stage::SettlingUntilIdle(idle) => {
                self.check_idle(&idle);
                None
            }
            Stage::DroppingCaches(dropping) => self.caches_dropped(dropping),
            Stage::ReadingClocks => Some(Next::FindStep),
            Stage::Arming(arming) => Some(self.armed(arming)),
            Stage::FindingTaskHolders => Some(Self::repeat_after_restart()),
            Stage::Running => Some(self.load_is_over()),
            Stage::Closing(goal) => Some(Next::StoreRows(goal)),
            Stage::StoringRows(goal) => {
                self.read_tasks(goal);
                None
            }
            Stage::ReadingTasks(goal) => {
                self.stage = Stage::Closed(goal);
                None
            }
            Stage::Closed(goal) => self.finish_closing(goal),
            Stage::Cleaning(after) => Some(Next::Finish(after)),
            Stage::Finishing(after) => self.finished(after),
            Stage::Removing(removal) => Some(self.removed(removal)),
            Stage::Over => None,
        }
    }

    /// Carries out the decision of a part. Returns the next decision, if any.
    fn follow(&mut self, next: Next) -> Option<Next> {
        match next {
            Next::FindStep => {
                self.step = None;
                self.stage = Stage::Between;
            }
            Next::Listen => self.listen(),
            Next::Settle => self.settle_storage(),
            Next::DropCaches => return self.drop_caches(),
            Next::Arm => self.begin_arming(),
            Next::StartLoad(start) => self.start_running(start),
            Next::StoreRows(goal) => self.store_rows(goal),
            Next::Close(goal) => self.close(goal),
            Next::Conclude => return self.conclude(),
            Next::RepeatCell { reason } => return self.repeat_cell(&reason),
            Next::Finish(after) => return self.finish(after),
            Next::StopStep { reason } => self.stop_step(&reason),
            Next::FailCell {
                index,
                reason,
                cleaned,
            } => self.fail_cell(index, &reason, cleaned),
            Next::RemoveDirectories => self.remove_directories(None),
            Next::ConcludeRun => self.conclude_run(),
        }
        None
    }

    /// Starts the next step that has not ended, or ends the run after the last one.
    fn next_step(&mut self) {
        self.step = None;
        let open = |facts: &StepFacts| !facts.state.is_end();
        let from = self.facts.get(self.first_open..).unwrap_or_default();
        let next = from.iter().position(open).map(|at| at + self.first_open);
        let goes_on = self.aborted.is_none() && self.stop.is_none();
        if goes_on && self.decide_search(next.unwrap_or(self.facts.len())) {
            return;
        }
        match next {
            Some(index) if goes_on => {
                let new_cell = self.cell(index).start == index;
                if new_cell && self.first_open != index {
                    self.attempts = 0;
                }
                self.first_open = index;
                self.begin_step(index);
            }
            None if goes_on && self.begin_next_loop() => {}
            _ => self.remove_directories(None),
        }
    }

    /// Allows steps from this one on to run again.
    pub fn go_back_to(&mut self, index: usize) {
        self.first_open = self.first_open.min(index);
    }

    /// Duration of the run, without its pauses.
    pub fn elapsed(&self) -> Duration {
        self.row.ran_for(self.now)
    }

    /// The steps of the cell that a step belongs to.
    pub fn cell(&self, index: usize) -> Range<usize> {
        let Some(step) = self.steps.get(index) else {
            return index..index;
        };
        let same = |other: &&PlannedStep| other.cell == step.cell;
        let before = self.steps.get(..index).unwrap_or_default();
        let from = index - before.iter().rev().take_while(same).count();
        let after = self.steps.get(index..).unwrap_or_default();
        from..index + after.iter().take_while(same).count()
    }

    /// The plan of the step under way.
    pub fn active_plan(&self) -> Option<&PlannedStep> {
        self.steps.get(self.step.as_ref()?.index)
    }

    pub fn active_facts(&self) -> Option<&StepFacts> {
        self.facts.get(self.step.as_ref()?.index)
    }

    pub fn live(&self) -> Vec<TaskHandle> {
        let tasks = self.step.as_ref().map(|step| step.tasks.live().collect());
        tasks.unwrap_or_default()
    }

    /// Whether the step may be armed once more.
    pub fn may_arm_again(&self) -> bool {
        let tries = self.step.as_ref().map_or(0, |step| step.arm_try);
        tries + 1 < ARM_TRIES
    }
}

/// The instant `time` after `at`.
pub(super) fn after(at: MeshMicros, time: Duration) -> MeshMicros {
    MeshMicros(at.0.saturating_add(micros(time)))
}

/// The time from one instant to a later one.
pub(super) fn between(from: MeshMicros, to: MeshMicros) -> Duration {
    Duration::from_micros(to.0.saturating_sub(from.0).max(0).unsigned_abs())
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
