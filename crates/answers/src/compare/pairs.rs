//! Pairs the cells of two sides, and gives the reason for each cell without a partner.

use super::cell::{CellKey, MeasuredCell};
use super::model::Incomparable;
use benchmesh_workloads::figures;
use benchmesh_workloads::units::Bytes;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// All repeats of one operation of a cell on one side.
#[derive(Clone, Debug)]
pub(super) struct RepeatGroup {
    pub key: CellKey,
    /// Empty if the sides are targets.
    pub target: String,
    pub repeats: Vec<MeasuredCell>,
}

/// The same cell on both sides.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub a: RepeatGroup,
    pub b: RepeatGroup,
    /// The keys that distinguish it from other cells of its phase.
    pub cell: Map<String, Value>,
    /// Keys that only one side has, if a side was imported.
    pub one_sided: Vec<String>,
}

/// Pairs the cells of two sides, in the order of A.
pub(super) fn pairs(a: Vec<MeasuredCell>, b: Vec<MeasuredCell>) -> (Vec<Pair>, Vec<Incomparable>) {
    let targets = |cells: &[MeasuredCell]| -> BTreeSet<String> {
        cells.iter().map(|cell| cell.target.clone()).collect()
    };
    // If each side has a single target, they are compared whatever their names; several are matched by name.
    let by_target = targets(&a).len() > 1 || targets(&b).len() > 1;
    let imported = a.iter().chain(&b).any(|cell| cell.imported);
    let left_a = grouped(a, by_target);
    let mut left_b = grouped(b, by_target);
    let mut pairs = Vec::new();
    let mut incomparable = Vec::new();
    let mut unpaired = Vec::new();
    for one in left_a {
        match take(&mut left_b, |other| {
            other.key == one.key && other.target == one.target
        }) {
            Some(other) => pairs.push(pair(one, other, Vec::new())),
            None => unpaired.push(one),
        }
    }
    for one in unpaired {
        if imported && let Some(other) = take(&mut left_b, |other| is_same_load(&one, other)) {
            let one_sided = one_sided(&one.key.params, &other.key.params);
            pairs.push(pair(one, other, one_sided));
            continue;
        }
        let nearest = nearest(&one, &left_b);
        match take(&mut left_b, |other| Some(&other.key) == nearest.as_ref()) {
            Some(other) => incomparable.push(Incomparable {
                what: named(&one),
                why: different(&one.key, &other.key).join("; "),
            }),
            None => incomparable.push(only("A", &one)),
        }
    }
    incomparable.extend(left_b.iter().map(|other| only("B", other)));
    name_cells(&mut pairs, by_target);
    (pairs, incomparable)
}

fn grouped(cells: Vec<MeasuredCell>, by_target: bool) -> Vec<RepeatGroup> {
    let mut groups: Vec<RepeatGroup> = Vec::new();
    for cell in cells {
        let target = match by_target {
            true => cell.target.clone(),
            false => String::new(),
        };
        let same = groups
            .iter_mut()
            .find(|group| group.key == cell.key && group.target == target);
        match same {
            Some(group) => group.repeats.push(cell),
            None => groups.push(RepeatGroup {
                key: cell.key.clone(),
                target,
                repeats: vec![cell],
            }),
        }
    }
    groups
}

fn take(
    groups: &mut Vec<RepeatGroup>,
    is_it: impl Fn(&RepeatGroup) -> bool,
) -> Option<RepeatGroup> {
    let at = groups.iter().position(is_it)?;
    Some(groups.remove(at))
}

fn pair(a: RepeatGroup, b: RepeatGroup, one_sided: Vec<String>) -> Pair {
    Pair {
        a,
        b,
        cell: Map::new(),
        one_sided,
    }
}

/// Whether two cells, one of them imported, are the same load as far as both sides' keys show.
fn is_same_load(a: &RepeatGroup, b: &RepeatGroup) -> bool {
    a.key.op == b.key.op
        && a.key.mode == b.key.mode
        && a.key.params.iter().all(|(key, value)| {
            let other = b.key.params.get(key);
            other.is_none_or(|other| is_same_value(value, other))
        })
}

