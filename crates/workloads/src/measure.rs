//! Measuring: instants, operations, histograms, intervals, pacing, and the recorder that uses them.
//!
//! Does not know storage, tasks or workloads.

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
