//! The plan: what a person wrote, checked whole, and expanded into the steps that the scheduler drives.
//!
//! Pure functions over text and facts: it knows nothing of sessions, disks or clocks. `parse` refuses every mistake
//! that the text alone shows, `expand` what the attached agents cannot do, `check_limits` what does not fit. A plan
//! never widens what an agent allows; it only asks.

mod agents;
pub mod alarms;
mod assume;
mod cells;
mod curve;
mod errors;
mod expand;
mod facts;
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

pub use assume::assumed_agents;
pub use cells::Cell;
pub use curve::Curve;
pub use errors::{Place, PlanError, PlanErrors};
pub use facts::{AgentFacts, AgentPolicy, PathFacts};
pub use kept_data::{KeptData, KeptFacts, KeptUse, PlannedData, Shape};
pub use keys::TASKS_PER_AGENT;
pub use links::Links;
pub use loops::Loops;
pub use mounts::mounted_otherwise;
pub use order::Order;
pub use pairs::Pairs;
pub use presets::{PRESETS, Preset, find as find_preset};
pub use probes::{last_probes, step_of_ordinal, with_probes};
pub use scale::Scale;
pub use schema::schema;
pub use select::Selector;
pub use settle::IDLE_FOR;
pub use settle::Settle;
pub use space::{Shortage, floor_bytes, shortage};
pub use steady::{Steady, SteadyFigure};
pub use step::{Expansion, PlannedLoad, PlannedStep, PlannedTask, links_in_words, step_title};

use alarms::{Alarm, Objective};
use benchmesh_model::targets::Locator;
use benchmesh_workloads::declare_words;
use benchmesh_workloads::workload::{Needs, Workload};
use search::Search;
use select::Selected;
use source::{Mistakes, Position, Source};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// Cells of one phase that are left out and named in a warning; others are counted.
const MAX_SKIPPED_SHOWN: usize = 5;

/// A plan that `parse` accepted: every key known, every value in its range, every mode and matrix cell checked by its
/// workload.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub repeat: u32,
    pub loops: Loops,
    pub order: Order,
    pub on_loss: OnLoss,
    pub on_stall: OnStall,
    /// An agent without contact for so long is lost.
    pub loss_after: Duration,
    /// How long an agent without contact carries its load on.
    pub lease: Duration,
    /// In the order of the file.
    pub targets: Vec<Target>,
    pub phases: Vec<Phase>,
    pub alarms: Vec<Alarm>,
    pub objectives: Vec<Objective>,
    pub(crate) clients: Option<Selected>,
    /// Where `on-loss` stands.
    pub(crate) on_loss_at: Position,
    pub(crate) source: Source,
}

declare_words! {
    /// What happens when an operation does not end.
    #[derive(Default)]
    pub enum OnStall {
        #[default]
        Continue = "continue",
        Abort = "abort",
    }
}

declare_words! {
    /// What an alarm does beside its event.
    #[derive(Default)]
    pub enum AlarmAction {
        #[default]
        Event = "event",
        Mark = "mark",
        Stop = "stop",
        Abort = "abort",
    }
}

/// What a lost agent does to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    Continue,
    Abort,
    /// Go on while so many agents of the step are left.
    AtLeast(u32),
}

/// The storage under test.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub system: String,
    /// A path is absolute, in its shortest spelling.
    pub locator: Locator,
    pub(crate) at: Position,
}

/// One entry of the plan.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: String,
    /// Where its matrix has none: see [`Phase::cache_of`].
    pub cache: Cache,
    /// Indices into the plan's targets; empty for a workload that needs none.
    pub targets: Vec<usize>,
    pub settle: Settle,
    /// How long a task starts after the one before it.
    pub stagger: Duration,
    /// What is done at the same time: one group without a name, or those that the plan names. All have equally many
    /// cells.
    pub groups: Vec<Group>,
    /// When its steps end before their `runtime` does; `None`: never.
    pub steady: Option<Steady>,
    /// By which its rate is walked up; `None`: it stays as it is.
    pub curve: Option<Curve>,
    /// What its steps search for; `None`: nothing.
    pub search: Option<Arc<Search>>,
    /// The set that its data are; `None`: they go with their cell.
    pub kept: Option<KeptData>,
    pub(crate) at: Position,
}

