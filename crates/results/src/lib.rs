//! Results of a step: pure functions from its tasks and intervals to the figures that users read.
//!
//! No SQL and no clock. Percentiles come only from merged histograms; counts are conserved; tasks with windows that do
//! not overlap are never summed into a rate. A step is summed in one pass over its intervals in order of time; the
//! memory does not grow with the step's length.

pub mod direction;
pub mod facts;
pub mod figures;
pub mod findings;
pub mod flags;
pub mod grid;
pub mod import;
pub mod interval;
pub mod missing;
pub mod objective;
pub mod origin;
pub mod outage;
pub mod repeats;
pub mod seconds;
pub mod sum;
pub mod usage;
pub mod window;

pub use facts::{Arrivals, IntervalFacts, Paced, PacedUnit, TaskFacts};
pub use figures::{Headline, OpResult, StepResults, TaskResult};
pub use findings::{Finding, FindingKind, FindingRow};
pub use flags::{Flag, FlagRow, FlagSeverity, VerdictEffect};
pub use interval::StepInterval;
pub use missing::Missing;
pub use outage::Outage;
pub use sum::{SliceCounts, SliceSum, SliceSummer, StepSum, TaskEdges};

use benchmesh_workloads::histogram::{Blob, DecodeError, Histogram};

/// The period of every interval, in microseconds.
pub const PERIOD_US: i64 = 1_000_000;

/// Decodes a sent or stored histogram and checks it against its own counts. An empty one needs no bytes.
pub fn histogram_of(blob: &Blob) -> Result<Histogram, DecodeError> {
    if blob.count == 0 && blob.v2_deflate.is_empty() {
        return Ok(Histogram::new());
    }
    Histogram::from_blob(blob)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates and means are floating point; 53 bits are more than any figure here is exact to"
)]
pub fn real(value: i64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;

#[cfg(test)]
benchmesh_testing::counts_memory!();
