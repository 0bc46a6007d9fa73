//! The load of a phase or of one of its groups: the workload, its modes, its links and its parameters.

use super::{
    super::{
        Group, Links, Pairs, Scale, WorkloadRef, cells,
        keys::{LinkKeys, LoadKeys},
        matrix::{Axis, Dimension},
        read::Section,
        source::{Mistakes, listed},
    },
    params::params,
    targets::selector,
};
use benchmesh_workloads::{
    params::{KeyValue, nearest, units::Bytes},
    registry,
    workload::{Needs, Workload},
};
use serde_json::Value;

/// The workload that a table names.
pub(super) fn workload_of(
    section: &mut Section<'_, '_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<&'static dyn Workload> {
    let known: Vec<&str> = registry::all().iter().map(|w| w.name()).collect();
    let Some((name, name_at)) = section.text("workload", mistakes) else {
        if !section.table.contains_key("workload") {
            mistakes.at(
                &section.position,
                "there is no `workload`",
                format!("one of {}", listed(known)),
            );
        }
        return None;
    };
    let found = registry::find(&name);
    if found.is_none() {
        let remedy = match (
            registry::successor(&name),
            nearest(&name, known.iter().copied()),
        ) {
            (Some(successor), _) => successor.to_owned(),
            (None, Some(candidate)) => format!("did you mean `{candidate}`?"),
            (None, None) => format!("there are {}", listed(known)),
        };
        mistakes.at(&name_at, format!("unknown workload `{name}`"), remedy);
    }
    found
}

/// Reads a load: its modes and clients, and its workload's own keys, which must be all that is left of the table.
pub(super) fn load(
    section: &mut Section<'_, '_>,
    name: &str,
    workload: &'static dyn Workload,
    matrix: &[Axis],
    scale: Scale,
    mistakes: &mut Mistakes<'_>,
) -> Group {
    let before = mistakes.count();
    let modes = modes(section, workload, mistakes);
    let modes_are_known = mistakes.count() == before;
    let keys = section.keys::<LoadKeys>(mistakes);
    let links = match workload.needs() {
        Needs::Peer => Links {
            pairs: section
                .keys::<LinkKeys>(mistakes)
                .map_or_else(Pairs::default, |keys| keys.pairs),
            from: selector(section, "from", mistakes),
            to: selector(section, "to", mistakes),
        },
        Needs::Nothing | Needs::Target => Links::default(),
    };
    let (params, params_at) = params(section, workload, name, matrix, mistakes);
    let base = cells::Base {
        params,
        params_at,
        clients: keys.as_ref().and_then(|keys| keys.clients),
        tasks_per_agent: keys.as_ref().map_or(1, |keys| keys.tasks_per_agent),
        at: section.position.clone(),
    };
    let base = scaled(base, scale, workload);
    let matrix = scaled_matrix(matrix, scale, name, workload);
    let cells = cells::checked(name, workload, &modes, &base, &matrix, mistakes);
    // A misspelled mode may use keys that the others do not.
    if modes_are_known {
        cells::refuse_unused_keys(workload, &modes, &cells, &base.at, mistakes);
    }
    Group {
        name: name.to_owned(),
        workload: WorkloadRef(workload),
        cells: cells.cells,
        skipped: cells.skipped,
        modes,
        links,
        select: None,
        at: section.position.clone(),
    }
}

/// A load's parameters outside its matrix. A block that no longer fits into its file is reduced to the file's size.
fn scaled(mut base: cells::Base, scale: Scale, workload: &dyn Workload) -> cells::Base {
    let size_of = |base: &cells::Base, key: &str| {
        base.params
            .get(key)
            .and_then(|value| Bytes::read(value).ok())
    };
    let fitted = size_of(&base, "bs") <= size_of(&base, "size");
    for (key, value) in &mut base.params {
        scale.apply(key, value, workload);
    }
    if fitted
        && let (Some(block), Some(size)) = (size_of(&base, "bs"), base.params.get("size"))
        && Bytes::read(size).is_ok_and(|size| size < block)
    {
        let size = size.clone();
        base.params.insert(String::from("bs"), size);
    }
    base
}

/// A matrix in the form from which `group` takes its values. Values that have become equal are merged, except with
/// groups, whose cells are matched by number.
fn scaled_matrix(matrix: &[Axis], scale: Scale, group: &str, workload: &dyn Workload) -> Vec<Axis> {
    let scaled = |key: &Dimension| {
        let mut values = key.values.clone();
        if key.group == group {
            for (value, _) in &mut values {
                scale.apply(&key.key, value, workload);
            }
        }
        Dimension {
            group: key.group.clone(),
            key: key.key.clone(),
            values,
        }
    };
    let scaled_axis = |axis: &Axis| {
        let axis = Axis {
            keys: axis.keys.iter().map(scaled).collect(),
        };
        match group {
            "" => without_twins(axis),
            _ => axis,
        }
    };
    matrix.iter().map(scaled_axis).collect()
}

/// Keeps only the first of values that are equal in all keys.
fn without_twins(mut axis: Axis) -> Axis {
    let mut known: Vec<Vec<&Value>> = Vec::new();
    let mut kept = Vec::new();
    for index in 0..axis.len() {
        let values = axis.values(index).map(|(value, _)| value).collect();
        let is_new = !known.contains(&values);
        kept.push(is_new);
        if is_new {
            known.push(values);
        }
    }
    for key in &mut axis.keys {
        let mut kept = kept.iter();
        key.values.retain(|_| kept.next().copied().unwrap_or(true));
    }
    axis
}

fn modes(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Vec<String> {
    let known: Vec<&str> = workload.modes().iter().map(|mode| mode.name).collect();
    if !section.table.contains_key("modes") {
        if let [only] = known.as_slice() {
            return vec![(*only).to_owned()];
        }
        mistakes.at(
            &section.position,
            format!("there are no `modes`, and {} has several", workload.name()),
            format!("write modes = [...] with some of {}", listed(known)),
        );
        return Vec::new();
    }
    let Some((words, position)) = section.words("modes", mistakes) else {
        return Vec::new();
    };
    if words.is_empty() {
        mistakes.at(
            &position,
            "the list is empty",
            format!("name some of {}", listed(known.iter().copied())),
        );
    }
    let mut modes = Vec::new();
    for (word, at) in words {
        if known.contains(&word.as_str()) {
            modes.push(word);
            continue;
        }
        let remedy = match nearest(&word, known.iter().copied()) {
            Some(candidate) => format!("did you mean `{candidate}`?"),
            None => format!("there are {}", listed(known.iter().copied())),
        };
        mistakes.at(
            &at,
            format!("{} has no mode `{word}`", workload.name()),
            remedy,
        );
    }
    modes
}
