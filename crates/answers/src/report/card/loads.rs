//! The line of each compared load: the sides in order, the advantage of the first, and how far it can be trusted.

use crate::compare::words::{change_like, subject};
use crate::compare::{Comparison, ComparisonRow, FigureName, SideValue, Verdict};
use serde::{Deserialize, Serialize};

/// A difference that is not significant is likely if its chance without a real one is below this.
const LIKELY_P: f64 = 0.1;
/// Or if the worst repeat of the better side is this many times as good as the best of the other.
const LIKELY_GAP: f64 = 1.5;
/// A cost of the daemons that differs by less is not mentioned.
const COST_DIFFERS: f64 = 1.2;

/// One load: its sides, and the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardLoad {
    /// Phase, mode, operation and the keys that distinguish it.
    pub load: String,
    /// The judged figure, by the name that commands use: `ops`, `response`, ...
    pub figure: String,
    pub unit: String,
    /// The best first.
    pub sides: Vec<CardSide>,
    /// How many times as good the first side is as the second; `None` with one side.
    pub advantage: Option<f64>,
    /// The ends of its 95 % interval, corrected like the verdict.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// `None` with one side.
    pub trust: Option<Trust>,
    /// The one reason for less than proof.
    pub why: Option<String>,
    /// `fast is 27 times faster than disk (12,345 against 457 ops/s; 25 to 29 times)`.
    pub text: String,
}

impl CardLoad {
    /// The answer with the trust in it: `...: proven`, `...: cannot tell, the repeats scatter too much`.
    pub fn answer(&self) -> String {
        let Some(trust) = self.trust else {
            return self.text.clone();
        };
        let (text, words) = (&self.text, trust.words());
        match &self.why {
            Some(why) => format!("{text}: {words}, {why}"),
            None => format!("{text}: {words}"),
        }
    }
}

/// One side of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardSide {
    pub label: String,
    pub value: f64,
    pub repeats: usize,
    /// Standard deviation of the repeats, in percent of their mean.
    pub spread_percent: Option<f64>,
    /// From 1; sides that cannot be told apart share a rank.
    pub rank: usize,
    /// The ids of its steps.
    #[serde(default)]
    pub steps: Vec<i64>,
}

/// How far a difference can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Significant, corrected for all loads, over repeats or runs.
    Proven,
    /// The repeats agree, but are too few for a proof; or each side is one run.
    Likely,
    /// There is none of 20 % or more.
    NotShown,
    CannotTell,
}

impl Trust {
    pub fn words(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Likely => "likely",
            Self::NotShown => "not shown",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// The rows of one load in all comparisons, each with its comparison.
type Rows<'r> = Vec<(&'r Comparison, &'r ComparisonRow)>;

/// A line for each load, in the order of the plan.
pub(super) fn loads(comparisons: &[Comparison]) -> Vec<CardLoad> {
    let mut groups: Vec<(Rows<'_>, Rows<'_>)> = Vec::new();
    for one in comparisons {
        // The row of the daemons' CPU has no operation and belongs to the load before it.
        let mut last: Option<usize> = None;
        for row in &one.rows {
            if row.figure == FigureName::Cpu {
                if let Some((_, costs)) = last.and_then(|at| groups.get_mut(at)) {
                    costs.push((one, row));
                }
                continue;
            }
            if !row.judged {
                continue;
            }
            let same = |(rows, _): &(Rows<'_>, Rows<'_>)| {
                rows.first().is_some_and(|(_, first)| is_same(first, row))
            };
            let at = groups.iter().position(same).unwrap_or_else(|| {
                groups.push((Vec::new(), Vec::new()));
                groups.len() - 1
            });
            if let Some((rows, _)) = groups.get_mut(at) {
                rows.push((one, row));
            }
            last = Some(at);
        }
    }
    let lines = groups.iter();
    lines
        .filter_map(|(rows, costs)| load(rows, costs))
        .collect()
}

fn is_same(a: &ComparisonRow, b: &ComparisonRow) -> bool {
    (&a.phase, &a.group, &a.mode, &a.op, &a.unit, &a.cell)
        == (&b.phase, &b.group, &b.mode, &b.op, &b.unit, &b.cell)
        && a.figure == b.figure
}

fn load(rows: &Rows<'_>, costs: &Rows<'_>) -> Option<CardLoad> {
    let (_, first_row) = rows.first()?;
    let figure = first_row.figure;
    let mut sides = sides(rows);
    rank(&mut sides, rows);
    let [one, other, others @ ..] = sides.as_mut_slice() else {
        return None;
    };
    let pair = pair(rows, &one.label, &other.label);
    // The paired ratio decides: it leaves out what only one side has.
    if pair.is_some_and(|(comparison, row)| winner(comparison, row) != one.label) {
        std::mem::swap(one, other);
    }
    let (one, other) = (&*one, &*other);
    let mut load = CardLoad {
        load: subject(first_row),
        figure: figure.as_str().to_owned(),
        unit: first_row.unit.clone(),
        advantage: None,
        low: None,
        high: None,
        trust: Some(Trust::CannotTell),
        why: Some(String::from("these two are not compared with each other")),
        text: String::new(),
        sides: Vec::new(),
    };
    match pair {
        Some((comparison, row)) => judged(&mut load, comparison, row, [one, other]),
        None => load.text = both(figure, [one, other], ",", &load.unit),
    }
    for other in others.iter() {
        load.text
            .push_str(&format!(", {} {}", other.label, value(figure, other)));
    }
    load.text.extend(cost(costs, &one.label, &other.label));
    load.sides = sides;
    Some(load)
}

/// The label of the side that its comparison finds better.
fn winner<'c>(comparison: &'c Comparison, row: &ComparisonRow) -> &'c str {
    match row.figure.is_better(1.0, row.ratio) {
        true => &comparison.a.label,
        false => &comparison.b.label,
    }
}

