//! What a plan expands to: steps and their tasks.

use super::{Cache, Settle, Steady, kept_data::PlannedData, search::Probe, source::Position};
use benchmesh_workloads::{
    params::{KeyValue, units::Span},
    registry,
    workload::{Footprint, Needs},
};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Keys that end a load beside its `runtime`.
const ENDS_BY_AMOUNT: [&str; 4] = ["loops", "io_size", "ops", "seeks"];
/// Keys that may let all tasks of a step work on the same data.
const SHARED_BY: [&str; 2] = ["file-per", "directories-per"];
/// Agents up to which they are named at an end of a step's links; beyond, counted.
const NAMES_SHOWN: usize = 3;

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
    /// From 1; the column `loop`.
    pub loop_number: u32,
    /// Within its loop, from 1.
    pub repeat: u32,
    pub phase: String,
    /// Steps with equal numbers are the modes of one cell, which owns its data; from 0, over its loop.
    pub cell: usize,
    /// The cell's directory within the run's.
    pub cell_name: String,
    /// The target's name; empty for workloads without one, as are system and path.
    pub target: String,
    pub system: String,
    pub path: String,
    /// Of several groups: theirs, joined by `+`.
    pub workload: String,
    pub mode: String,
    pub cache: Cache,
    pub settle: Settle,
    /// How long a task starts after the one before it.
    pub stagger: Duration,
    /// When its load is in steady state, which ends it; seconds of ramps are left out.
    pub steady: Option<Steady>,
    /// Its place in a search; `None`: it is no probe.
    pub probe: Option<Probe>,
    /// Of several groups: theirs, by the group's name. Equal ones are shared by all steps of a plan.
    pub params: Arc<Map<String, Value>>,
    /// What is done at the same time; one, if the phase has no groups.
    pub loads: Vec<PlannedLoad>,
    /// The set that its tasks work on; `None`: their data go with the cell.
    pub kept: Option<PlannedData>,
    /// In the order of their index: load by load, agents by name. Shared by the steps of a cell.
    pub tasks: Arc<[PlannedTask]>,
    /// To be moved by all tasks; 0: bounded by time alone.
    pub moved_bytes: u64,
    /// Of all tasks.
    pub files: u64,
    /// `None`: not bounded by time.
    pub expected: Option<Duration>,
    pub(crate) at: Position,
}

/// What a group of a step does.
#[derive(Clone, Debug)]
pub struct PlannedLoad {
    /// The group's name; empty for the only load of a step.
    pub group: String,
    pub workload: String,
    pub mode: String,
    pub params: Arc<Map<String, Value>>,
    /// What each of its tasks takes.
    pub footprint: Footprint,
    /// How many tasks it has.
    pub tasks: u32,
    /// How many agents carry it.
    pub clients: u32,
}

/// One task of a step to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    /// Which of the step's loads it does.
    pub load: usize,
    /// Among the tasks of that load, from 0.
    pub index: u32,
    pub agent: String,
    /// network: the receiving agent.
    pub peer: Option<String>,
}

/// For messages: what a step measures where.
pub fn step_title(ordinal: u32, phase: &str, mode: &str, target: &str) -> String {
    let on = match target {
        "" => String::new(),
        target => format!(" on {target}"),
    };
    format!("step {ordinal} ({phase} {mode}{on})")
}

/// `a -> b`, `a <-> b`, `a, b -> c`; empty without any.
pub fn links_in_words(from: &BTreeSet<&str>, to: &BTreeSet<&str>) -> String {
    let mut both = from.iter();
    match (both.next(), both.next(), both.next()) {
        (None, ..) => String::new(),
        (Some(a), Some(b), None) if from == to => format!("{a} <-> {b}"),
        _ => format!("{} -> {}", a_few(from), a_few(to)),
    }
}

fn a_few(names: &BTreeSet<&str>) -> String {
    if names.len() > NAMES_SHOWN {
        return format!("{} agents", names.len());
    }
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

impl PlannedLoad {
    /// Whether its tasks work on the step's target; a group beside it may not.
    pub fn needs_target(&self) -> bool {
        registry::find(&self.workload).is_none_or(|workload| workload.needs() == Needs::Target)
    }

    /// How long it runs before it counts.
    pub fn ramp_time(&self) -> Option<Duration> {
        let ramp = self.params.get("ramp_time")?;
        Span::read(ramp).ok().map(|span| span.0)
    }

    /// Whether a client that was away may come back into its running step: time alone ends it, and its data are its
    /// own.
    pub fn may_rejoin(&self) -> bool {
        let rejoins = registry::find(&self.workload).is_some_and(|it| it.rejoins(&self.mode));
        let has = |key: &str| self.params.contains_key(key);
        let is_of_step = |key: &str| self.params.get(key).is_some_and(|value| value == "step");
        rejoins
            && self.footprint.runtime.is_some()
            && !ENDS_BY_AMOUNT.into_iter().any(has)
            && !has("reorder-tasks")
            && !SHARED_BY.into_iter().any(is_of_step)
    }
}

impl PlannedStep {
    /// For messages: what is measured where.
    pub fn title(&self) -> String {
        step_title(self.ordinal, &self.phase, &self.mode, &self.target)
    }

    /// network: which links it measures, in a few words; empty where there is a target.
    pub fn link(&self) -> String {
        links_in_words(&self.senders(), &self.receivers())
    }

    fn senders(&self) -> BTreeSet<&str> {
        self.ends(|agent, _| agent)
    }

    /// The agents that receive, by name; none where there is a target.
    pub fn receivers(&self) -> BTreeSet<&str> {
        self.ends(|_, peer| peer)
    }

    fn ends<'s>(&'s self, pick: fn(&'s str, &'s str) -> &'s str) -> BTreeSet<&'s str> {
        let links = self
            .tasks
            .iter()
            .filter(|_| self.target.is_empty())
            .filter_map(|task| Some((task.agent.as_str(), task.peer.as_deref()?)));
        links.map(|(agent, peer)| pick(agent, peer)).collect()
    }

    /// The directory of a load of the cell in its `attempt`th attempt: a new attempt never meets the data of an earlier
    /// one, and a group never another's.
    pub fn directory(&self, load: usize, attempt: u32) -> String {
        let mut name = self.cell_name.clone();
        if attempt > 1 {
            name.push_str(&format!("-a{attempt}"));
        }
        if self.loads.len() > 1 {
            name.push_str(&format!("-g{}", load + 1));
        }
        name
    }

    /// What a task does.
    pub fn load(&self, task: &PlannedTask) -> Option<&PlannedLoad> {
        self.loads.get(task.load)
    }

    /// The agents that carry load in it, by name.
    pub fn agents(&self) -> BTreeSet<&str> {
        self.tasks.iter().map(|task| task.agent.as_str()).collect()
    }
}
