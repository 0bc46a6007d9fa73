//! The cells of a phase: its matrix multiplied out, with each cell checked by the workload in every mode.

use super::Cache;
use super::keys::CACHE;
use super::matrix::{Axis, combination};
use super::memory;
use super::read::in_matrix;
use super::source::{Mistakes, ValuePosition};
use benchmesh_workloads::params::{ValueType, units::RamMultiple, unused_keys};
use benchmesh_workloads::workload::{all_keys, key_sets};
use benchmesh_workloads::{
    registry,
    workload::{Footprint, Workload},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap};

/// More cells than this in one phase are a mistake.
const MAX_CELLS: usize = 10_000;

/// The positions of a cell's parameters in the plan.
type Positions = BTreeMap<String, ValuePosition>;

/// The parameters of a phase outside its matrix.
pub(super) struct Base {
    pub params: Map<String, Value>,
    pub params_at: Positions,
    pub clients: Option<u32>,
    pub tasks_per_agent: u32,
    pub at: ValuePosition,
}

/// One cell of a phase, before targets and repeats.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Sizes that are multiples of memory have an assumed value here.
    pub params: Map<String, Value>,
    /// Sizes that are multiples of memory, by key.
    pub(crate) of_memory: BTreeMap<String, RamMultiple>,
    /// The value of `cache` in the matrix, and its position in the plan.
    pub(crate) cache: Option<(Cache, ValuePosition)>,
    /// `None` for all selected clients.
    pub clients: Option<u32>,
    pub tasks_per_agent: u32,
    /// The footprint of one task in each mode, in the order of the phase's modes; `None` if the mode is impossible in
    /// this cell.
    pub(crate) footprints: Vec<Option<Footprint>>,
    /// The position of `clients`.
    pub(crate) clients_at: Option<ValuePosition>,
    /// Paths on the agents' hosts that the workload reads.
    pub(crate) sources: Vec<(String, ValuePosition)>,
    pub(super) positions: Positions,
    /// Position of its phase or group in the plan.
    at: ValuePosition,
}

impl Cell {
    /// Resolves the cell for hosts whose largest memory is given. While the memory is unknown, multiples stay
    /// unresolved and the cell takes no space.
    pub(super) fn on_memory(
        &self,
        memory_bytes: Option<u64>,
        workload: &dyn Workload,
        modes: &[String],
        mistakes: &mut Mistakes<'_>,
    ) -> Cow<'_, Cell> {
        if self.of_memory.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut params = self.params.clone();
        for (key, multiple) in &self.of_memory {
            let value = match memory_bytes {
                Some(memory_bytes) => memory::size(*multiple, memory_bytes),
                None => Value::String(multiple.to_string()),
            };
            params.insert(key.clone(), value);
        }
        let mut on_memory = |(footprint, mode): (&Option<Footprint>, &String)| match memory_bytes {
            Some(_) => footprint
                .and_then(|_| judged(workload, mode, &params, &self.positions, &self.at, mistakes)),
            None => footprint.map(|footprint| Footprint {
                bytes: 0,
                moved_bytes: 0,
                ..footprint
            }),
        };
        let footprints = self.footprints.iter().zip(modes);
        let footprints = footprints.map(&mut on_memory).collect();
        Cow::Owned(Cell {
            params,
            footprints,
            ..self.clone()
        })
    }
}

