//! The daily cycle of a series, such as users by day and backups by night. It is neither a drift nor a new level.
//!
//! A line and waves of a day and of half a day are fitted together by least squares, so that a drift of the series
//! stays in it.

use super::real;
use super::start::median;
use std::f64::consts::TAU;

const DAY_H: f64 = 24.0;
/// A shorter series may show a drift as part of a wave.
const MIN_DAYS: f64 = 2.0;
/// Minimum number of points per wave.
const MIN_PER_WAVE: f64 = 3.0;
/// Maximum distance of a value from the fit, in scatters, and the number of fits after which it is limited no further.
const CLIP: f64 = 4.0;
const FITS: usize = 4;
/// Minimum share of the scatter around the line that the waves explain. Noise alone rarely has most of its power at
/// two frequencies, even if it is strongly autocorrelated.
const MIN_SHARE: f64 = 0.6;

/// What a time of the day adds to a series.
#[derive(Clone, Debug, PartialEq)]
pub struct DailyCycle {
    /// Waves per day, each with the factors of its sine and its cosine.
    waves: Vec<(f64, f64, f64)>,
}

impl DailyCycle {
    /// Fits it to hours and values, in order of time. Returns `None` if the series is too short, or has no such cycle.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (points.first()?.0, points.last()?.0);
        let span = last - first;
        if span < MIN_DAYS * DAY_H {
            return None;
        }
        let per_day = real(points.len()) * DAY_H / span;
        let waves = [1.0, 2.0].into_iter();
        let waves: Vec<f64> = waves
            .take_while(|wave| per_day >= MIN_PER_WAVE * wave)
            .collect();
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
        if waves.is_empty() || is_constant || around_waves > (1.0 - MIN_SHARE) * around_line {
            return None;
        }
        let of_waves = factors.get(2..)?.chunks_exact(2);
        let waves = waves.iter().zip(of_waves);
        let waves = waves.map(|(wave, factors)| match factors {
            [sine, cosine] => (*wave, *sine, *cosine),
            _ => (*wave, 0.0, 0.0),
        });
        Some(Self {
            waves: waves.collect(),
        })
    }

    /// What it adds at this hour; 0 on average over a day.
    pub fn at(&self, hour: f64) -> f64 {
        let waves = self.waves.iter();
        waves
            .map(|(wave, of_sine, of_cosine)| {
                let (sine, cosine) = sine_and_cosine(*wave, hour);
                of_sine * sine + of_cosine * cosine
            })
            .sum()
    }

    /// Half the difference between its highest and its lowest value.
    pub fn half_range(&self) -> f64 {
        let every_minute = (0..24 * 60).map(|minute| self.at(f64::from(minute) / 60.0));
        let (lowest, highest) = every_minute.fold((0.0_f64, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        (highest - lowest) / 2.0
    }
}

fn sine_and_cosine(wave: f64, hour: f64) -> (f64, f64) {
    (TAU * wave * hour / DAY_H).sin_cos()
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
        let reach = CLIP * 1.4826 * median(&sizes);
        let off = || off.iter().map(|off| off.clamp(-reach, reach));
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
        .map(|own| {
            let of = |row: &Vec<f64>| row.get(own).copied().unwrap_or(0.0);
            let mut equation: Vec<f64> = vec![0.0; width + 1];
            for (row, value) in rows.iter().zip(values) {
                for (sum, other) in equation.iter_mut().zip(row.iter().chain([value])) {
                    *sum += of(row) * other;
                }
            }
            equation
        })
        .collect();
    // Gauss and Jordan, with the largest pivot.
    for place in 0..width {
        let size = |equation: &Vec<f64>| equation.get(place).map_or(0.0, |value| value.abs());
        let rest = equations.iter().enumerate().skip(place);
        let (largest, _) = rest.max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b)))?;
        equations.swap(place, largest);
        let pivot = equations.get(place)?.clone();
        let head = *pivot.get(place)?;
        if head.abs() < 1e-9 * real(rows.len()) {
            return None;
        }
        for (other, equation) in equations.iter_mut().enumerate() {
            let factor = equation.get(place)? / head;
            if other != place {
                for (value, of_pivot) in equation.iter_mut().zip(&pivot) {
                    *value -= factor * of_pivot;
                }
            }
        }
    }
    let solved = equations.iter().enumerate();
    solved
        .map(|(place, equation)| Some(equation.get(width)? / equation.get(place)?))
        .collect()
}
