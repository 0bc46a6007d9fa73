//! From a plan and the attached agents to the steps, in their order: repeat, phase, matrix cell, target, mode.
//!
//! Pure: the same plan and agents give the same steps, whatever order the agents are given in.

use super::{
    Cache, Pairs, Phase, Plan, Target,
    cells::Cell,
    select::{Selected, Selector},
    source::{Mistakes, Spot, listed},
};
use benchmesh_workloads::{
    params::nearest,
    workload::{Footprint, Needs},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

/// More steps than this are a slip of the pen, not a plan.
const MAX_STEPS: usize = 100_000;

/// What expansion has to know of an attached agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Canonical paths that it works under.
    pub allowed: Vec<PathBuf>,
    /// Workload name -> revision.
    pub workloads: BTreeMap<String, u32>,
    /// Agents with equal values share a kernel.
    pub host: String,
    /// What the agent itself said of the targets' paths; a path that is missing here is judged by `allowed`.
    pub surveyed: BTreeMap<String, PathFacts>,
    /// Room for the sources of copies; `None`: not asked.
    pub scratch_free_bytes: Option<u64>,
    /// Why it did not say anything of the paths; empty: it did, or was not asked.
    pub survey_failed: String,
}

/// What an agent said of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFacts {
    pub allowed: bool,
    /// Empty: usable.
    pub problem: String,
    pub free_bytes: u64,
    /// `None`: the file system has no such limit.
    pub free_files: Option<u64>,
    /// Its type, as in /proc/self/mountinfo.
    pub file_system: String,
    /// Identifies the mounted file system within the host.
    pub device: String,
}

/// The steps of a plan on given agents, in the order in which they will run.
#[derive(Clone, Debug)]
pub struct Expansion {
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
}

/// One step to come.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// From 1, over the whole run.
    pub ordinal: u32,
    /// From 1.
    pub repeat: u32,
    pub phase: String,
    /// Steps with equal numbers are the modes of one cell, which owns its data; from 0, over the whole run.
    pub cell: usize,
    /// The cell's directory within the run's.
    pub cell_name: String,
    /// The target's name; empty for workloads without one, as are system and path.
    pub target: String,
    pub system: String,
    pub path: String,
    pub workload: String,
    pub mode: String,
    pub cache: Cache,
    pub settle: Duration,
    pub params: Map<String, Value>,
    /// In the order of their index; agents by name.
    pub tasks: Vec<PlannedTask>,
    /// What each task takes.
    pub footprint: Footprint,
    /// To be moved by all tasks; 0: bounded by time alone.
    pub moved_bytes: u64,
    /// Of all tasks.
    pub files: u64,
    /// `None`: not bounded by time.
    pub expected: Option<Duration>,
    pub(crate) at: Spot,
}

/// One task of a step to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    pub agent: String,
    /// network: the receiving agent.
    pub peer: Option<String>,
}

impl PlannedStep {
    /// For messages: what is measured where.
    pub fn title(&self) -> String {
        let mut title = format!("step {} ({} {}", self.ordinal, self.phase, self.mode);
        if !self.target.is_empty() {
            title.push_str(" on ");
            title.push_str(&self.target);
        }
        title.push(')');
        title
    }

    /// network: "from -> to"; several pairs in a row.
    pub fn link(&self) -> String {
        let links: Vec<String> = self
            .tasks
            .iter()
            .filter_map(|task| Some(format!("{} -> {}", task.agent, task.peer.as_deref()?)))
            .collect();
        match links.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        }
    }

    /// The directory of the cell in its `attempt`th attempt: a new attempt never meets the data of an earlier one.
    pub fn directory(&self, attempt: u32) -> String {
        match attempt {
            0 | 1 => self.cell_name.clone(),
            _ => format!("{}-a{attempt}", self.cell_name),
        }
    }

    /// The agents that carry load in it, by name.
    pub fn agents(&self) -> BTreeSet<&str> {
        self.tasks.iter().map(|task| task.agent.as_str()).collect()
    }
}

