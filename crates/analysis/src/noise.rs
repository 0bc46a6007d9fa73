//! The scatter of equal measurements, estimated from few of them: the variances of all loads moderate each other.
//!
//! Smyth, "Linear models and empirical Bayes methods for assessing differential expression" (2004): variances of
//! similar loads are draws around a common one; their spread determines how many degrees of freedom the common one is
//! worth.

use super::real;

/// A sample variance of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variance {
    pub square: f64,
    pub degrees: f64,
}

/// The prior for one variance, from the variances of similar loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    square: f64,
    degrees: f64,
    /// The degrees of freedom of all variances together, an upper bound.
    most: f64,
}

/// Minimum number of variances for an estimate of their spread; with fewer, each is worth [`MAX_DEGREES_EACH`].
const MIN_VARIANCES: usize = 20;
/// Maximum number of degrees of freedom that each further load adds to the common variance: loads may scatter
/// differently, and a few of them do not reveal it.
const MAX_DEGREES_EACH: f64 = 0.5;
/// Safety margin of the estimated spread of the variances, in its standard errors.
const SAFETY_MARGIN: f64 = 0.4;

impl Prior {
    /// Fits the prior to one variance per load. `dependence` is the mean square of the correlation between two loads
    /// over the repeats (or runs): it prevents repeats that are slow for all loads at once from counting once per load.
    pub fn of(variances: &[Variance], dependence: f64) -> Self {
        let all: f64 = variances.iter().map(|one| one.degrees).sum();
        let squares = variances.iter().map(|one| one.square * one.degrees);
        let pooled = squares.sum::<f64>() / all;
        let (square, degrees) = spread(variances).unwrap_or((pooled, f64::INFINITY));
        let degrees = degrees.min(MAX_DEGREES_EACH * (real(variances.len()) - 1.0));
        Self {
            square,
            degrees,
            most: all / (1.0 + (real(variances.len()) - 1.0) * dependence),
        }
    }

    /// The variance of one load, moderated.
    pub fn moderate(&self, own: Variance) -> Variance {
        let most = self.most.max(own.degrees);
        let degrees = self.degrees + own.degrees;
        Variance {
            square: (self.degrees * self.square + own.degrees * own.square) / degrees,
            degrees: degrees.min(most),
        }
    }
}

/// The common variance and its degrees of freedom, if the variances differ by more than chance.
fn spread(variances: &[Variance]) -> Option<(f64, f64)> {
    if variances.len() < MIN_VARIANCES {
        return None;
    }
    let count = real(variances.len());
    let logs: Vec<f64> = variances
        .iter()
        .map(|one| one.square.ln() - digamma(one.degrees / 2.0) + (one.degrees / 2.0).ln())
        .collect();
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let chance = variances.iter().map(|one| trigamma(one.degrees / 2.0));
    let chance = chance.sum::<f64>() / count;
    let unsure = chance * (2.0 / (count - 1.0)).sqrt();
    let excess = squares / (count - 1.0) - chance + SAFETY_MARGIN * unsure;
    if excess.is_nan() || excess <= 0.0 {
        return None;
    }
    let half = trigamma_inverse(excess);
    let square = (mean + digamma(half) - half.ln()).exp();
    Some((square, 2.0 * half))
}

/// Smallest argument of the asymptotic series below.
const ASYMPTOTIC: f64 = 10.0;

/// The derivative of the logarithm of the gamma function (Abramowitz and Stegun, 6.3.5 and 6.3.18).
pub fn digamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < ASYMPTOTIC {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = square
        * (1.0 / 12.0
            - square
                * (1.0 / 120.0 - square * (1.0 / 252.0 - square * (1.0 / 240.0 - square / 132.0))));
    sum + x.ln() - 0.5 / x - series
}

/// The derivative of [`digamma`] (6.4.6 and 6.4.12).
pub fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < ASYMPTOTIC {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = square
        * (1.0 / 6.0
            - square
                * (1.0 / 30.0
                    - square * (1.0 / 42.0 - square * (1.0 / 30.0 - square * 5.0 / 66.0))));
    sum + (1.0 + 0.5 / x + series) / x
}

/// Inverse of the trigamma function, by bisection over the logarithm: the function decreases everywhere.
fn trigamma_inverse(value: f64) -> f64 {
    let (mut low, mut high) = (-20.0_f64, 20.0_f64);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        match trigamma(middle.exp()) > value {
            true => low = middle,
            false => high = middle,
        }
    }
    (0.5 * (low + high)).exp()
}
