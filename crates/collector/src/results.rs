//! What a step came to: pure functions from its tasks and intervals to the figures that people read.
//!
//! No SQL and no clock. Percentiles are taken from merged histograms and from nothing else; counts are conserved; tasks
//! whose windows do not overlap are never summed into a rate.

pub mod figures;

use benchmesh_workloads::histogram::{Blob, DecodeError, Histogram};

/// The histogram that was sent or stored, held against its own counts. An empty one needs no bytes.
pub fn histogram_of(blob: &Blob) -> Result<Histogram, DecodeError> {
    if blob.count == 0 && blob.v2_deflate.is_empty() {
        return Ok(Histogram::new());
    }
    Histogram::from_blob(blob)
}
