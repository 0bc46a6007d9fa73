#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]

mod coverage;
mod independent;

use super::change::changes;
use super::correct::holm;
use super::estimate::{Estimate, Run, estimate};
use super::ratio::{effect_size, ratio};
use super::series::{Figure, Second, Series};
use super::student;
use benchmesh_workloads::histogram::{Histogram, Slot};
use benchmesh_workloads::random::Random;

/// Operations per second of 4 KiB direct random writes on a disk: fio 3.33, psync, one job, averaged over
/// each second. A virtual disk with nothing else on its machine.
const RECORDED: &str = include_str!("tests/disk.txt");

fn recorded() -> Vec<f64> {
    RECORDED.lines().map(|line| line.parse().unwrap()).collect()
}

/// Uniform in 0..1.
fn uniform(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}

/// Seconds with so many operations each, whose service times are a mixture of two lognormal distributions.
fn seconds(rates: &[f64], random: &mut Random) -> Vec<Second> {
    with_latencies(rates, random).0
}

/// The same with the histogram of each second and its service times.
fn with_latencies(
    rates: &[f64],
    random: &mut Random,
) -> (Vec<Second>, Vec<Histogram>, Vec<Vec<f64>>) {
    let mut all = (Vec::new(), Vec::new(), Vec::new());
    for rate in rates {
        let mut latencies = Histogram::new();
        let mut times = Vec::new();
        for _ in 0..rate.round().max(1.0) as u64 {
            let scale = if uniform(random) < 0.5 { 0.6 } else { 0.8 };
            let ns = 1e9 / rate * scale * (0.4 * normal(random)).exp();
            times.push(ns);
            latencies.record(ns as u64);
        }
        all.0.push(Second {
            span_us: 1e6,
            ops: times.len() as f64,
            sum_ns: times.iter().sum(),
            latencies: latencies.filled_slots().collect(),
        });
        all.1.push(latencies);
        all.2.push(times);
    }
    all
}

fn one_run(figure: Figure, series: &Series, seed: u64) -> Estimate {
    let whole = [(0, series.len())];
    let value = series.figure(figure, &whole).unwrap();
    let run = Run {
        value,
        series: Some(series),
    };
    estimate(figure, &[run], seed).unwrap()
}

#[test]
fn figures_of_a_stretch_are_those_of_its_seconds() {
    let mut random = Random::new(1);
    let (seconds, histograms, _) = with_latencies(&[100.0, 200.0, 400.0, 50.0], &mut random);
    let series = Series::new(&seconds);
    let rate = |stretches: &[(usize, usize)]| series.figure(Figure::Rate, stretches).unwrap();
    assert_eq!(rate(&[(0, 4)]), 187.5);
    assert_eq!(rate(&[(1, 2)]), 300.0);
    assert_eq!(rate(&[(3, 2)]), 75.0, "goes on at the begin");
    assert_eq!(rate(&[(2, 1), (2, 1), (0, 1)]), 300.0);
    let mut merged = Histogram::new();
    for second in [&histograms[3], &histograms[0], &histograms[1]] {
        merged.add(second);
    }
    for (figure, quantile) in [(Figure::P50, 0.5), (Figure::P99, 0.99)] {
        let ours = series.figure(figure, &[(3, 2), (1, 1)]).unwrap();
        let expected = merged.quantile(quantile) as f64;
        assert!((ours / expected - 1.0).abs() < 0.009, "{ours} {expected}");
    }
    assert_eq!(Series::new(&[]).figure(Figure::Rate, &[(0, 0)]), None);
}

#[test]
fn repeats_tell_more_than_the_seconds_within_them() {
    let flat = Series::new(&seconds(&[100.0; 40], &mut Random::new(2)));
    let run = |value| Run {
        value,
        series: Some(&flat),
    };
    let of = |values: &[f64]| {
        let runs: Vec<Run<'_>> = values.iter().map(|value| run(*value)).collect();
        estimate(Figure::Rate, &runs, 7).unwrap()
    };
    let steady = of(&[100.0]).error.unwrap();
    assert!(steady.log < 1e-12, "each second is alike");
    let wavering = of(&[100.0, 110.0, 90.0]);
    let error = wavering.error.unwrap();
    assert!((error.log - 0.0580).abs() < 0.0005, "{error:?}");
    assert_eq!(error.degrees, 2.0);
    assert!((wavering.log.exp() - 99.6655).abs() < 1e-3, "geometric");
    assert_eq!(estimate(Figure::Rate, &[run(0.0)], 7), None);
    let short = Series::new(&seconds(&[100.0; 3], &mut Random::new(2)));
    let short = [Run {
        value: 100.0,
        series: Some(&short),
    }];
    assert_eq!(estimate(Figure::Rate, &short, 7).unwrap().error, None);
}

#[test]
fn the_same_data_give_the_same_answer() {
    let make = || Series::new(&seconds(&recorded(), &mut Random::new(3)));
    let (a, b) = (make(), make());
    for figure in Figure::ALL {
        assert_eq!(one_run(figure, &a, 5), one_run(figure, &b, 5));
        let same = ratio(&one_run(figure, &a, 5), &one_run(figure, &b, 6)).unwrap();
        assert!(same.ratio == 1.0 && same.p > 0.99 && same.low < 1.0 && same.high > 1.0);
    }
}

#[test]
fn corrected_values_never_fall_and_never_exceed_one() {
    assert_eq!(holm(&[]), Vec::<f64>::new());
    assert_eq!(holm(&[0.01]), [0.01]);
    let corrected = holm(&[0.04, 0.01, 0.03, 0.9]);
    let expected = [0.09, 0.04, 0.09, 0.9];
    for (ours, expected) in corrected.iter().zip(expected) {
        assert!((ours - expected).abs() < 1e-12, "{corrected:?}");
    }
    assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
}

#[test]
fn a_level_that_moved_is_found_and_an_outlier_is_none() {
    let mut random = Random::new(4);
    let mut noisy = |level: f64, count: usize| -> Vec<f64> {
        (0..count)
            .map(|_| level * (1.0 + 0.02 * normal(&mut random)))
            .collect()
    };
    let mut history = noisy(100.0, 12);
    history.extend(noisy(80.0, 10));
    history.extend(noisy(95.0, 12));
    let found = changes(&history, 1);
    let at: Vec<usize> = found.iter().map(|change| change.at).collect();
    assert_eq!(at, [12, 22], "{found:?}");
    assert!((found[0].before / 100.0 - 1.0).abs() < 0.02);
    assert!((found[0].after / 80.0 - 1.0).abs() < 0.02);
    let mut steady = noisy(100.0, 30);
    steady[17] = 20.0;
    assert_eq!(changes(&steady, 1), []);
    assert_eq!(changes(&[1.0, 2.0], 1), []);
}

#[test]
fn changes_are_rare_where_there_are_none() {
    let mut random = Random::new(5);
    let false_alarms = (0..200)
        .filter(|seed| {
            let values: Vec<f64> = (0..20).map(|_| normal(&mut random).exp()).collect();
            !changes(&values, *seed).is_empty()
        })
        .count();
    assert!(false_alarms <= 6, "{false_alarms} of 200 at a level of 1 %");
}
