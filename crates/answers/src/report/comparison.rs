//! A comparison as tables and CSV.

use super::card::{self, Card, Trust, trusted};
use super::table::with_spread_of;
use super::{Table, csv_field};
use crate::compare::words::{change, change_like, subject};
use crate::compare::{
    CompareAnswer, Comparison, ComparisonRow, FigureName, Side, SideValue, Trend, Verdict,
};
use benchmesh_workloads::figures::{self, NONE};
use serde::Serialize;
use std::collections::BTreeSet;

/// The JSON document of a comparison: its card, and the answer.
#[derive(Debug, Serialize)]
pub struct ComparisonDocument<'a> {
    pub card: Card,
    #[serde(flatten)]
    pub answer: &'a CompareAnswer,
}

impl<'a> ComparisonDocument<'a> {
    pub fn of(answer: &'a CompareAnswer) -> Self {
        Self {
            card: card::of_comparison(answer),
            answer,
        }
    }
}

/// The tables of all compared figures.
pub fn comparison_tables(answer: &CompareAnswer) -> Vec<Table> {
    let mut tables: Vec<Table> = answer.comparisons.iter().flat_map(self::tables).collect();
    if let Some(trend) = &answer.trend {
        tables.push(trend_table(trend));
    }
    tables
}

/// The tables of one comparison.
pub(super) fn tables(one: &Comparison) -> Vec<Table> {
    let mut tables = vec![figures_table(one)];
    if !one.incomparable.is_empty() {
        tables.push(incomparable_table(one));
    }
    tables
}

fn figures_table(one: &Comparison) -> Table {
    let cells =
        |cell: &dyn Fn(&ComparisonRow) -> String| one.rows.iter().map(cell).collect::<Vec<_>>();
    let table = Table::titled(&format!(
        "{} (B) against {} (A)",
        named(&one.b),
        named(&one.a)
    ))
    .text("load", cells(&subject))
    .text("figure", cells(&|row| figure(row)))
    .figures("A", cells(&|row| value(row.figure, &row.a)))
    .figures("B", cells(&|row| value(row.figure, &row.b)))
    .figures("B to A", cells(&|row| change(row.ratio)))
    .figures("95 % CI", cells(&interval))
    .figures(
        "effect",
        cells(&|row| {
            row.effect
                .map_or_else(|| NONE.to_owned(), |g| format!("{g:+.1}"))
        }),
    )
    .text("verdict", cells(&|row| verdict(one, row)));
    let table = Table {
        spare: vec!["effect"],
        last_spare: vec!["95 % CI"],
        ..table
    };
    let daemons: BTreeSet<&str> = one
        .rows
        .iter()
        .flat_map(|row| &row.daemons)
        .map(String::as_str)
        .collect();
    let daemons: Vec<&str> = daemons.into_iter().collect();
    let of_daemons =
        (!daemons.is_empty()).then(|| format!("cpu is the CPU time of {}.", daemons.join(", ")));
    let notes = one.notes.iter().cloned().chain(of_daemons);
    notes.fold(table, Table::note)
}

fn named(side: &Side) -> String {
    let runs: Vec<String> = side.runs.iter().map(|run| run.id.to_string()).collect();
    let runs = match runs.as_slice() {
        [one] => format!("run {one}"),
        many => format!("runs {}", many.join(", ")),
    };
    match side.label == runs {
        true => runs,
        false => format!("{}, {runs}", side.label),
    }
}

fn figure(row: &ComparisonRow) -> String {
    let name = match row.figure {
        FigureName::Response => "response p99",
        other => other.as_str(),
    };
    format!("{name} {}", row.unit)
}

fn value(figure: FigureName, value: &SideValue) -> String {
    let shown = figure.shown(value.value);
    match value.repeats {
        0 | 1 => shown,
        repeats => {
            let shown = with_spread_of(shown, value.spread_percent);
            format!("{shown} (n={repeats})")
        }
    }
}

fn interval(row: &ComparisonRow) -> String {
    match (row.low, row.high) {
        (Some(low), Some(high)) => format!(
            "{} to {}",
            change_like(low, row.ratio),
            change_like(high, row.ratio)
        ),
        _ => NONE.to_owned(),
    }
}

/// `slower`, `likely slower: one run each`, `too few repeats to tell: 3 more ...`.
fn verdict(comparison: &Comparison, row: &ComparisonRow) -> String {
    if row.verdict == Verdict::NotJudged {
        return String::new();
    }
    let mut shown = match trusted(comparison, row) {
        (Trust::Likely, why) => {
            let word = row.figure.verdict(row.ratio).as_str();
            format!("likely {word}: {}", why.unwrap_or_default())
        }
        _ => {
            let why = row.why.as_deref().map(|why| format!(": {why}"));
            format!("{}{}", row.verdict.as_str(), why.unwrap_or_default())
        }
    };
    if !row.caveats.is_empty() {
        shown.push_str(&format!(" [{}]", row.caveats.join("; ")));
    }
    shown
}

