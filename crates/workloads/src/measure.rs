//! What is measured and how: instants, operations, histograms, intervals, pacing, and the recorder that joins them.
//!
//! Knows nothing of storage, of tasks or of workloads.

pub mod clock;
pub mod histogram;
pub mod interval;
pub mod mismatch;
pub mod op;
pub mod pacing;
pub mod random;
pub mod recorder;
pub(crate) mod rt_priority;
pub(crate) mod shuffle;
pub mod thread_cpu;
pub mod timing;
