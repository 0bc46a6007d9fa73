//! Statistics of comparisons: pure functions over plain numbers, without SQL, plans or text.
//!
//! The noise within one run comes from its own seconds, which depend on each other: a circular block bootstrap
//! resamples blocks of them, longer than their autocorrelation, and raises the error where short runs hide a part of it
//! ([`blocks`], [`estimate`]); start-up is cut first ([`start`]). The noise between repeats, or between runs, comes
//! from the differences between them, moderated by those of similar loads ([`noise`]). [`contrast`] combines these into
//! the ratio of two sides, between the levels of their repeats, with its error; [`correct`] corrects the p values of one comparison together. [`change`]
//! finds change points in the history of a figure. [`slope`] tests a series over hours for drift, [`growth`] for
//! continuing growth, [`shift`] for a new level, [`period`] for periodic disturbances; [`day`] takes the cycle of a day
//! out of it; [`outliers`] finds outliers among peers, [`gaps`] the times in which a load made no progress;
//! [`steady`] detects steady state. Random numbers are seeded: the same data give the same result.

pub mod blocks;
pub mod change;
pub mod contrast;
pub mod correct;
pub mod day;
pub mod effect;
pub mod estimate;
pub mod gaps;
pub mod growth;
pub mod noise;
pub mod outliers;
pub mod period;
pub mod series;
pub mod shift;
pub mod slope;
pub mod start;
pub mod steady;
pub mod student;
pub mod units;

pub use contrast::{Contrast, contrasts};
pub use series::{Figure, Second, Series};
pub use units::{Layout, Load, Noise, Repeat, Side, level};

/// The only conversion of counts to floating point.
#[expect(
    clippy::cast_precision_loss,
    reason = "statistics are floating point; 53 bits are more than any of them is exact to"
)]
#[must_use]
pub fn real(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
