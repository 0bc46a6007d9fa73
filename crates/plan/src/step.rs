//! The result of expanding a plan: steps and their tasks.

use super::{Cache, Settle, Steady, kept_data::PlannedData, search::Probe, source::ValuePosition};
use benchmesh_workloads::{
    params::{KeyValue, units::Span},
    registry,
    workload::{Footprint, Needs},
};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Keys that end a load, in addition to `runtime`.
const ENDS_BY_AMOUNT: [&str; 4] = ["loops", "io_size", "ops", "seeks"];
/// Keys that may let all tasks of a step work on the same data.
const SHARED_BY: [&str; 2] = ["file-per", "directories-per"];
/// Maximum number of agents named at one end of a step's links; more are counted.
const NAMES_SHOWN: usize = 3;

/// The steps of a plan on given agents, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Expansion {
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
}

/// A planned step.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// From 1, over the whole run.
    pub ordinal: u32,
    /// From 1; the column `loop`.
    pub loop_number: u32,
    /// Within its loop, from 1.
    pub repeat: u32,
    pub phase: String,
    /// Steps with equal numbers are the modes of one cell, which owns its data; counted from 0 within its loop.
    pub cell: usize,
    /// The cell's directory within the run's.
    pub cell_name: String,
    /// The target's name; like system and path, empty for workloads without a target.
    pub target: String,
    pub system: String,
    pub path: String,
    /// With several groups: their workloads, joined by `+`.
    pub workload: String,
    pub mode: String,
    pub cache: Cache,
    pub settle: Settle,
    /// Delay of each task's start after the previous one.
    pub stagger: Duration,
    /// The steady-state criterion that ends its load, after the seconds of ramps.
    pub steady: Option<Steady>,
    /// Its position in a search; `None` if it is not a probe.
    pub probe: Option<Probe>,
    /// With several groups: their parameters by group name. Steps of a plan share equal ones.
    pub params: Arc<Map<String, Value>>,
    /// The loads that run at the same time; a single one if the phase has no groups.
    pub loads: Vec<PlannedLoad>,
    /// The kept set that its tasks use; `None` if their data are removed with the cell.
    pub kept: Option<PlannedData>,
    /// In the order of their index: load by load, agents by name. The steps of a cell share them.
    pub tasks: Arc<[PlannedTask]>,
    /// Bytes to move by all tasks; 0 if only time bounds the step.
    pub moved_bytes: u64,
    /// Files of all tasks.
    pub files: u64,
    /// `None` if time does not bound the step.
    pub expected: Option<Duration>,
    pub(crate) at: ValuePosition,
}

/// The load of one group of a step.
#[derive(Clone, Debug)]
pub struct PlannedLoad {
    /// The group's name; empty for the only load of a step.
    pub group: String,
    pub workload: String,
    pub mode: String,
    pub params: Arc<Map<String, Value>>,
    /// The footprint of each of its tasks.
    pub footprint: Footprint,
    /// Number of its tasks.
    pub tasks: u32,
    /// Number of agents that carry it.
    pub clients: u32,
}

/// A planned task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    /// Index of its load in the step.
    pub load: usize,
    /// Index among the tasks of that load, from 0.
    pub index: u32,
    pub agent: String,
    /// The receiving agent, for the network workload.
    pub peer: Option<String>,
}

/// A title for messages: what a step measures, and where.
pub fn step_title(ordinal: u32, phase: &str, mode: &str, target: &str) -> String {
    let on = match target {
        "" => String::new(),
        target => format!(" on {target}"),
    };
    format!("step {ordinal} ({phase} {mode}{on})")
}

/// `a -> b`, `a <-> b`, `a, b -> c`; empty if there are no links.
pub fn links_in_words(from: &BTreeSet<&str>, to: &BTreeSet<&str>) -> String {
    let mut both = from.iter();
    match (both.next(), both.next(), both.next()) {
        (None, ..) => String::new(),
        (Some(a), Some(b), None) if from == to => format!("{a} <-> {b}"),
        _ => format!("{} -> {}", a_few(from), a_few(to)),
    }
}

/// A group of a step.
#[derive(Clone, Copy, Debug)]
pub struct GroupLoad<'g> {
    pub name: &'g str,
    pub mode: &'g str,
    pub clients: i64,
    pub params: &'g Map<String, Value>,
}

/// The loads beside a group: the modes, clients and parameters of the other groups as `GROUP.KEY`. Steps of a group
/// that differ in them are different loads, not repeats.
pub fn keys_beside<'g>(
    own: &str,
    groups: impl IntoIterator<Item = GroupLoad<'g>>,
) -> Map<String, Value> {
    let others = groups.into_iter().filter(|group| group.name != own);
    let keys = others.flat_map(|group| {
        let own = [
            ("mode", Value::from(group.mode)),
            ("clients", Value::from(group.clients)),
        ];
        let params = group.params.iter();
        let params = params.map(|(key, value)| (key.as_str(), value.clone()));
        let named = move |(key, value): (&str, Value)| (format!("{}.{key}", group.name), value);
        own.into_iter().chain(params).map(named)
    });
    keys.collect()
}

fn a_few(names: &BTreeSet<&str>) -> String {
    if names.len() > NAMES_SHOWN {
        return format!("{} agents", names.len());
    }
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

impl PlannedLoad {
    /// Whether its tasks use the step's target; a group beside it may not.
    pub fn needs_target(&self) -> bool {
        registry::find(&self.workload).is_none_or(|workload| workload.needs() == Needs::Target)
    }

    /// The ramp, which is not measured.
    pub fn ramp_time(&self) -> Option<Duration> {
        let ramp = self.params.get("ramp_time")?;
        Span::read(ramp).ok().map(|span| span.0)
    }

    /// Whether a client that lost contact may rejoin the running step: only time ends it, and the client's data are its
    /// own.
    pub fn may_rejoin(&self) -> bool {
        let rejoins =
            registry::find(&self.workload).is_some_and(|workload| workload.rejoins(&self.mode));
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
    /// A title for messages: what the step measures, and where.
    pub fn title(&self) -> String {
        step_title(self.ordinal, &self.phase, &self.mode, &self.target)
    }

    /// The links that a network step measures, in a few words; empty for a step with a target.
    pub fn link(&self) -> String {
        links_in_words(&self.senders(), &self.receivers())
    }

    fn senders(&self) -> BTreeSet<&str> {
        self.ends(|agent, _| agent)
    }

    /// The receiving agents, by name; empty for a step with a target.
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

    /// The directory of a load of the cell in its `attempt`th attempt: a new attempt never finds the data of an earlier
    /// one, nor a group another group's.
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

    /// The load of a task.
    pub fn load(&self, task: &PlannedTask) -> Option<&PlannedLoad> {
        self.loads.get(task.load)
    }

    /// The agents that carry load in the step, by name.
    pub fn agents(&self) -> BTreeSet<&str> {
        self.tasks.iter().map(|task| task.agent.as_str()).collect()
    }
}
