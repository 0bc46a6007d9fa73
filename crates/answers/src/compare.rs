//! Comparisons: two runs, two targets of a run, a run against earlier ones or against a saved baseline.
//!
//! [`load`] reads the data in one read transaction; everything else is a pure function: [`pairs`] finds the cells
//! that both sides have, [`rows`] computes their contrasts by `analysis`, [`judge`] derives intervals and verdicts,
//! [`sentences`] puts the result into words, [`conditions`] checks `--fail-if`, and [`trend`] looks for change points
//! over all runs of a plan. This module does not know about terminals; `report` makes the tables.

mod caveats;
mod cell;
pub mod conditions;
mod judge;
mod load;
mod model;
mod notes;
mod pairs;
mod rows;
pub mod sentences;
mod trend;

pub(crate) use load::LoadedTargets;
pub use load::{CompareError, compare, compare_file};
pub use model::{
    COMPARISON_FORMAT, CompareAnswer, Comparison, ComparisonRow, FigureName, Incomparable, Request,
    RunRef, Side, SideValue, Trend, TrendChange, TrendRow, Verdict,
};

#[cfg(test)]
mod tests;
