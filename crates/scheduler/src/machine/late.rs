//! Agents that hold up a step: one whose preparation takes far longer than the others', one that never confirms its
//! start, one that cannot prepare. Each becomes a lost agent, and `on-loss` decides whether the step continues.
//!
//! A late agent is excluded from the rest of the run, because it could hold up each further step as long. The limits
//! leave room for the slowest storage worth testing. They do not depend on the progress that agents report.

use super::{
    loss::{Decided, LossVerdict, apply_policy},
    run::{Run, after, between},
    stage::Stage,
    step::Refusals,
    tasks::{TaskHandle, TaskSet},
    waiting::Waiting,
};
use crate::sessions::command::{CallError, RefusalKind};
use benchmesh_model::events::EventKind;
use benchmesh_model::limits::Limit;
use benchmesh_model::mesh::{AgentId, MeshMicros};
use benchmesh_plan::PlannedLoad;
use benchmesh_workloads::{registry, units::Span, workload::Needs};
use std::{collections::BTreeSet, time::Duration};

/// Once half of a step's agents are ready, the others have at least this long from the beginning, ...
const LATE_AFTER: Duration = Duration::from_secs(30 * 60);
/// ... or this many times the duration of that half, ...
const LATE_FACTOR: u32 = 10;
/// ... or the time for their own data at this speed (capped at half of the agent's `rate`), ...
const SLOWEST_BYTES_PER_S: u64 = 1 << 20;
/// ... and for their files at this one.
const SLOWEST_FILES_PER_S: u64 = 20;
/// While less than half are ready, all agents have this long, ...
const ALL_LATE_AFTER: Duration = Duration::from_secs(24 * 3600);
/// ... and this many times the time for their data.
const ALL_LATE_FACTOR: u32 = 4;
/// How often an agent may leave a start unconfirmed that another agent confirmed. Lower than the number of times that a
/// step is armed, or a cell attempted.
const MAX_UNCONFIRMED: u32 = 5;

impl Run {
    /// Watches the agents that are not ready: when this timer is due, the next one is late.
    pub(super) fn watch_preparation(&mut self) {
        self.cancel(|waiting| matches!(waiting, Waiting::PreparationDue));
        let due = self.unready().into_iter().map(|agent| self.late_at(agent));
        if let Some(at) = due.min() {
            self.wait_until(Waiting::PreparationDue, at);
        }
    }

    /// Notes that an agent is ready or lost, which may complete the faster half.
    pub(super) fn note_ready(&mut self) {
        if !matches!(self.stage, Stage::Preparing) {
            return;
        }
        let live: BTreeSet<AgentId> = self.live().iter().map(|task| task.agent).collect();
        let ready = live.len().saturating_sub(self.unready().len());
        let now = self.now;
        let Some(step) = &mut self.step else { return };
        if step.half_ready.is_none() && ready > 0 && ready * 2 >= live.len() {
            step.half_ready = Some(between(step.preparing_since, now));
            self.watch_preparation();
        }
    }

    pub(super) fn on_preparation_due(&mut self) {
        for agent in self.unready() {
            if self.late_at(agent) <= self.now {
                let since = self.step.as_ref().map(|step| step.preparing_since);
                let took = between(since.unwrap_or(self.now), self.now);
                let why = format!(
                    "agent `{}` has not prepared its task within {}",
                    self.agents.name(agent),
                    Span(took)
                );
                self.bar(agent, &why);
            }
        }
        self.watch_preparation();
    }

    /// The agents with a task that is still being prepared.
    fn unready(&self) -> BTreeSet<AgentId> {
        let preparing = self.waiting.values().filter_map(|waiting| match waiting {
            Waiting::Prepared { task } => Some(task.agent),
            _ => None,
        });
        preparing.collect()
    }

    fn late_at(&self, agent: AgentId) -> MeshMicros {
        let Some(step) = &self.step else {
            return self.now;
        };
        let limit = match (step.half_ready, self.slowest_layout(agent)) {
            (Some(took), Some(data)) => LATE_AFTER.max(took.saturating_mul(LATE_FACTOR)).max(data),
            (_, data) => {
                let data = data.unwrap_or_default();
                ALL_LATE_AFTER.saturating_add(data.saturating_mul(ALL_LATE_FACTOR))
            }
        };
        after(step.preparing_since, limit)
    }