/// `a 100, b 200 ops/s`.
fn both(figure: FigureName, [one, other]: [&CardSide; 2], and: &str, unit: &str) -> String {
    format!(
        "{} {}{and} {} {} {unit}",
        one.label,
        value(figure, one),
        other.label,
        value(figure, other)
    )
}

/// Fills in the answer of the comparison of the two best sides, the better first.
fn judged(
    load: &mut CardLoad,
    comparison: &Comparison,
    row: &ComparisonRow,
    [one, other]: [&CardSide; 2],
) {
    let figure = row.figure;
    // The ratio is B to A, the advantage that of the better one.
    let advantage = FigureName::advantage(row.ratio);
    let interval = row.low.zip(row.high);
    let interval = interval.map(|(low, high)| match row.ratio < 1.0 {
        true => (1.0 / high, 1.0 / low),
        false => (low, high),
    });
    let (trust, why) = trusted(comparison, row);
    let is_of_fewer = row
        .why
        .as_deref()
        .is_some_and(|why| why.contains("is partial"));
    let newest_of_a = comparison.a.runs.iter().map(|run| run.id.0).max();
    let is_later = newest_of_a < comparison.b.runs.iter().map(|run| run.id.0).min();
    let sure = |ends: String| format!("; {ends}");
    load.text = match trust {
        Trust::CannotTell if is_of_fewer => both(figure, [one, other], ",", &row.unit),
        // Neither side is called the better one.
        Trust::CannotTell => {
            let ends = row.low.zip(row.high).map(|(low, high)| {
                let [low, high] = [low, high].map(|end| change_like(end, row.ratio));
                let (a, b) = (&comparison.a.label, &comparison.b.label);
                format!(" ({b} to {a}: {low} to {high})")
            });
            let both = both(figure, [one, other], ",", &row.unit);
            format!("{both}{}", ends.unwrap_or_default())
        }
        Trust::NotShown => format!(
            "the same within {} ({})",
            within(figure, interval),
            both(figure, [one, other], " and", &row.unit)
        ),
        // For an earlier and a later run: the change of the later one. Otherwise: which side is better.
        _ if is_later => {
            let ends = row.low.zip(row.high);
            let ends = ends.map(|ends| sure(figure.change_interval(row.ratio, ends)));
            format!(
                "{} {} {} ({} against {} {}{})",
                comparison.b.label,
                figure.change(row.ratio),
                comparison.a.label,
                figure.shown(row.b.value),
                figure.shown(row.a.value),
                row.unit,
                ends.unwrap_or_default()
            )
        }
        _ => {
            let ends = interval.map(|ends| sure(figure.interval(advantage, ends)));
            format!(
                "{} {} {} ({} against {} {}{})",
                one.label,
                figure.phrase(advantage),
                other.label,
                value(figure, one),
                value(figure, other),
                row.unit,
                ends.unwrap_or_default()
            )
        }
    };
    load.advantage = Some(advantage);
    load.low = interval.map(|(low, _)| low);
    load.high = interval.map(|(_, high)| high);
    load.trust = Some(trust);
    load.why = why;
}

fn value(figure: FigureName, side: &CardSide) -> String {
    figure.shown(side.value)
}

/// The sides of all rows of a load, the best first.
fn sides(rows: &Rows<'_>) -> Vec<CardSide> {
    let mut sides: Vec<CardSide> = Vec::new();
    for (one, row) in rows {
        for (side, value) in [(&one.a, &row.a), (&one.b, &row.b)] {
            if sides.iter().all(|known| known.label != side.label) {
                sides.push(side_of(&side.label, value));
            }
        }
    }
    let more = rows
        .first()
        .is_none_or(|(_, row)| row.figure.more_is_better());
    sides.sort_by(|a, b| match more {
        true => b.value.total_cmp(&a.value),
        false => a.value.total_cmp(&b.value),
    });
    sides
}

