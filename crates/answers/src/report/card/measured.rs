//! The lines of a run with one target: the figures of each load, as the tables of the report have them, and of each
//! link.

use super::loads::{CardLoad, CardSide};
use crate::report::table::with_spread_of;
use crate::report::{Measure, PhaseReport, Pivot, PivotCell, PivotFigure, Report, figures, pivot};

/// A line for each cell of the report's tables, in their order; then those of links.
pub(super) fn loads(report: &Report) -> Vec<CardLoad> {
    let links = pivot::links(report);
    let phases = report.phases.iter().chain(&links);
    let tables = phases.flat_map(|phase| phase.tables.iter().map(move |table| (phase, table)));
    let cells = tables.flat_map(|(phase, table)| {
        let each = table.each_cell();
        each.filter_map(move |(row, column, cell)| load(report, phase, table, (row, column), cell))
    });
    cells.collect()
}

fn load(
    report: &Report,
    phase: &PhaseReport,
    table: &Pivot,
    (row, column): (usize, usize),
    cell: &PivotCell,
) -> Option<CardLoad> {
    let response = cell.figures.get(&Measure::ResponseP99Ms);
    let (measure, lead) = match response {
        Some(figure) => (Measure::ResponseP99Ms, figure),
        None => (cell.lead, cell.figures.get(&cell.lead)?),
    };
    let mut text = shown(measure, lead);
    // Bytes beside operations, and the latency beside a rate.
    let beside = match measure {
        Measure::OpsPerS => [Measure::MibPerS, Measure::P99Ms].as_slice(),
        Measure::MibPerS => &[Measure::P99Ms],
        Measure::ResponseP99Ms => &[Measure::OpsPerS],
        _ => &[],
    };
    for measure in beside {
        if let Some(figure) = cell
            .figures
            .get(measure)
            .filter(|figure| figure.value > 0.0)
        {
            text.push_str(&format!(", {}", with_name(*measure, figure)));
        }
    }
    if let Some(cost) = cell.figures.get(&Measure::DaemonUsPerOp) {
        text.push_str(&format!(
            "; daemons {} us of CPU per operation",
            figures::rate(cost.value)
        ));
    }
    let label = report
        .steps
        .iter()
        .find(|step| cell.steps.contains(&step.ordinal));
    let side = CardSide {
        label: label.map_or_else(String::new, |step| step.place().to_owned()),
        value: lead.value,
        repeats: usize::try_from(lead.n).unwrap_or(usize::MAX),
        spread_percent: lead.spread_percent(),
        rank: 1,
        steps: report
            .steps
            .iter()
            .filter(|step| cell.steps.contains(&step.ordinal))
            .map(|step| step.id.0)
            .collect(),
    };
    Some(CardLoad {
        load: name(phase, table, row, column),
        figure: key(measure).to_owned(),
        unit: unit(measure).to_owned(),
        sides: vec![side],
        advantage: None,
        low: None,
        high: None,
        trust: None,
        why: None,
        text,
    })
}

/// Phase, the table's values, and the labels of the row and the column.
fn name(phase: &PhaseReport, table: &Pivot, row: usize, column: usize) -> String {
    let mut words: Vec<String> = vec![phase.phase.clone()];
    for field in table.fixed.iter().filter(|field| !field.value.is_empty()) {
        words.push(match field.key.as_str() {
            "mode" | "op" | "group" | "target" | "link" => field.value.clone(),
            key => format!("{key}={}", field.value),
        });
    }
    for (keys, labels, at) in [
        (&table.row_keys, &table.rows, row),
        (&table.column_keys, &table.columns, column),
    ] {
        let Some(label) = labels.get(at).filter(|label| !label.is_empty()) else {
            continue;
        };
        words.push(match keys.as_slice() {
            [key] if !matches!(key.as_str(), "mode" | "op" | "group" | "target" | "link") => {
                format!("{key}={label}")
            }
            _ => label.clone(),
        });
    }
    words.dedup();
    words.join(" ")
}

fn shown(measure: Measure, figure: &PivotFigure) -> String {
    let spread = figure.spread_percent().filter(|_| figure.n > 1);
    let shown = match measure {
        Measure::ResponseP99Ms => format!("response p99 {} ms", figures::millis(figure.value)),
        Measure::OpsPerS | Measure::MibPerS => {
            format!("{} {}", figures::rate(figure.value), unit(measure))
        }
        _ => format!("{} {}", measure.title(), figures::rate(figure.value)),
    };
    match spread {
        Some(_) => format!("{} ({} repeats)", with_spread_of(shown, spread), figure.n),
        None => shown,
    }
}

fn with_name(measure: Measure, figure: &PivotFigure) -> String {
    match measure {
        Measure::P99Ms => format!("p99 {} ms", figures::millis(figure.value)),
        _ => format!("{} {}", figures::rate(figure.value), unit(measure)),
    }
}

fn unit(measure: Measure) -> &'static str {
    match measure {
        Measure::OpsPerS => "ops/s",
        Measure::MibPerS => "MiB/s",
        Measure::ElapsedS | Measure::UserS | Measure::SystemS => "s",
        Measure::MeanMs
        | Measure::P50Ms
        | Measure::P99Ms
        | Measure::MaxMs
        | Measure::ResponseP99Ms => "ms",
        Measure::DaemonUsPerOp => "us/op",
        Measure::UnevenPercent => "%",
        Measure::ZeroSeconds | Measure::Errors | Measure::PerDoubling => "",
    }
}

/// The name by which commands know the figure.
fn key(measure: Measure) -> &'static str {
    match measure {
        Measure::ResponseP99Ms => "response",
        Measure::MibPerS => "bytes",
        Measure::OpsPerS => "ops",
        other => other.title(),
    }
}
