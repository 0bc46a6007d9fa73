//! From pairs of cells to rows with intervals and verdicts.

use super::cell::Cell;
use super::model::{
    Answer, COMPARISON_FORMAT, Comparison, FigureName, Incomparable, Row, Side, Value, Verdict,
};
use super::pairs::{Group, Pair, pairs};
use super::sentences;
use crate::results::{Flag, FlagRow, VerdictEffect};
use benchmesh_analysis::correct::holm;
use benchmesh_analysis::estimate::ALPHA;
use benchmesh_analysis::estimate::{Estimate, Run, estimate};
use benchmesh_analysis::ratio::{effect_size, ratio};
use benchmesh_analysis::{Figure, Series};
use std::collections::BTreeSet;

/// A side with what was loaded of it.
pub(super) type Loaded = (Side, Vec<Cell>);

/// Compares each pair of sides; the verdicts of all are corrected together.
pub(super) fn answer(sides: Vec<(Loaded, Loaded)>) -> Answer {
    let mut comparisons: Vec<Comparison> =
        sides.into_iter().map(|(a, b)| comparison(a, b)).collect();
    let rows = |comparisons: &[Comparison]| -> Vec<f64> {
        let rows = comparisons.iter().flat_map(|one| &one.rows);
        rows.filter_map(|row| row.p).collect()
    };
    let mut corrected = holm(&rows(&comparisons)).into_iter();
    for row in comparisons.iter_mut().flat_map(|one| &mut one.rows) {
        if row.p.is_some() {
            row.p_corrected = corrected.next();
        }
        row.verdict = verdict(row);
    }
    for one in &mut comparisons {
        one.sentences = sentences::sentences(one);
    }
    Answer {
        format: COMPARISON_FORMAT,
        comparisons,
        trend: None,
    }
}

fn comparison((a, cells_a): Loaded, (b, cells_b): Loaded) -> Comparison {
    let nothing = |cells: &[Cell]| cells.is_empty();
    let mut incomparable = Vec::new();
    for (side, cells) in [(&a, &cells_a), (&b, &cells_b)] {
        if nothing(cells) {
            incomparable.push(Incomparable {
                what: side.label.clone(),
                why: String::from("it has no results"),
            });
        }
    }
    let (pairs, others) = match incomparable.is_empty() {
        true => pairs(cells_a, cells_b),
        false => (Vec::new(), Vec::new()),
    };
    incomparable.extend(others);
    let mut rows = Vec::new();
    for pair in &pairs {
        rows.extend(rows_of(pair, &a, &b, &mut incomparable));
    }
    let notes = notes(&rows, &pairs, &a, &b);
    Comparison {
        a,
        b,
        sentences: Vec::new(),
        rows,
        incomparable,
        notes,
    }
}

fn rows_of(pair: &Pair, a: &Side, b: &Side, incomparable: &mut Vec<Incomparable>) -> Vec<Row> {
    let mut rows = Vec::new();
    let caveats = caveats(pair, a, b);
    for figure in FigureName::ALL {
        let values = |group: &Group| -> Option<Vec<f64>> {
            group
                .repeats
                .iter()
                .map(|cell| cell.value(figure))
                .collect()
        };
        let (Some(values_a), Some(values_b)) = (values(&pair.a), values(&pair.b)) else {
            if figure == FigureName::Ops {
                incomparable.push(no_rate(pair, a, b));
            }
            continue;
        };
        let (Some(of_a), Some(of_b)) = (
            estimated(figure, &pair.a, &values_a, 1),
            estimated(figure, &pair.b, &values_b, 2),
        ) else {
            continue;
        };
        let between = ratio(&of_a, &of_b);
        let key = &pair.a.key;
        rows.push(Row {
            phase: key.phase.clone(),
            group: key.group.clone(),
            workload: key.workload.clone(),
            mode: key.mode.clone(),
            op: match figure {
                FigureName::Cpu => String::new(),
                _ => key.op.clone(),
            },
            cell: pair.cell.clone(),
            figure,
            unit: figure.unit().to_owned(),
            daemons: match figure {
                FigureName::Cpu => daemons(pair),
                _ => Vec::new(),
            },
            a: shown(&of_a, &pair.a),
            b: shown(&of_b, &pair.b),
            ratio: (of_b.log - of_a.log).exp(),
            low: between.map(|ratio| ratio.low),
            high: between.map(|ratio| ratio.high),
            p: between.map(|ratio| ratio.p),
            p_corrected: None,
            effect: effect(figure, &pair.a, &pair.b, &values_a, &values_b),
            verdict: Verdict::NotComparable,
            why: match between {
                Some(_) => None,
                None => Some(without_interval(figure, pair, &of_a, a, b)),
            },
            caveats: caveats.clone(),
        });
    }
    rows
}

fn estimated(figure: FigureName, group: &Group, values: &[f64], seed: u64) -> Option<Estimate> {
    let analysed = figure.analysed();
    let runs: Vec<Run<'_>> = group
        .repeats
        .iter()
        .zip(values)
        .map(|(cell, value)| Run {
            value: *value,
            series: analysed.and(cell.series.as_deref()),
        })
        .collect();
    estimate(analysed.unwrap_or(Figure::Rate), &runs, seed)
}

fn shown(estimate: &Estimate, group: &Group) -> Value {
    Value {
        value: estimate.log.exp(),
        repeats: group.repeats.len(),
        steps: group.repeats.iter().map(|cell| cell.step).collect(),
    }
}

