//! One `[[phase]]`: its load or groups, targets and the keys common to all phases.

use super::{
    super::{
        Group, Phase, Scale, Target, curve,
        expand::MAX_STEPS,
        images, kept,
        keys::PhaseKeys,
        presets::find,
        read::{Section, kind},
        settle::settle,
        source::{Mistakes, ValuePosition, listed},
    },
    caches, group,
    load::{load, workload_of},
    params::matrix,
    preset, search, steady,
    targets::check_kinds,
    zip,
};
use benchmesh_workloads::{params::nearest, workload::Needs};
use std::sync::Arc;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// More phases than this are a mistake.
const MAX_PHASES: usize = 1000;

pub(super) fn phases(
    top: &mut Section<'_, '_>,
    targets: &[Target],
    scale: Scale,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Phase> {
    let Some((value, position)) = top.take("phase") else {
        mistakes.whole(
            "the plan has no phase",
            "add [[phase]] with a workload and its modes",
        );
        return Vec::new();
    };
    let Some(list) = value.as_array() else {
        mistakes.at(
            &position,
            format!("expected tables, found {}", kind(value)),
            "write [[phase]], with two brackets",
        );
        return Vec::new();
    };
    if list.is_empty() {
        mistakes.at(
            &position,
            "the plan has no phase",
            "add [[phase]] with a workload and its modes",
        );
    }
    // Counted before any is made: a preset of one line has many phases.
    let count = list.iter().map(phases_of).sum::<usize>();
    if count > MAX_PHASES {
        mistakes.at(
            &position,
            format!("the plan has {count} phases; at most {MAX_PHASES} are allowed"),
            "write what they share as a matrix, or split the plan",
        );
        return Vec::new();
    }
    let mut phases = Vec::new();
    for (index, item) in list.iter().enumerate() {
        if mistakes.is_cancelled() {
            return Vec::new();
        }
        let at = ValuePosition {
            span: item.span(),
            key: format!("phase.{}", index + 1),
        };
        let Some(table) = item.get_ref().as_table() else {
            mistakes.at(&at, "expected a table", "write [[phase]]");
            continue;
        };
        let expanded = preset::expanded(table, &at, mistakes);
        let read = |table| phase(table, at.clone(), targets, scale, mistakes);
        add(
            &mut phases,
            expanded.iter().filter_map(read).collect(),
            mistakes,
        );
        if phases.iter().map(checks).sum::<usize>() > MAX_STEPS {
            mistakes.at(
                &at,
                format!("the matrices up to here have more than {MAX_STEPS} steps"),
                "shorten their lists, or split the plan",
            );
            return phases;
        }
    }
    phases
}

/// The number of phases of a `[[phase]]`: several if it names a preset.
fn phases_of(item: &Spanned<DeValue<'_>>) -> usize {
    let named = item
        .get_ref()
        .as_table()
        .and_then(|table| table.get("preset"));
    let name = named.and_then(|name| name.get_ref().as_str());
    name.and_then(find)
        .map_or(1, |preset| preset.phases().len())
}

/// The number of modes of cells that were checked for a phase, also those that are impossible.
fn checks(phase: &Phase) -> usize {
    let groups = phase.groups.iter();
    let of_group = |group: &Group| {
        (group.cells.len() + group.skipped.len()).saturating_mul(group.modes.len().max(1))
    };
    groups.map(of_group).sum()
}

/// Adds the phases of one `[[phase]]`.
fn add(phases: &mut Vec<Phase>, read: Vec<Phase>, mistakes: &mut Mistakes<'_>) {
    for phase in read {
        if let Some(twin) = phases.iter().find(|known| known.name == phase.name) {
            mistakes.at(
                &phase.at,
                format!(
                    "two phases are called `{}`: this is also {}",
                    phase.name, twin.at.key
                ),
                "give each a unique name, results are distinguished by it",
            );
        }
        phases.push(phase);
    }
}

fn phase(
    table: &DeTable<'_>,
    at: ValuePosition,
    targets: &[Target],
    scale: Scale,
    mistakes: &mut Mistakes<'_>,
) -> Option<Phase> {
    let mut section = Section::new(table, at.clone());
    let keys = section.keys::<PhaseKeys>(mistakes)?;
    let steady = steady::steady(&section, &keys, mistakes);
    let kept = kept::read(&section, &keys, mistakes);
    let name = keys.name;
    if name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        mistakes.at(
            &section.place_of("name"),
            "the name is empty",
            "leave it out, or name the phase",
        );
    }
    let mut phase = Phase {
        name: String::new(),
        cache: keys.cache,
        targets: Vec::new(),
        settle: settle(&mut section, mistakes),
        stagger: keys.stagger.0,
        steady,
        curve: None,
        search: None,
        kept: None,
        groups: Vec::new(),
        at,
    };
    let curve = curve::parse(&mut section, mistakes);
    phase.curve = curve.as_ref().map(|(curve, _)| *curve);
    let searched = search::search(&mut section, mistakes);
    phase.search = searched.as_ref().map(|(search, _)| Arc::clone(search));
    phase.kept = kept.as_ref().map(|(data, _)| data.clone());
    if table.contains_key("group") {
        phase.groups = group::groups(&mut section, scale, mistakes);
        let names: Vec<&str> = phase
            .groups
            .iter()
            .map(|group| group.name.as_str())
            .collect();
        phase.name = names.join("+");
        let needs = phase.needs();
        phase.targets = phase_targets(&mut section, needs, &phase.name, targets, mistakes);
        group::refuse_rest(&section, mistakes);
    } else {
        let workload = workload_of(&mut section, mistakes)?;
        phase.name = workload.name().to_owned();
        let needs = workload.needs();
        phase.targets = phase_targets(&mut section, needs, workload.name(), targets, mistakes);
        let matrix = zip::axes(
            &mut section,
            |section, it| matrix(section, workload, it),
            mistakes,
        );
        phase.groups = vec![load(&mut section, "", workload, &matrix, scale, mistakes)];
    }
    for group in &phase.groups {
        let chosen = phase.targets.iter().filter_map(|index| targets.get(*index));
        check_kinds(group.workload.0, chosen.clone(), &group.at, mistakes);
        images::check_text(group, chosen, mistakes);
    }
    if let Some(given) = name {
        phase.name = given;
    }
    if let Some((_, at)) = curve {
        curve::check(&phase, &at, mistakes);
    }
    if let Some((_, at)) = searched {
        search::check(&phase, &at, mistakes);
    }
    steady::check(&phase, &section, mistakes);
    if let Some((_, at)) = kept {
        kept::check(&phase, &at, mistakes);
    }
    caches::check(&mut phase, &section.place_of("cache"), mistakes);
    Some(phase)
}