    /// Maximum time an agent takes for the data of its tasks: to write them, and to read them once. `None` if the plan
    /// does not give the amount, as with a share of the target, or with the agent's own files.
    fn slowest_layout(&self, agent: AgentId) -> Option<Duration> {
        let tasks = self.live().into_iter().filter(|task| task.agent == agent);
        let loads: Vec<_> = tasks.filter_map(|task| self.load_of(task)).collect();
        let is_unknown = |load: &&PlannedLoad| {
            let needs = registry::find(&load.workload).map(|workload| workload.needs());
            needs == Some(Needs::Target) && load.footprint.bytes == 0
        };
        if loads.iter().any(is_unknown) {
            return None;
        }
        let footprints = loads.into_iter().map(|load| load.footprint);
        let (bytes, files) = footprints.fold((0_u64, 0_u64), |(bytes, files), of| {
            let all = [of.bytes, of.scratch_bytes, of.moved_bytes];
            let bytes = all.into_iter().fold(bytes, u64::saturating_add);
            (bytes, files.saturating_add(of.files))
        });
        let facts = self.agents.facts_of(agent);
        let rate = facts
            .and_then(|facts| facts.policy.as_ref())
            .and_then(|policy| policy.limits.amount(Limit::Rate))
            .map(|rate| rate / 2)
            .filter(|rate| *rate > 0);
        let speed = rate.map_or(SLOWEST_BYTES_PER_S, |rate| rate.min(SLOWEST_BYTES_PER_S));
        Some(Duration::from_secs(
            bytes / speed + files / SLOWEST_FILES_PER_S,
        ))
    }

    /// Marks an agent as lost for the rest of the run.
    pub(super) fn bar(&mut self, agent: AgentId, why: &str) {
        let why = format!("{why}; it takes no part in the rest of the run");
        self.lose(agent, &why);
        self.barred.insert(agent, why);
    }

    /// Loses the tasks of barred agents as soon as a step's tasks are made.
    pub(super) fn lose_barred(&mut self) {
        for (agent, why) in self.barred.clone() {
            self.lose(agent, &why);
        }
    }

    /// Counts the agents that did not confirm a start that another one confirmed, and loses those over the limit.
    pub(super) fn count_unconfirmed(&mut self, unconfirmed: &BTreeSet<AgentId>, late: &str) {
        for agent in unconfirmed {
            let times = self.unconfirmed.entry(*agent).or_insert(0);
            *times += 1;
            if *times < MAX_UNCONFIRMED {
                continue;
            }
            let why = format!(
                "agent `{}` has not confirmed its start {times} times, and others have: {late}",
                self.agents.name(*agent)
            );
            self.bar(*agent, &why);
            // The others begin without it.
            self.attempts = 0;
            if let Some(step) = &mut self.step {
                step.arm_try = 0;
            }
        }
    }

    /// Handles an agent that cannot prepare its tasks. If others can, it is lost to the step, unless `on-loss` requires
    /// it. Otherwise the step fails.
    pub(super) fn refused(&mut self, agent: AgentId, error: &CallError) {
        let is_of = |task: &TaskHandle| task.agent == agent || task.peer == Some(agent);
        let unsupported = matches!(error.refusal(), Some(RefusalKind::Unsupported))
            && matches!(self.stage, Stage::Preparing);
        self.lose_refused(agent, is_of, error.to_string(), unsupported);
    }

    /// Handles a link that cannot be opened although both of its ends are attached.
    pub(super) fn refused_link(&mut self, link: TaskHandle, refusal: String) {
        self.lose_refused(link.agent, |task| task.task == link.task, refusal, false);
    }

    fn lose_refused(
        &mut self,
        agent: AgentId,
        is_lost: impl Fn(&TaskHandle) -> bool,
        why: String,
        unsupported: bool,
    ) {
        let on_loss = self.policy.on_loss;
        let Some(step) = &mut self.step else { return };
        let refusals = step.refusals.get_or_insert_with(|| Refusals {
            reason: why.clone(),
            all_unsupported: true,
        });
        refusals.all_unsupported &= unsupported;
        let (left, all) = (step.tasks.agents_left_but(&is_lost), step.tasks.agents());
        let goes_on = left > 0 && apply_policy(on_loss, left, all, &why) == LossVerdict::GoOn;
        if !goes_on {
            step.unsupported = refusals.all_unsupported && self.failing.is_none();
            let reason = refusals.reason.clone();
            self.failing.get_or_insert(reason);
            return;
        }
        let lost = step.tasks.lose_those(&why, is_lost);
        if lost.is_empty() {
            return;
        }
        self.partial = true;
        self.remove_lost(lost, &why);
        let left = self
            .step
            .as_ref()
            .map_or(0, |step| TaskSet::agents_left(&step.tasks));
        let decided = Decided {
            verdict: LossVerdict::GoOn,
            left,
        };
        self.record_loss(agent, EventKind::PrepareFailed, &why, &decided);
    }
}
