//! Our statistics against an independent calculation: scipy, statsmodels and arch, from the Python registry.

use super::*;
use crate::blocks::dependence;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SCRIPT: &str = r#"
import json, sys
import numpy as np
from arch.bootstrap import CircularBlockBootstrap, optimal_block_length
from scipy import stats
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
    return np.log([rates[chosen].mean(), merged.mean(), np.quantile(merged, 0.5), np.quantile(merged, 0.99)])
bootstrap = CircularBlockBootstrap(given["block"], numbers, seed=1)
answer["errors"] = list(bootstrap.apply(figures, 1000).std(axis=0, ddof=1))
a, b = map(np.array, given["effect"])
pooled = np.sqrt(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (len(a) + len(b) - 2))
answer["effect"] = (b.mean() - a.mean()) / pooled * (1 - 3 / (4 * (len(a) + len(b) - 2) - 1))
welch = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
interval = welch.confidence_interval()
answer["welch"] = [welch.pvalue, np.exp(interval.low), np.exp(interval.high)]
json.dump(answer, sys.stdout)
"#;

fn ask(python: PathBuf, given: &Value) -> Value {
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
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

fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|number| number.as_f64().unwrap()).collect()
}

fn same(what: &str, ours: &[f64], theirs: &[f64], tolerance: f64) {
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
    let python = match benchmesh_testing::python(
        "python-statistics",
        &["numpy", "scipy", "statsmodels", "arch"],
    ) {
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
    let answer = ask(
        python,
        &json!({
            "student": student_cases, "quantiles": quantile_cases, "series": series, "p": p, "rates": rates,
            "times": times, "block": measured.block(), "effect": effect,
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
    same("Holm", &holm(&p), &numbers(&answer["holm"]), 1e-12);
    let correction = measured.dependence().correction;
    let errors: Vec<f64> = Figure::ALL
        .iter()
        .map(|figure| one_run(*figure, &measured, 1).error.unwrap().log / correction)
        .collect();
    // Two bootstraps of 400 and of 1000 resamples: their standard deviations are known to 4 % and 2 %; four of them.
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
    let side = |values: &[f64]| {
        let runs: Vec<Run<'_>> = values
            .iter()
            .map(|value| Run {
                value: *value,
                series: None,
            })
            .collect();
        estimate(Figure::Rate, &runs, 1).unwrap()
    };
    let welch = ratio(&side(&effect[0]), &side(&effect[1])).unwrap();
    same(
        "Welch",
        &[welch.p, welch.low, welch.high],
        &numbers(&answer["welch"]),
        1e-9,
    );
}
