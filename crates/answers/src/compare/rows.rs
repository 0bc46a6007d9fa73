//! The figures of pairs of cells, each with its contrast and its caveats, not yet judged.

use super::caveats::{self, without_lost};
use super::cell::{MeasuredCell, figure_of};
use super::figure::FigureName;
use super::model::{ComparisonRow, Incomparable, Side, SideValue, Verdict};
use super::pairs::{Pair, RepeatGroup};
use benchmesh_analysis::effect::effect_size;
use benchmesh_analysis::{Contrast, Layout, Load, Repeat, contrasts};
use benchmesh_workloads::figures::plural;
use benchmesh_workloads::op::Op;
use std::collections::BTreeSet;

/// A row and the data for its verdict.
pub(super) struct Judged {
    pub row: ComparisonRow,
    pub contrast: Option<Contrast>,
}

/// Both sides of a load without incomplete repeats, if there are complete ones.
struct Sides {
    a: Vec<MeasuredCell>,
    b: Vec<MeasuredCell>,
    /// Rates are per client, because a side has lost some.
    per_client: bool,
}

impl Sides {
    fn of(pair: &Pair) -> Self {
        let (a, b) = (without_lost(&pair.a), without_lost(&pair.b));
        match caveats::per_client(&a, &b) {
            Some((a, b)) => Self {
                a,
                b,
                per_client: true,
            },
            None => Self {
                a,
                b,
                per_client: false,
            },
        }
    }
}

/// A row for each figure that is always listed or requested, and that both sides have, load by load.
pub(super) fn rows(
    pairs: &[Pair],
    (a, b): (&Side, &Side),
    layout: Layout,
    requested: &[FigureName],
) -> Vec<Judged> {
    let sides: Vec<Sides> = pairs.iter().map(Sides::of).collect();
    let mut rows: Vec<Vec<Judged>> = pairs.iter().map(|_| Vec::new()).collect();
    for figure in FigureName::all().filter(|figure| figure.is_listed(requested)) {
        let places: Vec<usize> = (0..pairs.len())
            .filter(|place| sides.get(*place).is_some_and(|sides| has(figure, sides)))
            .collect();
        let loads: Vec<Load<'_>> = places
            .iter()
            .filter_map(|place| load(figure, pairs, sides.get(*place)?, *place))
            .collect();
        let found = contrasts(figure.analysed(), &loads, layout);
        for ((place, load), contrast) in places.iter().zip(&loads).zip(found) {
            let (Some(pair), Some(sides), Some(rows)) =
                (pairs.get(*place), sides.get(*place), rows.get_mut(*place))
            else {
                continue;
            };
            rows.extend(
                contrast.and_then(|contrast| row(figure, pair, sides, load, contrast, (a, b))),
            );
        }
    }
    rows.into_iter().flatten().collect()
}

fn has(figure: FigureName, sides: &Sides) -> bool {
    let mut both = [&sides.a, &sides.b].into_iter();
    let first = sides.a.first();
    let is_of_op = first.is_some_and(|cell| FigureName::of_op(&cell.key.op).contains(&figure));
    // Bytes stand in for operations that a log does not count.
    let is_needed = figure != FigureName::Bytes || !has(FigureName::Ops, sides);
    is_of_op && is_needed && both.all(|cells| figure_of(figure, cells).is_some())
}

fn load<'s>(
    figure: FigureName,
    pairs: &[Pair],
    sides: &'s Sides,
    place: usize,
) -> Option<Load<'s>> {
    let phase = &pairs.get(place)?.a.key.phase;
    let side = |cells: &'s [MeasuredCell]| -> Option<benchmesh_analysis::Side<'s>> {
        let repeats = cells.iter().map(|cell| {
            Some(Repeat {
                run: cell.run,
                number: cell.repeat,
                value: cell.value(figure)?,
                resolution: cell.resolution(figure),
                series: cell.series_of(figure),
            })
        });
        Some(benchmesh_analysis::Side {
            repeats: repeats.collect::<Option<_>>()?,
        })
    };
    Some(Load {
        // Loads of a phase are assumed to have the same variance.
        family: pairs.iter().position(|pair| pair.a.key.phase == *phase)?,
        a: side(&sides.a)?,
        b: side(&sides.b)?,
    })
}

/// Whether the figure is the load's primary one. A rate that the plan sets is not a result, nor one that the other end
/// counted.
fn is_primary(figure: FigureName, op: &str, sides: &Sides) -> bool {
    match figure {
        FigureName::Response | FigureName::Share | FigureName::Jitter => true,
        FigureName::Ops | FigureName::Bytes => Op::is_work(op) && !has(FigureName::Response, sides),
        _ => false,
    }
}