fn side_of(label: &str, value: &SideValue) -> CardSide {
    CardSide {
        label: label.to_owned(),
        value: value.value,
        repeats: value.repeats,
        spread_percent: value.spread_percent,
        rank: 1,
        steps: value.steps.clone(),
    }
}

/// The comparison of two sides, whichever is A.
fn pair<'r>(
    rows: &Rows<'r>,
    one: &str,
    other: &str,
) -> Option<(&'r Comparison, &'r ComparisonRow)> {
    let is_it = |(comparison, _): &&(&Comparison, &ComparisonRow)| {
        let labels = (comparison.a.label.as_str(), comparison.b.label.as_str());
        labels == (one, other) || labels == (other, one)
    };
    rows.iter().find(is_it).copied()
}

/// Sides share the rank of the one before unless the difference to the first of that rank is shown. Without a
/// comparison of the two it is not.
fn rank(sides: &mut [CardSide], rows: &Rows<'_>) {
    let mut leader: Option<(String, usize)> = None;
    for at in 0..sides.len() {
        let Some(side) = sides.get_mut(at) else {
            return;
        };
        let is_behind = |leader: &str| {
            pair(rows, leader, &side.label).is_some_and(|(_, row)| row.verdict.is_shown())
        };
        let rank = match &leader {
            Some((label, rank)) if !is_behind(label) => *rank,
            _ => {
                leader = Some((side.label.clone(), at + 1));
                at + 1
            }
        };
        side.rank = rank;
    }
}

/// `3 %`: how far the interval reaches from equality.
fn within(figure: FigureName, interval: Option<(f64, f64)>) -> String {
    let far = interval.map_or(1.0, |(low, high)| {
        high.max(1.0 / low.max(f64::MIN_POSITIVE))
    });
    figure.size(far)
}

/// How far a verdict can be trusted, and why not further.
pub(in crate::report) fn trusted(
    comparison: &Comparison,
    row: &ComparisonRow,
) -> (Trust, Option<String>) {
    let repeats = row.a.repeats.min(row.b.repeats);
    // Without the noise between runs, a difference may be that of two runs of the same.
    let is_single_run =
        comparison.a.runs != comparison.b.runs && row.noise.as_deref() != Some("runs");
    let is_of_seconds = row.noise.as_deref() == Some("seconds");
    match row.verdict {
        Verdict::NoDifferenceShown => (Trust::NotShown, None),
        verdict if verdict.is_shown() && is_single_run => {
            (Trust::Likely, Some(String::from("one run each")))
        }
        verdict if verdict.is_shown() && is_of_seconds => {
            (Trust::Likely, Some(String::from("one repeat each")))
        }
        verdict if verdict.is_shown() => (Trust::Proven, None),
        Verdict::TooFewRepeats if is_likely(row) => (
            Trust::Likely,
            Some(match repeats {
                0 | 1 => String::from("one repeat each"),
                repeats => format!("{repeats} repeats each"),
            }),
        ),
        _ => (Trust::CannotTell, row.why.clone()),
    }
}

/// Whether the repeats agree although they are too few for a proof.
fn is_likely(row: &ComparisonRow) -> bool {
    let (better, worse) = match row.figure.is_better(row.a.value, row.b.value) {
        true => (&row.a, &row.b),
        false => (&row.b, &row.a),
    };
    let gap = match row.figure.more_is_better() {
        true => better.least / worse.most,
        false => worse.least / better.most,
    };
    let is_apart = better.repeats > 1 && worse.repeats > 1 && gap >= LIKELY_GAP;
    is_apart || row.p.is_some_and(|p| p < LIKELY_P)
}

/// `; ceph-osd 340 against 120 us of CPU per operation`, where it differs.
fn cost(costs: &Rows<'_>, first: &str, second: &str) -> Option<String> {
    let (one, row) = pair(costs, first, second)?;
    if FigureName::advantage(row.ratio) < COST_DIFFERS {
        return None;
    }
    let (of_first, of_second) = match one.a.label == first {
        true => (row.a.value, row.b.value),
        false => (row.b.value, row.a.value),
    };
    let who = match row.daemons.as_slice() {
        [daemon] => daemon.clone(),
        _ => String::from("daemons"),
    };
    Some(format!(
        "; {who} {} against {} us of CPU per operation",
        row.figure.shown(of_first),
        row.figure.shown(of_second)
    ))
}