pub(super) fn expand(plan: &Plan, agents: &[AgentFacts], mistakes: &mut Mistakes<'_>) -> Expansion {
    let mut fleet: Vec<&AgentFacts> = agents.iter().collect();
    fleet.sort_by(|a, b| a.name.cmp(&b.name));
    let mut expansion = Expansion {
        steps: Vec::new(),
        warnings: unused_targets(plan),
    };
    if fleet.is_empty() {
        mistakes.whole(
            "no agent is attached",
            "start one on each client: benchmesh agent --collector ADDR --allow PATH",
        );
        return expansion;
    }
    let size: usize = plan
        .phases
        .iter()
        .map(|phase| phase.cells.len() * phase.targets.len().max(1) * phase.modes.len())
        .sum::<usize>()
        .saturating_mul(usize::try_from(plan.repeat).unwrap_or(usize::MAX));
    if size > MAX_STEPS {
        mistakes.whole(
            format!("the plan expands to {size} steps; at most {MAX_STEPS} are run"),
            "shorten the matrices or repeat less",
        );
        return expansion;
    }
    let mut cell_number = 0;
    for repeat in 1..=plan.repeat {
        for (phase_index, phase) in plan.phases.iter().enumerate() {
            for (cell_index, cell) in phase.cells.iter().enumerate() {
                let targets: Vec<Option<&Target>> = if phase.workload.0.needs() == Needs::Target {
                    phase
                        .targets
                        .iter()
                        .map(|index| plan.targets.get(*index))
                        .collect()
                } else {
                    vec![None]
                };
                for (target_index, target) in targets.into_iter().enumerate() {
                    let place = CellPlace {
                        repeat,
                        number: cell_number,
                        name: format!(
                            "r{repeat}-p{}-c{}-t{}",
                            phase_index + 1,
                            cell_index + 1,
                            target_index + 1
                        ),
                    };
                    cell_number += 1;
                    let teams = teams(plan, phase, cell, target, &fleet, mistakes);
                    add_steps(&mut expansion.steps, phase, cell, target, &place, &teams);
                }
            }
        }
    }
    expansion
}

/// Where a cell stands in the run.
struct CellPlace {
    repeat: u32,
    number: usize,
    name: String,
}

fn add_steps(
    steps: &mut Vec<PlannedStep>,
    phase: &Phase,
    cell: &Cell,
    target: Option<&Target>,
    place: &CellPlace,
    teams: &[Vec<PlannedTask>],
) {
    for (mode, footprint) in phase.modes.iter().zip(&cell.footprints) {
        for tasks in teams {
            let count = u64::try_from(tasks.len()).unwrap_or(u64::MAX);
            steps.push(PlannedStep {
                ordinal: u32::try_from(steps.len() + 1).unwrap_or(u32::MAX),
                repeat: place.repeat,
                phase: phase.name.clone(),
                cell: place.number,
                cell_name: place.name.clone(),
                target: target.map_or_else(String::new, |target| target.name.clone()),
                system: target.map_or_else(String::new, |target| target.system.clone()),
                path: target.map_or_else(String::new, |target| target.path.clone()),
                workload: phase.workload.0.name().to_owned(),
                mode: mode.clone(),
                cache: phase.cache,
                settle: phase.settle,
                params: cell.params.clone(),
                tasks: tasks.clone(),
                moved_bytes: match footprint.runtime {
                    None => footprint.moved_bytes.saturating_mul(count),
                    Some(_) => 0,
                },
                files: footprint.files.saturating_mul(count),
                expected: footprint.runtime,
                footprint: *footprint,
                at: phase.at.clone(),
            });
        }
    }
}

fn unused_targets(plan: &Plan) -> Vec<String> {
    plan.targets
        .iter()
        .enumerate()
        .filter(|(index, _)| {
            !plan
                .phases
                .iter()
                .any(|phase| phase.targets.contains(index))
        })
        .map(|(_, target)| format!("no phase measures target `{}`", target.name))
        .collect()
}

