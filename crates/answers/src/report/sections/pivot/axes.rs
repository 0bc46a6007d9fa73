//! Keys in which results differ, and the order of their values.

use super::super::{Line, Report, StepReport};
use benchmesh_workloads::figures;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// Keys that are not parameters of a workload.
const OWN_KEYS: [&str; 8] = [
    "mode", "op", "group", "target", "clients", "link", "cache", "loop",
];

/// The value of a key in one line; empty if there is none.
pub(super) fn value(line: &Line<'_>, key: &str) -> String {
    match key {
        "mode" => line.mode().to_owned(),
        "op" => line.op.map(|op| op.op.clone()).unwrap_or_default(),
        "group" => line.group_name().to_owned(),
        "target" => line.step.target.clone(),
        "clients" => line.clients().to_string(),
        "link" => line.step.links.clone(),
        "cache" => line.step.cache.clone(),
        "loop" => line.step.loop_number.to_string(),
        key => line.param(key).map(figures::parameter).unwrap_or_default(),
    }
}

/// Every key that the results of a run have.
pub fn known_keys(report: &Report) -> BTreeSet<String> {
    let lines = report.steps.iter().flat_map(StepReport::lines);
    let params = lines.flat_map(|line| line.all_params().map(|(key, _)| key));
    let own = OWN_KEYS.map(str::to_owned).into_iter();
    params.cloned().chain(own).collect()
}

/// The first requested key that the run does not have.
pub fn unknown_key<'k>(report: &Report, wanted: &'k [String]) -> Option<&'k str> {
    let known = known_keys(report);
    wanted
        .iter()
        .map(String::as_str)
        .find(|key| !known.contains(*key))
}

/// The keys of the matrix: parameters (also of the groups beside), numbers of clients and caches that differ between the
/// lines. The outermost, which changes least often from step to step, comes first.
pub(super) fn matrix_keys(lines: &[Line<'_>]) -> Vec<String> {
    let params = lines.iter().flat_map(Line::all_params);
    let candidates: BTreeSet<&str> = params
        .map(|(key, _)| key.as_str())
        .chain(["clients", "cache"])
        .collect();
    let mut keys: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter(|key| distinct(lines, key).len() > 1)
        .map(|key| {
            let values: Vec<String> = lines.iter().map(|line| value(line, key)).collect();
            let changes = values.windows(2).filter(|two| two.first() != two.last());
            (changes.count(), key)
        })
        .collect();
    keys.sort();
    keys.into_iter().map(|(_, key)| key.to_owned()).collect()
}

/// The keys of the matrix. Keys whose values determine each other are grouped.
pub(super) fn tied(lines: &[Line<'_>], keys: &[String]) -> Vec<Vec<String>> {
    let differ_together = |a: &str, b: &str| {
        let pairs: BTreeSet<(String, String)> = lines
            .iter()
            .map(|line| (value(line, a), value(line, b)))
            .collect();
        [a, b]
            .iter()
            .all(|key| distinct(lines, key).len() == pairs.len())
    };
    let mut tied: Vec<Vec<String>> = Vec::new();
    for key in keys {
        let with = |known: &&mut Vec<String>| {
            let first = known.first();
            first.is_some_and(|first| differ_together(first, key))
        };
        match tied.iter_mut().find(with) {
            Some(known) => known.push(key.clone()),
            None => tied.push(vec![key.clone()]),
        }
    }
    tied
}

/// The values of a key: numbers by size, others in the order of the steps.
pub(super) fn distinct(lines: &[Line<'_>], key: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for line in lines {
        let value = value(line, key);
        if seen.insert(value.clone()) {
            values.push(value);
        }
    }
    let sizes: HashMap<String, f64> = values
        .iter()
        .filter_map(|value| Some((value.clone(), size(value)?)))
        .collect();
    if sizes.len() == values.len() {
        values.sort_by(|a, b| match (sizes.get(a), sizes.get(b)) {
            (Some(a), Some(b)) => a.total_cmp(b),
            _ => Ordering::Equal,
        });
    }
    values
}

/// A number with an optional unit of size or time, only used for sorting values.
pub(super) fn size(text: &str) -> Option<f64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let by = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "s" => 1.0,
        "k" | "kib" | "kb" => 1024.0,
        "mib" | "mb" => 1_048_576.0,
        // Minutes and mebibytes never occur as values of the same key.
        "m" => 1_048_576.0,
        "g" | "gib" | "gb" => 1_073_741_824.0,
        "t" | "tib" | "tb" => 1_099_511_627_776.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "h" => 3600.0 * 1_048_576.0 / 60.0,
        _ => return None,
    };
    Some(number * by)
}
