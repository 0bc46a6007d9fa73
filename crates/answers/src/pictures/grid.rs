//! The tables of results whose keys can be drawn as axes: block sizes, numbers of clients. Pure; `report::pivot` has
//! chosen the rows and columns, and this module selects the tables that make a picture.

use super::short;
use crate::report::{Measure, PhaseReport, Pivot, PivotCell, Report, StepReport, pivot};
use serde::Serialize;

/// Maximum number of drawn tables; a larger plan is read in tables.
const MAX_GRIDS: usize = 200;
/// Keys with unordered values, which are not used as an axis.
const UNORDERED: [&str; 6] = ["mode", "op", "group", "target", "link", "cache"];
/// Figures that a reader can choose besides the main one.
const OTHER_MEASURES: [Measure; 5] = [
    Measure::MibPerS,
    Measure::OpsPerS,
    Measure::P99Ms,
    Measure::ResponseP99Ms,
    Measure::DaemonUsPerOp,
];

/// One table as a heat map and as lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grid {
    pub title: String,
    pub row_key: String,
    pub rows: Vec<String>,
    /// Empty if there is one column.
    pub column_key: String,
    pub columns: Vec<String>,
    /// Which of the two is the axis of the lines.
    pub axis: Axis,
    /// All figures, the main one first.
    pub figures: Vec<GridFigure>,
    pub notes: Vec<String>,
    /// Maximum number of repeats of a cell.
    pub repeats: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    Rows,
    Columns,
}

/// One figure of every cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GridFigure {
    /// The title, with its unit.
    pub title: &'static str,
    /// The values of all repeats together, by row and column. `None` if the plan left the cell out, or it has no
    /// figure.
    pub values: Vec<Vec<Option<f64>>>,
}

/// The grids of a report, in the order of the plan.
pub fn grids(report: &Report) -> Vec<Grid> {
    let all = report.phases.iter().flat_map(|phase| {
        let steps = report.steps.iter();
        let steps: Vec<&StepReport> = steps.filter(|step| step.phase == phase.phase).collect();
        let has_curve = report.has_walked_rates(&phase.phase);
        let grids = phase.tables.iter();
        grids
            .filter_map(|table| grid(phase, table, &steps, has_curve))
            .collect::<Vec<_>>()
    });
    all.take(MAX_GRIDS).collect()
}

/// `has_curve`: rates that were increased in steps are drawn as a load curve.
fn grid(
    phase: &PhaseReport,
    table: &Pivot,
    steps: &[&StepReport],
    has_curve: bool,
) -> Option<Grid> {
    let lead = table.lead?;
    let mut keys = table.row_keys.iter().chain(&table.column_keys);
    if has_curve && keys.any(|key| key == "rate" || key == "rate_iops") {
        return None;
    }
    let is_ordered = |keys: &[String], labels: &[String]| {
        let ordered = |key: &String| !UNORDERED.contains(&key.as_str());
        labels.len() > 1 && !keys.is_empty() && keys.iter().all(ordered)
    };
    let by_rows = is_ordered(&table.row_keys, &table.rows);
    let by_columns = is_ordered(&table.column_keys, &table.columns);
    let axis = match (by_rows, by_columns) {
        (true, _) if table.row_keys == ["clients"] => Axis::Rows,
        (_, true) => Axis::Columns,
        (true, false) => Axis::Rows,
        (false, false) => return None,
    };
    let has = |measure: &Measure| {
        let mut cells = table.each_cell();
        cells.any(|(.., cell)| {
            let figure = cell.figures.get(measure);
            figure.is_some_and(|figure| figure.max > 0.0)
        })
    };
    let beside = OTHER_MEASURES
        .into_iter()
        .filter(|measure| *measure != lead);
    let measures = std::iter::once(lead).chain(beside).filter(has);
    let repeats = table
        .each_cell()
        .flat_map(|(.., cell)| cell.figures.values().map(|figure| figure.n));
    Some(Grid {
        title: pivot::title(phase, table, steps),
        row_key: table.row_keys.join(" "),
        rows: table.rows.clone(),
        column_key: table.column_keys.join(" "),
        columns: table.columns.clone(),
        axis,
        figures: measures.map(|measure| figure(table, measure)).collect(),
        notes: pivot::scale_notes(table),
        repeats: repeats.max().unwrap_or(0),
    })
}

