//! Planted differences, and loads without one, over the repeats of a plan and over groups of runs: how often a verdict
//! is correct.
//!
//! An independent implementation (scipy, statsmodels) reaches the same verdicts from the same figures.

#![expect(
    clippy::print_stderr,
    reason = "the rates that were found are read in the test's output"
)]

use super::*;
use serde_json::json;

/// Relative standard deviation of a load's repeats.
const CV: f64 = 0.02;

/// The scatter of a plan's repeats.
#[derive(Clone, Copy)]
struct PlanScatter {
    loads: usize,
    repeats: usize,
    layout: Layout,
    /// B over A of the first load; 1 if none differs.
    planted: f64,
    /// Noise that both sides of a repeat share.
    shared: f64,
    /// Maximum factor by which the noise of loads differs.
    unlike: f64,
}

impl PlanScatter {
    const PLAIN: Self = Self {
        loads: 1,
        repeats: 3,
        layout: Layout::Apart,
        planted: 1.0,
        shared: 0.0,
        unlike: 1.0,
    };

    fn loads(&self, random: &mut Random) -> Vec<Load<'static>> {
        let slow: Vec<f64> = (0..self.repeats)
            .map(|_| self.shared * normal(random))
            .collect();
        (0..self.loads)
            .map(|load| {
                let cv = CV * self.unlike.powf(2.0 * uniform(random) - 1.0);
                let mut side = |level: f64| -> Side<'static> {
                    let values: Vec<f64> = slow
                        .iter()
                        .map(|slow| level * (slow + cv * normal(random)).exp())
                        .collect();
                    repeats(&values)
                };
                let planted = if load == 0 { self.planted } else { 1.0 };
                Load {
                    family: 0,
                    a: side(1000.0),
                    b: side(1000.0 * planted),
                }
            })
            .collect()
    }
}

