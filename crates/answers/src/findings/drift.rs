//! Drifts and level changes: rate and p99 of each operation, over each long step and over all steps of the same load.

mod sentences;

use super::beside::Events;
use super::seconds::{OpTimeline, TimelineSecond};
use super::steps::Step;
use super::{MIN_SPAN_US, POINTS, POINTS_WANTED, finite};
use benchmesh_analysis::correct::holm;
use benchmesh_analysis::day::DailyCycle;
use benchmesh_analysis::shift::{Shift, shifts};
use benchmesh_analysis::slope::{MIN_FEW, MIN_POINTS, Point, Slope, slope, slope_of_few};
use benchmesh_model::mesh::{FindingVerdict, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::op::Op;
use std::collections::BTreeMap;

/// The probability of a false drift, and of a false level change, among all operations of the run.
const ALPHA: f64 = 0.01;
const INTERVAL: f64 = 0.05;
/// Maximum length of a step's start, which is excluded from every series.
const MAX_START_US: i64 = 10_000_000;
/// Minimum length of a series for levels that are left again: in a shorter one, a level of an eighth of it is a burst.
const MIN_LEVELS_US: i64 = 900_000_000;
/// A drift whose line moves this many times as far as the figure did from the first tenth to the last is overstated:
/// the figure moved within a part of the time.
const OVERSTATED: f64 = 1.3;
/// Minimum length of a step relative to the others of its load; a shorter one was cut off.
const MIN_LENGTH: f64 = 0.5;
/// In many steps of one load, a few drift a little by chance. Small drifts count if at least one of this many steps has
/// one.
const DRIFTING_STEPS: usize = 10;
/// Lower rates, in operations per second, are too random to be judged.
const MIN_RATE: f64 = 1.0;

/// One figure that may drift.
#[derive(Debug)]
struct Drifting {
    name: &'static str,
    figure: &'static str,
    unit: &'static str,
    /// Minimum relevant change over the series, and at one instant.
    least: f64,
    least_at_once: f64,
    /// Maximum change of a steady operation.
    steady: f64,
    more_is_worse: bool,
}

const FIGURES: [Drifting; 2] = [
    Drifting {
        name: "rate",
        figure: "ops_per_s",
        unit: "ops/s",
        least: 0.02,
        least_at_once: 0.05,
        steady: 0.05,
        more_is_worse: false,
    },
    Drifting {
        name: "p99",
        figure: "p99_ms",
        unit: "ms",
        least: 0.1,
        least_at_once: 0.25,
        steady: 0.2,
        more_is_worse: true,
    },
];

/// An operation of a load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OpKey {
    load: String,
    group: String,
    op: String,
}

/// A point with both figures, as natural logarithms.
#[derive(Clone, Copy, Debug)]
struct Dot {
    from_us: i64,
    until_us: i64,
    values: [Option<f64>; 2],
}

impl Dot {
    /// The middle of its time.
    fn hour(&self) -> f64 {
        real(self.from_us.midpoint(self.until_us)) / 3.6e9
    }

    /// `None` if there are no seconds.
    fn of(seconds: &[TimelineSecond]) -> Option<Self> {
        let (first, last) = (seconds.first()?, seconds.last()?);
        let sum = |part: fn(&TimelineSecond) -> i64| real(seconds.iter().map(part).sum());
        let rate = sum(|second| second.ops) * 1e6 / sum(|second| second.span_us);
        let (logs, count) = seconds
            .iter()
            .filter_map(|second| second.p99_ns.filter(|ns| *ns > 0))
            .fold((0.0, 0.0), |(logs, count), ns| {
                (logs + (real(ns) / 1e6).ln(), count + 1.0)
            });
        Some(Self {
            from_us: first.at_us,
            until_us: last.at_us + last.span_us,
            values: [
                (rate >= MIN_RATE).then(|| rate.ln()),
                (count > 0.0).then(|| logs / count),
            ],
        })
    }
}

/// The time that a series covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DriftScope {
    /// One long step.
    Step,
    /// All steps of a load, one point each.
    Load,
}

/// One figure of one operation.
#[derive(Debug)]
struct DriftSeries {
    key: OpKey,
    scope: DriftScope,
    facts: &'static Drifting,
    step: Step,
    dots: Vec<(Dot, f64)>,
    /// The daily cycle, removed from the values.
    cycle: Option<DailyCycle>,
}

