//! One figure of one side of a comparison: its logarithm, the standard error of that, and the degrees of freedom.

use super::series::{Figure, Series};
use super::{real, student};
use benchmesh_workloads::random::Random;

/// One minus the level of every interval.
pub const ALPHA: f64 = 0.05;
/// Resamples: their standard deviation is then known to 4 %.
const RESAMPLES: usize = 400;
/// Of a run with fewer units nothing is said of its noise.
const LEAST_UNITS: usize = 8;

/// A figure, as a logarithm: ratios of figures are differences of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub log: f64,
    /// `None`: one run that is too short to tell.
    pub error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error {
    /// Standard error of the logarithm.
    pub log: f64,
    pub degrees: f64,
}

/// One run's part of an estimate: its exact figure, and the seconds behind it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'s> {
    pub value: f64,
    pub series: Option<&'s Series>,
}

/// The figure of all runs of a side. The noise is that between them, where there are several, but never less than the
/// noise within them explains; of a single run it is what the seconds of the run say.
pub fn estimate(figure: Figure, runs: &[Run<'_>], seed: u64) -> Option<Estimate> {
    let logs: Vec<f64> = runs
        .iter()
        .filter(|run| run.value > 0.0 && run.value.is_finite())
        .map(|run| run.value.ln())
        .collect();
    if logs.is_empty() || logs.len() != runs.len() {
        return None;
    }
    let n = real(logs.len());
    let mean = logs.iter().sum::<f64>() / n;
    let within: Vec<Option<Error>> = runs
        .iter()
        .zip(0..)
        .map(|(run, number)| within(figure, run.series?, seed.wrapping_add(number)))
        .collect();
    let within: Option<Vec<Error>> = within.into_iter().collect();
    let within = within.map(|errors| {
        let squares: f64 = errors.iter().map(|error| error.log * error.log).sum();
        let least = errors.iter().map(|error| error.degrees);
        Error {
            log: squares.sqrt() / n,
            degrees: least.fold(f64::INFINITY, f64::min) * n,
        }
    });
    let between = (logs.len() > 1).then(|| {
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        Error {
            log: (squares / (n - 1.0) / n).sqrt(),
            degrees: n - 1.0,
        }
    });
    let error = match (between, within) {
        (Some(between), Some(within)) if within.log > between.log => Some(Error {
            log: within.log,
            degrees: between.degrees,
        }),
        (Some(between), _) => Some(between),
        (None, within) => within,
    };
    // A stored percentile is known to a slot of its histogram, as if spread evenly over it.
    let slot = figure.resolution() / 12_f64.sqrt();
    Some(Estimate {
        log: mean,
        error: error.map(|error| Error {
            log: error.log.hypot(slot / n.sqrt()),
            ..error
        }),
    })
}

/// The noise of one run by the circular block bootstrap of its seconds.
fn within(figure: Figure, series: &Series, seed: u64) -> Option<Error> {
    let n = series.len();
    let block = series.block();
    let blocks = real(n) / real(block);
    if n < LEAST_UNITS {
        return None;
    }
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
    // Where many resamples hold no operation at all there is no figure to speak of.
    if logs.len() < RESAMPLES / 2 {
        return None;
    }
    let count = real(logs.len());
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    Some(Error {
        log: (squares / (count - 1.0)).sqrt() * series.dependence().correction,
        degrees: (blocks - 1.0).max(1.0),
    })
}

/// The 95 % confidence interval of an estimate.
pub fn interval(estimate: &Estimate) -> Option<(f64, f64)> {
    let error = estimate.error?;
    let reach = student::two_sided_quantile(ALPHA, error.degrees) * error.log;
    Some(((estimate.log - reach).exp(), (estimate.log + reach).exp()))
}