fn p_values(loads: &[Load<'_>], layout: Layout) -> Vec<f64> {
    let found = contrasts(Figure::Rate, loads, layout);
    found.iter().map(|one| one.unwrap().p().unwrap()).collect()
}

fn judged(loads: &[Load<'_>], layout: Layout) -> Vec<bool> {
    let corrected = holm(&p_values(loads, layout), ALPHA);
    corrected.iter().map(|one| one.p < ALPHA).collect()
}

/// Percentage of plans in which the first load differs significantly, or any load if no difference is planted.
fn percent(shape: PlanScatter, plans: usize, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let hits = (0..plans).filter(|_| {
        let verdicts = judged(&shape.loads(&mut random), shape.layout);
        match shape.planted < 1.0 {
            true => verdicts[0],
            false => verdicts.contains(&true),
        }
    });
    100.0 * hits.count() as f64 / plans as f64
}

const LAYOUTS: [Layout; 2] = [Layout::Apart, Layout::InTurns];

/// One load in two repeats has two degrees of freedom and no other load to borrow from: Student's test, the most
/// powerful unbiased test for unknown variance, finds 76 %.
#[test]
fn ten_percent_are_found_in_three_repeats_and_mostly_in_two() {
    let cases = [
        (1, 3, 95.0),
        (10, 3, 95.0),
        (50, 3, 95.0),
        (1, 2, 74.0),
        (10, 2, 80.0),
        (50, 2, 80.0),
    ];
    for layout in LAYOUTS {
        for (loads, repeats, least) in cases {
            let shape = PlanScatter {
                loads,
                repeats,
                layout,
                planted: 0.9,
                ..PlanScatter::PLAIN
            };
            let found = percent(shape, 2000, 41);
            eprintln!("{layout:?}: {loads} loads, {repeats} repeats: {found} %");
            assert!(
                found >= least,
                "{layout:?} {loads} loads, {repeats} repeats: {found} %"
            );
        }
    }
}

/// 5 % plus two standard errors of 2000 plans; slightly more if the noise of loads differs by a factor of up to nine.
#[test]
fn plans_that_do_not_differ_raise_no_alarm() {
    for layout in LAYOUTS {
        for (shared, unlike, most) in [
            (0.0, 1.0, 6.0),
            (CV, 1.0, 6.0),
            (5.0 * CV, 1.0, 6.0),
            (0.0, 3.0, 8.0),
            (CV, 3.0, 8.0),
        ] {
            for loads in [1, 2, 3, 10, 50] {
                let found = [2, 3, 5].map(|repeats| {
                    let shape = PlanScatter {
                        loads,
                        repeats,
                        layout,
                        shared,
                        unlike,
                        ..PlanScatter::PLAIN
                    };
                    percent(shape, 2000, 42)
                });
                let what = format!(
                    "{layout:?}, shared {shared}, unlike {unlike}: {loads} loads: {found:?} %"
                );
                eprintln!("{what}");
                assert!(found.iter().all(|one| *one <= most), "{what}");
            }
        }
    }
}

/// Groups of runs of three repeats; each run has its own level, which all its loads share in part.
#[test]
fn runs_that_drift_raise_no_alarm() {
    const DRIFT: f64 = 0.05;
    let mut random = Random::new(43);
    for (before, after) in [(2, 2), (3, 3), (5, 1), (5, 5)] {
        for (loads, common) in [(1, 0.0), (10, 0.0), (10, 0.7), (50, 1.0)] {
            let alarms = (0..2000).filter(|_| {
                let levels: Vec<f64> = (0..before + after).map(|_| normal(&mut random)).collect();
                let plan: Vec<Load<'_>> = (0..loads)
                    .map(|_| {
                        let mut side = |runs: std::ops::Range<usize>| -> Side<'static> {
                            let mut all = repeats(&[]);
                            for run in runs {
                                let own: f64 =
                                    (1.0_f64 - common * common).sqrt() * normal(&mut random);
                                let level = DRIFT * (common * levels[run] + own);
                                let values: Vec<f64> = (0..3)
                                    .map(|_| (level + CV * normal(&mut random)).exp())
                                    .collect();
                                let mut of_run = repeats(&values).repeats;
                                of_run
                                    .iter_mut()
                                    .for_each(|one| one.run = i64::try_from(run).unwrap());
                                all.repeats.extend(of_run);
                            }
                            all
                        };
                        Load {
                            family: 0,
                            a: side(0..before),
                            b: side(before..before + after),
                        }
                    })
                    .collect();
                judged(&plan, Layout::Apart).contains(&true)
            });
            let found = alarms.count() as f64 / 20.0;
            eprintln!("{before} against {after} runs, {loads} loads, common {common}: {found} %");
            assert!(
                found <= 6.0,
                "{before} against {after}, {loads} loads, common {common}: {found} %"
            );
        }
    }
}

/// The runs of one side are quiet; the only run of the other side has repeats that scatter, around the same level.
#[test]
fn a_single_run_that_scatters_raises_no_alarm() {
    const QUIET: f64 = 0.01;
    let mut random = Random::new(45);
    for (runs, count, scatter) in [
        (3, 3, 0.25),
        (3, 3, 0.05),
        (10, 3, 0.25),
        (3, 3, QUIET),
        // Its own error is about that between the runs, with many degrees of freedom.
        (3, 20, 4.5 * QUIET),
        (3, 20, 6.0 * QUIET),
    ] {
        let mut side = |runs: std::ops::Range<i64>, count: usize, scatter: f64| -> Side<'static> {
            let mut all = repeats(&[]);
            for run in runs {
                let level = QUIET * normal(&mut random);
                let values: Vec<f64> = (0..count)
                    .map(|_| (level + scatter * normal(&mut random)).exp())
                    .collect();
                let of_run = repeats(&values).repeats.into_iter();
                all.repeats.extend(of_run.map(|one| Repeat { run, ..one }));
            }
            all
        };
        let alarms = (0..2000).filter(|_| {
            let load = Load {
                family: 0,
                a: side(0..runs, 3, QUIET),
                b: side(runs..runs + 1, count, scatter),
            };
            judged(&[load], Layout::Apart).contains(&true)
        });
        let found = alarms.count() as f64 / 20.0;
        eprintln!(
            "{runs} runs against one of {count} repeats that scatter by {scatter}: {found} %"
        );
        assert!(
            found <= 7.0,
            "{runs} runs, {count} repeats, {scatter}: {found} %"
        );
    }
}

