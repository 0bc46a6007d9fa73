//! Sides of a comparison by a key: the cells of one run by a key of the plan, or the runs of a plan by their version or
//! a tag.

use super::cells::{Seconds, cells_of};
use super::runs::{self, ended_runs};
use super::{CompareError, Loaded, MAX_PAIRED, reading};
use crate::compare::cell::MeasuredCell;
use crate::compare::model::{KeyFilter, RunRef, Side};
use crate::rows::rows_with;
use benchmesh_workloads::figures;
use benchmesh_workloads::params::nearest;
use benchmesh_workloads::units::Bytes;
use rusqlite::Connection;
use std::collections::BTreeSet;

/// Maximum number of runs of a plan, the newest.
const MAX_RUNS: u32 = 60;
/// The keys of every load; those of the plan come in addition.
pub const OWN_KEYS: [&str; 9] = [
    "target", "phase", "mode", "op", "group", "workload", "clients", "cache", "link",
];
/// `tag.pool` is the value of the tag `pool`.
const TAG: &str = "tag.";

/// Whether the sides are runs of a plan, not cells of a run.
pub(super) fn is_of_runs(key: &str) -> bool {
    key == "version" || key.starts_with(TAG)
}

/// Each pair of sides of a run: the cells with each value of the key, which is no part of their identity then.
pub(super) fn cells_by(
    connection: &Connection,
    run: &RunRef,
    key: &str,
    only: &[KeyFilter],
) -> Result<Vec<(Loaded, Loaded)>, CompareError> {
    let cells = cells_of(connection, run, None, Seconds::Read)?;
    check_keys(run, &cells, std::iter::once(key), only)?;
    let cells = selected(run, cells, only)?;
    let is_mixed = has_mixed_steps(&cells);
    let mut sides: Vec<Loaded> = Vec::new();
    for mut cell in cells {
        let Some(value) = value_of(&cell, key) else {
            continue;
        };
        without(&mut cell, key);
        // Modes read or write: with one operation each, these are the same for the comparison.
        if key == "mode" && !is_mixed {
            cell.key.op.clear();
        }
        let label = match key {
            "target" | "phase" | "mode" | "op" | "group" | "workload" | "link" => value,
            key => format!("{key}={value}"),
        };
        match sides.iter_mut().find(|(side, _)| side.label == label) {
            Some((_, cells)) => cells.push(cell),
            None => {
                let side = Side {
                    target: (key == "target").then(|| label.clone()),
                    label,
                    runs: vec![run.clone()],
                };
                sides.push((side, vec![cell]));
            }
        }
    }
    paired(sides, key)
}

/// Each pair of groups of a plan's runs that have the same version or the same value of a tag.
pub(super) fn runs_by(
    connection: &Connection,
    plan: &str,
    key: &str,
    only: &[KeyFilter],
) -> Result<Vec<(Loaded, Loaded)>, CompareError> {
    let plan = match plan {
        "last" => runs::find(connection, plan)?.name,
        plan => plan.to_owned(),
    };
    let found = ended_runs(connection, &plan, MAX_RUNS)?;
    if found.len() < 2 {
        return Err(runs::too_few(connection, &plan, found.len(), 2)?);
    }
    let mut sides: Vec<Loaded> = Vec::new();
    for run in found {
        let Some(value) = value_of_run(connection, &run, key)? else {
            continue;
        };
        let cells = cells_of(connection, &run, None, Seconds::Read)?;
        check_keys(&run, &cells, std::iter::empty(), only)?;
        let cells = selected(&run, cells, only)?;
        let name = key.strip_prefix(TAG).unwrap_or(key);
        let label = format!("{name}={value}");
        match sides.iter_mut().find(|(side, _)| side.label == label) {
            Some((side, known)) => {
                side.runs.push(run);
                known.extend(cells);
            }
            None => {
                let side = Side {
                    label,
                    target: None,
                    runs: vec![run],
                };
                sides.push((side, cells));
            }
        }
    }
    paired(sides, key)
}

fn value_of_run(
    connection: &Connection,
    run: &RunRef,
    key: &str,
) -> Result<Option<String>, CompareError> {
    let (sql, parameters) = match key.strip_prefix(TAG) {
        Some(tag) => (
            "SELECT value FROM run_tags WHERE run_id = ? AND key = ?",
            vec![run.id.0.into(), tag.to_owned().into()],
        ),
        None => (
            "SELECT version FROM runs WHERE id = ?",
            vec![run.id.0.into()],
        ),
    };
    let values: Vec<String> = rows_with(connection, sql, &parameters, |row| row.get(0))
        .map_err(reading("the runs of the plan"))?;
    Ok(values.into_iter().next())
}

