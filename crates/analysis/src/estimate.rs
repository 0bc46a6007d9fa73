//! The noise within one run, from its own seconds: a standard error of the logarithm of a figure.

use super::real;
use super::series::{Figure, Series};
use benchmesh_workloads::random::Random;

/// One minus the level of every interval.
pub const ALPHA: f64 = 0.05;
/// Number of resamples; it determines their standard deviation to 4 %.
const RESAMPLES: usize = 400;
/// Minimum number of units for an estimate of their dependence.
const MIN_UNITS: usize = 8;
/// Minimum number of units for a meaningful standard deviation.
const MIN_SHORT: usize = 3;
/// Inflation of the error of a few units with unknown dependence: that of a first-order autoregression of 0.6.
const SHORT_INFLATION: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error {
    /// Standard error of the logarithm.
    pub log: f64,
    pub degrees: f64,
}

/// The noise of one run, by a circular block bootstrap of its seconds. `None` if it has too few.
pub fn within(figure: Figure, series: &Series, seed: u64) -> Option<Error> {
    let n = series.len();
    if n < MIN_UNITS {
        return within_short(figure, series);
    }
    let block = series.block();
    let blocks = real(n) / real(block);
    let mut random = Random::of(&[seed, u64::try_from(n).unwrap_or(0)]);
    let mut logs = Vec::with_capacity(RESAMPLES);
    let mut stretches = Vec::with_capacity(n.div_ceil(block));
    for _ in 0..RESAMPLES {
        stretches.clear();
        let mut left = n;
        while left > 0 {
            let first = random.below(u64::try_from(n).unwrap_or(1));
            let length = block.min(left);
            stretches.push((usize::try_from(first).unwrap_or(0), length));
            left -= length;
        }
        if let Some(value) = series.figure(figure, &stretches) {
            logs.push(value.ln());
        }
    }
    // If many resamples contain no operation, the figure is undefined.
    if logs.len() < RESAMPLES / 2 {
        return None;
    }
    Some(Error {
        log: deviation(&logs) * series.dependence().correction,
        degrees: (blocks - 1.0).max(1.0),
    })
}

/// The noise of a run of a few seconds: their deviation, inflated.
fn within_short(figure: Figure, series: &Series) -> Option<Error> {
    let logs: Option<Vec<f64>> = (0..series.len())
        .map(|unit| Some(series.figure(figure, &[(unit, 1)])?.ln()))
        .collect();
    let logs = logs.filter(|logs| logs.len() >= MIN_SHORT)?;
    let n = real(logs.len());
    Some(Error {
        log: deviation(&logs) / n.sqrt() * SHORT_INFLATION,
        degrees: n - 1.0,
    })
}

fn deviation(values: &[f64]) -> f64 {
    let n = real(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0)).sqrt()
}