/// Collects the data for drifts and level changes, step by step.
#[derive(Debug, Default)]
pub(super) struct Drifts {
    series: Vec<DriftSeries>,
    /// The steps of each operation, with a point each.
    occurrences: BTreeMap<OpKey, Vec<(Step, Dot)>>,
}

impl Drifts {
    pub fn add(&mut self, step: &Step, lines: &[OpTimeline]) {
        let start_us = (step.length_us() / 10).min(MAX_START_US);
        for line in lines {
            if !Op::is_work(&line.op) {
                continue;
            }
            let from = line
                .seconds
                .partition_point(|second| second.at_us < step.from_us + start_us);
            let seconds = line.seconds.get(from..).unwrap_or_default();
            let Some(whole) = Dot::of(seconds) else {
                continue;
            };
            let key = OpKey {
                load: step.load.clone(),
                group: line.group.clone(),
                op: line.op.clone(),
            };
            if step.length_us() >= MIN_SPAN_US {
                let width = (whole.until_us - whole.from_us) / POINTS_WANTED;
                let width = width.max(step.period_us);
                let place = |second: &TimelineSecond| (second.at_us - whole.from_us) / width;
                let dots: Vec<Dot> = seconds
                    .chunk_by(|one, other| place(one) == place(other))
                    .filter_map(Dot::of)
                    .collect();
                self.series
                    .extend(both(&key, DriftScope::Step, step, &dots));
            }
            let occurrences = self.occurrences.entry(key).or_default();
            occurrences.push((step.clone(), whole));
        }
    }

    pub fn find(mut self, events: &Events) -> Vec<Finding> {
        let longest = self.occurrences.values().flatten();
        let longest = longest.map(|(step, _)| step.length_us()).max().unwrap_or(0);
        for (key, occurrences) in &self.occurrences {
            self.series.extend(of_load(key, occurrences));
        }
        if self.series.is_empty() {
            let sentence = format!(
                "drift of rates and p99 was not judged: the steps are too short: the longest one took {} s; it needs a \
                 step of {} s, or {MIN_FEW} steps of one load",
                longest / 1_000_000,
                MIN_SPAN_US / 1_000_000
            );
            return vec![info(FindingVerdict::NotJudged, sentence)];
        }
        remove_daily_cycles(&mut self.series);
        let level = ALPHA / real(i64::try_from(self.series.len()).unwrap_or(1));
        let judge = |series: DriftSeries| (series.shifts(level), series.slope(), series);
        let judged = self.series.into_iter().map(judge).collect();
        findings(judged, events)
    }
}

/// Removes the daily cycle of each operation: of a long step its own, of others that of all steps of their load.
fn remove_daily_cycles(series: &mut [DriftSeries]) {
    let mut of_loads = BTreeMap::new();
    for one in series.iter().filter(|one| one.scope == DriftScope::Load) {
        let cycle = one.daily_cycle();
        of_loads.extend(cycle.map(|cycle| ((one.key.clone(), one.facts.figure), cycle)));
    }
    for one in series {
        let of_load = || of_loads.get(&(one.key.clone(), one.facts.figure)).cloned();
        if let Some(cycle) = one.daily_cycle().or_else(of_load) {
            one.remove(cycle);
        }
    }
}

fn both(key: &OpKey, scope: DriftScope, step: &Step, dots: &[Dot]) -> Vec<DriftSeries> {
    let of = |(place, facts): (usize, &'static Drifting)| DriftSeries {
        key: key.clone(),
        scope,
        facts,
        step: step.clone(),
        dots: dots
            .iter()
            .filter_map(|dot| Some((*dot, (*dot.values.get(place)?)?)))
            .collect(),
        cycle: None,
    };
    FIGURES.iter().enumerate().map(of).collect()
}

