//! Block length for resampling, chosen so that blocks of a series are nearly independent of each other.
//!
//! Politis and White, "Automatic block-length selection for the dependent bootstrap" (2004), with the correction by
//! Patton, Politis and White (2009), for the circular bootstrap.

use super::real;

/// Block length and error correction that follow from the autocorrelation of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dependence {
    /// In seconds (or whatever the series' step is); at least 1.
    pub block: f64,
    /// Ratio of the variance of the mean to that of the same number of independent values; at least 1.
    pub inflation: f64,
    /// Factor for a standard error from blocks: blocks of a short series miss part of its dependence, which a fitted
    /// autoregression estimates. At least 1.
    pub correction: f64,
}

impl Dependence {
    /// Independent values.
    pub const NONE: Self = Self {
        block: 1.0,
        inflation: 1.0,
        correction: 1.0,
    };
}

/// The block length for a series, and how strongly its values depend on each other.
pub fn dependence(series: &[f64]) -> Dependence {
    let n = real(series.len());
    if series.len() < 8 {
        return Dependence::NONE;
    }
    let mean = series.iter().sum::<f64>() / n;
    let off: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let product = |lag: usize| -> f64 {
        let later = off.get(lag..).unwrap_or_default();
        off.iter().zip(later).map(|(a, b)| a * b).sum()
    };
    let variance = product(0) / n;
    if variance <= 0.0 {
        return Dependence::NONE;
    }
    // The search ends after this many consecutive lags without significant correlation.
    let in_row = whole(n.log10()).max(5);
    let most = whole(n.sqrt().ceil()) + in_row;
    let shows = 2.0 * (n.log10() / n).sqrt();
    let mut covariances = Vec::with_capacity(most + 1);
    let mut quiet = 0;
    let mut first_quiet = None;
    for lag in 0..=most {
        let sum = product(lag);
        covariances.push(sum / n);
        if lag == 0 || lag == most || first_quiet.is_some() {
            continue;
        }
        let squares = |part: &[f64]| part.iter().map(|value| value * value).sum::<f64>();
        let head = off
            .len()
            .checked_sub(lag + 1)
            .and_then(|end| off.get(..end));
        let tail = off.get(lag + 1..);
        let both = squares(head.unwrap_or_default()) * squares(tail.unwrap_or_default());
        quiet = if sum.abs() < shows * both.sqrt() {
            quiet + 1
        } else {
            0
        };
        if quiet == in_row {
            first_quiet = Some(lag + 1 - in_row);
        }
    }
    let window = first_quiet.map_or(most, |lag| (2 * lag.max(1)).min(most));
    let mut weighted = 0.0;
    let mut long_run = variance;
    for (lag, covariance) in covariances.iter().enumerate().skip(1).take(window) {
        let share = real(lag) / real(window);
        // The flat-top window: 1 up to its half, then linear to 0.
        let weight = (2.0 * (1.0 - share)).min(1.0);
        weighted += 2.0 * weight * real(lag) * covariance;
        long_run += 2.0 * weight * covariance;
    }
    if long_run <= 0.0 {
        return Dependence::NONE;
    }
    let spread = 4.0 / 3.0 * long_run * long_run;
    let longest = (3.0 * n.sqrt()).min(n / 3.0).ceil().max(1.0);
    let block = (2.0 * weighted * weighted / spread * n).cbrt();
    let block = block.clamp(1.0, longest);
    let seen = seen_by_blocks(&off, whole(block.ceil()));
    let expected = autoregressive(&covariances, n);
    Dependence {
        block,
        inflation: (long_run / variance).max(1.0),
        correction: match seen > 0.0 {
            true => (expected / seen).max(1.0).sqrt(),
            false => 1.0,
        },
    }
}

/// The variance of the mean times the number of values, as estimated by a circular bootstrap with this block length:
/// each covariance weighted by the share of pairs that lie within one block.
fn seen_by_blocks(off: &[f64], block: usize) -> f64 {
    let covariance = |lag: usize| -> f64 {
        let around = off.iter().skip(lag).chain(off);
        off.iter().zip(around).map(|(a, b)| a * b).sum::<f64>() / real(off.len())
    };
    let weighted = (1..block).map(|lag| 2.0 * (1.0 - real(lag) / real(block)) * covariance(lag));
    covariance(0) + weighted.sum::<f64>()
}

/// The same for a first-order autoregression fitted to the series; its correlation is corrected for small-sample bias
/// (Kendall, 1954).
fn autoregressive(covariances: &[f64], n: f64) -> f64 {
    const STRONGEST: f64 = 0.98;
    let (Some(variance), Some(next)) = (covariances.first(), covariances.get(1)) else {
        return 0.0;
    };
    let fitted = next / variance;
    let correlation = (fitted + (1.0 + 4.0 * fitted) / n).clamp(0.0, STRONGEST);
    variance * (1.0 + correlation) / (1.0 - correlation)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast saturates, and nothing here is negative or large"
)]
pub(super) fn whole(value: f64) -> usize {
    value as usize
}
