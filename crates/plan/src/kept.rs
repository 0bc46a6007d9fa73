//! Checks `keep` and `use` of a phase against what can be kept and what exists.
//!
//! Pure. The database knows what is kept where; it is passed in as [`KeptFacts`].

use super::{
    Cell, Group, Phase, PlannedLoad, PlannedStep,
    kept_data::{KeptData, KeptFacts, KeptUse, PlannedData, Shape, difference},
    keys::PhaseKeys,
    read::Section,
    source::{Mistakes, ValuePosition},
};
use benchmesh_workloads::{
    op::Op,
    registry,
    workload::{Data, DataShape, ModeInfo, Needs},
};

/// Keys by which all tasks of a step may share data.
const SHARED_BY: [&str; 2] = ["file-per", "directories-per"];

/// Reads the keys `keep` and `use`.
pub(super) fn read(
    section: &Section<'_, '_>,
    keys: &PhaseKeys,
    mistakes: &mut Mistakes<'_>,
) -> Option<(KeptData, ValuePosition)> {
    let (name, how) = match (&keys.keep, &keys.uses) {
        (None, None) => return None,
        (Some(name), None) => (name, KeptUse::Keep),
        (None, Some(name)) => (name, KeptUse::Use),
        (Some(_), Some(_)) => {
            mistakes.at(
                &section.place_of("use"),
                "it conflicts with `keep`",
                "`keep` also uses an existing set; `use` never lays one out",
            );
            return None;
        }
    };
    let data = KeptData {
        name: name.0.clone(),
        how,
    };
    Some((data, section.place_of(how.key())))
}

/// Refuses a phase whose data cannot be kept, or would not form one set.
pub(super) fn check(phase: &Phase, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    let Some(data) = &phase.kept else { return };
    let [group] = phase.groups.as_slice() else {
        return mistakes.at(
            at,
            "a phase with groups has several sets of data",
            "lay the data out in a phase without groups",
        );
    };
    let workload = group.workload.0;
    if workload.needs() != Needs::Target {
        return mistakes.at(
            at,
            format!("`{}` has no data", workload.name()),
            "remove the key",
        );
    }
    let modes = group
        .modes
        .iter()
        .filter_map(|mode| workload.mode(mode).ok());
    for mode in modes {
        if let Some(why) = unfit(data.how, mode) {
            mistakes.at(
                at,
                format!("mode `{}` {why}", mode.name),
                "leave the mode out",
            );
        }
    }
    check_shapes(group, at, mistakes);
}

/// Why a mode cannot work on a kept set.
fn unfit(how: KeptUse, mode: &ModeInfo) -> Option<&'static str> {
    match (how, mode.needs, mode.leaves) {
        _ if mode.ops.contains(&Op::Delete) => Some("removes the data, which must remain"),
        (KeptUse::Use, Data::Nothing, _) => Some("creates the data, and `use` needs existing data"),
        _ => None,
    }
}

fn check_shapes(group: &Group, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    let workload = group.workload.0;
    let shape = |cell: &Cell, mode: &str| workload.data_shape(mode, &cell.params).map(named);
    let cells = group.cells.iter().flat_map(|cell| {
        let modes = group.modes.iter().zip(&cell.footprints);
        let possible = modes.filter(|(_, footprint)| footprint.is_some());
        possible
            .map(|(mode, _)| shape(cell, mode))
            .collect::<Vec<_>>()
    });
    let mut first: Option<Shape> = None;
    for shape in cells {
        let Some(shape) = shape else {
            return mistakes.at(
                at,
                format!("the data of `{}` cannot be kept", workload.name()),
                "only `io`, `files` and `objects` can keep their data",
            );
        };
        let in_cells = ["in one cell", "in another"];
        let first = first.get_or_insert_with(|| shape.clone());
        if let Some(difference) = difference(first, &shape, in_cells) {
            return mistakes.at(
                at,
                format!("the phase's cells have different data: {difference}"),
                "use a separate phase with its own name of the data for each",
            );
        }
    }
}

