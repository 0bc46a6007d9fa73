//! The daily cycle of a series, such as users by day and backups by night. It is neither a drift nor a new level.
//!
//! A line and waves of a day and of half a day are fitted together by least squares, so that a drift of the series
//! stays in it.

use super::real;
use super::slope::MIN_POINTS;
use super::start::median;
use std::f64::consts::TAU;

const DAY_H: f64 = 24.0;
/// A shorter series may show a drift as part of a wave. Slightly less than two, because a step's start is excluded.
const MIN_DAYS: f64 = 1.98;
/// Minimum number of points per period of a wave.
const MIN_PER_PERIOD: f64 = 3.0;
/// Maximum time without a point.
const MAX_GAP_H: f64 = 12.0;
/// Maximum part of a wave's period in which no day has a point.
const MAX_BLIND: f64 = 0.4;
/// Minimum share of the scatter around the line that the waves explain. Noise alone rarely has most of its power at
/// two frequencies, even if it is strongly autocorrelated.
const MIN_SHARE: f64 = 0.6;
/// Maximum distance of a value from the fit, in scatters.
const CLIP: f64 = 4.0;
/// Number of fits; each limits the values to the distance from the one before.
const FITS: usize = 4;

/// What a time of the day adds to a series.
#[derive(Clone, Debug, PartialEq)]
pub struct DailyCycle {
    waves: Vec<Wave>,
    /// Mean of the waves over the points.
    mean: f64,
    half_range: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Wave {
    per_day: f64,
    of_sine: f64,
    of_cosine: f64,
}

impl DailyCycle {
    /// Fits it to hours and finite values, in order of time. Returns `None` if the series is too short or has gaps, or
    /// has no such cycle.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (points.first()?.0, points.last()?.0);
        let count = real(points.len());
        let span = last - first;
        let gaps = points.windows(2).map(|pair| match pair {
            [(one, _), (other, _)] => other - one,
            _ => 0.0,
        });
        if points.len() < MIN_POINTS
            || span * count / (count - 1.0) < MIN_DAYS * DAY_H
            || gaps.fold(0.0, f64::max) > MAX_GAP_H
        {
            return None;
        }
        let per_day = count * DAY_H / span;
        let waves = [1.0, 2.0].into_iter();
        let waves: Vec<f64> = waves
            .take_while(|wave| per_day >= MIN_PER_PERIOD * wave && is_covered(points, *wave))
            .collect();
        if waves.is_empty() {
            return None;
        }
        let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
        let fitted = |waves: &[f64]| {
            let columns = |(hour, _): &(f64, f64)| -> Vec<f64> {
                let line = [1.0, (hour - first) / span];
                let waves = waves.iter().flat_map(|wave| {
                    let (sine, cosine) = sine_and_cosine(*wave, *hour);
                    [sine, cosine]
                });
                line.into_iter().chain(waves).collect()
            };
            let rows: Vec<Vec<f64>> = points.iter().map(columns).collect();
            robust_fit(&rows, &values)
        };
        let (_, around_line) = fitted(&[])?;
        let (factors, around_waves) = fitted(&waves)?;
        let is_constant = around_line <= f64::EPSILON * product(&values, &values);
        if is_constant || around_waves > (1.0 - MIN_SHARE) * around_line {
            return None;
        }
        let sines = factors.iter().skip(2).step_by(2);
        let cosines = factors.iter().skip(3).step_by(2);
        let waves = waves.iter().zip(sines.zip(cosines));
        let waves = waves.map(|(per_day, (of_sine, of_cosine))| Wave {
            per_day: *per_day,
            of_sine: *of_sine,
            of_cosine: *of_cosine,
        });
        let mut cycle = Self {
            waves: waves.collect(),
            mean: 0.0,
            half_range: 0.0,
        };
        let added: Vec<f64> = points.iter().map(|(hour, _)| cycle.at(*hour)).collect();
        let lowest = added.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = added.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        cycle.half_range = (highest - lowest) / 2.0;
        cycle.mean = added.iter().sum::<f64>() / count;
        Some(cycle)
    }

