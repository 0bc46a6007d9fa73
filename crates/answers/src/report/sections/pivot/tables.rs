//! The results: the tables of each phase, in the form that [`pivot`](super) chose.

use super::{scale_notes, title};
use crate::report::bands::{Band, packed};
use crate::report::table::with_spread_of;
use crate::report::{
    Measure, PhaseReport, Pivot, PivotCell, ProgressReport, Report, StepReport, Table,
};
use benchmesh_results::flags::meaning;
use benchmesh_results::missing::without;
use benchmesh_workloads::figures::{self, NONE};
use std::collections::{BTreeMap, BTreeSet};

/// Smaller relative differences between clients are not mentioned.
const MIN_UNEVENNESS: f64 = 0.02;

/// Columns that may be dropped if the table is too wide, the least important first.
const DROPPABLE: [&str; 8] = [
    "uneven %",
    "system s",
    "user s",
    "max ms",
    "p50 ms",
    "daemons us/op",
    "response p99 ms",
    "flags",
];

/// The tables of all phases; `width`: characters of a line, if limited.
pub(in crate::report) fn tables(report: &Report, width: Option<usize>) -> Vec<Table> {
    let phases = report.phases.iter();
    phases
        .flat_map(|phase| of_phase(report, phase, width))
        .collect()
}

fn of_phase(report: &Report, phase: &PhaseReport, width: Option<usize>) -> Vec<Table> {
    let steps: Vec<&StepReport> = report
        .steps
        .iter()
        .filter(|step| step.phase == phase.phase)
        .collect();
    let marks = Marks::of(phase);
    let mut tables: Vec<Table> = phase
        .tables
        .iter()
        .flat_map(|pivot| {
            let title = title(phase, pivot, &steps);
            match pivot.columns_are_figures() {
                true => vec![by_figure(pivot, title, &marks)],
                false => grid(pivot, &title, &marks, width),
            }
        })
        .collect();
    if let Some(last) = tables.last_mut() {
        let spread = phase.tables.iter().any(|pivot| {
            let mut cells = pivot.each_cell();
            cells.any(|(_, _, cell)| cell.figures.values().any(|figure| figure.n > 1))
        });
        if spread {
            last.notes.push(
                "Geometric mean of the repeats, ± their standard deviation in percent of it."
                    .to_owned(),
            );
        }
        last.notes.extend(left_out(phase));
        last.notes.extend(marks.notes());
        last.notes.extend(clients(&steps));
    }
    tables
}

/// A row per label, a column per figure.
fn by_figure(pivot: &Pivot, title: String, marks: &Marks) -> Table {
    let mut measures: Vec<Measure> = pivot.lead.into_iter().collect();
    measures.extend(&pivot.beside);
    let head = pivot.row_keys.join(" ");
    let mut table = Table::titled(&title);
    if !(pivot.rows.len() == 1 && pivot.rows.iter().all(String::is_empty)) {
        table = table.text(&head, pivot.rows.iter().cloned());
    }
    let cell = |row: &Vec<Option<PivotCell>>| row.first().cloned().flatten();
    let cells: Vec<Option<PivotCell>> = pivot.cells.iter().map(cell).collect();
    for measure in measures {
        let leads = |cell: &PivotCell| cell.lead == measure || pivot.lead == Some(measure);
        let texts = cells.iter().map(|cell| {
            cell.as_ref().map_or_else(
                || NONE.to_owned(),
                |cell| figure(cell, measure, leads(cell)),
            )
        });
        table = table.figures(measure.title(), texts);
    }
    let flags = cells.iter().map(|cell| {
        let flags = cell.iter().flat_map(|cell| &cell.flags);
        let own: Vec<&str> = flags
            .map(String::as_str)
            .filter(|flag| !marks.common.contains(*flag))
            .collect();
        own.join(" ")
    });
    table = table.text_if_any("flags", flags.collect());
    table.notes.extend(scale_notes(pivot));
    table.spare = DROPPABLE.to_vec();
    table
}

/// A row and a column per label, and a band of columns per figure, in as many tables as the width requires.
fn grid(pivot: &Pivot, title: &str, marks: &Marks, width: Option<usize>) -> Vec<Table> {
    let across = |at: usize| {
        pivot
            .each_cell()
            .filter(move |(_, column, _)| *column == at)
    };
    // The column of the mode shows the unit.
    let modes_across = pivot
        .column_keys
        .iter()
        .any(|key| key == "mode" || key == "op");
    let labels: Vec<String> = pivot
        .rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let cells = pivot
                .each_cell()
                .filter(|(row, ..)| *row == at)
                .map(|(.., cell)| cell);
            match unit(cells).filter(|_| pivot.lead.is_none() && !modes_across) {
                Some(unit) => format!("{row}, {}", unit.title()),
                None => row.clone(),
            }
        })
        .collect();
    let column_labels: Vec<String> = pivot
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = across(at).map(|(.., cell)| cell);
            match unit(cells).filter(|_| pivot.lead.is_none() && modes_across) {
                Some(unit) => format!("{column} {}", unit.title()),
                None => column.clone(),
            }
        })
        .collect();
    let lead_band = pivot.lead.map_or("", Measure::title);
    let mut bands: Vec<Band> = Vec::new();
    let measures = std::iter::once(None).chain(pivot.beside.iter().copied().map(Some));
    for measure in measures {
        let columns = column_labels.iter().enumerate().map(|(at, label)| {
            let cells = pivot.cells.iter().map(|row| match row.get(at) {
                Some(Some(cell)) => match measure {
                    None => format!("{}{}", figure(cell, cell.lead, true), marks.of_cell(cell)),
                    Some(measure) => figure(cell, measure, false),
                },
                _ => NONE.to_owned(),
            });
            (label.clone(), cells.collect())
        });
        let band = measure.map_or(lead_band, Measure::title).to_owned();
        bands.push((band, columns.collect()));
    }
    let head = format!(
        "{} \\ {}",
        pivot.row_keys.join(" "),
        pivot.column_keys.join(" ")
    );
    let mut tables = packed(title, &[(head, labels)], bands, width);
    if let Some(last) = tables.last_mut() {
        last.notes.extend(scale_notes(pivot));
    }
    tables
}