/// The tasks of each step of a cell's mode: one team, or one per ordered pair.
fn teams(
    plan: &Plan,
    phase: &Phase,
    cell: &Cell,
    target: Option<&Target>,
    fleet: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<PlannedTask>> {
    let copies = usize::try_from(cell.tasks_per_agent).unwrap_or(1);
    if phase.workload.0.needs() != Needs::Peer {
        let team = clients(plan, phase, cell, target, fleet, mistakes)
            .iter()
            .flat_map(|agent| std::iter::repeat_n(*agent, copies))
            .map(|agent| PlannedTask {
                agent: agent.name.clone(),
                peer: None,
            })
            .collect();
        return vec![team];
    }
    let senders = match &phase.from {
        Some(selected) => capable(phase, chosen(selected, fleet, mistakes), mistakes),
        None => clients(plan, phase, cell, target, fleet, mistakes),
    };
    let receivers = match &phase.to {
        Some(selected) => capable(phase, chosen(selected, fleet, mistakes), mistakes),
        None => clients(plan, phase, cell, target, fleet, mistakes),
    };
    let pairs: Vec<PlannedTask> = senders
        .iter()
        .flat_map(|from| receivers.iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.name != to.name)
        .map(|(from, to)| PlannedTask {
            agent: from.name.clone(),
            peer: Some(to.name.clone()),
        })
        .collect();
    if pairs.is_empty() && !senders.is_empty() && !receivers.is_empty() {
        mistakes.at(
            &phase.at,
            format!(
                "{} needs two different agents, and there is only `{}`",
                phase.workload.0.name(),
                senders
                    .iter()
                    .map(|agent| agent.name.as_str())
                    .next()
                    .unwrap_or_default()
            ),
            "attach another agent, or choose others with from and to",
        );
    }
    let copied = |pair: PlannedTask| std::iter::repeat_n(pair, copies);
    match phase.pairs {
        Pairs::All => vec![pairs.into_iter().flat_map(copied).collect()],
        Pairs::Each => pairs
            .into_iter()
            .map(|pair| copied(pair).collect())
            .collect(),
    }
}

/// The agents that carry a cell's load, by name.
fn clients<'f>(
    plan: &Plan,
    phase: &Phase,
    cell: &Cell,
    target: Option<&Target>,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let selected = match (&plan.clients, target) {
        (Some(selected), _) => chosen(selected, fleet, mistakes),
        (None, Some(target)) => allowing(target, fleet, mistakes),
        (None, None) => fleet.to_vec(),
    };
    if let Some(target) = target {
        usable(target, &selected, mistakes);
    }
    let mut selected = capable(phase, selected, mistakes);
    if let Some(wanted) = cell.clients {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if wanted > selected.len() && !selected.is_empty() {
            let spot = cell.clients_at.as_ref().unwrap_or(&phase.at);
            mistakes.at(
                spot,
                format!(
                    "clients = {wanted}, but {} selected: {}",
                    match selected.len() {
                        1 => String::from("1 agent is"),
                        n => format!("{n} agents are"),
                    },
                    listed(selected.iter().map(|agent| agent.name.as_str())),
                ),
                "attach more agents, or ask for fewer",
            );
        }
        selected.truncate(wanted);
    }
    selected
}

