//! Admission: checks a plan against the attached agents, and queues or refuses its run before any load starts.

use super::{
    Scheduler,
    agents::{RunAgent, RunAgents},
    machine::event::Event,
    survey,
};
use crate::sessions::{MemberFacts, command::Survey};
use async_recursion::async_recursion as boxed;
use benchmesh_model::kept_data;
use benchmesh_model::mesh::{MeshMicros, RunId, RunState};
use benchmesh_plan::{
    self as plan, AgentFacts, Cancel, Expansion, KeptFacts, Order, Plan, PlanErrors, PlannedStep,
};
use benchmesh_store::{
    StoreError, off_runtime,
    rows::{Creation, NewRun, RunRow},
};
use benchmesh_workloads::figures;
use futures::future::join_all;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// How long to wait for a detached agent that the plan needs.
const RETURN_WITHIN: Duration = Duration::from_secs(10);
/// An agent seen this recently may be only temporarily unreachable.
const AWAY_WITHIN: Duration = Duration::from_secs(15);
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);
const MAX_UID_CHARS: usize = 64;

/// A request to run a plan.
#[derive(Clone, Debug, Default)]
pub struct StartRequest {
    /// Made by the client, so that a repeated request starts one run; empty if the collector makes it.
    pub run_uid: String,
    /// The plan's file name, for messages.
    pub plan_name: String,
    pub plan_text: String,
    /// Wait until this many agents are attached; 0 means the attached ones.
    pub agents: u32,
    pub agents_wait: Duration,
    pub mode: Admission,
    pub new_agents: NewAgents,
    /// Earliest begin; `None` means at once.
    pub due: Option<MeshMicros>,
}

/// Whether a run is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    #[default]
    Queue,
    /// Only check and expand the plan.
    DryRun,
}

/// Whether a plan that selects no agents includes those that have never been in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewAgents {
    #[default]
    LeftOut,
    Taken,
}

/// A run that was queued, or would be in a dry run.
#[derive(Clone, Debug)]
pub struct Started {
    /// `None` in a dry run.
    pub run: Option<RunId>,
    pub uid: String,
    pub known: bool,
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
    /// Held while the steps are in memory; `None` if they were not expanded.
    pub room: Option<Arc<OwnedSemaphorePermit>>,
}

/// A plan, the agents that it was checked against, its steps, and their memory permit.
type Planned = (Plan, RunAgents, Expansion, Room);

/// Cancels the work for a request when the request is answered or its caller has left.
#[derive(Debug, Default)]
struct Caller(Cancel);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Why no run was made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "the run's uid `{uid}` is invalid: use 1 to {MAX_UID_CHARS} letters, digits, `-`, `_` and `.`, and no leading \
         `data-`"
    )]
    BadUid { uid: String },
    #[error(transparent)]
    Plan(PlanErrors),
    #[error(
        "the run needs {wanted} agents, but after {waited_s} s only {} {} attached{}: start the missing ones, wait \
         longer, or ask for fewer",
        there.len(),
        if there.len() == 1 { "is" } else { "are" },
        if there.is_empty() { String::new() } else { format!(" ({})", there.join(", ")) }
    )]
    AgentsMissing {
        wanted: u32,
        waited_s: u64,
        there: Vec<String>,
    },
    #[error(
        "the plan does not fit the attached agents, and {} {} briefly unreachable: wait for {}, or see \
         `benchmesh agents`",
        away.join(", "),
        if away.len() == 1 { "is" } else { "are" },
        if away.len() == 1 { "it" } else { "them" }
    )]
    AgentsAway {
        away: Vec<String>,
        #[source]
        source: PlanErrors,
    },
    #[error(
        "the run needs {wanted} agents, but the plan takes only {taken}, because {} {} been in no run yet: include new \
         agents with --new-agents, or name them in [clients]",
        new.join(", "),
        if new.len() == 1 { "has" } else { "have" }
    )]
    AgentsNew {
        wanted: u32,
        taken: usize,
        new: Vec<String>,
    },
    #[error("the collector could not store the plan")]
    Store { source: StoreError },
}

