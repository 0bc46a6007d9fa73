//! From pairs of cells to rows with intervals and verdicts.
//!
//! Each load has one primary figure: its rate, or the response time's p99 if a plan paces the rate. The verdicts on
//! these are corrected together, and the interval beside a verdict is the one it is based on. Other figures are listed
//! with plain intervals.

use super::cell::MeasuredCell;
use super::figure::FigureName;
use super::model::{
    COMPARISON_FORMAT, CompareAnswer, Comparison, ComparisonRow, Incomparable, Side, Verdict,
};
use super::notes;
use super::pairs::{Pair, pairs};
use super::rows::{self, Judged};
use benchmesh_analysis::correct::{Corrected, holm};
use benchmesh_analysis::estimate::ALPHA;
use benchmesh_analysis::{Layout, Noise};

/// The smallest difference that a plan should be able to show: if the interval is wider, there are too few repeats.
const SHOWN_RATIO: f64 = 1.2;
/// An interval that reaches further than this factor from its ratio is not shown.
const MAX_SHOWN_FACTOR: f64 = 100.0;

/// A side with its loaded cells.
pub(super) type Loaded = (Side, Vec<MeasuredCell>);

/// Compares each pair of sides; the verdicts of all are corrected together. Each other figure is corrected for itself,
/// so that requested ones change nothing about the rest.
pub(super) fn answer(sides: Vec<(Loaded, Loaded)>, requested: &[FigureName]) -> CompareAnswer {
    let mut comparisons: Vec<(Comparison, Vec<Judged>)> = sides
        .into_iter()
        .map(|(a, b)| comparison(a, b, requested))
        .collect();
    judge(&mut comparisons, |row| row.judged);
    for figure in FigureName::all() {
        judge(&mut comparisons, |row| !row.judged && row.figure == figure);
    }
    let comparisons = comparisons.into_iter().map(|(mut one, rows)| {
        one.rows = rows.into_iter().map(|judged| judged.row).collect();
        one
    });
    CompareAnswer {
        format: COMPARISON_FORMAT,
        comparisons: comparisons.collect(),
        trend: None,
    }
}

/// Corrects the rows of one family, and gives each its interval and verdict.
fn judge(comparisons: &mut [(Comparison, Vec<Judged>)], belongs: impl Fn(&ComparisonRow) -> bool) {
    let all = comparisons.iter_mut().flat_map(|(_, rows)| rows);
    let mut family: Vec<&mut Judged> = all.filter(|one| belongs(&one.row)).collect();
    let values: Vec<f64> = family.iter().filter_map(|one| one.row.p).collect();
    let mut corrected = holm(&values, ALPHA).into_iter();
    for one in &mut family {
        let own = one.row.p.and_then(|_| corrected.next());
        conclude(one, own);
    }
}

fn conclude(one: &mut Judged, corrected: Option<Corrected>) {
    let Judged { row, contrast } = one;
    row.p_corrected = corrected.map(|corrected| corrected.p);
    let level = match (row.judged, corrected) {
        (true, Some(corrected)) => corrected.level,
        _ => ALPHA,
    };
    let interval = contrast
        .filter(|_| row.p.is_some())
        .and_then(|contrast| contrast.interval(level));
    let interval = interval.filter(|(low, high)| high / low <= MAX_SHOWN_FACTOR * MAX_SHOWN_FACTOR);
    (row.low, row.high) = (interval.map(|(low, _)| low), interval.map(|(_, high)| high));
    if !row.judged {
        row.verdict = Verdict::NotJudged;
        return;
    }
    let (Some(corrected), Some(contrast)) = (corrected, contrast) else {
        row.verdict = match row.why {
            Some(_) => Verdict::NotComparable,
            None => Verdict::TooFewRepeats,
        };
        return;
    };
    if corrected.p < ALPHA {
        row.verdict = row.figure.verdict(row.ratio);
        return;
    }
    let is_narrow = interval.is_some_and(|(low, high)| high / low <= SHOWN_RATIO * SHOWN_RATIO);
    if is_narrow {
        row.verdict = Verdict::NoDifferenceShown;
        return;
    }
    row.verdict = Verdict::TooFewRepeats;
    let unit = match contrast.noise {
        Noise::Runs => "run",
        _ => "repeat",
    };
    row.why = Some(
        match (contrast.noise, contrast.more(SHOWN_RATIO, corrected.level)) {
            (Noise::Seconds, _) => {
                String::from("each side is one run, and its seconds scatter too much: repeat it")
            }
            (_, Some(1)) => format!("one more {unit} would show a difference of 20 %"),
            (_, Some(more)) => format!("{more} more {unit}s would show a difference of 20 %"),
            (_, None) => format!(
                "the {unit}s scatter too much: even {} more would not show a difference of 20 %",
                benchmesh_analysis::contrast::MAX_MORE
            ),
        },
    );
}

fn comparison(
    (a, cells_a): Loaded,
    (b, cells_b): Loaded,
    requested: &[FigureName],
) -> (Comparison, Vec<Judged>) {
    let mut incomparable = Vec::new();
    for (side, cells) in [(&a, &cells_a), (&b, &cells_b)] {
        if cells.is_empty() {
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
    // Cells of one run are measured in turns, repeat by repeat.
    let layout = match a.runs.len() == 1 && a.runs == b.runs {
        true => Layout::InTurns,
        false => Layout::Apart,
    };
    let mut kept: Vec<Pair> = Vec::with_capacity(pairs.len());
    for pair in pairs.into_iter().filter(|pair| !rows::has_none(pair)) {
        match rows::no_rate(&pair, &a, &b) {
            Some(why) => incomparable.push(why),
            None => kept.push(pair),
        }
    }
    let rows = rows::rows(&kept, (&a, &b), layout, requested);
    let notes = notes::notes(&rows, &kept, &a, &b, layout);
    let one = Comparison {
        a,
        b,
        beside: Vec::new(),
        new_findings: Vec::new(),
        rows: Vec::new(),
        incomparable,
        notes,
    };
    (one, rows)
}