fn paired(sides: Vec<Loaded>, key: &str) -> Result<Vec<(Loaded, Loaded)>, CompareError> {
    if sides.len() < 2 {
        let value = sides.into_iter().next().map(|(side, _)| side.label);
        return Err(CompareError::OneSide {
            key: key.to_owned(),
            value: value.unwrap_or_else(|| String::from("none")),
        });
    }
    let is_paired = sides.len() <= MAX_PAIRED;
    let mut pairs = Vec::new();
    for (at, a) in sides.iter().enumerate() {
        if at > 0 && !is_paired {
            break;
        }
        pairs.extend(sides.iter().skip(at + 1).map(|b| (a.clone(), b.clone())));
    }
    Ok(pairs)
}

/// Whether a step has several operations.
fn has_mixed_steps(cells: &[MeasuredCell]) -> bool {
    let mut steps = BTreeSet::new();
    cells.iter().any(|cell| !steps.insert(cell.step))
}

fn check_keys<'k>(
    run: &RunRef,
    cells: &[MeasuredCell],
    keys: impl Iterator<Item = &'k str>,
    only: &'k [KeyFilter],
) -> Result<(), CompareError> {
    let known = known_keys(cells);
    let mut wanted = keys.chain(only.iter().map(|one| one.key.as_str()));
    match wanted.find(|wanted| !known.contains(*wanted)) {
        Some(wanted) => Err(CompareError::UnknownKey {
            run: run.id,
            key: wanted.to_owned(),
            near: nearest(wanted, known.iter().map(String::as_str).chain(["version"]))
                .map(str::to_owned),
            known: known.into_iter().collect::<Vec<_>>().join(", "),
        }),
        None => Ok(()),
    }
}

/// The cells that have all of these values.
fn selected(
    run: &RunRef,
    mut cells: Vec<MeasuredCell>,
    only: &[KeyFilter],
) -> Result<Vec<MeasuredCell>, CompareError> {
    let has = |cell: &MeasuredCell, one: &KeyFilter| {
        let value = value_of(cell, &one.key);
        value.is_some_and(|value| is_same_text(&value, &one.value))
    };
    cells.retain(|cell| only.iter().all(|one| has(cell, one)));
    if cells.is_empty() && !only.is_empty() {
        let wanted = only.iter().map(|one| format!("{}={}", one.key, one.value));
        return Err(CompareError::NothingSelected {
            run: run.id,
            wanted: wanted.collect::<Vec<_>>().join(" and "),
        });
    }
    Ok(cells)
}

/// `4k` and 4096 are the same size.
fn is_same_text(a: &str, b: &str) -> bool {
    let size = |text: &str| text.parse::<Bytes>().ok();
    a == b || size(a).is_some_and(|a| size(b) == Some(a))
}

/// The keys by which the cells can be divided.
fn known_keys(cells: &[MeasuredCell]) -> BTreeSet<String> {
    let params = cells
        .iter()
        .flat_map(|cell| cell.key.params.keys().cloned());
    let own = OWN_KEYS.into_iter().map(str::to_owned);
    own.chain(params).collect()
}

fn value_of(cell: &MeasuredCell, key: &str) -> Option<String> {
    let of = &cell.key;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match key {
        "target" => text(&cell.target),
        "phase" => text(&of.phase),
        "mode" => text(&of.mode),
        "op" => text(&of.op),
        "group" => text(&of.group),
        "workload" => text(&of.workload),
        "cache" => text(&of.cache),
        "link" => text(&of.link),
        "clients" => Some(of.clients.to_string()),
        key => of.params.get(key).map(figures::parameter),
    }
}

/// Removes a key from the identity of a cell. Phases may differ in their workload too.
fn without(cell: &mut MeasuredCell, key: &str) {
    match key {
        "target" => cell.target.clear(),
        "phase" => {
            cell.key.phase.clear();
            cell.key.workload.clear();
        }
        "mode" => cell.key.mode.clear(),
        "op" => cell.key.op.clear(),
        "group" => cell.key.group.clear(),
        "workload" => cell.key.workload.clear(),
        "cache" => cell.key.cache.clear(),
        "link" => cell.key.link.clear(),
        "clients" => cell.key.clients = 0,
        key => {
            cell.key.params.remove(key);
        }
    }
}
