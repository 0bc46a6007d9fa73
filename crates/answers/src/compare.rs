//! Comparisons: two runs, two targets of a run, a run against earlier ones or against a saved baseline.
//!
//! [`load`] reads the data in one read transaction; everything else is a pure function: [`pairs`] finds the cells
//! that both sides have, [`rows`] computes their contrasts by `analysis`, [`judge`] derives intervals and verdicts,
//! [`sentences`] puts the result into words, [`conditions`] checks `--fail-if`, and [`trend`] looks for change points
//! over all runs of a plan. This module does not know about terminals; `report` makes the tables.

mod caveats;
mod cell;
pub mod conditions;
mod figure;
mod judge;
mod load;
mod model;
mod notes;
mod pairs;
mod rows;
mod trend;
pub mod words;

pub use figure::{Better, FigureName, Listed, UnknownFigure};
pub use load::{CompareError, OWN_KEYS, compare, compare_file};
pub(crate) use load::{LoadedEarlier, LoadedTargets};
pub use model::{
    COMPARISON_FORMAT, CompareAnswer, Comparison, ComparisonRow, Incomparable, KeyFilter,
    NotASelection, Request, RunRef, Side, SideValue, Subject, Trend, TrendChange, TrendRow,
    Verdict,
};

#[cfg(test)]
mod tests;
