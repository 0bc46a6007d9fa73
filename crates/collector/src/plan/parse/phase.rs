//! One `[[phase]]`: its workload, modes, targets and what else every phase may have.

use super::{
    super::{
        Cache, Group, Kind, Links, Pairs, Phase, Target, cells, curve,
        read::{Section, kind},
        settle::settle,
        source::{Mistakes, Spot, listed},
    },
    caches, group,
    params::{matrix, params},
    targets::selector,
};
use benchmesh_workloads::{
    params::nearest,
    workload::{self, Needs, Workload},
};
use std::time::Duration;
use toml::de::DeTable;

pub(super) fn phases(
    top: &mut Section<'_, '_>,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Phase> {
    let Some((value, spot)) = top.take("phase") else {
        mistakes.whole(
            "the plan has no phase",
            "add [[phase]] with a workload and its modes",
        );
        return Vec::new();
    };
    let Some(list) = value.as_array() else {
        mistakes.at(
            &spot,
            format!("expected tables, found {}", kind(value)),
            "write [[phase]], with two brackets",
        );
        return Vec::new();
    };
    if list.is_empty() {
        mistakes.at(
            &spot,
            "the plan has no phase",
            "add [[phase]] with a workload and its modes",
        );
    }
    let mut phases: Vec<Phase> = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let at = Spot {
            span: item.span(),
            key: format!("phase.{index}"),
        };
        let Some(table) = item.get_ref().as_table() else {
            mistakes.at(&at, "expected a table", "write [[phase]]");
            continue;
        };
        let Some(phase) = phase(table, at, targets, mistakes) else {
            continue;
        };
        if let Some(twin) = phases.iter().find(|known| known.name == phase.name) {
            mistakes.at(
                &phase.at,
                format!(
                    "two phases are called `{}`: this is also {}",
                    phase.name, twin.at.key
                ),
                "give each a name of its own, results are told apart by it",
            );
        }
        phases.push(phase);
    }
    phases
}

fn phase(
    table: &DeTable<'_>,
    at: Spot,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Option<Phase> {
    let mut section = Section::new(table, at.clone());
    let name = section.text("name", mistakes);
    if let Some((_, at)) = name.as_ref().filter(|(name, _)| name.trim().is_empty()) {
        mistakes.at(
            at,
            "the name is empty",
            "leave it out, or say what results shall call the phase",
        );
    }
    let (cache, cache_at) = cache(&mut section, mistakes);
    let mut phase = Phase {
        name: String::new(),
        cache,
        targets: Vec::new(),
        settle: settle(&mut section, mistakes),
        stagger: section
            .duration("stagger", mistakes)
            .map_or(Duration::ZERO, |(given, _)| given),
        curve: None,
        groups: Vec::new(),
        at,
    };
    let curve = curve::parse(&mut section, mistakes);
    phase.curve = curve.as_ref().map(|(curve, _)| *curve);
    if table.contains_key("group") {
        phase.groups = group::groups(&mut section, mistakes);
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
        let matrix = matrix(&mut section, workload, mistakes);
        phase.groups = vec![load(&mut section, "", workload, &matrix, mistakes)];
    }
    if let Some((given, _)) = name {
        phase.name = given;
    }
    if let Some((_, at)) = curve {
        curve::check(&phase, &at, mistakes);
    }
    caches::check(&phase, &cache_at, mistakes);
    Some(phase)
}

/// The workload that a table names.
pub(super) fn workload_of(
    section: &mut Section<'_, '_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<&'static dyn Workload> {
    let known: Vec<&str> = workload::registry().iter().map(|w| w.name()).collect();
    let Some((name, name_at)) = section.text("workload", mistakes) else {
        if !section.table.contains_key("workload") {
            mistakes.at(
                &section.spot,
                "there is no `workload`",
                format!("one of {}", listed(known)),
            );
        }
        return None;
    };
    let found = workload::find(&name);
    if found.is_none() {
        let remedy = match nearest(&name, known.iter().copied()) {
            Some(candidate) => format!("did you mean `{candidate}`?"),
            None => format!("there are {}", listed(known)),
        };
        mistakes.at(&name_at, format!("unknown workload `{name}`"), remedy);
    }
    found
}

/// A load: how it is done, by how many, and its workload's own keys, which must be all that is left of the table.
pub(super) fn load(
    section: &mut Section<'_, '_>,
    name: &str,
    workload: &'static dyn Workload,
    matrix: &[cells::Dimension],
    mistakes: &mut Mistakes<'_>,
) -> Group {
    let told = mistakes.count();
    let modes = modes(section, workload, mistakes);
    let modes_are_known = mistakes.count() == told;
    let clients = section.count("clients", 1..=100_000, mistakes);
    let tasks_per_agent = section.count("tasks-per-agent", 1..=1024, mistakes);
    let links = match workload.needs() {
        Needs::Peer => Links {
            pairs: Pairs::parse(section, mistakes),
            from: selector(section, "from", mistakes),
            to: selector(section, "to", mistakes),
        },
        Needs::Nothing | Needs::Target => Links::default(),
    };
    let (params, params_at) = params(section, workload, name, matrix, mistakes);
    let base = cells::Base {
        params,
        params_at,
        clients: clients.map(|(n, _)| n),
        tasks_per_agent: tasks_per_agent.map_or(1, |(n, _)| n),
        at: section.spot.clone(),
    };
    let cells = cells::checked(name, workload, &modes, &base, matrix, mistakes);
    // A mode that is misspelled may have a use for what the others have none for.
    if modes_are_known {
        cells::refuse_idle_keys(workload, &modes, &cells, &base.at, mistakes);
    }
    Group {
        name: name.to_owned(),
        workload: Kind(workload),
        cells,
        modes,
        links,
        select: None,
        at: section.spot.clone(),
    }
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
            &section.spot,
            format!("there are no `modes`, and {} has several", workload.name()),
            format!("write modes = [...] with some of {}", listed(known)),
        );
        return Vec::new();
    }
    let Some((words, spot)) = section.words("modes", mistakes) else {
        return Vec::new();
    };
    if words.is_empty() {
        mistakes.at(
            &spot,
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

fn cache(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> (Cache, Spot) {
    let Some((word, spot)) = section.text("cache", mistakes) else {
        return (Cache::AsIs, Spot::default());
    };
    let cache = Cache::parse(&word).unwrap_or_else(|| {
        mistakes.at(
            &spot,
            format!("no cache treatment `{word}`"),
            "there are asis, cold, warm and bypass",
        );
        Cache::AsIs
    });
    (cache, spot)
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
        if let Some((_, spot)) = section.take("targets") {
            mistakes.at(&spot, format!("{what} needs no target"), "remove the key");
        }
        return Vec::new();
    }
    if targets.is_empty() {
        mistakes.at(
            &section.spot,
            format!("{what} needs a target, and the plan has none"),
            "add [targets.NAME] with system and path",
        );
    }
    let Some((words, spot)) = section.words("targets", mistakes) else {
        return (0..targets.len()).collect();
    };
    if words.is_empty() {
        mistakes.at(
            &spot,
            "the list is empty",
            "leave the key out to measure all targets",
        );
    }
    let mut chosen = Vec::new();
    for (word, at) in words {
        match targets.iter().position(|target| target.name == word) {
            Some(index) if chosen.contains(&index) => {
                mistakes.at(&at, format!("target `{word}` stands here twice"), "");
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
