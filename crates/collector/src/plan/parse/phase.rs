//! One `[[phase]]`: its workload, modes, targets and what else every phase may have.

use super::{
    super::{
        Cache, Kind, Pairs, Phase, Target, cells,
        read::{Section, kind},
        source::{Mistakes, Spot, listed},
    },
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
    let known: Vec<&str> = workload::registry().iter().map(|w| w.name()).collect();
    let Some((name, name_at)) = section.text("workload", mistakes) else {
        if !table.contains_key("workload") {
            mistakes.at(
                &at,
                "the phase has no `workload`",
                format!("one of {}", listed(known)),
            );
        }
        return None;
    };
    let Some(workload) = workload::find(&name) else {
        let remedy = match nearest(&name, known.iter().copied()) {
            Some(candidate) => format!("did you mean `{candidate}`?"),
            None => format!("there are {}", listed(known)),
        };
        mistakes.at(&name_at, format!("unknown workload `{name}`"), remedy);
        return None;
    };
    let phase_name = section.text("name", mistakes);
    if let Some((_, at)) = phase_name
        .as_ref()
        .filter(|(name, _)| name.trim().is_empty())
    {
        mistakes.at(
            at,
            "the name is empty",
            "leave it out, or say what results shall call the phase",
        );
    }
    let modes = modes(&mut section, workload, mistakes);
    let cache = cache(&mut section, workload, mistakes);
    let clients = section.count("clients", 1..=100_000, mistakes);
    let tasks_per_agent = section.count("tasks-per-agent", 1..=1024, mistakes);
    let phase_targets = phase_targets(&mut section, workload, targets, mistakes);
    let settle = section
        .duration("settle", mistakes)
        .map_or(Duration::ZERO, |(given, _)| given);
    let (from, to, pairs) = if workload.needs() == Needs::Peer {
        let from = selector(&mut section, "from", mistakes);
        let to = selector(&mut section, "to", mistakes);
        (from, to, pairs(&mut section, mistakes))
    } else {
        (None, None, Pairs::Each)
    };
    let matrix = matrix(&mut section, workload, mistakes);
    let (params, params_at) = params(&section, workload, &matrix, mistakes);
    let base = cells::Base {
        params,
        params_at,
        clients: clients.map(|(n, _)| n),
        tasks_per_agent: tasks_per_agent.map_or(1, |(n, _)| n),
        at: at.clone(),
    };
    let cells = cells::checked(workload, &modes, &base, &matrix, mistakes);
    Some(Phase {
        name: phase_name.map_or(name, |(given, _)| given),
        workload: Kind(workload),
        modes,
        cache,
        targets: phase_targets,
        settle,
        from,
        to,
        pairs,
        cells,
        at,
    })
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
            format!(
                "the phase has no `modes`, and {} has several",
                workload.name()
            ),
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

fn cache(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Cache {
    let Some((word, spot)) = section.text("cache", mistakes) else {
        return Cache::AsIs;
    };
    // Who can go past the caches has a key for it; the others refuse to when their tasks are prepared.
    let bypasses = workload.keys().iter().any(|key| key.name == "direct");
    if Cache::parse(&word) == Some(Cache::Bypass) && !bypasses {
        mistakes.at(
            &spot,
            format!("workload `{}` does not use O_DIRECT", workload.name()),
            "write cache = \"cold\", or measure with workload `io`",
        );
    }
    Cache::parse(&word).unwrap_or_else(|| {
        mistakes.at(
            &spot,
            format!("no cache treatment `{word}`"),
            "there are asis, cold, warm and bypass",
        );
        Cache::AsIs
    })
}

fn pairs(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Pairs {
    match section.text("pairs", mistakes) {
        None => Pairs::Each,
        Some((word, _)) if word == "each" => Pairs::Each,
        Some((word, _)) if word == "all" => Pairs::All,
        Some((word, spot)) => {
            mistakes.at(
                &spot,
                format!("no order of pairs `{word}`"),
                "write \"each\" or \"all\"",
            );
            Pairs::Each
        }
    }
}

/// Indices into the plan's targets; empty for a workload that needs none.
fn phase_targets(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Vec<usize> {
    if workload.needs() != Needs::Target {
        if let Some((_, spot)) = section.take("targets") {
            mistakes.at(
                &spot,
                format!("{} needs no target", workload.name()),
                "remove the key",
            );
        }
        return Vec::new();
    }
    if targets.is_empty() {
        mistakes.at(
            &section.spot,
            format!("{} needs a target, and the plan has none", workload.name()),
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