const SCRIPT: &str = r#"
import json, sys
import numpy as np
from scipy import optimize, special, stats
from statsmodels.stats.multitest import multipletests

def moderated(v, d, rho2):
    G = len(v)
    s0, d0 = np.average(v), np.inf
    if G >= 20:
        e = np.log(v) - special.digamma(d / 2) + np.log(d / 2)
        chance = special.polygamma(1, d / 2)
        excess = e.var(ddof=1) - chance + 0.4 * chance * np.sqrt(2 / (G - 1))
        if excess > 0:
            half = np.exp(optimize.brentq(lambda x: special.polygamma(1, np.exp(x)) - excess, -15, 15))
            s0, d0 = np.exp(e.mean() + special.digamma(half) - np.log(half)), 2 * half
    d0 = min(d0, 0.5 * (G - 1))
    most = max(d, d * G / (1 + (G - 1) * rho2))
    return (d0 * s0 + d * v) / (d0 + d), min(d0 + d, most)

def together(residuals):
    if len(residuals) < 2:
        return 0
    corr = np.array(residuals) / np.linalg.norm(residuals, axis=1, keepdims=True)
    r = corr @ corr.T
    mean = r[np.triu_indices(len(r), 1)].mean()
    return np.clip(mean, 0, 1) ** 2

def judge(plan, in_turns):
    a, b = (np.log(np.array([load[side] for load in plan])) for side in (0, 1))
    G, n = a.shape
    diff = (b - a).mean(axis=1)
    ss = lambda x: ((x - x.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    share = ss(a + b) / (ss(a + b) + ss(b - a))
    if in_turns and share.mean() - 0.5 > 2 * np.sqrt(1 / (4 * n * G)):
        d = b - a
        v, df = moderated(d.var(axis=1, ddof=1), n - 1, together(d - d.mean(axis=1, keepdims=True)))
        t = diff / np.sqrt(v / n)
    else:
        r = np.hstack([a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)])
        v, df = moderated((a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)) / 2, 2 * n - 2, together(r))
        t = diff / np.sqrt(2 * v / n)
    return list(multipletests(2 * stats.t.sf(abs(t), df), method="holm")[1])

given = json.load(sys.stdin)
json.dump([judge(one["loads"], one["in_turns"]) for one in given], sys.stdout)
"#;

#[test]
fn verdicts_agree_with_scipy_and_statsmodels() {
    let python = match independent::python() {
        Ok(python) => python,
        Err(why) => return benchmesh_testing::skip("pypi", &why),
    };
    let mut random = Random::new(44);
    let mut given = Vec::new();
    let mut ours = Vec::new();
    for layout in LAYOUTS {
        for (loads, repeats, shared, unlike) in [
            (1, 3, 0.0, 1.0),
            (10, 2, CV, 3.0),
            (25, 2, 0.0, 3.0),
            (50, 3, CV, 2.0),
        ] {
            for _ in 0..25 {
                let shape = PlanScatter {
                    loads,
                    repeats,
                    layout,
                    planted: 0.9,
                    shared,
                    unlike,
                };
                let plan = shape.loads(&mut random);
                let values = |side: &Side<'_>| -> Vec<f64> {
                    side.repeats.iter().map(|repeat| repeat.value).collect()
                };
                let both: Vec<[Vec<f64>; 2]> = plan
                    .iter()
                    .map(|load| [values(&load.a), values(&load.b)])
                    .collect();
                given.push(json!({ "loads": both, "in_turns": layout == Layout::InTurns }));
                let corrected = holm(&p_values(&plan, layout), ALPHA);
                ours.push(corrected.iter().map(|one| one.p).collect::<Vec<f64>>());
            }
        }
    }
    let theirs = independent::ask(python, SCRIPT, &json!(given));
    let theirs = theirs.as_array().unwrap();
    assert_eq!(ours.len(), theirs.len());
    for (plan, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let theirs = independent::numbers(theirs);
        independent::same(&format!("plan {plan}"), ours, &theirs, 1e-6);
    }
}
