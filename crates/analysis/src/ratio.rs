//! Two estimates of one figure: their ratio, how sure it is, and whether a difference is shown.

use super::estimate::{ALPHA, Estimate};
use super::student;
use serde::{Deserialize, Serialize};

/// The second figure over the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub ratio: f64,
    /// The 95 % confidence interval of the ratio.
    pub low: f64,
    pub high: f64,
    /// Of a ratio at least as far from 1 where there is no difference; not corrected.
    pub p: f64,
}

/// `b` over `a`. `None`: one of them has no error, so nothing can be said of the ratio's.
pub fn ratio(a: &Estimate, b: &Estimate) -> Option<Ratio> {
    let (error_a, error_b) = (a.error?, b.error?);
    let difference = b.log - a.log;
    let (square_a, square_b) = (error_a.log * error_a.log, error_b.log * error_b.log);
    let error = (square_a + square_b).sqrt();
    if !difference.is_finite() || !error.is_finite() {
        return None;
    }
    if error == 0.0 {
        let ratio = difference.exp();
        return Some(Ratio {
            ratio,
            low: ratio,
            high: ratio,
            p: if difference == 0.0 { 1.0 } else { 0.0 },
        });
    }
    // Welch and Satterthwaite.
    let degrees = (square_a + square_b).powi(2)
        / (square_a * square_a / error_a.degrees + square_b * square_b / error_b.degrees);
    let reach = student::two_sided_quantile(ALPHA, degrees) * error;
    Some(Ratio {
        ratio: difference.exp(),
        low: (difference - reach).exp(),
        high: (difference + reach).exp(),
        p: student::two_sided(difference / error, degrees),
    })
}

/// Hedges' g: the distance of two means in standard deviations of what they are means of.
pub fn effect_size(a: &[f64], b: &[f64]) -> Option<f64> {
    let of = |values: &[f64]| {
        let n = super::real(values.len());
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (n, mean, squares)
    };
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let ((n_a, mean_a, squares_a), (n_b, mean_b, squares_b)) = (of(a), of(b));
    let degrees = n_a + n_b - 2.0;
    let deviation = ((squares_a + squares_b) / degrees).sqrt();
    let small_sample = 1.0 - 3.0 / (4.0 * degrees - 1.0);
    (deviation > 0.0).then(|| (mean_b - mean_a) / deviation * small_sample)
}