/// A group's part of every combination; the first key of the matrix varies slowest.
pub(super) fn checked(
    group: &str,
    workload: &dyn Workload,
    modes: &[String],
    base: &Base,
    matrix: &[Axis],
    mistakes: &mut Mistakes<'_>,
) -> Cells {
    let count = matrix
        .iter()
        .try_fold(1_usize, |n, axis| n.checked_mul(axis.len()))
        .filter(|count| *count <= MAX_CELLS);
    let Some(count) = count else {
        mistakes.at(
            &base.at,
            format!("the matrix has more than {MAX_CELLS} cells"),
            "shorten its lists, or split the phase",
        );
        return Cells::default();
    };
    let mut checked = Vec::new();
    for index in 0..count {
        if mistakes.is_cancelled() {
            return Cells::default();
        }
        let chosen = combination(matrix, index, group);
        let (cell, refused) = checked_cell(workload, modes, base, &chosen, mistakes);
        checked.push((chosen, cell, refused));
    }
    // The cells of groups are matched by number, so none can be skipped there. A mode that is possible in no cell is a
    // mistake.
    let is_possible = |mode: usize| {
        let possible = |cell: &Cell| cell.footprints.get(mode).is_some_and(Option::is_some);
        checked.iter().any(|(_, cell, _)| possible(cell))
    };
    let can_skip = group.is_empty()
        && (0..modes.len().max(1)).all(is_possible)
        && checked
            .iter()
            .all(|(chosen, _, refused)| refused.is_empty() || values_are_valid(workload, chosen));
    let mut cells = Cells::default();
    for (chosen, cell, refused) in checked {
        if !can_skip {
            cells.has_mistakes |= !refused.is_empty();
            cells.cells.push(cell);
            for own in refused.into_values() {
                mistakes.extend(own);
            }
        } else if cell.footprints.iter().all(Option::is_none) {
            let why = refused.into_values().next();
            cells.skipped.push(skipped("the cell", &chosen, why));
        } else {
            // Each mode lays out data that it does not find, so the others need not be skipped.
            for (mode, own) in refused {
                let name = modes.get(mode).map_or("", String::as_str);
                let what = format!("mode `{name}` of the cell");
                cells.skipped.push(skipped(&what, &chosen, Some(own)));
            }
            cells.cells.push(cell);
        }
    }
    cells
}

/// The cells of a group, and the reasons why others of its matrix, or modes of some cells, are skipped.
#[derive(Default)]
pub(super) struct Cells {
    pub cells: Vec<Cell>,
    pub skipped: Vec<String>,
    /// Some cells are invalid: the plan is refused.
    pub has_mistakes: bool,
}

/// Why a mode is impossible, by mode.
type Refused<'s> = BTreeMap<usize, Mistakes<'s>>;

/// Whether each value of a matrix is valid by itself, so that only the combination is impossible.
fn values_are_valid(workload: &dyn Workload, chosen: &[(&str, &Value, &ValuePosition)]) -> bool {
    chosen.iter().all(|(name, value, _)| {
        all_keys(workload)
            .find(|key| key.name == *name)
            .is_none_or(|key| (key.check)(key, &memory::assumed(key, value)).is_ok())
    })
}

/// Skips impossible cells, as `iozone -a` skips records larger than the file, but records the reason.
fn skipped(
    what: &str,
    chosen: &[(&str, &Value, &ValuePosition)],
    mistakes: Option<Mistakes<'_>>,
) -> String {
    let values: Vec<String> = chosen
        .iter()
        .map(|(key, value, _)| format!("{key} = {value}"))
        .collect();
    let errors = mistakes.map_or_else(Vec::new, |mistakes| mistakes.into_errors().errors);
    let reason = errors.first().map_or("", |error| error.reason.as_str());
    let key = errors
        .first()
        .map_or("", |error| error.key.rsplit('.').next().unwrap_or_default());
    format!(
        "leaves out {what} with {}: `{key}`: {reason}",
        values.join(", ")
    )
}

/// Refuses keys that have no effect in any mode of any cell. They are only checked if no cell has a mistake.
pub(super) fn refuse_unused_keys(
    workload: &dyn Workload,
    modes: &[String],
    cells: &Cells,
    phase: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) {
    if modes.is_empty() || cells.has_mistakes {
        return;
    }
    let cells = &cells.cells;
    let modes: Vec<&str> = modes.iter().map(String::as_str).collect();
    let params: Vec<&Map<String, Value>> = cells.iter().map(|cell| &cell.params).collect();
    for unused in unused_keys(&key_sets(workload), &modes, &params) {
        let key = unused.error.key.unwrap_or_default();
        let cell = cells.get(unused.cell);
        let position = cell.and_then(|cell| cell.positions.get(&key));
        mistakes.at(position.unwrap_or(phase), unused.error.message, "");
    }
}

