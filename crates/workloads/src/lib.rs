//! The load itself: operations, histograms, recorders, the sandbox, and the workloads.
//!
//! The folders are the layers, and an import goes down, never up:
//! [`params`] (how a key is read), [`measure`] (clock, recorder, histogram, pacing), [`target`] (system calls, buffers,
//! content, sandbox), [`engine`] (a [`task::Task`] runs one mode of a [`workload::Workload`] on OS threads that all
//! begin at one instant, and hands out [`interval::Interval`]s), [`workloads`] (none imports another), [`registry`].
//!
//! This crate knows no async runtime, no wire, no database and no mesh; it can be used alone. Invariant: no operation
//! takes a lock, allocates or formats in its time, but one that fails, and a list of more names than there was room
//! for. Between two operations `tree`, `copy`, `fill` and `replay` make the name of what comes next, or of a directory
//! on the way there; the others not even that (`tests/allocations.rs`).

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

// What other crates use, without its layer.
pub use engine::{common, task, workload};
pub use error_chain::error_chain;
pub use measure::{clock, histogram, interval, op, pacing, random, recorder};
pub use params::units;
pub use target::{data, memory, sandbox};

#[cfg(test)]
benchmesh_testing::counts_memory!();