fn chosen<'f>(
    selected: &Selected,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let names = || fleet.iter().map(|agent| agent.name.as_str());
    if let Selector::Names(wanted) = &selected.selector {
        for (name, at) in wanted.iter().zip(&selected.names_at) {
            if !names().any(|known| known == name) {
                let remedy = match nearest(name, names()) {
                    Some(candidate) => {
                        format!("did you mean `{candidate}`? attached: {}", listed(names()))
                    }
                    None => format!("attached: {}", listed(names())),
                };
                mistakes.at(at, format!("no agent `{name}` is attached"), remedy);
            }
        }
    }
    let chosen: Vec<&AgentFacts> = fleet
        .iter()
        .copied()
        .filter(|agent| selected.selector.chooses(agent))
        .collect();
    if chosen.is_empty() && matches!(selected.selector, Selector::Labels(_)) {
        mistakes.at(
            &selected.spot,
            format!("no attached agent has {}", selected.selector.describe()),
            format!(
                "attached: {}",
                fleet
                    .iter()
                    .map(|agent| labelled(agent))
                    .collect::<Vec<_>>()
                    .join("; ")
            ),
        );
    }
    chosen
}

fn labelled(agent: &AgentFacts) -> String {
    let labels: Vec<String> = agent
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    if labels.is_empty() {
        format!("{} (no labels)", agent.name)
    } else {
        format!("{} ({})", agent.name, labels.join(","))
    }
}

/// Whether the agent would work under the target's path.
fn allows(agent: &AgentFacts, path: &str) -> bool {
    match agent.surveyed.get(path) {
        Some(facts) => facts.allowed,
        None => agent
            .allowed
            .iter()
            .any(|allowed| Path::new(path).starts_with(allowed)),
    }
}

fn allowing<'f>(
    target: &Target,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let allowing: Vec<&AgentFacts> = fleet
        .iter()
        .copied()
        .filter(|agent| allows(agent, &target.path))
        .collect();
    if allowing.is_empty() {
        mistakes.at(
            &target.at,
            format!("no attached agent allows {}", target.path),
            format!(
                "start the clients' agents with --allow {}; attached: {}",
                target.path,
                fleet
                    .iter()
                    .map(|agent| permitted(agent))
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
        );
    }
    allowing
}

fn permitted(agent: &AgentFacts) -> String {
    let paths: Vec<String> = agent
        .allowed
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    format!(
        "{} (allows {})",
        agent.name,
        listed(paths.iter().map(String::as_str))
    )
}

/// Refuses selected agents that cannot work on the target.
fn usable(target: &Target, selected: &[&AgentFacts], mistakes: &mut Mistakes<'_>) {
    for agent in selected {
        if !allows(agent, &target.path) {
            mistakes.at(
                &target.at,
                format!("agent `{}` does not allow {}", agent.name, target.path),
                format!(
                    "start it with --allow {}, or leave it out with [clients] select",
                    target.path
                ),
            );
        } else if let Some(facts) = agent.surveyed.get(&target.path)
            && !facts.problem.is_empty()
        {
            mistakes.at(
                &target.at,
                format!(
                    "on agent `{}`, {}: {}",
                    agent.name, target.path, facts.problem
                ),
                "mend it there, or leave the agent out with [clients] select",
            );
        } else if !agent.survey_failed.is_empty() {
            mistakes.at(
                &target.at,
                format!(
                    "agent `{}` could not look at {}: {}",
                    agent.name, target.path, agent.survey_failed
                ),
                "mend it there, or leave the agent out with [clients] select",
            );
        }
    }
}

/// Refuses agents that do not have the phase's workload as this collector knows it.
fn capable<'f>(
    phase: &Phase,
    selected: Vec<&'f AgentFacts>,
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let workload = phase.workload.0;
    for agent in &selected {
        match agent.workloads.get(workload.name()) {
            Some(revision) if *revision == workload.revision() => {}
            Some(revision) => mistakes.at(
                &phase.at,
                format!(
                    "agent `{}` has revision {revision} of {}, this collector revision {}",
                    agent.name,
                    workload.name(),
                    workload.revision(),
                ),
                "run the same version of benchmesh on both",
            ),
            None => mistakes.at(
                &phase.at,
                format!(
                    "agent `{}` does not have the workload {}",
                    agent.name,
                    workload.name()
                ),
                "update benchmesh there, or leave the agent out with [clients] select",
            ),
        }
    }
    selected
}