fn checked_cell<'s>(
    workload: &dyn Workload,
    modes: &[String],
    base: &Base,
    chosen: &[(&str, &Value, &ValuePosition)],
    mistakes: &Mistakes<'s>,
) -> (Cell, Refused<'s>) {
    let mut cell = Cell {
        params: base.params.clone(),
        of_memory: BTreeMap::new(),
        cache: None,
        clients: base.clients,
        tasks_per_agent: base.tasks_per_agent,
        footprints: Vec::new(),
        clients_at: None,
        sources: Vec::new(),
        positions: Positions::new(),
        at: base.at.clone(),
    };
    let mut positions = base.params_at.clone();
    for (key, value, position) in chosen {
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        match *key {
            "clients" => {
                cell.clients = number;
                cell.clients_at = Some((*position).clone());
            }
            "tasks-per-agent" => cell.tasks_per_agent = number.unwrap_or(1),
            CACHE => {
                let cache = value.as_str().and_then(Cache::parse);
                cell.cache = cache.map(|cache| (cache, (*position).clone()));
            }
            _ => {
                cell.params.insert((*key).to_owned(), (*value).clone());
                positions.insert((*key).to_owned(), (*position).clone());
            }
        }
    }
    cell.of_memory = memory::take_multiples(workload, &mut cell.params);
    cell.sources = workload
        .keys()
        .list
        .iter()
        .filter(|key| matches!((key.value)(), ValueType::Path))
        .filter_map(|key| {
            let path = cell.params.get(key.name)?.as_str()?;
            Some((
                path.to_owned(),
                positions.get(key.name).unwrap_or(&base.at).clone(),
            ))
        })
        .collect();
    // Without a valid mode, the first mode judges the parameters.
    let judge: Vec<&str> = if modes.is_empty() {
        workload
            .modes()
            .iter()
            .take(1)
            .map(|mode| mode.name)
            .collect()
    } else {
        modes.iter().map(String::as_str).collect()
    };
    let mut refused = Refused::new();
    for (index, mode) in judge.into_iter().enumerate() {
        let mut own = mistakes.fork();
        let footprint = judged(workload, mode, &cell.params, &positions, &base.at, &mut own);
        if own.count() > 0 {
            refused.insert(index, own);
        }
        cell.footprints.push(footprint);
    }
    cell.positions = positions;
    (cell, refused)
}

/// Asks the workload repeatedly, each time without the keys that it refused, so that every bad value of a cell is
/// reported at once.
fn judged(
    workload: &dyn Workload,
    mode: &str,
    params: &Map<String, Value>,
    positions: &Positions,
    phase: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) -> Option<Footprint> {
    let mut rest = params.clone();
    loop {
        let error = match registry::check(workload, mode, &rest) {
            Ok(footprint) if rest.len() == params.len() => return Some(footprint),
            Ok(_) => return None,
            Err(error) => error,
        };
        let key = error
            .key
            .as_deref()
            .map(|path| path.split(['.', '[']).next().unwrap_or(path));
        let Some(key) = key.filter(|key| rest.contains_key(*key)) else {
            // A key that is missing only because it was removed here is not a mistake in the plan.
            if rest.len() == params.len() {
                let position = ValuePosition {
                    span: phase.span.clone(),
                    key: key
                        .map_or_else(|| phase.key.clone(), |key| format!("{}.{key}", phase.key)),
                };
                mistakes.at(&position, error.message, "");
            }
            return None;
        };
        let position = positions.get(key).unwrap_or(phase);
        let remedy = match rest.get(key) {
            Some(Value::Array(_)) => in_matrix(key),
            _ => String::new(),
        };
        mistakes.at(position, error.message, remedy);
        rest.remove(key);
    }
}
