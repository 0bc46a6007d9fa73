//! `[[phase.group]]`: different loads at the same time, each with a name, agents, a workload and its keys.
//!
//! The phase holds what is common to the step: name, targets, cache, settle, and a matrix by the groups' names. Agents
//! are assigned to groups during expansion.

use super::{
    super::{
        Group, Scale,
        keys::{CACHE, GroupKeys, LinkKeys, LoadKeys, PhaseKeys, names},
        matrix::{Axis, Dimension},
        read::{Section, kind, unknown_key},
        source::{Mistakes, ValuePosition, listed},
    },
    load::{load, workload_of},
    params::{caches, dimensions},
    targets::selector,
    zip,
};
use benchmesh_workloads::{
    params::{Keys, nearest},
    registry,
    workload::Workload,
    workload::all_keys,
};

/// A group whose name and workload are known.
struct Named<'t, 'i> {
    section: Section<'t, 'i>,
    name: String,
    workload: &'static dyn Workload,
}

/// The groups of a phase that has the key.
pub(super) fn groups(
    phase: &mut Section<'_, '_>,
    scale: Scale,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Group> {
    let mut named = named(phase, mistakes);
    let matrix = zip::axes(phase, |phase, it| matrix(phase, &named, it), mistakes);
    let groups: Vec<Group> = named
        .iter_mut()
        .map(|group| one(group, &matrix, scale, mistakes))
        .collect();
    let steps = groups.iter().map(|group| group.modes.len()).max();
    for (group, named) in groups.iter().zip(&named) {
        let modes = group.modes.len();
        if modes > 1 && Some(modes) != steps {
            mistakes.at(
                &named.section.place_of("modes"),
                format!(
                    "group `{}` has {modes} modes, and another has {}",
                    group.name,
                    steps.unwrap_or(0)
                ),
                "give each group one mode for all steps, or one for each step",
            );
        }
    }
    groups
}

fn named<'t, 'i>(phase: &mut Section<'t, 'i>, mistakes: &mut Mistakes<'_>) -> Vec<Named<'t, 'i>> {
    let Some((value, position)) = phase.take("group") else {
        return Vec::new();
    };
    let Some(list) = value.as_array() else {
        mistakes.at(
            &position,
            format!("expected tables, found {}", kind(value)),
            "write [[phase.group]], with two brackets",
        );
        return Vec::new();
    };
    let mut groups: Vec<Named<'_, '_>> = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let at = ValuePosition {
            span: item.span(),
            key: format!("{}.{}", position.key, index + 1),
        };
        let Some(table) = item.get_ref().as_table() else {
            mistakes.at(&at, "expected a table", "write [[phase.group]]");
            continue;
        };
        let Some(group) = one_named(Section::new(table, at), mistakes) else {
            continue;
        };
        if groups.iter().any(|known| known.name == group.name) {
            mistakes.at(
                &group.section.place_of("name"),
                format!("two groups are called `{}`", group.name),
                "give each a unique name, results are distinguished by it",
            );
        }
        groups.push(group);
    }
    groups
}

fn one_named<'t, 'i>(
    mut section: Section<'t, 'i>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Named<'t, 'i>> {
    let workload = workload_of(&mut section, mistakes)?;
    let name = section.keys::<GroupKeys>(mistakes)?.name;
    if !is_name(&name) {
        mistakes.at(
            &section.place_of("name"),
            "not a name for a group",
            "use letters, digits, `-` and `_`: name = \"readers\"",
        );
        return None;
    }
    Some(Named {
        section,
        name,
        workload,
    })
}

/// Names that are valid in a matrix without quotes, and unambiguous in results.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.chars().all(fits)
}

fn one(
    named: &mut Named<'_, '_>,
    matrix: &[Axis],
    scale: Scale,
    mistakes: &mut Mistakes<'_>,
) -> Group {
    let section = &mut named.section;
    let select = selector(section, "select", mistakes);
    let agents = selector(section, "agents", mistakes);
    if let (Some(_), Some(agents)) = (&select, &agents) {
        mistakes.at(
            &agents.position,
            "both select and agents are given",
            "keep one of them",
        );
    }
    let mut group = load(
        section,
        &named.name,
        named.workload,
        matrix,
        scale,
        mistakes,
    );
    group.select = select.or(agents);
    group
}

/// `matrix = { readers = { bs = [...] } }`: keys by group name, and `cache` for all groups.
fn matrix(
    phase: &mut Section<'_, '_>,
    groups: &[Named<'_, '_>],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Dimension> {
    let Some((value, position)) = phase.take("matrix") else {
        return Vec::new();
    };
    let names = || groups.iter().map(|group| group.name.as_str());
    let remedy = || {
        let first = names().next().unwrap_or("readers");
        format!("write matrix = {{ {first} = {{ bs = [\"4k\", \"64k\"] }} }}")
    };
    let Some(table) = value.as_table() else {
        let reason = format!("expected a table for each group, found {}", kind(value));
        mistakes.at(&position, reason, remedy());
        return Vec::new();
    };
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut all = Vec::new();
    for (key, value) in entries {
        let at = ValuePosition {
            span: key.span(),
            key: format!("{}.{}", position.key, key.get_ref()),
        };
        if key.get_ref() == CACHE && value.get_ref().is_array() {
            all.extend(caches(&at, value, phase.table, mistakes));
            continue;
        }
        let found = groups.iter().find(|group| group.name == *key.get_ref());
        let (Some(group), Some(table)) = (found, value.get_ref().as_table()) else {
            let reason = match found {
                None => format!("the phase has no group `{}`", key.get_ref()),
                Some(_) => format!("expected a table of lists, found {}", kind(value.get_ref())),
            };
            let known: Vec<&str> = names().collect();
            let remedy = match nearest(key.get_ref(), known.iter().copied()) {
                Some(candidate) if found.is_none() => format!("did you mean `{candidate}`?"),
                _ if found.is_none() => format!("its groups: {}", listed(known)),
                _ => remedy(),
            };
            mistakes.at(&at, reason, remedy);
            continue;
        };
        let outside = group.section.table;
        all.extend(dimensions(
            table,
            &at,
            &group.name,
            outside,
            group.workload,
            mistakes,
        ));
    }
    all
}

/// Refuses the remaining keys of a phase with groups: most of them belong to the groups.
pub(super) fn refuse_rest(phase: &Section<'_, '_>, mistakes: &mut Mistakes<'_>) {
    let of_loads: Vec<&str> = registry::all()
        .iter()
        .flat_map(|workload| all_keys(*workload).map(|key| key.name))
        .chain(names(&[LoadKeys::all(), GroupKeys::all(), LinkKeys::all()]))
        .collect();
    let known = names(&[PhaseKeys::all()]);
    for (key, at, _, _) in phase.rest() {
        if of_loads.contains(&key.as_str()) {
            mistakes.at(
                &at,
                format!("the phase has groups, and `{key}` belongs to each of them"),
                "move it into its [[phase.group]]",
            );
        } else {
            unknown_key(&key, &at, &known, mistakes);
        }
    }
}
