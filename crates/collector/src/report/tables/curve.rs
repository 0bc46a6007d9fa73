//! Where response time leaves its floor, in words that a person can act on: one row for each rate that was walked up.

use super::Table;
use crate::figures::{self, NONE};
use crate::report::{CurveReport, LoadReport, Report};
use std::collections::BTreeSet;

/// `None` when no rate was walked up.
pub(super) fn table(report: &Report) -> Option<Table> {
    let curves = &report.curves;
    if curves.is_empty() {
        return None;
    }
    let cells = |cell: &dyn Fn(&CurveReport) -> String| -> Vec<String> {
        curves.iter().map(cell).collect()
    };
    let load = |which: fn(&CurveReport) -> Option<&LoadReport>, cell: fn(&LoadReport) -> String| {
        cells(&move |curve| which(curve).map_or_else(|| NONE.to_owned(), cell))
    };
    let p99 = |load: &LoadReport| figures::millis(load.response_p99_ms);
    let mut table = Table::titled("Load curves: where response time leaves its floor")
        .text("phase", cells(&|curve| curve.phase.clone()))
        .text_if_any("target", cells(&|curve| curve.target.clone()))
        .text("mode", cells(&|curve| curve.mode.clone()));
    if curves.iter().any(|curve| curve.repeat > 1) {
        table = table.figures("repeat", cells(&|curve| curve.repeat.to_string()));
    }
    table = table
        .figures("clients", cells(&|curve| curve.clients.to_string()))
        .text("knee at", cells(&knee))
        .figures(
            "ops/s",
            load(CurveReport::before, |load| {
                figures::maybe_rate(load.ops_per_s)
            }),
        )
        .figures("response p99 ms", load(CurveReport::before, p99))
        .text("beyond", cells(&|curve| rate(curve, curve.after())))
        .figures("p99 ms", load(CurveReport::after, p99))
        .figures("floor ms", cells(&|curve| figures::millis(curve.floor_ms)))
        .text_if_any("flags", cells(&flags));
    Some(table.note(
        "The knee is the highest rate whose response time (p99, from the instant an operation was due) is within 3 times \
         the floor, the least of all; no higher rate is.",
    ))
}

/// What there is to know of the two loads that are shown.
fn flags(curve: &CurveReport) -> String {
    let shown = curve.before().into_iter().chain(curve.after());
    let flags: BTreeSet<&str> = shown
        .flat_map(|load| load.flags.iter().map(String::as_str))
        .collect();
    flags.into_iter().collect::<Vec<_>>().join(" ")
}

fn knee(curve: &CurveReport) -> String {
    match (curve.before(), curve.after()) {
        (Some(before), None) => format!("above {}={}", curve.key, before.rate),
        (before, _) => rate(curve, before),
    }
}

fn rate(curve: &CurveReport, load: Option<&LoadReport>) -> String {
    load.map_or_else(
        || NONE.to_owned(),
        |load| format!("{}={}", curve.key, load.rate),
    )
}