/// Indices into the plan's targets; empty for a workload that needs none.
fn phase_targets(
    section: &mut Section<'_, '_>,
    needs: Needs,
    what: &str,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Vec<usize> {
    if needs != Needs::Target {
        if let Some((_, position)) = section.take("targets") {
            mistakes.at(
                &position,
                format!("{what} needs no target"),
                "remove the key",
            );
        }
        return Vec::new();
    }
    if targets.is_empty() {
        mistakes.at(
            &section.position,
            format!("{what} needs a target, and the plan has none"),
            "add [targets.NAME] with system and path",
        );
    }
    let Some((words, position)) = section.words("targets", mistakes) else {
        return (0..targets.len()).collect();
    };
    if words.is_empty() {
        mistakes.at(
            &position,
            "the list is empty",
            "leave the key out to measure all targets",
        );
    }
    let mut chosen = Vec::new();
    for (word, at) in words {
        match targets.iter().position(|target| target.name == word) {
            Some(index) if chosen.contains(&index) => {
                mistakes.at(&at, format!("target `{word}` is listed twice"), "");
            }
            Some(index) => chosen.push(index),
            None => {
                let known = targets.iter().map(|target| target.name.as_str());
                let remedy = match nearest(&word, known.clone()) {
                    Some(candidate) => format!("did you mean `{candidate}`?"),
                    None => format!("the plan's targets: {}", listed(known)),
                };
                mistakes.at(&at, format!("the plan has no target `{word}`"), remedy);
            }
        }
    }
    chosen
}
