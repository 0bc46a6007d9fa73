//! Splits a phase into tables: keys of the rows and columns, and the fixed values of each table.

use super::axes::{distinct, matrix_keys, size, tied, value};
use super::{Axes, cells};
use crate::report::{Field, Line, Measure, Pivot, PivotCell, PivotFigure};
use benchmesh_model::mesh::StepId;
use std::collections::{BTreeSet, HashMap};

/// Maximum number of modes as columns; more are rows.
const MODES_ACROSS: usize = 8;
/// Modes of links that the link matrix shows.
const OF_MATRIX: [&str; 2] = ["throughput", "ping"];

/// Operations that only bonnie++ and the modes modelled on it have.
const OF_BONNIE: [&str; 4] = ["putc", "getc", "rewrite", "seek"];

/// Which results become tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All but those of the matrix of links.
    Results,
    Links,
}

/// Lines of one group, mode and operation.
struct OpLines<'r> {
    keys: Vec<String>,
    lines: Vec<Line<'r>>,
}

/// The layout of tables that show the same keys.
struct PivotLayout {
    rows: Vec<String>,
    columns: Vec<String>,
    /// A table for each combination of their values.
    fixed: Vec<String>,
}

impl PivotLayout {
    /// Adds what all lines of a table have in common but other tables of the phase do not, so that its title names it.
    fn named_among(mut self, lines: &[Line<'_>], all: &[Line<'_>]) -> Self {
        let differs = |key: &&str| {
            let is_common = distinct(lines, key).len() == 1;
            let is_op = *key == "op";
            is_common && distinct(all, key).len() > 1 && (!is_op || several_ops(all))
        };
        let keys = ["group", "mode", "op", "target", "link"];
        let own = keys.into_iter().filter(differs).map(str::to_owned);
        let shown = own.filter(|key| !self.rows.contains(key) && !self.columns.contains(key));
        let named: Vec<String> = shown.collect();
        self.fixed.splice(0..0, named);
        self
    }
}

/// `all`: the lines of a phase.
pub(super) fn tables(
    all: &[Line<'_>],
    axes: &Axes,
    costs: &HashMap<StepId, f64>,
    part: Part,
) -> Vec<Pivot> {
    let mut tables = Vec::new();
    for block in blocks(all, part) {
        let keys = block
            .first()
            .map(|one| one.keys.clone())
            .unwrap_or_default();
        let lines: Vec<Line<'_>> = block.into_iter().flat_map(|one| one.lines).collect();
        let layout = layout(&lines, &keys, axes).named_among(&lines, all);
        for (fixed, lines) in split(&lines, &layout.fixed) {
            tables.extend(pivot(fixed, &lines, &layout, costs));
        }
    }
    tables
}

/// Series with the same matrix keys share their tables.
fn blocks<'r>(lines: &[Line<'r>], part: Part) -> Vec<Vec<OpLines<'r>>> {
    let mut blocks: Vec<Vec<OpLines<'r>>> = Vec::new();
    for (_, lines) in split(lines, &["group", "mode", "op"].map(str::to_owned)) {
        let first = lines.first();
        let is_of_links = first.is_some_and(|line| {
            !line.step.links.is_empty() && OF_MATRIX.contains(&line.mode()) && line.op.is_some()
        }) && distinct(&lines, "link").len() > 1;
        if is_of_links != (part == Part::Links) {
            continue;
        }
        let keys = matrix_keys(&lines);
        let same = |block: &&mut Vec<OpLines<'_>>| {
            let known = block
                .first()
                .map(|one| one.keys.iter().collect::<BTreeSet<_>>());
            known == Some(keys.iter().collect())
        };
        match blocks.iter_mut().find(same) {
            Some(block) => block.push(OpLines { keys, lines }),
            None => blocks.push(vec![OpLines { keys, lines }]),
        }
    }
    blocks
}