/// Refuses a plan that takes fewer agents than requested because some of them are new.
fn check_count(wanted: u32, agents: &RunAgents, expansion: &Expansion) -> Result<(), StartError> {
    let tasks = expansion.steps.iter().flat_map(|step| step.tasks.iter());
    let taken: BTreeSet<&str> = tasks.map(|task| task.agent.as_str()).collect();
    let new: Vec<String> = agents
        .members()
        .filter(|(_, facts)| facts.is_new && !taken.contains(facts.name.as_str()))
        .map(|(_, facts)| format!("`{}`", facts.name))
        .collect();
    if new.is_empty() || taken.len() >= usize::try_from(wanted).unwrap_or(usize::MAX) {
        return Ok(());
    }
    Err(StartError::AgentsNew {
        wanted,
        taken: taken.len(),
        new,
    })
}

/// The message for watchers of a run until its scheduled time.
pub(super) fn waits_until(run: RunId, due: MeshMicros) -> String {
    format!("run {run} waits until {}", figures::instant(due.0))
}

fn store(source: StoreError) -> StartError {
    StartError::Store { source }
}

impl Scheduler {
    /// Checks a plan against the mesh and queues it.
    #[boxed]
    #[inline(never)]
    pub async fn start(&self, request: StartRequest) -> Result<Started, StartError> {
        let uid = if request.run_uid.is_empty() {
            uuid::Uuid::new_v4().simple().to_string()
        } else {
            request.run_uid.clone()
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_of_data = kept_data::name_of(&uid).is_some();
        if uid.len() > MAX_UID_CHARS || uid.starts_with('.') || is_of_data || !uid.chars().all(fits)
        {
            return Err(StartError::BadUid { uid });
        }
        if request.mode == Admission::Queue
            && let Some(started) = self.known(&uid).await?
        {
            return Ok(started);
        }
        let caller = Caller::default();
        let mut plan = self.parsed(&request, &caller.0).await?;
        plan.order = plan.order.drawn(drawn_seed);
        self.wait_for_agents(request.agents, request.agents_wait)
            .await?;
        let (plan, agents, expansion, room) =
            self.planned_for_agents(plan, request.new_agents).await?;
        check_count(request.agents, &agents, &expansion)?;
        if request.mode == Admission::DryRun {
            return Ok(Started {
                run: None,
                uid,
                known: false,
                steps: expansion.steps,
                warnings: expansion.warnings,
                room,
            });
        }
        let started = self.queue(uid, &request, &plan, &agents, expansion).await?;
        Ok(Started { room, ..started })
    }

    /// Reads a plan, one at a time: what one plan takes is bounded. The work keeps its turn until it has ended.
    async fn parsed(&self, request: &StartRequest, cancel: &Cancel) -> Result<Plan, StartError> {
        let turn = Arc::clone(&self.0.parsing).acquire_owned().await;
        let (text, name) = (request.plan_text.clone(), request.plan_name.clone());
        let cancel = cancel.clone();
        let parsed = off_runtime(move || {
            let _turn = turn;
            plan::parse_for(&text, &name, &cancel)
        });
        parsed.await.map_err(StartError::Plan)
    }

    /// Checks a plan against the agents. If it does not fit, waits for agents that were attached a moment ago, or that
    /// do not answer.
    async fn planned_for_agents(
        &self,
        plan: Plan,
        new_agents: NewAgents,
    ) -> Result<Planned, StartError> {
        let until = Instant::now() + RETURN_WITHIN;
        let mut changes = self.0.fleet.changes();
        loop {
            let kept = self.0.store.kept_data().await.map_err(store)?;
            let kept = kept.into_iter().map(|set| set.facts).collect();
            let agents = self.survey(&plan, new_agents).await?;
            let facts = agents.facts();
            let room = Arc::clone(&self.0.expansions).acquire_owned().await;
            let room = room.ok().map(Arc::new);
            let members: Vec<MemberFacts> = self.attached().collect();
            let source = match planned(plan.clone(), facts, kept, members, room).await {
                Ok((plan, expansion, room)) => return Ok((plan, agents, expansion, room)),
                Err(StartError::Plan(errors)) => errors,
                Err(error) => return Err(error),
            };
            let away = self.away(&agents);
            if away.is_empty() {
                return Err(StartError::Plan(source));
            }
            if timeout_at(until, changes.changed()).await.is_err() {
                return Err(StartError::AgentsAway { away, source });
            }
        }
    }

    /// The agents that gave no answer, and those that detached so recently that they may be only temporarily
    /// unreachable.
    fn away(&self, asked: &RunAgents) -> Vec<String> {
        let silent = asked
            .members()
            .filter(|(_, facts)| !facts.survey_failed.is_empty())
            .map(|(_, facts)| facts.name.clone());
        let now = self.0.clock.now();
        let left = self.0.fleet.members().into_iter().filter_map(|member| {
            let away_us = now.0.saturating_sub(member.last_seen.0);
            let is_late = away_us < i64::try_from(AWAY_WITHIN.as_micros()).unwrap_or(i64::MAX);
            (!member.attached && is_late).then(|| member.hello.name.clone())
        });
        silent.chain(left).collect()
    }

    async fn queue(
        &self,
        uid: String,
        request: &StartRequest,
        plan: &Plan,
        agents: &RunAgents,
        expansion: Expansion,
    ) -> Result<Started, StartError> {
        self.refuse_while_blocked("nothing is started")
            .map_err(store)?;
        let new = NewRun {
            uid: uid.clone(),
            name: plan.name.clone(),
            plan_text: request.plan_text.clone(),
            agents_json: agents.to_json(),
            order_seed: plan.order.seed(),
            created: self.0.clock.now(),
            due: request.due,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (run, known) = self.0.store.create_run(new).await.map_err(store)?;
        let row = self.0.store.run(run).await.map_err(store)?;
        let progress = self.0.progress.open(&row);
        progress.set_size(expansion.steps.len(), plan.loops);
        let now = self.0.clock.now();
        if let Some(due) = row.due.filter(|due| *due > now) {
            progress.show_message(waits_until(run, due));
        } else if known == Creation::New {
            self.show_what_it_waits_for(&row).await.map_err(store)?;
        }
        self.request(Event::Queued).await;
        Ok(Started {
            run: Some(run),
            uid,
            known: known == Creation::Existing,
            steps: expansion.steps,
            warnings: expansion.warnings,
            room: None,
        })
    }

    /// Shows which run is before a queued one, if any.
    pub(super) async fn show_what_it_waits_for(&self, row: &RunRow) -> Result<(), StoreError> {
        let (run, now) = (row.id, self.0.clock.now());
        let unfinished = self.0.store.unfinished_runs().await?;
        let is_before = |before: &&RunRow| {
            before.state == RunState::Running || before.id < run && before.is_due(now)
        };
        let before = unfinished.iter().filter(|before| before.id != run);
        if let (Some(before), Some(progress)) =
            (before.rev().find(is_before), self.0.progress.run(run))
        {
            progress.show_message(format!(
                "run {run} waits for run {}, `{}`",
                before.id, before.name
            ));
        }
        Ok(())
    }

    /// The run that this uid already made.
    async fn known(&self, uid: &str) -> Result<Option<Started>, StartError> {
        let row = match self.0.store.find_run(uid).await {
            Ok(row) if row.uid == uid => row,
            Ok(_) | Err(StoreError::NoSuch { .. }) => return Ok(None),
            Err(error) => return Err(store(error)),
        };
        let (row, expanded) = off_runtime(move || {
            let expanded = expanded(&row, 1);
            (row, expanded)
        })
        .await;
        let steps = expanded
            .map(|(_, _, expansion)| expansion.steps)
            .unwrap_or_default();
        Ok(Some(Started {
            run: Some(row.id),
            uid: row.uid,
            known: true,
            steps,
            warnings: Vec::new(),
            room: None,
        }))
    }

    async fn wait_for_agents(&self, wanted: u32, wait: Duration) -> Result<(), StartError> {
        let began = Instant::now();
        let until = began + wait.min(MAX_WAIT);
        let mut changes = self.0.fleet.changes();
        loop {
            let there: Vec<String> = self
                .attached()
                .map(|member| member.hello.name.clone())
                .collect();
            if u32::try_from(there.len()).unwrap_or(u32::MAX) >= wanted {
                return Ok(());
            }
            if timeout_at(until, changes.changed()).await.is_err() {
                return Err(StartError::AgentsMissing {
                    wanted,
                    waited_s: began.elapsed().as_secs(),
                    there,
                });
            }
        }
    }

    fn attached(&self) -> impl Iterator<Item = MemberFacts> + use<> {
        self.0
            .fleet
            .members()
            .into_iter()
            .filter(|member| member.attached)
    }

    /// Surveys the plan's paths on every attached agent.
    async fn survey(&self, plan: &Plan, new_agents: NewAgents) -> Result<RunAgents, StartError> {
        let attached = self.attached().map(|member| member.id).collect();
        let new = match new_agents {
            NewAgents::Taken => Vec::new(),
            NewAgents::LeftOut => self.0.store.new_agents(attached).await.map_err(store)?,
        };
        let new = &new;
        let paths = plan.target_paths();
        let sources: Vec<String> = plan.sources().into_iter().collect();
        let asked = self.attached().map(|member| {
            let (paths, sources) = (paths.clone(), sources.clone());
            async move {
                let survey = match paths.is_empty() {
                    true => Ok(None),
                    false => {
                        let within = survey::WITHIN;
                        let fleet = &self.0.fleet;
                        survey::ask(fleet, member.id, paths, sources, within)
                            .await
                            .map(Some)
                    }
                };
                RunAgent {
                    id: member.id,
                    uid: member.hello.uid.clone(),
                    facts: AgentFacts {
                        is_new: new.contains(&member.id),
                        ..facts(&member, survey)
                    },
                }
            }
        });
        Ok(RunAgents::new(join_all(asked).await))
    }
}

/// The permit to have a plan's steps in memory.
type Room = Option<Arc<OwnedSemaphorePermit>>;

/// Plans the steps, off the runtime, and checks them against the agents' policies and facts. The work holds `room` until
/// it has ended, also if its caller has left.
async fn planned(
    plan: Plan,
    facts: Vec<AgentFacts>,
    kept: Vec<KeptFacts>,
    members: Vec<MemberFacts>,
    room: Room,
) -> Result<(Plan, Expansion, Room), StartError> {
    off_runtime(move || {
        let mut expansion = plan::expand(&plan, &facts).map_err(StartError::Plan)?;
        plan::check_kept(&plan, &mut expansion, &kept).map_err(StartError::Plan)?;
        plan::check_limits(&plan, &expansion, &facts).map_err(StartError::Plan)?;
        check_links(&members, &plan, &expansion)?;
        Ok((plan, expansion, room))
    })
    .await
}

/// Refuses links to a receiver without an address that other hosts can reach, and those that a policy forbids.
fn check_links(
    members: &[MemberFacts],
    plan: &Plan,
    expansion: &Expansion,
) -> Result<(), StartError> {
    let find = |name: &str| members.iter().find(|member| member.hello.name == name);
    let unreachable = expansion.steps.iter().find_map(|step| {
        step.tasks.iter().find_map(|task| {
            let (from, to) = (find(&task.agent)?, find(task.peer.as_deref()?)?);
            let loopback = to
                .address
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
            (loopback && from.hello.boot_id != to.hello.boot_id).then_some((step, from, to))
        })
    });
    let forbidden = expansion.steps.iter().find_map(|step| {
            step.tasks.iter().find_map(|task| {
                let (from, to) = (find(&task.agent)?, find(task.peer.as_deref()?)?);
                let forbids = |one: &MemberFacts, other: &MemberFacts| {
                    let address = other.address.parse().ok()?;
                    let policy = one.hello.policy.as_ref()?;
                    (!policy.allows_peer(address)).then(|| {
                        format!(
                            "agent `{}` does not allow a link with agent `{}` at {address}: its `allow-network` is {}",
                            one.hello.name,
                            other.hello.name,
                            policy.networks.join(",")
                        )
                    })
                };
                Some((step, forbids(from, to).or_else(|| forbids(to, from))?))
            })
        });
    if let Some((step, reason)) = forbidden {
        let remedy =
            "start it with --allow-network and the network of the other, or leave one of them out";
        return Err(StartError::Plan(plan.refuse(
            step,
            reason,
            remedy.to_owned(),
        )));
    }
    match unreachable {
        None => Ok(()),
        Some((step, from, to)) => Err(StartError::Plan(plan.refuse(
            step,
            format!(
                "agent `{}` on another host cannot reach agent `{}`, whose only known address is {}",
                from.hello.name, to.hello.name, to.address
            ),
            format!(
                "start `{}` with --advertise and its address in the network under test",
                to.hello.name
            ),
        ))),
    }
}

/// The facts of a member that the expansion needs.
fn facts(member: &MemberFacts, survey: Result<Option<Survey>, String>) -> AgentFacts {
    let mut facts = AgentFacts {
        name: member.hello.name.clone(),
        labels: member.hello.labels.clone(),
        allowed: member.hello.allowed.clone(),
        workloads: member.hello.workloads.clone(),
        policy: member.hello.policy.clone(),
        host: member.hello.host_key(),
        memory_bytes: u64::try_from(member.hello.memory_bytes).unwrap_or(0),
        ..AgentFacts::default()
    };
    match survey {
        Ok(Some(survey)) => {
            facts.surveyed = survey.paths.into_iter().collect();
            facts.sources = survey.sources.into_iter().collect();
            facts.scratch_free_bytes = survey.scratch_free_bytes;
            facts.has_no_scratch = survey.scratch_free_bytes.is_none();
            facts.link_bytes_per_s = survey.link_bytes_per_s;
        }
        Ok(None) => {}
        Err(problem) => facts.survey_failed = problem,
    }
    facts
}

/// A random seed, from the random bits of a new uuid.
fn drawn_seed() -> u32 {
    let (seed, ..) = uuid::Uuid::new_v4().as_fields();
    seed
}

/// A stored run's plan and agents, and its steps in one loop.
pub(super) fn expanded(
    row: &RunRow,
    loop_number: u32,
) -> Result<(Plan, RunAgents, Expansion), String> {
    let mut plan = plan::parse(&row.plan_text, &row.name).map_err(|error| error.to_string())?;
    if let Some(seed) = row.order_seed {
        plan.order = Order::Random { seed: Some(seed) };
    }
    let agents = RunAgents::from_json(&row.agents_json)
        .map_err(|error| format!("cannot read the stored agents of the run: {error}"))?;
    let expansion = plan::expand_loop(&plan, &agents.facts(), loop_number)
        .map_err(|error| error.to_string())?;
    Ok((plan, agents, expansion))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_testing::beats_meanwhile;

    #[tokio::test]
    async fn planning_ends_with_its_caller() {
        let text = "repeat = 1000\n[[phase]]\nworkload = \"null\"\nops = 1\n";
        let caller = Caller::default();
        let plan = plan::parse_for(text, "p.toml", &caller.0).unwrap();
        let facts = plan::assumed_agents(&plan, 3);
        let planned_now = || planned(plan.clone(), facts.clone(), Vec::new(), Vec::new(), None);
        assert!(planned_now().await.is_ok());
        drop(caller);
        let error = planned_now().await.unwrap_err().to_string();
        assert!(error.contains("cancelled"), "{error}");
    }

    /// On a runtime with one thread, a heartbeat continues while many steps are planned.
    #[tokio::test]
    async fn planning_leaves_the_runtime_to_others() {
        let text = "repeat = 1000\n[[phase]]\nworkload = \"null\"\nops = 1\n\
                    matrix = { numjobs = [1, 2, 3, 4] }\n";
        let plan = plan::parse(text, "p.toml").unwrap();
        let facts = plan::assumed_agents(&plan, 3);
        let (planned, beats) =
            beats_meanwhile(planned(plan, facts, Vec::new(), Vec::new(), None)).await;
        let (_, expansion, _) = planned.unwrap();
        assert_eq!(expansion.steps.len(), 4000);
        assert!(beats > 0, "nothing else ran meanwhile");
    }
}
