//! The results in a readable form: per phase a few small tables whose rows and columns are matrix keys, modes,
//! targets or numbers of clients, with repeats merged.
//!
//! Pure. [`phases`] chooses the form from the differences between the steps, like the output of iozone, bonnie++ or
//! `time cp`; [`Axes`] overrides it. A cell contains every figure of its steps; `lead` and `beside` select the shown
//! ones. Figures of different operations or groups are never in one cell.

mod axes;
mod cells;
mod model;
mod shape;
mod tables;
mod title;

pub use axes::{known_keys, unknown_key};
pub use model::{Field, Measure, PhaseReport, Pivot, PivotCell, PivotFigure};
pub(in crate::report) use tables::tables;
pub use title::{scale_notes, title};

use super::{Line, Report};
use shape::Part;
use std::collections::BTreeMap;

/// Keys requested by the user as rows and columns; if empty, they are chosen by the differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axes {
    pub rows: Vec<String>,
    pub columns: Vec<String>,
}

/// The tables of all phases, in the order of the plan. Without those of [`links`].
pub fn phases(report: &Report, axes: &Axes) -> Vec<PhaseReport> {
    parts(report, axes, Part::Results)
}

/// The results of links that are measured one after the other, which the matrix of links shows as their best.
pub(in crate::report) fn links(report: &Report) -> Vec<PhaseReport> {
    parts(report, &Axes::default(), Part::Links)
}

fn parts(report: &Report, axes: &Axes, part: Part) -> Vec<PhaseReport> {
    let mut order: Vec<&str> = Vec::new();
    let mut lines: BTreeMap<&str, Vec<Line<'_>>> = BTreeMap::new();
    for line in report.steps.iter().flat_map(super::StepReport::lines) {
        let phase = line.step.phase.as_str();
        let of_phase = lines.entry(phase).or_default();
        if of_phase.is_empty() {
            order.push(phase);
        }
        of_phase.push(line);
    }
    let costs = cells::costs_by_step(report);
    order
        .into_iter()
        .filter_map(|phase| {
            let lines = lines.get(phase)?;
            Some(PhaseReport {
                phase: phase.to_owned(),
                workload: lines.first()?.step.workload.clone(),
                tables: shape::tables(lines, axes, &costs, part),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