fn named(shape: DataShape) -> Shape {
    let keys = shape.into_iter();
    keys.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The kept set of a step; `None` if its data are removed with its cell.
pub(super) fn planned(data: Option<&KeptData>, loads: &[PlannedLoad]) -> Option<PlannedData> {
    let (data, load) = (data?, loads.first()?);
    let workload = registry::find(&load.workload)?;
    let mut shape = named(workload.data_shape(&load.mode, &load.params)?);
    shape.insert(String::from("workload"), load.workload.clone());
    shape.insert(String::from("layout"), workload.revision().to_string());
    let is_of_step = |key: &str| shape.get(key).is_some_and(|value| value == "step");
    if SHARED_BY.into_iter().any(is_of_step) {
        shape.insert(String::from("tasks"), load.tasks.to_string());
    }
    Some(PlannedData {
        name: data.name.clone(),
        how: data.how,
        shape,
        remakes: workload
            .mode(&load.mode)
            .is_ok_and(|mode| mode.needs == Data::Nothing),
        is_partly_there: false,
    })
}

/// Refuses steps whose sets are missing or differ from the existing ones. Subtracts existing data from the space that
/// the steps need.
pub(super) fn check_steps(
    steps: &mut [PlannedStep],
    there: &[KeptFacts],
    mistakes: &mut Mistakes<'_>,
) {
    let mut known: Vec<KeptFacts> = there.to_vec();
    for step in steps {
        let Some(data) = &mut step.kept else { continue };
        let tasks = u32::try_from(step.tasks.len()).unwrap_or(u32::MAX);
        let mut sets = known.iter_mut();
        let set = sets.find(|set| set.name == data.name && set.path == step.path);
        let refused = match &set {
            None => missing(data, &step.path, there),
            Some(set) => unlike(data, set, tasks, &step.path),
        };
        if let Some(StepRefusal { reason, remedy }) = refused {
            mistakes.at(&step.at, reason, remedy);
            return;
        }
        let is_there = set
            .as_ref()
            .is_some_and(|set| set.is_whole && tasks <= set.tasks);
        data.is_partly_there = set.is_some() && !is_there;
        match set {
            Some(set) => {
                set.tasks = set.tasks.max(tasks);
                set.is_whole = true;
            }
            None => known.push(KeptFacts {
                name: data.name.clone(),
                path: step.path.clone(),
                shape: data.shape.clone(),
                tasks,
                is_whole: true,
            }),
        }
        if is_there {
            for load in &mut step.loads {
                (load.footprint.bytes, load.footprint.files) = (0, 0);
                load.footprint.directories = 0;
            }
        }
    }
}

/// The reason why a step is refused, and the remedy.
struct StepRefusal {
    reason: String,
    remedy: String,
}

fn missing(data: &PlannedData, path: &str, there: &[KeptFacts]) -> Option<StepRefusal> {
    if data.how == KeptUse::Keep {
        return None;
    }
    let names: Vec<&str> = there
        .iter()
        .filter(|set| set.path == path)
        .map(|set| set.name.as_str())
        .collect();
    let others = match names.is_empty() {
        true => String::from("none are"),
        false => format!("these are: {}", names.join(", ")),
    };
    Some(StepRefusal {
        reason: format!("no data are kept as `{}` at {path}; {others}", data.name),
        remedy: format!(
            "lay them out by a phase before it with keep = \"{}\"",
            data.name
        ),
    })
}

fn unlike(data: &PlannedData, set: &KeptFacts, tasks: u32, path: &str) -> Option<StepRefusal> {
    let (name, remove) = (&data.name, format!("benchmesh data remove {}", data.name));
    if let Some(difference) = difference(&set.shape, &data.shape, ["there", "here"]) {
        return Some(StepRefusal {
            reason: format!("the data kept as `{name}` at {path} are different: {difference}"),
            remedy: format!(
                "use the same values, keep yours under another name, or remove them: {remove}"
            ),
        });
    }
    if data.how == KeptUse::Keep {
        return None;
    }
    if !set.is_whole {
        return Some(StepRefusal {
            reason: format!(
                "the data kept as `{name}` at {path} are not whole: the step that created them did not end well"
            ),
            remedy: format!(
                "lay them out again by a phase with keep = \"{name}\", or remove them: {remove}"
            ),
        });
    }
    (tasks > set.tasks).then(|| StepRefusal {
        reason: format!(
            "the data kept as `{name}` at {path} were laid out by {} tasks, and this step has {tasks}",
            set.tasks
        ),
        remedy: String::from("use fewer `clients`, or lay out more by a phase with `keep`"),
    })
}
