//! Expands a `[[phase]]` that names a preset into the preset's phases.

use super::{
    super::{
        Preset,
        keys::{LoadKeys, PhaseKeys, names},
        presets::{PRESETS, find},
        read::{kind, unknown_key},
        source::{Mistakes, ValuePosition, listed},
    },
    params::known_keys,
};
use benchmesh_workloads::{
    params::{Keys, nearest},
    registry,
    workload::{Needs, all_keys},
};
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Keys that only the preset itself sets.
const OWN: &[&str] = &["group", "load-curve", "modes", "workload"];

/// Keys without a meaning in a phase without targets.
const OF_TARGETS: &[&str] = &["cache", "targets"];

/// Every key that at least one phase of a preset may have.
pub(in super::super) fn keys_of_preset(preset: &Preset) -> Vec<&'static str> {
    let mut known: Vec<&'static str> = preset.phases().iter().flat_map(keys_of).collect();
    known.retain(|key| !OWN.contains(key));
    known.sort_unstable();
    known.dedup();
    known
}

/// The keys that this phase of a preset may have.
fn keys_of(phase: &DeTable<'_>) -> Vec<&'static str> {
    let workload = phase
        .get("workload")
        .and_then(|name| registry::find(name.get_ref().as_str()?));
    let Some(workload) = workload else {
        return names(&[PhaseKeys::all(), LoadKeys::all()]);
    };
    let mut known = known_keys(workload);
    if workload.needs() != Needs::Target {
        known.retain(|key| !OF_TARGETS.contains(key));
    }
    known
}

/// Whether the key has an effect in at least one mode of this phase of a preset.
fn has_effect(phase: &DeTable<'_>, name: &str) -> bool {
    let known = keys_of(phase).contains(&name);
    let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
    let workload = phase.get("workload").and_then(text);
    let key = workload
        .and_then(|workload| registry::find(&workload))
        .and_then(|workload| all_keys(workload).find(|key| key.name == name));
    let Some(modes) = key.and_then(|key| key.modes) else {
        return known;
    };
    let own = phase
        .get("modes")
        .and_then(|list| list.get_ref().as_array());
    own.is_some_and(|own| {
        own.iter()
            .filter_map(text)
            .any(|mode| modes.contains(&mode.as_str()))
    })
}

/// The phases of a `[[phase]]`: itself, or those of its preset with the plan's own keys added.
pub(super) fn expanded<'i>(
    table: &DeTable<'i>,
    at: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) -> Vec<DeTable<'i>> {
    let Some(value) = table.get("preset") else {
        return vec![table.clone()];
    };
    let position = |key: &str, span: Range<usize>| ValuePosition {
        span,
        key: format!("{}.{key}", at.key),
    };
    let preset_at = position("preset", value.span());
    let Some(name) = value.get_ref().as_str() else {
        let reason = format!("expected text in quotes, found {}", kind(value.get_ref()));
        mistakes.at(&preset_at, reason, "");
        return Vec::new();
    };
    let Some(preset) = find(name) else {
        let known = || PRESETS.iter().map(|preset| preset.name);
        let remedy = match nearest(name, known()) {
            Some(candidate) => format!("did you mean `{candidate}`?"),
            None => format!("there are {}", listed(known())),
        };
        mistakes.at(&preset_at, format!("there is no preset `{name}`"), remedy);
        return Vec::new();
    };
    let prefix = table
        .get("name")
        .and_then(|given| given.get_ref().as_str())
        .unwrap_or(name);
    let mut phases: Vec<DeTable<'i>> = preset
        .phases()
        .iter()
        .map(|phase| named(moved(phase.clone(), &value.span()), prefix, &value.span()))
        .collect();
    for (key, given) in table {
        let name = key.get_ref().as_ref();
        let key_at = position(name, key.span());
        if OWN.contains(&name) {
            mistakes.at(
                &key_at,
                format!("a preset has its own `{name}`"),
                format!(
                    "write the phases themselves: `benchmesh plan preset {}` prints them",
                    preset.name
                ),
            );
        } else if name == "matrix" {
            for phase in &mut phases {
                add_matrix(phase, key, given);
            }
        } else if !["preset", "name", "zip"].contains(&name) {
            let has_effect = |phase: &DeTable<'_>| has_effect(phase, name);
            // A key without an effect in any phase is refused by its workload, which gives the reason.
            let anywhere = !phases.iter().any(has_effect);
            let takes = |phase: &DeTable<'_>| {
                keys_of(phase).contains(&name) && (anywhere || has_effect(phase))
            };
            if !phases.iter().any(takes) {
                unknown_key(name, &key_at, &keys_of_preset(preset), mistakes);
            }
            for phase in phases.iter_mut().filter(|phase| takes(phase)) {
                remove_from_matrix(phase, name);
                phase.remove(name);
                phase.insert(key.clone(), given.clone());
            }
        }
    }
    if let Some((key, zips)) = table.get_key_value("zip") {
        add_zips(&mut phases, key, zips);
    }
    phases
}

