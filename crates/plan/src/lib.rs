//! The plan: a user's text, checked completely and expanded into the steps that the scheduler runs.
//!
//! Pure functions over text and facts, without access to sessions, disks or clocks. `parse` refuses every mistake that
//! the text alone shows, `expand` what the attached agents cannot do, `check_limits` what does not fit. A plan never
//! widens what an agent allows.

mod agents;
pub mod alarms;
mod assume;
mod cells;
mod curve;
mod errors;
mod expand;
mod facts;
mod from_fio;
mod groups;
mod images;
mod kept;
mod kept_data;
pub mod keys;
mod links;
mod loops;
mod matrix;
mod memory;
mod mounts;
mod one_workload;
mod order;
mod pairs;
mod parse;
mod policies;
mod policy;
mod presets;
mod probes;
mod read;
mod scale;
mod schema;
pub mod search;
mod select;
mod set;
mod settle;
mod source;
mod space;
pub mod steady;
mod step;
mod task_set;
#[cfg(test)]
mod tests;
mod toml_text;

pub use assume::assumed_agents;
pub use cells::Cell;
pub use curve::Curve;
pub use errors::{PlanError, PlanErrors, PlanLocation};
pub use facts::{AgentFacts, AgentPolicy, PathFacts};
pub use from_fio::{
    Converted, JobContext, JobError, JobErrors, JobLine, Remark, RemarkKind, from_fio,
};
pub use kept_data::{KeptData, KeptFacts, KeptUse, PlannedData, Shape};
pub use keys::TASKS_PER_AGENT;
pub use links::Links;
pub use loops::Loops;
pub use mounts::mounted_otherwise;
pub use one_workload::{needs_target, one_workload, read_target};
pub use order::Order;
pub use pairs::Pairs;
pub use presets::{PRESETS, Preset, find as find_preset};
pub use probes::{last_probes, step_of_ordinal, with_probes};
pub use scale::Scale;
pub use schema::schema;
pub use select::Selector;
pub use settle::IDLE_FOR;
pub use settle::Settle;
pub use source::Cancel;
pub use space::{Shortage, floor_bytes, shortage};
pub use steady::{Steady, SteadyFigure};
pub use step::{
    Expansion, GroupLoad, PlannedLoad, PlannedStep, PlannedTask, keys_beside, links_in_words,
    step_title,
};

use alarms::{Alarm, Objective};
use benchmesh_model::targets::Locator;
use benchmesh_workloads::declare_words;
use benchmesh_workloads::workload::{Needs, Workload};
use search::Search;
use select::Selected;
use source::{Mistakes, OBJECTIVE_MARK, PlanSource, ValuePosition};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// Maximum number of skipped cells of a phase that a warning names; the others are counted.
const MAX_SKIPPED_SHOWN: usize = 5;

/// A plan that `parse` accepted: every key is known, every value is in range, and its workload has checked every mode
/// and matrix cell.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub repeat: u32,
    pub loops: Loops,
    pub order: Order,
    pub on_loss: OnLoss,
    pub on_stall: OnStall,
    /// An agent without contact for this long is lost.
    pub loss_after: Duration,
    /// How long an agent without contact continues its load.
    pub lease: Duration,
    /// In the order of the file.
    pub targets: Vec<Target>,
    pub phases: Vec<Phase>,
    pub alarms: Vec<Alarm>,
    pub objectives: Vec<Objective>,
    pub(crate) clients: Option<Selected>,
    /// The position of `on-loss`.
    pub(crate) on_loss_at: ValuePosition,
    pub(crate) source: PlanSource,
}

declare_words! {
    /// The reaction to an operation that does not end.
    #[derive(Default)]
    pub enum OnStall {
        #[default]
        Continue = "continue",
        Abort = "abort",
    }
}

declare_words! {
    /// The reaction to an alarm in addition to its event.
    #[derive(Default)]
    pub enum AlarmAction {
        #[default]
        Event = "event",
        Mark = "mark",
        Stop = "stop",
        Abort = "abort",
    }
}

/// The effect of a lost agent on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    Continue,
    Abort,
    /// Continue while at least this many agents of the step are left.
    AtLeast(u32),
}

/// The storage under test.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub system: String,
    /// A path is absolute and normalised.
    pub locator: Locator,
    pub(crate) at: ValuePosition,
}

