//! A phase's parameters and its matrix, as the workload is to judge them.

use super::super::{
    cells,
    keys::{GroupKeys, IN_MATRIX, LinkKeys, LoadKeys, PhaseKeys, names},
    read::{Section, kind, to_json, unknown_key},
    source::{Mistakes, Position},
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

/// The parameters of a load that stand outside `matrix`, for the workload to judge.
pub(super) fn params(
    section: &Section<'_, '_>,
    workload: &dyn Workload,
    group: &str,
    matrix: &[cells::Axis],
    mistakes: &mut Mistakes<'_>,
) -> (Map<String, serde_json::Value>, BTreeMap<String, Position>) {
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
                format!("`{key}` also stands in matrix"),
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
) -> Vec<cells::Dimension> {
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

/// The keys of a matrix that are `group`'s, whose own table is `outside`.
pub(super) fn dimensions(
    table: &DeTable<'_>,
    position: &Position,
    group: &str,
    outside: &DeTable<'_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Vec<cells::Dimension> {
    let mut known: Vec<&str> = all_keys(workload).map(|key| key.name).collect();
    known.extend(IN_MATRIX);
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut dimensions = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().to_string();
        let at = Position {
            span: key.span(),
            key: format!("{}.{name}", position.key),
        };
        if !known.contains(&name.as_str()) {
            unknown_key(&name, &at, &known, mistakes);
            continue;
        }
        if let Some(values) = values(&name, &at, value, mistakes) {
            dimensions.push(cells::Dimension {
                group: group.to_owned(),
                key: name,
                values,
            });
        }
    }
    for counted in IN_MATRIX {
        if outside.contains_key(*counted)
            && let Some(dimension) = dimensions
                .iter()
                .find(|dimension| dimension.key == *counted)
            && let Some((_, at)) = dimension.values.first()
        {
            mistakes.at(
                at,
                format!("`{counted}` also stands outside matrix"),
                "keep one of them",
            );
        }
    }
    dimensions
}

fn values(
    name: &str,
    at: &Position,
    value: &Spanned<DeValue<'_>>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(serde_json::Value, Position)>> {
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
            "the list is empty: there would be no cell",
            "give it a value, or remove the key",
        );
        return None;
    }
    let mut values: Vec<(serde_json::Value, Position)> = Vec::new();
    for item in list.iter() {
        let item_at = Position {
            span: item.span(),
            key: at.key.clone(),
        };
        let json = to_json(item.get_ref(), &item_at, mistakes)?;
        if IN_MATRIX.contains(&name) {
            let one = Map::from_iter([(name.to_owned(), json.clone())]);
            if let Err(error) = LoadKeys::read(&one) {
                mistakes.at(&item_at, error.message, "");
                return None;
            }
        }
        values.push((json, item_at));
    }
    Some(values)
}