/// A load and who carries it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Empty: the phase is not divided into groups.
    pub name: String,
    pub workload: WorkloadRef,
    /// One for each step of a cell, or one for all of them.
    pub modes: Vec<String>,
    pub cells: Vec<Cell>,
    /// Combinations of the matrix that cannot be, and modes that cannot be in some, each with its reason.
    pub skipped: Vec<String>,
    /// For a workload between two agents.
    pub links: Links,
    pub(crate) select: Option<Selected>,
    pub(crate) at: Position,
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
    /// What the tasks themselves do about caches, as the wire has it. Whose data they read is a parameter.
    pub fn of_tasks(self) -> Self {
        match self {
            Self::OtherClient => Self::AsIs,
            own => own,
        }
    }
}

impl Phase {
    /// How many cells its matrix makes.
    pub fn cells(&self) -> usize {
        self.groups.first().map_or(0, |group| group.cells.len())
    }

    /// How the steps of a cell treat caches.
    pub fn cache_of(&self, cell: usize) -> Cache {
        let cell = self.groups.first().and_then(|group| group.cells.get(cell));
        let own = cell.and_then(|cell| cell.cache.as_ref());
        own.map_or(self.cache, |(cache, _)| *cache)
    }

    /// How many steps a cell has, before pairs.
    pub fn steps(&self) -> usize {
        let modes = self.groups.iter().map(|group| group.modes.len());
        modes.max().unwrap_or(0)
    }

    /// What its workloads need, the most demanding first.
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
    /// What a person should know of the plan though it can be run: targets that no phase uses, cells and modes that are
    /// left out.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = expand::unused_targets(self);
        warnings.extend(self.left_out());
        warnings
    }

    /// Cells, and modes of cells, that are not measured because they cannot be: a sentence each, with the reason.
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

    /// Its sizes that depend on the memory of the clients' hosts: `phase records: size = 2 x ram`, each once.
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

    /// Where its targets are, each once.
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

    /// A mistake of the plan that only shows on the mesh, told at the line of the step's phase.
    pub fn refuse(&self, step: &PlannedStep, reason: String, remedy: String) -> PlanErrors {
        let mut mistakes = Mistakes::new(&self.source);
        mistakes.at(&step.at, reason, remedy);
        mistakes.into_errors()
    }
}

/// Reads and checks a plan. `file` is its name for messages.
pub fn parse(text: &str, file: &str) -> Result<Plan, PlanErrors> {
    let source = Source {
        text: text.to_owned(),
        file: file.to_owned(),
    };
    let mut mistakes = Mistakes::new(&source);
    let plan = parse::parse(&source, &mut mistakes);
    if let Some(plan) = &plan {
        policy::check_text(plan, &mut mistakes);
        links::check_text(plan, &mut mistakes);
    }
    mistakes.into_result(plan)
}

/// The plan's text with `--set` applied: each override is `K=V` (docs/plan.md says what K may be). Lines keep their
/// numbers in messages.
pub fn set(text: &str, file: &str, overrides: &[String]) -> Result<String, PlanErrors> {
    set::set(text, file, overrides)
}

/// The steps of the first loop of `plan` on `agents`, in the order in which they run.
pub fn expand(plan: &Plan, agents: &[AgentFacts]) -> Result<Expansion, PlanErrors> {
    expand_loop(plan, agents, 1)
}

/// The steps of one loop, counted from 1. All loops have equally many.
pub fn expand_loop(
    plan: &Plan,
    agents: &[AgentFacts],
    number: u32,
) -> Result<Expansion, PlanErrors> {
    let mut mistakes = Mistakes::new(&plan.source);
    let expansion = expand::expand(plan, agents, number, &mut mistakes);
    mistakes.into_result(Some(expansion))
}

/// Refuses steps whose kept data are missing or others than `there`; see [`check_limits`], which comes after it.
pub fn check_kept(
    plan: &Plan,
    expansion: &mut Expansion,
    there: &[KeptFacts],
) -> Result<(), PlanErrors> {
    let mut mistakes = Mistakes::new(&plan.source);
    kept::check_steps(&mut expansion.steps, there, &mut mistakes);
    mistakes.into_result(Some(()))
}

/// Refuses an expansion that would fill a file system, by what the agents said of their free space, or that asks for
/// more than an agent's policy allows.
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