/// The series over all steps of a load, or over means of several steps each if there are many.
fn of_load(key: &OpKey, occurrences: &[(Step, Dot)]) -> Vec<DriftSeries> {
    let mut lengths: Vec<i64> = occurrences
        .iter()
        .map(|(step, _)| step.length_us())
        .collect();
    lengths.sort_unstable();
    let usual = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    let whole: Vec<&(Step, Dot)> = occurrences
        .iter()
        .filter(|(step, _)| real(step.length_us()) >= MIN_LENGTH * real(usual))
        .collect();
    let Some((last, _)) = whole.last().filter(|_| whole.len() >= MIN_FEW) else {
        return Vec::new();
    };
    let dots: Vec<Dot> = whole
        .chunks(whole.len().div_ceil(POINTS))
        .filter_map(|some| {
            let (first, last) = (some.first()?, some.last()?);
            let mean = |place: usize| {
                let values: Vec<f64> = some
                    .iter()
                    .filter_map(|(_, dot)| *dot.values.get(place)?)
                    .collect();
                let count = real(i64::try_from(values.len()).unwrap_or(1));
                finite(values.iter().sum::<f64>() / count)
            };
            Some(Dot {
                from_us: first.1.from_us,
                until_us: last.1.until_us,
                values: [mean(0), mean(1)],
            })
        })
        .collect();
    both(key, DriftScope::Load, last, &dots)
}

fn info(verdict: FindingVerdict, sentence: String) -> Finding {
    Finding::new(
        Severity::Info,
        FindingKind::Drift,
        verdict,
        "operations",
        sentence,
    )
}

type JudgedSeries = (Vec<Shift>, Option<Slope>, DriftSeries);

fn findings(judged: Vec<JudgedSeries>, events: &Events) -> Vec<Finding> {
    let values: Vec<f64> = judged
        .iter()
        .filter_map(|(_, slope, _)| Some(slope.as_ref()?.p))
        .collect();
    let mut corrected = holm(&values, ALPHA).into_iter();
    let (mut steady, mut unsure) = (0, 0);
    // Grouped by scope and figure, because all steps of a load may show the same.
    let mut found: BTreeMap<(OpKey, DriftScope, &str, FindingKind), Vec<Finding>> = BTreeMap::new();
    for (shifts, slope, series) in &judged {
        let p = slope
            .as_ref()
            .and_then(|_| corrected.next())
            .map(|one| one.p);
        let mut add = |kind: FindingKind, finding: Finding| {
            let key = (series.key.clone(), series.scope, series.facts.figure, kind);
            found.entry(key).or_default().push(finding);
        };
        if !shifts.is_empty() {
            for shift in shifts {
                add(FindingKind::Change, series.change(shift, events));
            }
            continue;
        }
        match slope
            .as_ref()
            .zip(p)
            .map(|(slope, p)| series.judged(slope, p))
        {
            Some(Judged::Drifts(finding)) => add(FindingKind::Drift, *finding),
            Some(Judged::Steady) => steady += 1,
            Some(Judged::Unsure) => unsure += 1,
            None => {}
        }
    }
    let mut all: Vec<Finding> = Vec::new();
    for ((key, scope, figure, kind), findings) in found {
        let steps: Vec<&DriftSeries> = judged
            .iter()
            .map(|(_, _, series)| series)
            .filter(|series| {
                (&series.key, series.scope, series.facts.figure) == (&key, scope, figure)
            })
            .collect();
        if kind == FindingKind::Drift && may_be_chance(&findings, &steps) {
            unsure += findings.len();
        } else {
            all.extend(merged(findings, steps.len()));
        }
    }
    let mut rest = Vec::new();
    if steady > 0 {
        rest.push(format!("{steady} steady"));
    }
    if unsure > 0 {
        rest.push(format!("{unsure} unsure"));
    }
    if !rest.is_empty() {
        let verdict = match unsure {
            0 => FindingVerdict::Steady,
            _ => FindingVerdict::Unsure,
        };
        let sentence = format!(
            "rates and p99 of operations in steps of {} s or more, and over {MIN_FEW} or more steps of one load: {}",
            MIN_SPAN_US / 1_000_000,
            rest.join(", ")
        );
        all.push(info(verdict, sentence));
    }
    all
}

/// Whether small drifts are in few of many steps of a load.
fn may_be_chance(drifts: &[Finding], steps: &[&DriftSeries]) -> bool {
    let Some(one) = steps.first() else {
        return false;
    };
    let least = 100.0 * one.facts.least_at_once;
    drifts.len() * DRIFTING_STEPS < steps.len()
        && drifts
            .iter()
            .all(|one| one.size.unwrap_or(0.0).abs() < least)
}