/// A phase of the plan.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: String,
    /// Applies if the matrix has none: see [`Phase::cache_of`].
    pub cache: Cache,
    /// Indices into the plan's targets; empty for a workload that needs none.
    pub targets: Vec<usize>,
    pub settle: Settle,
    /// Delay of each task's start after the previous one.
    pub stagger: Duration,
    /// The loads that run at the same time: one group without a name, or those that the plan names. All have the same
    /// number of cells.
    pub groups: Vec<Group>,
    /// The steady-state criterion that ends its steps before their `runtime`; `None` if there is none.
    pub steady: Option<Steady>,
    /// The load curve; `None` if the rate is constant.
    pub curve: Option<Curve>,
    /// The search of its steps; `None` if there is none.
    pub search: Option<Arc<Search>>,
    /// The kept set of its data; `None` if they are removed with their cell.
    pub kept: Option<KeptData>,
    pub(crate) at: ValuePosition,
}

/// A load and the agents that carry it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Empty if the phase has no groups.
    pub name: String,
    pub workload: WorkloadRef,
    /// One for each step of a cell, or one for all of them.
    pub modes: Vec<String>,
    pub cells: Vec<Cell>,
    /// Impossible combinations of the matrix, and modes that are impossible in some, each with its reason.
    pub skipped: Vec<String>,
    /// For a workload between two agents.
    pub links: Links,
    pub(crate) select: Option<Selected>,
    pub(crate) at: ValuePosition,
}