/// Adds each list of `zip` to the phases whose matrix has all of its keys; a list that fits no phase is refused in all.
fn add_zips<'i>(
    phases: &mut [DeTable<'i>],
    key: &Spanned<toml::de::DeString<'i>>,
    zips: &Spanned<DeValue<'i>>,
) {
    let lists = zips.get_ref().as_array();
    let fits = |phase: &DeTable<'i>, list: &Spanned<DeValue<'i>>| {
        let matrix = phase
            .get("matrix")
            .and_then(|value| value.get_ref().as_table());
        let names = list.get_ref().as_array();
        matrix.zip(names).is_some_and(|(matrix, names)| {
            let mut names = names.iter().map(|name| name.get_ref().as_str());
            names.all(|name| name.is_some_and(|name| matrix.contains_key(name)))
        })
    };
    let fits_any: Vec<bool> = lists
        .into_iter()
        .flat_map(|lists| lists.iter())
        .map(|list| phases.iter().any(|phase| fits(phase, list)))
        .collect();
    for phase in phases {
        let mut own = zips.get_ref().clone();
        if let (DeValue::Array(kept), Some(lists)) = (&mut own, lists) {
            let goes_here = |(list, fits_any): &(&Spanned<DeValue<'i>>, &bool)| {
                !**fits_any || fits(phase, list)
            };
            let here = lists.iter().zip(&fits_any).filter(goes_here);
            *kept = here.map(|(list, _)| list.clone()).collect();
            if kept.is_empty() && !lists.is_empty() {
                continue;
            }
        }
        phase.insert(key.clone(), Spanned::new(zips.span(), own));
    }
}

/// A phase of a preset under its full name.
fn named<'i>(mut phase: DeTable<'i>, prefix: &str, span: &Range<usize>) -> DeTable<'i> {
    let own = phase
        .remove("name")
        .or_else(|| phase.get("workload").cloned());
    let own = own.as_ref().and_then(|name| name.get_ref().as_str());
    let full = match own {
        Some(own) => format!("{prefix}: {own}"),
        None => prefix.to_owned(),
    };
    phase.insert(
        Spanned::new(span.clone(), "name".into()),
        Spanned::new(span.clone(), DeValue::String(full.into())),
    );
    phase
}

/// Adds the plan's lists to those of the preset, for the keys that the phase may have.
fn add_matrix<'i>(
    phase: &mut DeTable<'i>,
    key: &Spanned<toml::de::DeString<'i>>,
    given: &Spanned<DeValue<'i>>,
) {
    let DeValue::Table(lists) = given.get_ref() else {
        // Refused when the matrix is read.
        phase.insert(key.clone(), given.clone());
        return;
    };
    let known = keys_of(phase);
    let own = lists
        .iter()
        .filter(|(name, _)| known.contains(&name.get_ref().as_ref()));
    let mut merged = match phase.remove("matrix").map(Spanned::into_inner) {
        Some(DeValue::Table(merged)) => merged,
        _ => DeTable::new(),
    };
    for (name, list) in own {
        phase.remove(name.get_ref().as_ref());
        merged.remove(name.get_ref().as_ref());
        merged.insert(name.clone(), list.clone());
    }
    if !merged.is_empty() {
        let merged = Spanned::new(given.span(), DeValue::Table(merged));
        phase.insert(key.clone(), merged);
    }
}

fn remove_from_matrix(phase: &mut DeTable<'_>, name: &str) {
    let Some(mut matrix) = phase.remove("matrix") else {
        return;
    };
    if let DeValue::Table(lists) = matrix.get_mut() {
        lists.remove(name);
        if lists.is_empty() {
            return;
        }
    }
    let span = matrix.span();
    phase.insert(Spanned::new(span, "matrix".into()), matrix);
}

/// The table with all positions set to `span`, where the plan names the preset: the preset's text is not part of the
/// plan.
fn moved<'i>(table: DeTable<'i>, span: &Range<usize>) -> DeTable<'i> {
    table
        .into_iter()
        .map(|(key, value)| {
            let key = Spanned::new(span.clone(), key.into_inner());
            (key, moved_value(value, span))
        })
        .collect()
}

fn moved_value<'i>(value: Spanned<DeValue<'i>>, span: &Range<usize>) -> Spanned<DeValue<'i>> {
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved(table, span)),
        DeValue::Array(items) => DeValue::Array(
            items
                .into_iter()
                .map(|item| moved_value(item, span))
                .collect(),
        ),
        plain => plain,
    };
    Spanned::new(span.clone(), value)
}
