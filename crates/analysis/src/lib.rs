//! Statistics of comparisons: pure functions over plain numbers, without SQL, plans or words for people.
//!
//! The noise of one run comes from its own seconds, which depend on each other: a circular block bootstrap resamples
//! blocks of them, longer than their autocorrelation, and raises the error where short runs hide a part of it ([`blocks`]). The noise of several runs comes from the differences
//! between them. Both give a standard error of the logarithm of a figure with its degrees of freedom ([`estimate`]); two of
//! those give a ratio with an interval and a p value by Student's distribution ([`ratio`]), and the p values of one
//! comparison are corrected together ([`correct`]). [`change`] finds change points in the history of a figure. Random
//! numbers are seeded: the same data give the same answer.

pub mod blocks;
pub mod change;
pub mod correct;
pub mod estimate;
pub mod ratio;
pub mod series;
pub mod student;

pub use estimate::Estimate;
pub use ratio::Ratio;
pub use series::{Figure, Second, Series};

/// Counts become floating point in one place.
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