/// Splits the lines by the values of some keys, in the order of the values.
fn split<'r>(lines: &[Line<'r>], keys: &[String]) -> Vec<(Vec<Field>, Vec<Line<'r>>)> {
    let mut parts = vec![(Vec::new(), lines.to_vec())];
    for key in keys {
        parts = parts
            .into_iter()
            .flat_map(|(fixed, lines)| {
                let values = distinct(&lines, key);
                values.into_iter().map(move |wanted| {
                    let own = lines.iter().filter(|line| value(line, key) == wanted);
                    let own: Vec<Line<'_>> = own.copied().collect();
                    let mut fixed: Vec<Field> = fixed.clone();
                    fixed.push(Field {
                        key: key.clone(),
                        value: wanted,
                    });
                    (fixed, own)
                })
            })
            .collect();
    }
    parts
}

fn layout(lines: &[Line<'_>], matrix: &[String], axes: &Axes) -> PivotLayout {
    let several = |key: &str| distinct(lines, key).len() > 1;
    let what: Vec<String> = ["group", "mode", "op"]
        .into_iter()
        .filter(|key| several(key) && (*key != "op" || several_ops(lines)))
        .map(str::to_owned)
        .collect();
    let where_to: Vec<String> = ["target", "link"]
        .into_iter()
        .filter(|key| several(key))
        .map(str::to_owned)
        .collect();
    // Loops are averaged like repeats unless the user requests them as an axis.
    let is_named = |key: &String| axes.rows.contains(key) || axes.columns.contains(key);
    let loops: Vec<String> = std::iter::once(String::from("loop"))
        .filter(|key| is_named(key) && several(key))
        .collect();
    let all: Vec<String> = [what.clone(), where_to.clone(), matrix.to_vec(), loops].concat();
    let wanted = |keys: &[String]| -> Vec<String> {
        keys.iter()
            .filter(|key| all.contains(*key))
            .cloned()
            .collect()
    };
    let (mut rows, mut columns) = (wanted(&axes.rows), wanted(&axes.columns));
    let rest: Vec<String> = all
        .iter()
        .filter(|key| !rows.contains(*key) && !columns.contains(*key))
        .cloned()
        .collect();
    if axes.rows.is_empty() && axes.columns.is_empty() {
        (rows, columns) = chosen(lines, matrix, &what, &where_to);
    } else if rows.is_empty() {
        // The user chose the columns: the key that varies most labels the rows.
        rows = rest.iter().rev().take(1).cloned().collect();
        if rows.is_empty() {
            rows = std::mem::take(&mut columns);
        }
    }
    let fixed = all
        .into_iter()
        .filter(|key| !rows.contains(key) && !columns.contains(key))
        .collect();
    PivotLayout {
        rows,
        columns,
        fixed,
    }
}

/// The form that common benchmark tools print.
fn chosen(
    lines: &[Line<'_>],
    matrix: &[String],
    what: &[String],
    where_to: &[String],
) -> (Vec<String>, Vec<String>) {
    let modes = what.to_vec();
    let few_modes = split(lines, what).len() <= MODES_ACROSS;
    let has_clients = |keys: &&Vec<String>| keys.iter().any(|key| key == "clients");
    let axes = tied(lines, matrix);
    let of_clients = axes.iter().find(has_clients);
    match axes.as_slice() {
        // bonnie++: a row per target, a column per mode. Otherwise a row per mode.
        [] => {
            let mut ops = lines.iter().filter_map(|line| line.op);
            let bytewise = ops.any(|op| OF_BONNIE.contains(&op.op.as_str()));
            match (what, where_to) {
                ([_, ..], [_, ..]) if bytewise && few_modes => (where_to.to_vec(), modes),
                ([_, ..], [_, ..]) => (modes, where_to.to_vec()),
                ([], _) => (where_to.to_vec(), Vec::new()),
                (_, []) => (modes, Vec::new()),
            }
        }
        // Clients and rate: a table for each mode and target.
        [keys] if has_clients(&keys) => (keys.clone(), Vec::new()),
        [keys] => match (what, where_to) {
            (_, [_, ..]) => (keys.clone(), where_to.to_vec()),
            ([_, ..], []) if few_modes && same_lead(lines) => (keys.clone(), modes),
            _ => (keys.clone(), Vec::new()),
        },
        // iozone: file size x record size, a table per mode.
        [first, .., last] => match of_clients {
            Some(clients) if clients == first => (clients.clone(), last.clone()),
            Some(clients) => (clients.clone(), first.clone()),
            None => (first.clone(), last.clone()),
        },
    }
}

/// Whether any mode has more than one operation.
fn several_ops(lines: &[Line<'_>]) -> bool {
    split(lines, &["group", "mode"].map(str::to_owned))
        .iter()
        .any(|(_, lines)| distinct(lines, "op").len() > 1)
}

fn same_lead(lines: &[Line<'_>]) -> bool {
    let leads: BTreeSet<Measure> = lines.iter().map(cells::lead).collect();
    leads.len() == 1
}

fn pivot(
    fixed: Vec<Field>,
    lines: &[Line<'_>],
    layout: &PivotLayout,
    costs: &HashMap<StepId, f64>,
) -> Option<Pivot> {
    let rows = split(lines, &layout.rows);
    let columns: Vec<Vec<Field>> =
        split(lines, &layout.columns)
            .into_iter()
            .fold(Vec::new(), |mut known, (fields, _)| {
                if !known.contains(&fields) {
                    known.push(fields);
                }
                known
            });
    let mut cells: Vec<Vec<Option<PivotCell>>> = rows
        .iter()
        .map(|(_, of_row)| {
            columns
                .iter()
                .map(|fields| {
                    let is_here = |line: &&Line<'_>| {
                        fields
                            .iter()
                            .all(|field| value(line, &field.key) == field.value)
                    };
                    let here: Vec<Line<'_>> = of_row.iter().filter(is_here).copied().collect();
                    cells::cell(&here, costs)
                })
                .collect()
        })
        .collect();
    let mut row_labels: Vec<String> = rows.iter().map(|(fields, _)| label(fields)).collect();
    let mut column_labels: Vec<String> = columns.iter().map(|fields| label(fields)).collect();
    drop_empty(&mut cells, &mut row_labels, &mut column_labels);
    if cells.is_empty() {
        return None;
    }
    let bulk = layout
        .rows
        .iter()
        .chain(&layout.columns)
        .any(|key| key == "bs");
    settle_leads(&mut cells, bulk);
    if layout.rows == ["clients"] {
        add_speed_up(&mut cells, &row_labels);
    }
    let leads: BTreeSet<Measure> = cells
        .iter()
        .flatten()
        .flatten()
        .map(|cell| cell.lead)
        .collect();
    let lead = match leads.iter().collect::<Vec<_>>().as_slice() {
        [one] => Some(**one),
        _ => None,
    };
    Some(Pivot {
        fixed,
        row_keys: layout.rows.clone(),
        rows: row_labels,
        column_keys: layout.columns.clone(),
        columns: column_labels,
        lead,
        beside: other_measures(&cells, lead, layout.columns.is_empty()),
        cells,
    })
}

/// Removes rows and columns without a result in any cell.
fn drop_empty(
    cells: &mut Vec<Vec<Option<PivotCell>>>,
    rows: &mut Vec<String>,
    columns: &mut Vec<String>,
) {
    let keep_rows: Vec<bool> = cells
        .iter()
        .map(|row| row.iter().any(Option::is_some))
        .collect();
    let keep_columns: Vec<bool> = (0..columns.len())
        .map(|at| cells.iter().any(|row| matches!(row.get(at), Some(Some(_)))))
        .collect();
    retain(rows, &keep_rows);
    retain(columns, &keep_columns);
    retain(cells, &keep_rows);
    for row in cells {
        retain(row, &keep_columns);
    }
}

fn retain<T>(list: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    list.retain(|_| keep.next().copied().unwrap_or(true));
}

/// If block sizes are compared, throughput is the main figure. Also ensures that one column does not mix two units
/// because one of its rows moved larger blocks.
fn settle_leads(cells: &mut [Vec<Option<PivotCell>>], bulk: bool) {
    let all = || cells.iter().flatten().flatten();
    let has_bytes = all().all(|cell| cell.figures.contains_key(&Measure::MibPerS));
    if bulk && has_bytes && all().all(|cell| cell.lead != Measure::ElapsedS) {
        for cell in cells.iter_mut().flatten().flatten() {
            cell.lead = Measure::MibPerS;
        }
    }
}

fn label(fields: &[Field]) -> String {
    let values: Vec<&str> = fields
        .iter()
        .map(|field| field.value.as_str())
        .filter(|value| !value.is_empty())
        .collect();
    values.join(" ")
}

fn other_measures(
    cells: &[Vec<Option<PivotCell>>],
    lead: Option<Measure>,
    columns_are_figures: bool,
) -> Vec<Measure> {
    let all = || cells.iter().flatten().flatten();
    let any = |measure: Measure| all().any(|cell| cell.figures.contains_key(&measure));
    let above_zero = |measure: Measure| {
        all().any(|cell| {
            cell.figures
                .get(&measure)
                .is_some_and(|figure| figure.max > 0.0)
        })
    };
    let timed = lead == Some(Measure::ElapsedS);
    let candidates: &[Measure] = match (columns_are_figures, timed) {
        (true, true) => &[
            Measure::UserS,
            Measure::SystemS,
            Measure::OpsPerS,
            Measure::MibPerS,
            Measure::P99Ms,
            Measure::MaxMs,
            Measure::DaemonUsPerOp,
            Measure::ZeroSeconds,
            Measure::Errors,
        ],
        (true, false) => &[
            Measure::OpsPerS,
            Measure::MibPerS,
            Measure::PerDoubling,
            Measure::P50Ms,
            Measure::P99Ms,
            Measure::MaxMs,
            Measure::ResponseP99Ms,
            Measure::DaemonUsPerOp,
            Measure::UnevenPercent,
            Measure::ZeroSeconds,
            Measure::Errors,
        ],
        (false, true) => &[Measure::UserS, Measure::SystemS, Measure::DaemonUsPerOp],
        (false, false) => &[Measure::PerDoubling, Measure::P99Ms, Measure::DaemonUsPerOp],
    };
    candidates
        .iter()
        .copied()
        .filter(|measure| Some(*measure) != lead)
        .filter(|measure| match measure {
            Measure::ZeroSeconds | Measure::Errors | Measure::MibPerS => above_zero(*measure),
            // Only shown if the rate varies between seconds.
            Measure::UnevenPercent => all().any(|cell| {
                let uneven = cell.figures.get(measure);
                uneven.is_some_and(|figure| figure.value >= 1.0)
            }),
            measure => any(*measure),
        })
        .collect()
}

/// Computes the ratio of each cell to the one above it, which has fewer clients.
fn add_speed_up(cells: &mut [Vec<Option<PivotCell>>], rows: &[String]) {
    let clients: Vec<Option<f64>> = rows.iter().map(|row| size(row)).collect();
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    for column in 0..columns {
        let mut before: Option<(f64, f64)> = None;
        for (row, clients) in cells.iter_mut().zip(&clients) {
            let Some(Some(cell)) = row.get_mut(column) else {
                continue;
            };
            let rate = match cell.lead {
                Measure::ElapsedS => cell.figures.get(&Measure::OpsPerS),
                lead => cell.figures.get(&lead),
            };
            let (Some(clients), Some(rate)) = (*clients, rate.map(|figure| figure.value)) else {
                continue;
            };
            if let Some((fewer, less)) = before
                && less > 0.0
                && clients > fewer
            {
                let per_doubling = (rate / less).powf(1.0 / (clients / fewer).log2());
                let figure = PivotFigure {
                    n: 1,
                    value: per_doubling,
                    stddev: None,
                    min: per_doubling,
                    max: per_doubling,
                };
                cell.figures.insert(Measure::PerDoubling, figure);
            }
            before = Some((clients, rate));
        }
    }
}
