//! Titles of tables, and their notes on scaling.

use crate::report::{Measure, PhaseReport, Pivot, StepReport};
use benchmesh_workloads::figures;
use std::collections::BTreeSet;

/// A smaller gain from doubling the clients counts as no gain.
const STOPS: f64 = 1.1;

/// `records: write, cephfs`, and in parentheses the common values of all its steps.
pub fn title(phase: &PhaseReport, pivot: &Pivot, steps: &[&StepReport]) -> String {
    let fixed: Vec<String> = pivot
        .fixed
        .iter()
        .filter(|field| !field.value.is_empty())
        .map(|field| match field.key.as_str() {
            "mode" | "op" | "group" | "target" | "link" => field.value.clone(),
            key => format!("{key}={}", field.value),
        })
        .collect();
    let mut title = phase.phase.clone();
    if !fixed.is_empty() {
        title.push_str(&format!(": {}", fixed.join(", ")));
    }
    let common = common(phase, pivot, steps);
    if !common.is_empty() {
        title.push_str(&format!(" ({common})"));
    }
    title
}

fn common(phase: &PhaseReport, pivot: &Pivot, steps: &[&StepReport]) -> String {
    let keys = || pivot.row_keys.iter().chain(&pivot.column_keys);
    let shown = |key: &str| {
        keys().any(|one| one == key) || pivot.fixed.iter().any(|field| field.key == key)
    };
    let one = |values: BTreeSet<String>| match values.len() {
        1 => values.into_iter().next().filter(|value| !value.is_empty()),
        _ => None,
    };
    let all = |of: fn(&StepReport) -> String| one(steps.iter().map(|step| of(step)).collect());
    let mut parts = vec![phase.workload.clone()];
    if !shown("mode") {
        parts.extend(all(|step| step.mode.clone()));
    }
    if !shown("target") {
        parts.extend(all(|step| step.target.clone()).map(|target| format!("on {target}")));
    }
    if !shown("clients") {
        let clients = all(|step| step.clients.to_string());
        parts.extend(clients.map(|clients| match clients.as_str() {
            "1" => "1 client".to_owned(),
            many => format!("{many} clients"),
        }));
    }
    parts.extend(all(|step| match step.cache.as_str() {
        "asis" => String::new(),
        cache => cache.to_owned(),
    }));
    parts.join(", ")
}

/// For each column, the number of clients from which more clients bring no gain.
pub fn scale_notes(pivot: &Pivot) -> Vec<String> {
    if pivot.row_keys != ["clients"] {
        return Vec::new();
    }
    let columns = pivot.columns.iter().enumerate();
    columns
        .filter_map(|(at, column)| {
            let steps: Vec<(&String, f64)> = pivot
                .rows
                .iter()
                .zip(&pivot.cells)
                .filter_map(|(row, cells)| {
                    let cell = cells.get(at)?.as_ref()?;
                    let figure = cell.figures.get(&Measure::PerDoubling)?;
                    Some((row, figure.value))
                })
                .collect();
            let last = pivot.rows.last()?;
            let of = match column.as_str() {
                "" => String::new(),
                column => format!("{column}: "),
            };
            let grows = steps.iter().rposition(|(_, times)| *times >= STOPS);
            let beyond = steps.get(grows.map_or(0, |at| at + 1));
            Some(match (beyond, grows) {
                (None, None) => return None,
                (None, Some(_)) => format!("{of}it still grows at {last} clients."),
                (Some((_, times)), grows) => {
                    let until = grows
                        .and_then(|at| steps.get(at))
                        .map_or_else(|| pivot.rows.first(), |(row, _)| Some(*row))?;
                    format!(
                        "{of}it stops growing at {until} clients: the next doubling gives {} times the rate.",
                        figures::rate(*times)
                    )
                }
            })
        })
        .collect()
}