fn row(
    figure: FigureName,
    pair: &Pair,
    sides: &Sides,
    load: &Load<'_>,
    contrast: Contrast,
    (a, b): (&Side, &Side),
) -> Option<Judged> {
    let key = &pair.a.key;
    let judged = is_primary(figure, &key.op, sides);
    let lost = match figure {
        FigureName::Ops | FigureName::Bytes if !sides.per_client => {
            caveats::is_of_fewer(&sides.a, a).or_else(|| caveats::is_of_fewer(&sides.b, b))
        }
        _ => None,
    };
    let is_rate = matches!(figure, FigureName::Ops | FigureName::Bytes);
    let per_client = is_rate && sides.per_client;
    let p = contrast.p().filter(|_| lost.is_none());
    let why = lost.or_else(|| match (p, judged) {
        (None, true) => Some(without_interval(figure, sides, contrast, (a, b))),
        _ => None,
    });
    let values = |side: &benchmesh_analysis::Side<'_>| -> Vec<f64> {
        side.repeats.iter().map(|repeat| repeat.value).collect()
    };
    let row = ComparisonRow {
        phase: key.phase.clone(),
        group: key.group.clone(),
        workload: key.workload.clone(),
        mode: key.mode.clone(),
        op: match figure.is_of_step() {
            true => String::new(),
            false => key.op.clone(),
        },
        cell: pair.cell.clone(),
        figure,
        unit: match per_client {
            true => format!("{} per client", figure.unit()),
            false => figure.unit().to_owned(),
        },
        per_client,
        daemons: match figure {
            FigureName::Cpu => daemons(sides),
            _ => Vec::new(),
        },
        a: shown(figure, &sides.a)?,
        b: shown(figure, &sides.b)?,
        ratio: contrast.log.exp(),
        judged,
        low: None,
        high: None,
        p,
        p_corrected: None,
        noise: p.map(|_| contrast.noise.as_str().to_owned()),
        effect: effect(figure, sides, [values(&load.a), values(&load.b)]),
        verdict: Verdict::NotJudged,
        why,
        caveats: caveats::caveats(pair, sides.a.len(), sides.b.len(), a, b),
    };
    Some(Judged {
        row,
        contrast: Some(contrast),
    })
}

fn shown(figure: FigureName, cells: &[MeasuredCell]) -> Option<SideValue> {
    let of_repeats = figure_of(figure, cells)?;
    let is_none = figure == FigureName::Share && cells.iter().all(|cell| cell.ops == Some(0));
    Some(SideValue {
        value: if is_none { 0.0 } else { of_repeats.value },
        repeats: cells.len(),
        spread_percent: of_repeats.spread_percent(),
        least: of_repeats.min,
        most: of_repeats.max,
        steps: cells.iter().map(|cell| cell.step).collect(),
    })
}

/// The effect size, over repeats or over the seconds of two single runs.
fn effect(figure: FigureName, sides: &Sides, [a, b]: [Vec<f64>; 2]) -> Option<f64> {
    let seconds = |cells: &[MeasuredCell]| -> Option<Vec<f64>> {
        let series = cells.first()?.series.as_ref()?;
        match figure {
            // The seconds are totals of all clients.
            FigureName::Ops if sides.per_client => None,
            FigureName::Ops => Some(series.rates().to_vec()),
            FigureName::Mean => Some(series.means().to_vec()),
            _ => None,
        }
    };
    match a.len() > 1 && b.len() > 1 {
        true => effect_size(&a, &b),
        false => effect_size(&seconds(&sides.a)?, &seconds(&sides.b)?),
    }
}

fn daemons(sides: &Sides) -> Vec<String> {
    let cells = sides.a.iter().chain(&sides.b);
    let names: BTreeSet<&String> = cells.flat_map(|cell| cell.cpu_us_per_op.keys()).collect();
    names.into_iter().cloned().collect()
}

/// Whether neither side has lost (reordered, ...) anything.
pub(super) fn has_none(pair: &Pair) -> bool {
    let mut cells = pair.a.repeats.iter().chain(&pair.b.repeats);
    FigureName::of_op(&pair.a.key.op) == [FigureName::Share]
        && cells.all(|cell| cell.ops == Some(0))
}

/// The reason why a load cannot be compared: one side has no rate in any repeat.
pub(super) fn no_rate(pair: &Pair, a: &Side, b: &Side) -> Option<Incomparable> {
    let key = &pair.a.key;
    let lacks = |group: &RepeatGroup, side: &Side| {
        let all = without_lost(group);
        let cell = all.iter().find(|cell| !cell.has_result())?;
        let why = match (cell.ops, cell.errors) {
            (Some(0), Some(0)) => "did nothing",
            (Some(0), _) => "had only errors",
            _ if cell.imported => "has no rate in its log",
            _ => "has no rate: its clients did not run at the same time",
        };
        Some(format!("{} {why}", side.label))
    };
    let why = lacks(&pair.a, a).or_else(|| lacks(&pair.b, b))?;
    Some(Incomparable {
        what: [key.phase.as_str(), &key.mode, &key.op].join(" "),
        why,
    })
}

/// Why a ratio has no interval.
fn without_interval(
    figure: FigureName,
    sides: &Sides,
    contrast: Contrast,
    (a, b): (&Side, &Side),
) -> String {
    let untold = |cells: &[MeasuredCell]| {
        let series = cells.first().and_then(|cell| cell.series_of(figure));
        series.is_none_or(|series| series.len() < 3)
    };
    let (cells, side) = match untold(&sides.a) {
        true => (&sides.a, a),
        false => (&sides.b, b),
    };
    if let Some(cell) = cells.first().filter(|cell| cell.has_few_above(figure)) {
        return format!(
            "{} is one run of {}, too few for its {}; repeat it or let it run longer",
            side.label,
            plural(
                usize::try_from(cell.ops.unwrap_or(0)).unwrap_or(0),
                "operation"
            ),
            figure.row().title
        );
    }
    let series = cells.first().and_then(|cell| cell.series_of(figure));
    let unknown = "too short to know its noise; repeat it or let it run longer";
    match series.filter(|_| contrast.noise == benchmesh_analysis::Noise::Seconds) {
        Some(series) => format!("{} is one run of {} s, {unknown}", side.label, series.len()),
        None => format!(
            "{} is one figure without its seconds; repeat it",
            side.label
        ),
    }
}
