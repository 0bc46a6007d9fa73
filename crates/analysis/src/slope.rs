//! The slope of a series over time, robust against outliers, with an interval that allows for autocorrelation.
//!
//! Theil and Sen: the median of the slopes of all pairs of points of one stratum. Each stratum has its own level, so
//! that points of different loads are never compared. Two tests share the significance level:
//!
//! * The slope against the scatter around it. The number of independent values follows from a first-order
//!   autoregression, with its correlation at the upper end of its interval. This is the test for stationary noise.
//! * The growth from each of [`SEGMENTS`] parts of the time to the next, by Student's t. This holds for random walks
//!   too, such as memory that is allocated and given back, and detects growth that is steady but not exactly linear.

use super::blocks::dependence;
use super::{real, start, student};
use std::cmp::Ordering;

/// Number of parts of the time; their medians are compared with each other.
const SEGMENTS: usize = 12;
/// Minimum number of points for a slope.
pub const MIN_POINTS: usize = 24;
/// Minimum number of points for [`slope_of_few`].
pub const MIN_FEW: usize = 10;
/// Standard errors added to the correlation: the upper end of a one-sided 95 % interval.
const UPPER: f64 = 1.645;
/// Lower bound of the scatter around the slope, as a share of its standard deviation; the median deviation of a series
/// that hardly ever changes is 0.
const MIN_SCATTER: f64 = 0.25;

/// One value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at: f64,
    pub value: f64,
    /// Points of one stratum are comparable with each other.
    pub stratum: usize,
}

/// Change of the value per unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    pub slope: f64,
    /// Standard error, and its degrees of freedom.
    error: f64,
    degrees: f64,
    /// Two-sided p value.
    pub p: f64,
    /// The level of the first stratum's points at time 0, by this slope.
    pub level: f64,
}

impl Slope {
    /// The interval that misses the true slope with this probability; infinite if there are too few points.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        if self.degrees <= 0.0 {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        let reach = self.error * student::two_sided_quantile(level, self.degrees);
        (self.slope - reach, self.slope + reach)
    }
}

/// `points` must be in order of time. Returns `None` if there are too few, or no two of one stratum.
pub fn slope(points: &[Point]) -> Option<Slope> {
    if points.len() < MIN_POINTS {
        return None;
    }
    let slope = median_of_pairs(points)?;
    let levels = levels(points, slope);
    let level_of = |point: &Point| levels.get(point.stratum).copied().unwrap_or(0.0);
    let rest: Vec<f64> = points
        .iter()
        .map(|point| point.value - level_of(point) - slope * point.at)
        .collect();
    let (error, degrees) = scatter_error(points, &rest);
    let by_scatter = test(slope, error, degrees);
    let grown: Vec<(f64, f64)> = points
        .iter()
        .map(|point| (point.at, point.value - level_of(point)))
        .collect();
    let found = Slope {
        slope,
        error,
        degrees,
        p: (2.0 * by_scatter).min(1.0),
        level: levels.first().copied().unwrap_or(0.0),
    };
    match growth_of_segments(&grown) {
        Some((mean, error, degrees)) if mean * slope > 0.0 => {
            let p = test(mean, error, degrees);
            Some(match p < by_scatter {
                true => Slope {
                    error,
                    degrees,
                    p: (2.0 * p).min(1.0),
                    ..found
                },
                false => found,
            })
        }
        _ => Some(found),
    }
}

/// Like [`slope`], for fewer points, down to [`MIN_FEW`]: Kendall's rank correlation with time, its variance raised by
/// the autocorrelation around the slope. It gives no interval and ignores strata.
pub fn slope_of_few(points: &[Point]) -> Option<Slope> {
    if points.len() < MIN_FEW {
        return None;
    }
    let slope = median_of_pairs(points)?;
    let level = levels(points, slope).first().copied().unwrap_or(0.0);
    let n = real(points.len());
    let mut order = 0.0_f64;
    for (place, one) in points.iter().enumerate() {
        for other in points.get(place + 1..).unwrap_or_default() {
            order += (other.value - one.value)
                .partial_cmp(&0.0)
                .map_or(0.0, |is| match is {
                    Ordering::Less => -1.0,
                    Ordering::Equal => 0.0,
                    Ordering::Greater => 1.0,
                });
        }
    }
    let rest = points
        .iter()
        .map(|point| point.value - level - slope * point.at);
    let rest: Vec<f64> = rest.collect();
    let squares: f64 = rest.iter().map(|value| value * value).sum();
    let later = rest.iter().skip(1);
    let products: f64 = rest.iter().zip(later).map(|(a, b)| a * b).sum();
    let fitted = if squares > 0.0 {
        products / squares
    } else {
        0.0
    };
    let correlation = (fitted + (2.0 + 4.0 * fitted.max(0.0)) / n).clamp(0.0, 0.9);
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * inflation;
    let distance = (order.abs() - 1.0).max(0.0) / variance.sqrt();
    Some(Slope {
        slope,
        error: 0.0,
        degrees: 0.0,
        p: student::two_sided(distance, f64::from(u32::MAX)),
        level,
    })
}