/// `4k` and 4096 are the same size.
fn is_same_value(a: &Value, b: &Value) -> bool {
    let size = |value: &Value| figures::parameter(value).parse::<Bytes>().ok();
    a == b || size(a).is_some_and(|a| size(b) == Some(a))
}

fn one_sided(a: &Map<String, Value>, b: &Map<String, Value>) -> Vec<String> {
    let only = |from: &Map<String, Value>, other: &Map<String, Value>| -> Vec<String> {
        from.keys()
            .filter(|key| !other.contains_key(*key))
            .cloned()
            .collect()
    };
    [only(a, b), only(b, a)].concat()
}

/// The cell of the same phase, mode and operation that differs in the fewest keys.
fn nearest(one: &RepeatGroup, others: &[RepeatGroup]) -> Option<CellKey> {
    others
        .iter()
        .filter(|other| {
            let (a, b) = (&one.key, &other.key);
            (&a.phase, &a.group, &a.mode, &a.op, &a.link)
                == (&b.phase, &b.group, &b.mode, &b.op, &b.link)
                && one.target == other.target
        })
        .min_by_key(|other| different(&one.key, &other.key).len())
        .map(|other| other.key.clone())
}

/// Each key that differs, with both values.
fn different(a: &CellKey, b: &CellKey) -> Vec<String> {
    let mut differences = Vec::new();
    let mut say = |key: &str, a: String, b: String| {
        if a != b {
            differences.push(format!("{key} is {a} in A and {b} in B"));
        }
    };
    say("workload", a.workload.clone(), b.workload.clone());
    say("clients", a.clients.to_string(), b.clients.to_string());
    say("cache", a.cache.clone(), b.cache.clone());
    let keys: BTreeSet<&String> = a.params.keys().chain(b.params.keys()).collect();
    for key in keys {
        let shown = |params: &Map<String, Value>| {
            params
                .get(key)
                .map_or_else(|| String::from("not set"), figures::parameter)
        };
        say(key, shown(&a.params), shown(&b.params));
    }
    differences
}

fn named(group: &RepeatGroup) -> String {
    let key = &group.key;
    let mut words = vec![key.phase.as_str(), key.group.as_str(), key.mode.as_str()];
    if key.op != key.mode {
        words.push(&key.op);
    }
    words.extend([key.link.as_str(), group.target.as_str()]);
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

fn only(side: &str, group: &RepeatGroup) -> Incomparable {
    Incomparable {
        what: named(group),
        why: format!("only {side} has it"),
    }
}

/// Gives each pair the keys in which it differs from others of its phase, mode and operation.
fn name_cells(pairs: &mut [Pair], by_target: bool) {
    let facts: Vec<Map<String, Value>> =
        pairs.iter().map(|pair| facts(&pair.a, by_target)).collect();
    let kin: Vec<Vec<usize>> = pairs
        .iter()
        .map(|one| {
            let same = |other: &Pair| {
                let (a, b) = (&one.a.key, &other.a.key);
                (&a.phase, &a.group, &a.mode, &a.op) == (&b.phase, &b.group, &b.mode, &b.op)
            };
            let pairs = pairs.iter().enumerate();
            pairs
                .filter(|(_, other)| same(other))
                .map(|(at, _)| at)
                .collect()
        })
        .collect();
    for ((pair, own), kin) in pairs.iter_mut().zip(&facts).zip(kin) {
        let varies = |key: &String| {
            let others = kin.iter().filter_map(|at| facts.get(*at));
            let mut others = others.map(|facts| facts.get(key));
            others.any(|value| value != own.get(key))
        };
        pair.cell = own
            .iter()
            .filter(|(key, _)| varies(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
    }
}

fn facts(group: &RepeatGroup, by_target: bool) -> Map<String, Value> {
    let mut facts = group.key.params.clone();
    facts.insert(String::from("clients"), Value::from(group.key.clients));
    facts.insert(String::from("cache"), Value::from(group.key.cache.as_str()));
    if !group.key.link.is_empty() {
        facts.insert(String::from("link"), Value::from(group.key.link.as_str()));
    }
    if by_target {
        facts.insert(String::from("target"), Value::from(group.target.as_str()));
    }
    facts
}