    /// What it adds at this hour; 0 on average over the points.
    pub fn at(&self, hour: f64) -> f64 {
        let of = |wave: &Wave| {
            let (sine, cosine) = sine_and_cosine(wave.per_day, hour);
            wave.of_sine * sine + wave.of_cosine * cosine
        };
        self.waves.iter().map(of).sum::<f64>() - self.mean
    }

    /// Half the difference between its highest and its lowest value at the points.
    pub fn half_range(&self) -> f64 {
        self.half_range
    }
}

/// Whether the points leave no large part of the wave's period without one.
fn is_covered(points: &[(f64, f64)], per_day: f64) -> bool {
    let period = DAY_H / per_day;
    let mut hours: Vec<f64> = points.iter().map(|(hour, _)| hour % period).collect();
    hours.sort_by(f64::total_cmp);
    let next = hours.iter().skip(1).copied();
    let around = hours.first().map(|first| first + period);
    let blind = hours.iter().zip(next.chain(around));
    blind
        .map(|(one, other)| other - one)
        .all(|blind| blind <= MAX_BLIND * period)
}

fn sine_and_cosine(per_day: f64, hour: f64) -> (f64, f64) {
    (TAU * per_day * hour / DAY_H).sin_cos()
}

/// The factors of the columns, and the sum of the squares around the fit. Values far from the fit, such as those of an
/// outage, are limited.
fn robust_fit(rows: &[Vec<f64>], values: &[f64]) -> Option<(Vec<f64>, f64)> {
    let mut limited = values.to_vec();
    let mut squares = 0.0;
    let mut factors = Vec::new();
    for _ in 0..FITS {
        factors = least_squares(rows, &limited)?;
        let fit: Vec<f64> = rows.iter().map(|row| product(row, &factors)).collect();
        let off: Vec<f64> = values.iter().zip(&fit).map(|(a, b)| a - b).collect();
        let sizes: Vec<f64> = off.iter().map(|off| off.abs()).collect();
        let limit = CLIP * 1.4826 * median(&sizes);
        let off = || off.iter().map(|off| off.clamp(-limit, limit));
        limited = fit.iter().zip(off()).map(|(fit, off)| fit + off).collect();
        squares = off().map(|off| off * off).sum();
    }
    Some((factors, squares))
}

fn product(row: &[f64], factors: &[f64]) -> f64 {
    row.iter().zip(factors).map(|(a, b)| a * b).sum()
}

/// The factors of the columns, from the normal equations. Returns `None` if the columns depend on each other.
fn least_squares(rows: &[Vec<f64>], values: &[f64]) -> Option<Vec<f64>> {
    let width = rows.first()?.len();
    let mut equations: Vec<Vec<f64>> = (0..width)
        .map(|column| {
            let mut equation: Vec<f64> = vec![0.0; width + 1];
            for (row, value) in rows.iter().zip(values) {
                let factor = row.get(column).copied().unwrap_or(0.0);
                for (sum, other) in equation.iter_mut().zip(row.iter().chain([value])) {
                    *sum += factor * other;
                }
            }
            equation
        })
        .collect();
    // Gauss and Jordan, with the largest pivot.
    for column in 0..width {
        let size = |equation: &Vec<f64>| equation.get(column).map_or(0.0, |value| value.abs());
        let rest = equations.iter().enumerate().skip(column);
        let (largest, _) = rest.max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b)))?;
        equations.swap(column, largest);
        let chosen = equations.get(column)?.clone();
        let pivot = *chosen.get(column)?;
        if pivot.abs() < 1e-9 * real(rows.len()) {
            return None;
        }
        for (other, equation) in equations.iter_mut().enumerate() {
            let factor = equation.get(column)? / pivot;
            if other != column {
                for (value, of_chosen) in equation.iter_mut().zip(&chosen) {
                    *value -= factor * of_chosen;
                }
            }
        }
    }
    let solved = equations.iter().enumerate();
    solved
        .map(|(column, equation)| Some(equation.get(width)? / equation.get(column)?))
        .collect()
}
