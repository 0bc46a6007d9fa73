//! Our statistics against an independent implementation: scipy, statsmodels and arch, from the Python registry.

use super::*;
use crate::{blocks::dependence, noise};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SCRIPT: &str = r#"
import json, sys
import numpy as np
from arch.bootstrap import CircularBlockBootstrap, optimal_block_length
from scipy import special, stats
from statsmodels.stats.multitest import multipletests

given = json.load(sys.stdin)
answer = {
    "student": [2 * stats.t.sf(t, df) for t, df in given["student"]],
    "quantiles": [stats.t.isf(p / 2, df) for p, df in given["quantiles"]],
    "blocks": [float(optimal_block_length(np.array(one))["circular"].iloc[0]) for one in given["series"]],
    "holm": list(multipletests(given["p"], method="holm")[1]),
}
rates = np.array(given["rates"])
times = [np.array(second) for second in given["times"]]
numbers = np.arange(len(rates))
def figures(chosen):
    merged = np.concatenate([times[second] for second in chosen])
    return np.log([rates[chosen].mean(), merged.mean(), *np.quantile(merged, given["percentiles"])])
bootstrap = CircularBlockBootstrap(given["block"], numbers, seed=1)
answer["errors"] = list(bootstrap.apply(figures, 1000).std(axis=0, ddof=1))
a, b = map(np.array, given["effect"])
pooled = np.sqrt(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (len(a) + len(b) - 2))
answer["effect"] = (b.mean() - a.mean()) / pooled * (1 - 3 / (4 * (len(a) + len(b) - 2) - 1))
def told(test):
    interval = test.confidence_interval()
    return [test.pvalue, np.exp(interval.low), np.exp(interval.high)]
answer["student_test"] = told(stats.ttest_ind(np.log(b), np.log(a)))
c, d = map(np.array, given["turns"])
answer["paired_test"] = told(stats.ttest_rel(np.log(d), np.log(c)))
answer["digamma"] = list(special.digamma(given["arguments"]))
answer["trigamma"] = list(special.polygamma(1, given["arguments"]))
json.dump(answer, sys.stdout)
"#;

pub(super) fn python() -> Result<PathBuf, String> {
    benchmesh_testing::python(
        "python-statistics",
        &["numpy", "scipy", "statsmodels", "arch"],
    )
}

pub(super) fn ask(python: PathBuf, script: &str, given: &Value) -> Value {
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).unwrap();
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "the script failed");
    serde_json::from_slice(&done.stdout).unwrap()
}

pub(super) fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|number| number.as_f64().unwrap()).collect()
}

pub(super) fn same(what: &str, ours: &[f64], theirs: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!(
            (ours - theirs).abs() <= tolerance * theirs.abs(),
            "{what}: {ours} here, {theirs} there"
        );
    }
}

#[test]
fn statistics_agree_with_scipy_statsmodels_and_arch() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return benchmesh_testing::skip("pypi", &why),
    };
    let mut random = Random::new(21);
    let mut correlated = |correlation: f64| -> Vec<f64> {
        let mut state = 0.0;
        (0..600)
            .map(|_| {
                state = correlation * state + normal(&mut random);
                100.0 + state
            })
            .collect()
    };
    let series = [
        recorded(),
        correlated(0.0),
        correlated(0.5),
        correlated(0.9),
    ];
    let student_cases = [
        (0.0, 5.0),
        (0.3, 1.0),
        (2.2, 3.7),
        (4.0, 12.0),
        (1.96, 1e6),
        (9.0, 40.0),
    ];
    let quantile_cases = [
        (0.05, 1.0),
        (0.05, 2.4),
        (0.05, 30.0),
        (0.01, 8.0),
        (0.05, 1e5),
    ];
    let p = [0.04, 0.001, 0.03, 0.9, 0.012, 0.03];
    let rates: Vec<f64> = recorded()
        .iter()
        .map(|rate| (rate / 100.0).round())
        .collect();
    let (seconds, _, times) = with_latencies(&rates, &mut random);
    let measured = Series::new(&seconds);
    let effect = [vec![10.0, 11.0, 9.5, 10.2], vec![12.0, 11.8, 12.9]];
    // Repeats that drift alike on both sides.
    let turns = [
        vec![10.0, 20.0, 40.0, 30.0, 15.0, 60.0],
        vec![12.0, 23.0, 50.0, 37.0, 18.0, 73.0],
    ];
    let percentiles: Vec<f64> = Figure::ALL
        .into_iter()
        .filter_map(Figure::quantile)
        .collect();
    let arguments = [0.05, 0.5, 1.0, 2.5, 9.99, 10.0, 80.0];
    let answer = ask(
        python,
        SCRIPT,
        &json!({
            "student": student_cases, "quantiles": quantile_cases, "series": series, "p": p, "rates": rates,
            "times": times, "percentiles": percentiles, "block": measured.block(), "effect": effect, "turns": turns, "arguments": arguments,
        }),
    );
    let ours: Vec<f64> = student_cases
        .iter()
        .map(|(t, df)| student::two_sided(*t, *df))
        .collect();
    same("Student's t", &ours, &numbers(&answer["student"]), 1e-9);
    let ours: Vec<f64> = quantile_cases
        .iter()
        .map(|(p, df)| student::two_sided_quantile(*p, *df))
        .collect();
    same("its quantiles", &ours, &numbers(&answer["quantiles"]), 1e-9);
    let ours: Vec<f64> = series.iter().map(|one| dependence(one).block).collect();
    let theirs: Vec<f64> = numbers(&answer["blocks"])
        .iter()
        .map(|block| block.max(1.0))
        .collect();
    same("block lengths", &ours, &theirs, 1e-6);
    let ours: Vec<f64> = holm(&p, ALPHA).iter().map(|one| one.p).collect();
    same("Holm", &ours, &numbers(&answer["holm"]), 1e-12);
    let ours = arguments.map(noise::digamma);
    same("digamma", &ours, &numbers(&answer["digamma"]), 1e-11);
    let ours = arguments.map(noise::trigamma);
    same("trigamma", &ours, &numbers(&answer["trigamma"]), 1e-11);
    let correction = measured.dependence().correction;
    let errors: Vec<f64> = Figure::ALL
        .iter()
        .map(|figure| within(*figure, &measured, 1).unwrap().log / correction)
        .collect();
    // Two bootstraps, of 400 and of 1000 resamples, whose standard deviations are known to 4 % and 2 %: four of these.
    same(
        "bootstrap errors",
        &errors,
        &numbers(&answer["errors"]),
        0.15,
    );
    let ours = effect_size(&effect[0], &effect[1]).unwrap();
    same(
        "effect size",
        &[ours],
        &[answer["effect"].as_f64().unwrap()],
        1e-12,
    );
    let told = |contrast: Contrast| {
        let (low, high) = contrast.interval(ALPHA).unwrap();
        [contrast.p().unwrap(), low, high]
    };
    let [a, b] = effect.each_ref().map(|values| repeats(values));
    let ours = told(one(Figure::Rate, a, b, Layout::Apart));
    same(
        "Student's test",
        &ours,
        &numbers(&answer["student_test"]),
        1e-9,
    );
    let [a, b] = turns.each_ref().map(|values| repeats(values));
    let ours = told(one(Figure::Rate, a, b, Layout::InTurns));
    same(
        "the paired test",
        &ours,
        &numbers(&answer["paired_test"]),
        1e-9,
    );
}