/// The common main figure of all cells of a row or column.
fn unit<'c>(cells: impl Iterator<Item = &'c PivotCell>) -> Option<Measure> {
    let leads: BTreeSet<Measure> = cells.map(|cell| cell.lead).collect();
    match leads.len() {
        1 => leads.into_iter().next(),
        _ => None,
    }
}

/// A figure of a cell; the main one with its spread.
fn figure(cell: &PivotCell, measure: Measure, with_spread: bool) -> String {
    let Some(figure) = cell.figures.get(&measure) else {
        return NONE.to_owned();
    };
    let text = match measure {
        Measure::MeanMs
        | Measure::P50Ms
        | Measure::P99Ms
        | Measure::MaxMs
        | Measure::ResponseP99Ms => figures::millis(figure.value),
        _ => figures::rate(figure.value),
    };
    with_spread_of(text, figure.spread_percent().filter(|_| with_spread))
}

/// The repeats of a phase that are in no figure.
fn left_out(phase: &PhaseReport) -> Option<String> {
    let cells = phase.tables.iter().flat_map(Pivot::each_cell);
    let steps: BTreeSet<i64> = cells.flat_map(|(.., cell)| cell.left_out.clone()).collect();
    let steps: Vec<String> = steps.iter().map(i64::to_string).collect();
    (!steps.is_empty()).then(|| {
        let steps = steps.join(", ");
        format!("Repeats that failed or are partial are in no figure, as others are whole: step {steps}.")
    })
}

/// The flags of a phase's cells: common ones are listed once, others have a letter.
struct Marks {
    common: BTreeSet<String>,
    letters: BTreeMap<String, char>,
    /// Whether any table has letters: if columns are figures, flags are spelled out.
    has_letters: bool,
}

impl Marks {
    fn of(phase: &PhaseReport) -> Self {
        let cells = || phase.tables.iter().flat_map(Pivot::each_cell);
        let flags: BTreeSet<&String> = cells().flat_map(|(.., cell)| &cell.flags).collect();
        let count = cells().count();
        let in_all =
            |flag: &&String| count > 1 && cells().all(|(.., cell)| cell.flags.contains(flag));
        let (common, others): (Vec<&String>, Vec<&String>) = flags.into_iter().partition(in_all);
        Self {
            common: common.into_iter().cloned().collect(),
            letters: others.into_iter().cloned().zip('a'..='z').collect(),
            has_letters: phase
                .tables
                .iter()
                .any(|pivot| !pivot.columns_are_figures()),
        }
    }

    fn of_cell(&self, cell: &PivotCell) -> String {
        let letters = cell.flags.iter().filter_map(|flag| self.letters.get(flag));
        let letters: String = letters.collect();
        match letters.as_str() {
            "" => letters,
            letters => format!(" {letters}"),
        }
    }

    fn notes(&self) -> Vec<String> {
        let common = self
            .common
            .iter()
            .map(|flag| format!("{flag} (every cell): {}.", meaning(flag)));
        let others = self
            .letters
            .iter()
            .map(|(flag, letter)| match self.has_letters {
                true => format!("{letter}: {flag}: {}.", meaning(flag)),
                false => format!("{flag}: {}.", meaning(flag)),
            });
        common.chain(others).collect()
    }
}

/// The slowest and the fastest client, in the step with the largest difference.
fn clients(steps: &[&StepReport]) -> Option<String> {
    let apart = |progress: &ProgressReport| progress.fastest.percent - progress.slowest.percent;
    let of_steps = steps.iter().flat_map(|step| {
        let each = step.progress.iter();
        each.map(move |progress| (apart(progress), *step, progress))
    });
    let (apart, step, progress) = of_steps.max_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
    // Each client's rate covers the time in which it took part.
    let missing = steps.iter().find_map(|step| {
        let missing = without(&step.missing)?;
        Some(format!(
            " while they took part; step {} {missing}",
            step.ordinal
        ))
    });
    let missing = missing.unwrap_or_default();
    if apart < MIN_UNEVENNESS * 100.0 {
        return Some(format!(
            "Clients: all within {} % of each other{missing}.",
            figures::rate(MIN_UNEVENNESS * 100.0)
        ));
    }
    Some(format!(
        "Clients: slowest {} at {} %, fastest {} at {} % of their mean ({}, step {}, where they differ most){missing}.",
        progress.slowest.agent,
        figures::rate(progress.slowest.percent),
        progress.fastest.agent,
        figures::rate(progress.fastest.percent),
        step.mode,
        step.ordinal
    ))
}
