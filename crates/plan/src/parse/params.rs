//! A phase's parameters and its matrix, in the form that the workload checks.

use super::super::{
    keys::{CACHE, GroupKeys, IN_MATRIX, LinkKeys, LoadKeys, PhaseKeys, names},
    matrix::{Axis, Dimension},
    read::{Section, kind, to_json, unknown_key},
    source::{Mistakes, ValuePosition},
};
use benchmesh_workloads::{
    params::{Key, Keys},
    workload::all_keys,
    workload::{Needs, Workload},
};
use serde_json::Map;
use std::collections::BTreeMap;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The parameters of a load outside `matrix`, for the workload to check.
pub(super) fn params(
    section: &Section<'_, '_>,
    workload: &dyn Workload,
    group: &str,
    matrix: &[Axis],
    mistakes: &mut Mistakes<'_>,
) -> (
    Map<String, serde_json::Value>,
    BTreeMap<String, ValuePosition>,
) {
    let known = match group {
        "" => known_keys(workload),
        _ => keys_of_group(workload),
    };
    let in_matrix = |name: &str| {
        let mut keys = matrix.iter().flat_map(|axis| &axis.keys);
        keys.any(|key| key.group == group && key.key == name)
    };
    let (mut params, mut at) = (Map::new(), BTreeMap::new());
    for (key, key_at, value, value_at) in section.rest() {
        if !all_keys(workload).any(|known| known.name == key) {
            unknown_key(&key, &key_at, &known, mistakes);
            continue;
        }
        if in_matrix(&key) {
            mistakes.at(
                &key_at,
                format!("`{key}` is also set in matrix"),
                "keep one of them",
            );
            continue;
        }
        if let Some(json) = to_json(value, &value_at, mistakes) {
            params.insert(key.clone(), json);
            at.insert(key, value_at);
        }
    }
    (params, at)
}

/// Every key that a phase of this workload may have.
pub(in super::super) fn known_keys(workload: &dyn Workload) -> Vec<&'static str> {
    with_own(workload, &[PhaseKeys::all(), LoadKeys::all()])
}

/// Every key that a group of this workload may have.
fn keys_of_group(workload: &dyn Workload) -> Vec<&'static str> {
    with_own(workload, &[GroupKeys::all(), LoadKeys::all()])
}

fn with_own(workload: &dyn Workload, lists: &[&'static [&'static Key]]) -> Vec<&'static str> {
    let mut known: Vec<&'static str> = all_keys(workload).map(|key| key.name).collect();
    known.extend(names(lists));
    if workload.needs() == Needs::Peer {
        known.extend(names(&[LinkKeys::all()]));
    }
    known
}

pub(super) fn matrix(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Dimension> {
    let Some((value, position)) = section.take("matrix") else {
        return Vec::new();
    };
    let Some(table) = value.as_table() else {
        mistakes.at(
            &position,
            format!("expected a table of lists, found {}", kind(value)),
            "write matrix = { size = [\"128m\", \"1g\"] }",
        );
        return Vec::new();
    };
    dimensions(table, &position, "", section.table, workload, mistakes)
}

/// The matrix keys of `group`, whose own table is `outside`.
pub(super) fn dimensions(
    table: &DeTable<'_>,
    position: &ValuePosition,
    group: &str,
    outside: &DeTable<'_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Dimension> {
    let mut known: Vec<&str> = all_keys(workload).map(|key| key.name).collect();
    known.extend(IN_MATRIX);
    if group.is_empty() {
        known.push(CACHE);
    }
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut dimensions = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().to_string();
        let at = ValuePosition {
            span: key.span(),
            key: format!("{}.{name}", position.key),
        };
        if !known.contains(&name.as_str()) {
            unknown_key(&name, &at, &known, mistakes);
            continue;
        }
        if let Some(values) = values(&name, &at, value, mistakes) {
            dimensions.push(Dimension {
                group: group.to_owned(),
                key: name,
                values,
            });
        }
    }
    for dimension in &dimensions {
        if IN_MATRIX.contains(&dimension.key.as_str()) || dimension.key == CACHE {
            refuse_outside(dimension, outside, mistakes);
        }
    }
    dimensions
}

/// `cache` in the matrix of a phase with groups.
pub(super) fn caches(
    at: &ValuePosition,
    value: &Spanned<DeValue<'_>>,
    outside: &DeTable<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Dimension> {
    let dimension = Dimension {
        group: String::new(),
        key: CACHE.to_owned(),
        values: values(CACHE, at, value, mistakes)?,
    };
    refuse_outside(&dimension, outside, mistakes);
    Some(dimension)
}

fn refuse_outside(dimension: &Dimension, outside: &DeTable<'_>, mistakes: &mut Mistakes<'_>) {
    let key = dimension.key.as_str();
    if outside.contains_key(key)
        && let Some((_, at)) = dimension.values.first()
    {
        let reason = format!("`{key}` is also set outside matrix");
        mistakes.at(at, reason, "keep one of them");
    }
}

/// A key that belongs to the phase rather than to a workload, and that a matrix may have.
fn key_of_phase(name: &str) -> Option<&'static Key> {
    let of_loads = LoadKeys::all()
        .iter()
        .filter(|key| IN_MATRIX.contains(&key.name));
    let of_phases = PhaseKeys::all().iter().filter(|key| key.name == CACHE);
    let mut keys = of_loads.chain(of_phases).copied();
    keys.find(|key| key.name == name)
}

fn values(
    name: &str,
    at: &ValuePosition,
    value: &Spanned<DeValue<'_>>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(serde_json::Value, ValuePosition)>> {
    let Some(list) = value.get_ref().as_array() else {
        mistakes.at(
            at,
            format!("expected a list, found {}", kind(value.get_ref())),
            format!("write {name} = [...]"),
        );
        return None;
    };
    if list.is_empty() {
        mistakes.at(
            at,
            "the list is empty, so there is no cell",
            "give it a value, or remove the key",
        );
        return None;
    }
    let mut values: Vec<(serde_json::Value, ValuePosition)> = Vec::new();
    for item in list.iter() {
        let item_at = ValuePosition {
            span: item.span(),
            key: at.key.clone(),
        };
        let json = to_json(item.get_ref(), &item_at, mistakes)?;
        if let Some(key) = key_of_phase(name)
            && let Err(message) = (key.check)(key, &json)
        {
            mistakes.at(&item_at, message, "");
            return None;
        }
        values.push((json, item_at));
    }
    Some(values)
}