fn incomparable_table(one: &Comparison) -> Table {
    let cells = |cell: fn(&crate::compare::Incomparable) -> String| {
        one.incomparable.iter().map(cell).collect::<Vec<_>>()
    };
    Table::titled("Not comparable")
        .text("load", cells(|one| one.what.clone()))
        .text("why", cells(|one| one.why.clone()))
}

fn trend_table(trend: &Trend) -> Table {
    let mut lines: Vec<[String; 7]> = Vec::new();
    for row in &trend.rows {
        let level = |value: f64| row.figure.shown(value);
        let last = row
            .values
            .last()
            .map_or_else(|| NONE.to_owned(), |(_, last)| level(*last));
        let head = |first: bool| match first {
            true => [
                row.what.clone(),
                format!("{} {}", row.figure.as_str(), row.unit),
                row.values.len().to_string(),
                last.clone(),
            ],
            false => Default::default(),
        };
        if row.changes.is_empty() {
            let [what, figure, runs, last] = head(true);
            lines.push([
                what,
                figure,
                runs,
                last,
                match row.is_told {
                    true => "no change".to_owned(),
                    false => "too few runs to tell".to_owned(),
                },
                String::new(),
                String::new(),
            ]);
        }
        for (number, change) in row.changes.iter().enumerate() {
            let [what, figure, runs, last] = head(number == 0);
            lines.push([
                what,
                figure,
                runs,
                last,
                format!(
                    "{} from run {} of {}",
                    change.verdict.as_str(),
                    change.run.id,
                    figures::instant(change.run.created_us)
                ),
                format!("{} to {}", level(change.before), level(change.after)),
                self::change(change.after / change.before),
            ]);
        }
    }
    let column = |at: usize| -> Vec<String> {
        let cells = lines.iter().filter_map(|line| line.get(at));
        cells.cloned().collect()
    };
    Table::titled(&format!(
        "Trend of {} over {}",
        trend.plan,
        figures::plural(trend.runs.len(), "run")
    ))
    .text("load", column(0))
    .text("figure", column(1))
    .figures("runs", column(2))
    .figures("newest", column(3))
    .text("change", column(4))
    .figures("level", column(5))
    .figures("by", column(6))
    .note("A change is a run from which the level of a figure moved and stayed. In a history without any, the chance of \
           a false one is 1 %. It needs at least three runs on either side, six in total.")
}

const HEAD: &str = "a,a_runs,b,b_runs,phase,group_name,workload,mode,op,cell,figure,unit,\
    value_a,repeats_a,spread_a_percent,value_b,repeats_b,spread_b_percent,\
    ratio,judged,low,high,p,p_corrected,noise,effect,verdict,why,caveats";
const TREND_HEAD: &str = "load,figure,unit,run_id,created_us,value,changed,before,after,p";

/// The answer as CSV with all digits: one row per figure; for a trend one row per run and figure.
pub fn comparison_csv(answer: &CompareAnswer) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut lines = Vec::new();
    if let Some(trend) = &answer.trend {
        lines.push(TREND_HEAD.to_owned());
        for row in &trend.rows {
            for (place, value) in &row.values {
                let Some(run) = trend.runs.get(*place) else {
                    continue;
                };
                let change = row.changes.iter().find(|change| change.run.id == run.id);
                lines.push(line(&[
                    row.what.clone(),
                    row.figure.as_str().to_owned(),
                    row.unit.clone(),
                    run.id.to_string(),
                    run.created_us.to_string(),
                    value.to_string(),
                    u8::from(change.is_some()).to_string(),
                    number(change.map(|change| change.before)),
                    number(change.map(|change| change.after)),
                    number(change.map(|change| change.p)),
                ]));
            }
        }
    } else {
        lines.push(HEAD.to_owned());
    }
    for one in &answer.comparisons {
        let runs = |side: &Side| {
            let ids: Vec<String> = side.runs.iter().map(|run| run.id.to_string()).collect();
            ids.join(" ")
        };
        for row in &one.rows {
            lines.push(line(&[
                one.a.label.clone(),
                runs(&one.a),
                one.b.label.clone(),
                runs(&one.b),
                row.phase.clone(),
                row.group.clone(),
                row.workload.clone(),
                row.mode.clone(),
                row.op.clone(),
                serde_json::Value::Object(row.cell.clone()).to_string(),
                row.figure.as_str().to_owned(),
                row.unit.clone(),
                row.a.value.to_string(),
                row.a.repeats.to_string(),
                number(row.a.spread_percent),
                row.b.value.to_string(),
                row.b.repeats.to_string(),
                number(row.b.spread_percent),
                row.ratio.to_string(),
                u8::from(row.judged).to_string(),
                number(row.low),
                number(row.high),
                number(row.p),
                number(row.p_corrected),
                row.noise.clone().unwrap_or_default(),
                number(row.effect),
                row.verdict.as_str().to_owned(),
                row.why.clone().unwrap_or_default(),
                row.caveats.join("; "),
            ]));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|text| csv_field(text)).collect();
    fields.join(",")
}
