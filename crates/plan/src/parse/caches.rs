//! `cache`: refuses values that have no effect on a phase's loads, or that the loads cannot implement.

use super::super::{
    Cache, Group, Phase,
    cells::Cell,
    source::{Mistakes, ValuePosition},
};
use benchmesh_workloads::{
    registry,
    workload::{Needs, Workload, all_keys},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The key that opens with O_DIRECT.
const DIRECT: &str = "direct";

/// The key that makes reading modes read another task's data.
const REORDER: &str = "reorder-tasks";

/// The cells of a phase with the same treatment of caches, by index.
type Chosen = BTreeSet<usize>;

/// Also applies `cache = "other-client"` to each load. `at` is the position of the phase's own `cache`.
pub(super) fn check(phase: &mut Phase, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    let mut caches: Vec<(Cache, ValuePosition, Chosen)> = Vec::new();
    if phase.cells() == 0 {
        caches.push((phase.cache, at.clone(), Chosen::new()));
    }
    for index in 0..phase.cells() {
        let cell = phase
            .groups
            .first()
            .and_then(|group| group.cells.get(index));
        let own = cell.and_then(|cell| cell.cache.clone());
        let (cache, at) = own.unwrap_or_else(|| (phase.cache, at.clone()));
        match caches.iter_mut().find(|(known, ..)| *known == cache) {
            Some((.., chosen)) => _ = chosen.insert(index),
            None => caches.push((cache, at, Chosen::from([index]))),
        }
    }
    for (cache, at, chosen) in caches {
        check_one(phase, cache, &chosen, &at, mistakes);
    }
}

fn check_one(
    phase: &mut Phase,
    cache: Cache,
    chosen: &Chosen,
    at: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) {
    if cache == Cache::AsIs || phase.groups.is_empty() {
        return;
    }
    let on_targets = |group: &&Group| group.workload.0.needs() == Needs::Target;
    if phase.groups.iter().find(on_targets).is_none() {
        let reason = format!(
            "{}: there is no target, so there is nothing to cache",
            words(phase)
        );
        mistakes.at(at, reason, "remove the key");
        return;
    }
    match cache {
        Cache::Bypass => {
            for group in phase.groups.iter().filter(on_targets) {
                refuse_bypass(group, chosen, at, mistakes);
            }
        }
        Cache::Warm => refuse_useless_warming(phase, chosen, at, mistakes),
        Cache::OtherClient => read_others(phase, chosen, at, mistakes),
        Cache::AsIs | Cache::Cold => {}
    }
}

fn cells_of<'g>(group: &'g Group, chosen: &'g Chosen) -> impl Iterator<Item = &'g Cell> {
    chosen.iter().filter_map(|index| group.cells.get(*index))
}

/// Makes each task read what the same task of the next client wrote.
fn read_others(
    phase: &mut Phase,
    chosen: &Chosen,
    at: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) {
    for group in &mut phase.groups {
        let workload = group.workload.0;
        if workload.needs() != Needs::Target {
            continue;
        }
        let reading = reading_modes(workload);
        if !group
            .modes
            .iter()
            .any(|mode| reading.contains(&mode.as_str()))
        {
            let reason = format!(
                "workload `{}`: none of its modes here can read the data of another client",
                workload.name()
            );
            let able: Vec<String> = registry::all()
                .iter()
                .filter(|other| !reading_modes(**other).is_empty())
                .map(|other| format!("`{}`", other.name()))
                .collect();
            let remedy = format!(
                "read with workload {}, or write cache = \"cold\"",
                able.join(", ")
            );
            mistakes.at(at, reason, remedy);
            continue;
        }
        let cells = group.cells.iter_mut().enumerate();
        for (_, cell) in cells.filter(|(index, _)| chosen.contains(index)) {
            let tasks = Value::from(cell.tasks_per_agent);
            cell.params.entry(REORDER).or_insert(tasks);
        }
    }
}

/// The modes that can read another task's data.
fn reading_modes(workload: &dyn Workload) -> &'static [&'static str] {
    let key = all_keys(workload).find(|key| key.name == REORDER);
    key.and_then(|key| key.modes).unwrap_or_default()
}

/// Refuses bypassing the caches in a load without a key for it; the others check it when their tasks are prepared.
fn refuse_bypass(group: &Group, chosen: &Chosen, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    let workload = group.workload.0;
    for cell in cells_of(group, chosen) {
        let params = match workload.bypassing(&cell.params) {
            Ok(params) if params == cell.params => continue,
            Ok(params) => params,
            Err(error) => {
                let remedy = match error.key {
                    Some(_) => "",
                    None => "write cache = \"cold\", or measure with workload `io` or `copy`",
                };
                mistakes.at(at, error.to_string(), remedy);
                continue;
            }
        };
        let known = group.modes.iter().zip(&cell.footprints);
        for (mode, _) in known.filter(|(_, footprint)| footprint.is_some()) {
            if let Err(error) = registry::check(workload, mode, &params) {
                let key = error.key.unwrap_or_default();
                mistakes.at(at, format!("O_DIRECT and `{key}`: {}", error.message), "");
            }
        }
    }
}

/// Refuses `cache = "warm"` where no load reads through the caches.
fn refuse_useless_warming(
    phase: &Phase,
    chosen: &Chosen,
    at: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) {
    let warmed = |group: &&Group| group.workload.0.warms();
    if phase.groups.iter().find(warmed).is_none() {
        let reason = format!(
            "{}: there is no unmeasured pass that could warm the caches",
            words(phase)
        );
        mistakes.at(at, reason, "remove the key, or write cache = \"cold\"");
        return;
    }
    let is_on = |value: &Value| *value == true || *value == 1;
    let goes_past = |group: &Group, cell: &Cell| {
        !group.workload.0.warms() || cell.params.get(DIRECT).is_some_and(is_on)
    };
    let groups = || phase.groups.iter();
    let mut cells =
        groups().flat_map(|group| cells_of(group, chosen).map(move |cell| (group, cell)));
    if groups().any(|group| cells_of(group, chosen).next().is_some())
        && cells.all(|(group, cell)| goes_past(group, cell))
    {
        mistakes.at(
            at,
            "`direct` bypasses the caches that would be warmed",
            "remove one of the two",
        );
    }
}

/// "workload `network`", "workloads `network` and `null`".
fn words(phase: &Phase) -> String {
    let mut names: Vec<&str> = Vec::new();
    for group in &phase.groups {
        let name = group.workload.0.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [only] => format!("workload `{only}`"),
        several => format!("workloads `{}`", several.join("` and `")),
    }
}