/// Keeps the largest of the findings in several steps of one load, and mentions the number of steps.
fn merged(mut findings: Vec<Finding>, steps: usize) -> Vec<Finding> {
    let in_steps = findings
        .chunk_by(|one, other| one.step_id == other.step_id)
        .count();
    if in_steps < 2 {
        return findings;
    }
    let size = |finding: &Finding| finding.size.unwrap_or(0.0).abs();
    findings.sort_by(|a, b| size(b).total_cmp(&size(a)));
    findings.truncate(1);
    for finding in &mut findings {
        finding.sentence.push_str(&format!(
            "; the largest of those in {in_steps} of {steps} steps of this load"
        ));
    }
    findings
}

enum Judged {
    Drifts(Box<Finding>),
    Steady,
    Unsure,
}

impl DriftSeries {
    fn daily_cycle(&self) -> Option<DailyCycle> {
        let points = self.dots.iter().map(|(dot, value)| (dot.hour(), *value));
        let cycle = DailyCycle::of(&points.collect::<Vec<_>>());
        cycle.filter(|cycle| cycle.half_range() >= self.facts.least / 2.0)
    }

    fn remove(&mut self, cycle: DailyCycle) {
        for (dot, value) in &mut self.dots {
            *value -= cycle.at(dot.hour());
        }
        self.cycle = Some(cycle);
    }

    fn values(&self) -> Vec<f64> {
        self.dots.iter().map(|(_, value)| *value).collect()
    }

    fn begin_us(&self) -> i64 {
        self.dots.first().map_or(0, |(dot, _)| dot.from_us)
    }

    fn end_us(&self) -> i64 {
        self.dots.last().map_or(0, |(dot, _)| dot.until_us)
    }

    fn slope(&self) -> Option<Slope> {
        let begin = self.begin_us();
        let points: Vec<Point> = self
            .dots
            .iter()
            .map(|(dot, value)| Point {
                at: real(dot.from_us - begin) / 3.6e9,
                value: *value,
                stratum: 0,
            })
            .collect();
        match points.len() < MIN_POINTS && self.scope == DriftScope::Load {
            true => slope_of_few(&points),
            false => slope(&points),
        }
    }

    /// The relevant level changes.
    fn shifts(&self, level: f64) -> Vec<Shift> {
        if self.dots.len() < MIN_POINTS {
            return Vec::new();
        }
        let mut found = shifts(&self.values(), level);
        found.retain(|one| (one.after - one.before).abs() >= self.facts.least_at_once.ln_1p());
        let is_short = self.end_us() - self.begin_us() < MIN_LEVELS_US;
        match is_short && found.len() > 1 {
            true => Vec::new(),
            false => found,
        }
    }

    fn judged(&self, slope: &Slope, p: f64) -> Judged {
        let hours = real(self.end_us() - self.begin_us()) / 3.6e9;
        let change = |slope: f64| (slope * hours).exp_m1();
        let (low, high) = slope.interval(INTERVAL);
        let (low, size, high) = (change(low), change(slope.slope), change(high));
        let (first, last) = self.tenths();
        let tenths = last / first - 1.0;
        let moved = match size.abs() > OVERSTATED * tenths.abs() {
            true => tenths / size,
            false => 1.0,
        };
        let matters = size.abs() >= self.facts.least && tenths.abs() >= self.facts.least / 2.0;
        if p < ALPHA && matters && tenths * size > 0.0 {
            let sizes = [low, size, high].map(|size| moved * size);
            return Judged::Drifts(Box::new(self.drift(sizes, p, (first, last))));
        }
        match low > -self.facts.steady && high < self.facts.steady {
            true => Judged::Steady,
            false => Judged::Unsure,
        }
    }

    /// The geometric means of the figure in the first and the last tenth.
    fn tenths(&self) -> (f64, f64) {
        let tenth = self.dots.len().div_ceil(10);
        let mean = |dots: &mut dyn Iterator<Item = &(Dot, f64)>| {
            let (sum, count) = dots.fold((0.0, 0.0), |(sum, count), (_, value)| {
                (sum + value, count + 1.0)
            });
            (sum / count).exp()
        };
        (
            mean(&mut self.dots.iter().take(tenth)),
            mean(&mut self.dots.iter().rev().take(tenth)),
        )
    }
}