/// Over repeats, or over the seconds of two single runs.
fn effect(
    figure: FigureName,
    a: &Group,
    b: &Group,
    values_a: &[f64],
    values_b: &[f64],
) -> Option<f64> {
    let seconds = |group: &Group| -> Option<Vec<f64>> {
        let series = group.repeats.first()?.series.as_ref()?;
        match figure {
            FigureName::Ops => Some(series.rates().to_vec()),
            FigureName::Mean => Some(series.means().to_vec()),
            _ => None,
        }
    };
    match values_a.len() > 1 && values_b.len() > 1 {
        true => effect_size(values_a, values_b),
        false => effect_size(&seconds(a)?, &seconds(b)?),
    }
}

fn daemons(pair: &Pair) -> Vec<String> {
    let cells = pair.a.repeats.iter().chain(&pair.b.repeats);
    let names: BTreeSet<&String> = cells.flat_map(|cell| cell.cpu_us_per_op.keys()).collect();
    names.into_iter().cloned().collect()
}

fn caveats(pair: &Pair, a: &Side, b: &Side) -> Vec<String> {
    let mut reasons = Vec::new();
    for (group, side) in [(&pair.a, a), (&pair.b, b)] {
        let flags: BTreeSet<&str> = group
            .repeats
            .iter()
            .flat_map(|cell| {
                let partial = cell.partial.then_some("partial");
                cell.flags.iter().map(String::as_str).chain(partial)
            })
            .collect();
        let weakens = |row: &&FlagRow| row.verdict != VerdictEffect::Nothing;
        let known = Flag::ROWS.iter().filter(weakens);
        let known = known.filter(|row| flags.contains(row.name));
        reasons.extend(known.map(|row| format!("{} is {}", side.label, row.name)));
    }
    reasons
}

fn no_rate(pair: &Pair, a: &Side, b: &Side) -> Incomparable {
    let key = &pair.a.key;
    let lacks = |group: &Group| {
        let cell = group
            .repeats
            .iter()
            .find(|cell| cell.value(FigureName::Ops).is_none());
        cell.map(|cell| match (cell.ops, cell.errors) {
            (0, 0) => "did nothing",
            (0, _) => "had only errors",
            _ => "has no rate: its clients did not run at the same time",
        })
    };
    let why = match (lacks(&pair.a), lacks(&pair.b)) {
        (Some(why), _) => format!("{} {why}", a.label),
        (None, Some(why)) => format!("{} {why}", b.label),
        (None, None) => String::from("it has no rate"),
    };
    Incomparable {
        what: [key.phase.as_str(), &key.mode, &key.op].join(" "),
        why,
    }
}

fn without_interval(
    figure: FigureName,
    pair: &Pair,
    of_a: &Estimate,
    a: &Side,
    b: &Side,
) -> String {
    let (group, side) = match of_a.error {
        None => (&pair.a, a),
        Some(_) => (&pair.b, b),
    };
    let cell = group.repeats.first();
    let series: Option<&Series> = cell.and_then(|cell| cell.series.as_deref());
    match (figure, series) {
        (FigureName::Cpu, _) => {
            format!(
                "{} is one run; CPU has an interval over repeats only",
                side.label
            )
        }
        (_, None) => format!(
            "{} is one figure without its seconds; repeat it",
            side.label
        ),
        (_, Some(series)) => format!(
            "{} is one run of {} s, too short to know its noise; repeat it or let it run longer",
            side.label,
            series.len()
        ),
    }
}

fn verdict(row: &Row) -> Verdict {
    let Some(p) = row.p_corrected else {
        return Verdict::NotComparable;
    };
    let resolution = row.figure.analysed().map_or(0.0, Figure::resolution);
    if p >= ALPHA || row.ratio.ln().abs() <= resolution {
        return Verdict::NoDifferenceShown;
    }
    row.figure.verdict(row.ratio)
}

fn notes(rows: &[Row], pairs: &[Pair], a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let judged = rows.iter().filter(|row| row.p.is_some()).count();
    let single = rows
        .iter()
        .any(|row| row.p.is_some() && (row.a.repeats == 1 || row.b.repeats == 1));
    if single {
        notes.push(String::from(
            "Where a side is one run, its interval comes from that run's own seconds and knows nothing of differences between runs: repeat the plan for those.",
        ));
    }
    if judged > 1 {
        notes.push(format!(
            "Verdicts are corrected for {judged} comparisons (Holm); intervals are not, so one may leave out 1 where no difference is shown."
        ));
    }
    for side in [a, b] {
        for run in &side.runs {
            if let Some(tool) = &run.imported_from {
                notes.push(format!("Run {} was imported from {tool}.", run.id));
            }
            if matches!(run.state.as_str(), "failed" | "stopped") {
                notes.push(format!(
                    "Run {} {}.",
                    run.id,
                    match run.state.as_str() {
                        "failed" => "failed",
                        _ => "was stopped",
                    }
                ));
            }
        }
    }
    let unknown: BTreeSet<&String> = pairs.iter().flat_map(|pair| &pair.one_sided).collect();
    if !unknown.is_empty() {
        let keys: Vec<&str> = unknown.into_iter().map(String::as_str).collect();
        notes.push(format!(
            "Only one side says anything of: {}.",
            keys.join(", ")
        ));
    }
    notes
}
