//! The load itself: operations, histograms, recorders, the sandbox, and the workloads.
//!
//! The folders are layers; imports go down, never up: [`params`] (how a key is read), [`measure`] (clock, recorder,
//! histogram, pacing), [`target`] (system calls, buffers, content, sandbox), [`engine`] (a [`task::Task`] runs one mode
//! of a [`workload::Workload`] on OS threads that all begin at one instant, and emits [`interval::Interval`]s),
//! [`workloads`] (none imports another), [`registry`].
//!
//! This crate has no async runtime, wire types, database or mesh; it can be used alone. Invariant: an operation does
//! not lock, allocate or format while it is timed, except one that fails, and a listing with more names than its buffer
//! holds. Between two operations only `tree`, `copy`, `fill` and `replay` build names, of the next file or of a
//! directory on the way to it (`tests/allocations.rs`).

pub mod engine;
mod error_chain;
pub mod figures;
pub mod measure;
pub mod params;
pub mod registry;
pub mod target;
#[cfg(test)]
mod testing;
pub mod workloads;

#[cfg(test)]
benchmesh_testing::tests_at_once!(4);

// Re-exports for other crates, without the layers.
pub use engine::{common, task, workload};
pub use error_chain::error_chain;
pub use measure::{clock, histogram, interval, op, pacing, random, recorder};
pub use params::units;
pub use target::{data, memory, sandbox};

#[cfg(test)]
benchmesh_testing::counts_memory!();