/// The medians of equal parts of the time, with each stratum's level subtracted; `None` if a part has no point.
pub fn segments(points: &[Point], found: &Slope, parts: usize) -> Option<Vec<f64>> {
    let levels = levels(points, found.slope);
    let values: Vec<(f64, f64)> = points
        .iter()
        .map(|point| {
            let level = levels.get(point.stratum).copied().unwrap_or(0.0);
            (point.at, point.value - level)
        })
        .collect();
    medians(&values, parts).map(|parts| parts.into_iter().map(|(_, value)| value).collect())
}

fn test(size: f64, error: f64, degrees: f64) -> f64 {
    match size == 0.0 || degrees <= 0.0 {
        true => 1.0,
        false => student::two_sided(size / error, degrees),
    }
}

fn median_of_pairs(points: &[Point]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (place, one) in points.iter().enumerate() {
        for other in points.get(place + 1..).unwrap_or_default() {
            if one.stratum == other.stratum && other.at > one.at {
                slopes.push((other.value - one.value) / (other.at - one.at));
            }
        }
    }
    (!slopes.is_empty()).then(|| start::median(&slopes))
}

/// The median of each stratum's points after subtracting the slope.
fn levels(points: &[Point], slope: f64) -> Vec<f64> {
    let strata = points.iter().map(|point| point.stratum + 1).max();
    let of = |stratum: usize| {
        let points = points.iter().filter(|point| point.stratum == stratum);
        let values: Vec<f64> = points.map(|point| point.value - slope * point.at).collect();
        start::median(&values)
    };
    (0..strata.unwrap_or(0)).map(of).collect()
}

/// The standard error of the slope from the scatter around it, and its degrees of freedom.
fn scatter_error(points: &[Point], rest: &[f64]) -> (f64, f64) {
    let n = real(points.len());
    let sizes: Vec<f64> = rest.iter().map(|value| value.abs()).collect();
    let robust = 1.4826 * start::median(&sizes);
    let deviation = (rest.iter().map(|value| value * value).sum::<f64>() / n).sqrt();
    let scatter = robust.max(MIN_SCATTER * deviation);
    let inflation = inflation(rest);
    let strata = points.iter().map(|point| point.stratum + 1).max();
    let spread: f64 = (0..strata.unwrap_or(0))
        .map(|stratum| {
            let own = || points.iter().filter(|point| point.stratum == stratum);
            let count = real(own().count()).max(1.0);
            let mean = own().map(|point| point.at).sum::<f64>() / count;
            own().map(|point| (point.at - mean).powi(2)).sum::<f64>()
        })
        .sum();
    // The variance of Theil and Sen's slope is pi / 3 of the least squares' for normal values.
    let error = scatter * (std::f64::consts::FRAC_PI_3 * inflation / spread).sqrt();
    (error, n / inflation - 2.0)
}

/// Factor by which autocorrelation raises the variance of a mean, as an upper bound: a series that is nearly a random
/// walk shows less correlation than it has once its slope is subtracted.
pub(super) fn inflation(rest: &[f64]) -> f64 {
    let n = real(rest.len());
    let squares: f64 = rest.iter().map(|value| value * value).sum();
    if squares <= 0.0 {
        return 1.0;
    }
    let later = rest.get(1..).unwrap_or_default();
    let products: f64 = rest.iter().zip(later).map(|(a, b)| a * b).sum();
    let fitted = products / squares;
    // Kendall's correction for small samples, and one for the subtracted slope.
    let unbiased = fitted + (2.0 + 4.0 * fitted.max(0.0)) / n;
    let upper = unbiased + UPPER * ((1.0 - fitted * fitted).max(0.0) / n).sqrt();
    let correlation = upper.clamp(0.0, 1.0 - 1.0 / n);
    let autoregressive = (1.0 + correlation) / (1.0 - correlation);
    autoregressive.max(dependence(rest).inflation)
}

/// The mean growth per unit of time from part to part, its standard error and degrees of freedom.
fn growth_of_segments(values: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let parts = medians(values, SEGMENTS)?;
    let later = parts.get(1..)?;
    let growths: Vec<f64> = parts
        .iter()
        .zip(later)
        .map(|(one, other)| (other.1 - one.1) / (other.0 - one.0))
        .collect();
    let n = real(growths.len());
    let mean = growths.iter().sum::<f64>() / n;
    let squares: f64 = growths.iter().map(|growth| (growth - mean).powi(2)).sum();
    Some((mean, (squares / (n - 1.0) / n).sqrt(), n - 1.0))
}

/// The middle and the median of each of `parts` equal parts of the time.
fn medians(values: &[(f64, f64)], parts: usize) -> Option<Vec<(f64, f64)>> {
    let (first, last) = (values.first()?.0, values.last()?.0);
    let width = (last - first) / real(parts);
    if width <= 0.0 {
        return None;
    }
    (0..parts)
        .map(|part| {
            let from = first + width * real(part);
            let until = match part + 1 == parts {
                true => f64::INFINITY,
                false => from + width,
            };
            let own = values.iter().filter(|(at, _)| (from..until).contains(at));
            let own: Vec<f64> = own.map(|(_, value)| *value).collect();
            (!own.is_empty()).then(|| (from + width / 2.0, start::median(&own)))
        })
        .collect()
}