/// A workload of the registry.
#[derive(Clone, Copy)]
pub struct WorkloadRef(pub &'static dyn Workload);

impl fmt::Debug for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

declare_words! {
    /// How caches are treated before a step.
    pub enum Cache {
        AsIs = "asis",
        Cold = "cold",
        Warm = "warm",
        Bypass = "bypass",
        OtherClient = "other-client",
    }
}

impl Cache {
    /// What the tasks do about caches, as sent on the wire. Whose data they read is a parameter.
    pub fn of_tasks(self) -> Self {
        match self {
            Self::OtherClient => Self::AsIs,
            own => own,
        }
    }
}

impl Phase {
    /// The number of cells of its matrix.
    pub fn cells(&self) -> usize {
        self.groups.first().map_or(0, |group| group.cells.len())
    }

    /// The treatment of caches in the steps of a cell.
    pub fn cache_of(&self, cell: usize) -> Cache {
        let cell = self.groups.first().and_then(|group| group.cells.get(cell));
        let own = cell.and_then(|cell| cell.cache.as_ref());
        own.map_or(self.cache, |(cache, _)| *cache)
    }

    /// The number of steps of a cell, before pairs.
    pub fn steps(&self) -> usize {
        let modes = self.groups.iter().map(|group| group.modes.len());
        modes.max().unwrap_or(0)
    }

    /// The needs of its workloads, with the most demanding first.
    pub(crate) fn needs(&self) -> Needs {
        let needs = |wanted| {
            let mut all = self.groups.iter().map(|group| group.workload.0.needs());
            all.any(|needs| needs == wanted)
        };
        match (needs(Needs::Target), needs(Needs::Peer)) {
            (true, _) => Needs::Target,
            (false, true) => Needs::Peer,
            (false, false) => Needs::Nothing,
        }
    }
}

impl Plan {
    /// Warnings about a plan that can run: targets that no phase uses, and skipped cells and modes.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = expand::unused_targets(self);
        warnings.extend(self.left_out());
        warnings
    }

    /// Cells, and modes of cells, that are skipped because they are impossible: a sentence each, with the reason.
    pub fn left_out(&self) -> Vec<String> {
        let mut left_out = Vec::new();
        for phase in &self.phases {
            for group in &phase.groups {
                let (shown, rest) = group
                    .skipped
                    .split_at(group.skipped.len().min(MAX_SKIPPED_SHOWN));
                left_out.extend(
                    shown
                        .iter()
                        .map(|note| format!("phase `{}` {note}", phase.name)),
                );
                if !rest.is_empty() {
                    left_out.push(format!(
                        "phase `{}` leaves out {} more cells, or modes of cells",
                        phase.name,
                        rest.len()
                    ));
                }
            }
        }
        left_out
    }

    /// The sizes that depend on the memory of the clients' hosts: `phase records: size = 2 x ram`, each once.
    pub fn sizes_of_memory(&self) -> Vec<String> {
        let mut sizes = Vec::new();
        for phase in &self.phases {
            let cells = phase.groups.iter().flat_map(|group| &group.cells);
            for (key, multiple) in cells.flat_map(|cell| &cell.of_memory) {
                let size = format!("phase `{}`: {key} = {multiple}", phase.name);
                if !sizes.contains(&size) {
                    sizes.push(size);
                }
            }
        }
        sizes
    }

    /// Name and path of each kept set that its phases make or use.
    pub fn kept_sets(&self) -> BTreeSet<(String, String)> {
        let kept = |phase: &Phase| Some((phase.kept.clone()?.name, phase.targets.clone()));
        let sets = self.phases.iter().filter_map(kept);
        let places = sets.flat_map(|(name, targets)| {
            let targets = targets.into_iter().filter_map(|at| self.targets.get(at));
            targets.map(move |target| (name.clone(), target.locator.to_string()))
        });
        places.collect()
    }

    /// The distinct paths of its targets.
    pub fn target_paths(&self) -> Vec<String> {
        let locators = self.targets.iter().map(|target| target.locator.to_string());
        locators.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Every path that a workload of this plan reads on the agents' hosts.
    pub fn sources(&self) -> BTreeSet<String> {
        self.phases
            .iter()
            .flat_map(|phase| &phase.groups)
            .flat_map(|group| &group.cells)
            .flat_map(|cell| cell.sources.iter().map(|(path, _)| path.clone()))
            .collect()
    }

    /// Reports a mistake of the plan that only shows on the mesh, at the line of the step's phase.
    pub fn refuse(&self, step: &PlannedStep, reason: String, remedy: String) -> PlanErrors {
        let mut mistakes = Mistakes::new(&self.source);
        mistakes.at(&step.at, reason, remedy);
        mistakes.into_errors()
    }
}

/// Parses and checks a plan. `file` is its name for messages.
pub fn parse(text: &str, file: &str) -> Result<Plan, PlanErrors> {
    parse_for(text, file, &Cancel::default())
}

/// As [`parse`]; `cancel` ends it, and later the expansion of the plan, with an error.
pub fn parse_for(text: &str, file: &str, cancel: &Cancel) -> Result<Plan, PlanErrors> {
    let source = PlanSource {
        text: text.to_owned(),
        file: file.to_owned(),
        cancel: cancel.clone(),
    };
    let mut mistakes = Mistakes::new(&source);
    let plan = parse::parse(&source, &mut mistakes);
    if let Some(plan) = &plan {
        policy::check_text(plan, &mut mistakes);
        links::check_text(plan, &mut mistakes);
    }
    mistakes.into_result(plan)
}

/// The plan's text with `--set` applied: each override is `K=V` (see docs/plan.md for K). Lines keep their numbers in
/// messages.
pub fn set(text: &str, file: &str, overrides: &[String]) -> Result<String, PlanErrors> {
    set::set(text, file, overrides)
}

/// The plan's text with these objectives added, for the options of a command. Lines keep their numbers in messages.
pub fn with_objectives(text: &str, objectives: &[String]) -> String {
    let mut changed = text.to_owned();
    for holds in objectives {
        if !changed.is_empty() && !changed.ends_with('\n') {
            changed.push('\n');
        }
        let holds = toml_text::quoted(holds);
        changed.push_str(&format!(
            "[[objective]] {OBJECTIVE_MARK}\nholds = {holds} {OBJECTIVE_MARK}\n"
        ));
    }
    changed
}

/// The steps of the first loop of `plan` on `agents`, in the order in which they run.
pub fn expand(plan: &Plan, agents: &[AgentFacts]) -> Result<Expansion, PlanErrors> {
    expand_loop(plan, agents, 1)
}

/// The steps of one loop, counted from 1. All loops have the same number of steps.
pub fn expand_loop(
    plan: &Plan,
    agents: &[AgentFacts],
    number: u32,
) -> Result<Expansion, PlanErrors> {
    let mut mistakes = Mistakes::new(&plan.source);
    let expansion = expand::expand(plan, agents, number, &mut mistakes);
    mistakes.into_result(Some(expansion))
}

/// Refuses steps whose kept data are missing or differ from `there`. Call it before [`check_limits`].
pub fn check_kept(
    plan: &Plan,
    expansion: &mut Expansion,
    there: &[KeptFacts],
) -> Result<(), PlanErrors> {
    let mut mistakes = Mistakes::new(&plan.source);
    kept::check_steps(&mut expansion.steps, there, &mut mistakes);
    mistakes.into_result(Some(()))
}

/// Refuses an expansion that would fill a file system, according to the free space that the agents report, or that
/// requests more than an agent's policy allows.
pub fn check_limits(
    plan: &Plan,
    expansion: &Expansion,
    agents: &[AgentFacts],
) -> Result<(), PlanErrors> {
    let mut mistakes = Mistakes::new(&plan.source);
    task_set::refuse_unknown_memory(expansion, agents, &mut mistakes);
    space::check(expansion, agents, &mut mistakes);
    policies::check(expansion, agents, &mut mistakes);
    mistakes.into_result(Some(()))
}

#[cfg(test)]
benchmesh_testing::counts_memory!();
