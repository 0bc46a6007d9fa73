//! Judges whether something keeps growing (memory, threads, open files), from its series over hours.
//!
//! Growth alone is not a leak: a cache fills up and stays full, and a load allocates its memory once at its start. A
//! leak has a significant slope ([`super::slope`]), is large enough to matter, does not come in one jump, and continues
//! until the end.

use super::slope::{Point, Slope, segments, slope};

/// The probability of a false leak among all series that are judged together.
pub const ALPHA: f64 = 0.005;
/// Confidence intervals miss with this probability.
const INTERVAL: f64 = 0.05;
/// Number of parts of the time, used to detect jumps and saturation.
const PARTS: usize = 6;
/// Maximum share of all growth that one part may have, and minimum share of the last third.
const JUMP: f64 = 0.6;
const MIN_LAST_SHARE: f64 = 0.25;
/// Growth over the time below this share of the level is ignored, as is growth below the figure's own minimum.
const MIN_SHARE: f64 = 0.005;
/// Maximum growth of a steady series, as a share of the level.
const STEADY_SHARE: f64 = 0.02;

/// The result for a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Leaks,
    Steady,
    /// Neither is significant.
    Unsure,
}

/// The growth of one series, per unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    pub verdict: Verdict,
    pub slope: f64,
    pub low: f64,
    pub high: f64,
    /// Corrected for the number of series.
    pub p: f64,
    /// Level according to the slope, at the first point and at the last.
    pub first: f64,
    pub last: f64,
}

/// Judges series together, each with its smallest relevant growth over the time. Results are in the order of the
/// series; `None`: too few points.
pub fn growths(series: &[(Vec<Point>, f64)]) -> Vec<Option<Growth>> {
    let slopes: Vec<Option<Slope>> = series.iter().map(|(points, _)| slope(points)).collect();
    let values: Vec<f64> = slopes.iter().flatten().map(|slope| slope.p).collect();
    let mut corrected = super::correct::holm(&values, ALPHA).into_iter();
    let both = series.iter().zip(slopes);
    both.map(|((points, least), slope)| {
        let slope = slope?;
        let p = corrected.next()?.p;
        judged(points, *least, &slope, p)
    })
    .collect()
}

fn judged(points: &[Point], least: f64, found: &Slope, p: f64) -> Option<Growth> {
    let (from, until) = (points.first()?.at, points.last()?.at);
    let span = until - from;
    let (low, high) = found.interval(INTERVAL);
    let first = found.level + found.slope * from;
    let last = found.level + found.slope * until;
    let matters = least.max(MIN_SHARE * first.abs());
    let is_leak = found.slope > 0.0
        && p < ALPHA
        && found.slope * span >= matters
        && is_sustained(points, found).unwrap_or(false);
    let verdict = if is_leak {
        Verdict::Leaks
    } else if high * span <= least.max(STEADY_SHARE * first.abs()) {
        Verdict::Steady
    } else {
        Verdict::Unsure
    };
    Some(Growth {
        verdict,
        slope: found.slope,
        low,
        high,
        p,
        first,
        last,
    })
}

/// Whether the growth is neither a single jump nor over. Returns `None` if a part of the time has no point.
fn is_sustained(points: &[Point], found: &Slope) -> Option<bool> {
    let parts = segments(points, found, PARTS)?;
    let all = parts.last()? - parts.first()?;
    let later = parts.get(1..)?;
    let jump = parts.iter().zip(later).map(|(one, other)| other - one);
    let jump = jump.fold(0.0_f64, f64::max);
    let end = parts.last()? - parts.get(PARTS - 3)?;
    Some(all > 0.0 && jump <= JUMP * all && end >= MIN_LAST_SHARE * all)
}