fn figure(table: &Pivot, measure: Measure) -> GridFigure {
    let value = |cell: &Option<PivotCell>| {
        let figure = cell.as_ref()?.figures.get(&measure)?;
        Some(short(figure.value))
    };
    GridFigure {
        title: measure.title(),
        values: table
            .cells
            .iter()
            .map(|row| row.iter().map(value).collect())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::report::{Field, PivotFigure};

    fn table(row_key: &str, rows: &[&str], column_key: &str, columns: &[&str]) -> Pivot {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let keys = |key: &str| -> Vec<String> {
            let key = (!key.is_empty()).then(|| key.to_owned());
            key.into_iter().collect()
        };
        let cell = |rate: f64| PivotCell {
            left_out: Vec::new(),
            steps: vec![1],
            lead: Measure::OpsPerS,
            figures: [
                (Measure::OpsPerS, rate),
                (Measure::P99Ms, 1.0),
                (Measure::Errors, 0.0),
            ]
            .map(|(measure, mean)| {
                let figure = PivotFigure {
                    n: 2,
                    value: mean,
                    stddev: None,
                    min: mean,
                    max: mean,
                };
                (measure, figure)
            })
            .into(),
            flags: vec![],
        };
        let cells = (0..rows.len()).map(|row| {
            let of_row = (0..columns.len()).map(|column| {
                let place = u8::try_from(10 * row + column).unwrap();
                (place != 11).then(|| cell(f64::from(place) + 1.0))
            });
            of_row.collect()
        });
        Pivot {
            fixed: vec![Field {
                key: "mode".into(),
                value: "write".into(),
            }],
            row_keys: keys(row_key),
            rows: texts(rows),
            column_keys: keys(column_key),
            columns: texts(columns),
            lead: Some(Measure::OpsPerS),
            beside: vec![],
            cells: cells.collect(),
        }
    }

    fn drawn(table: Pivot) -> Option<Grid> {
        let phase = PhaseReport {
            phase: "records".into(),
            workload: "io".into(),
            tables: vec![],
        };
        grid(&phase, &table, &[], true)
    }

    #[test]
    fn two_keys_are_drawn_over_the_columns_and_clients_over_the_rows() {
        let grid = drawn(table("size", &["1g", "2g"], "bs", &["4k", "64k"])).unwrap();
        assert_eq!((grid.axis, grid.repeats), (Axis::Columns, 2));
        assert_eq!(grid.title, "records: write (io)");
        let titles: Vec<&str> = grid.figures.iter().map(|figure| figure.title).collect();
        assert_eq!(titles, ["ops/s", "p99 ms"]);
        assert_eq!(
            grid.figures[0].values,
            [[Some(1.0), Some(2.0)], [Some(11.0), None]]
        );
        let grid = drawn(table("clients", &["1", "2", "4"], "bs", &["4k", "64k"])).unwrap();
        assert_eq!(grid.axis, Axis::Rows);
        let grid = drawn(table("bs", &["4k", "64k"], "", &[""])).unwrap();
        assert_eq!((grid.axis, grid.column_key.as_str()), (Axis::Rows, ""));
        let grid = drawn(table("bs", &["4k", "64k"], "target", &["a", "b"])).unwrap();
        assert_eq!(grid.axis, Axis::Rows);
    }

    #[test]
    fn what_has_no_order_is_not_drawn() {
        assert_eq!(
            drawn(table("mode", &["write", "read"], "target", &["a", "b"])),
            None
        );
        assert_eq!(drawn(table("target", &["a", "b"], "", &[""])), None);
        assert_eq!(drawn(table("bs", &["4k"], "target", &["a", "b"])), None);
        let mixed = Pivot {
            lead: None,
            ..table("bs", &["4k", "64k"], "mode", &["write", "stat"])
        };
        assert_eq!(drawn(mixed), None);
        assert_eq!(drawn(table("rate_iops", &["100", "200"], "", &[""])), None);
    }
}
