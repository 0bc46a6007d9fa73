//! What a step came to: pure functions from its tasks and intervals to the figures that people read.
//!
//! No SQL and no clock. Percentiles are taken from merged histograms and from nothing else; counts are conserved; tasks
//! whose windows do not overlap are never summed into a rate.

pub mod distribution;
pub mod figures;
