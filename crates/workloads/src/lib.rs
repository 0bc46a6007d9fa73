//! The load itself: operations, histograms, recorders, the sandbox, and the workloads.
//!
//! A [`workload::Workload`] says what it can do; a [`task::Task`] runs one mode of it on OS threads that all begin at one
//! instant, and hands out [`interval::Interval`]s. This crate knows no async runtime, no wire, no database and no mesh;
//! it can be used alone. Invariant: no operation takes a lock, allocates or formats in its time, but one that fails, and a
//! list of more names than there was room for. Between two operations `tree`, `copy`, `fill` and `replay` make the name of what comes
//! next, or of a directory on the way there; the others not even that (`tests/allocations.rs`).

mod block_io;
pub mod bytes;
pub mod clock;
pub mod common;
pub mod copy;
pub mod data;
pub mod files;
pub mod fill;
pub mod histogram;
pub mod interval;
pub mod io;
pub mod memory;
pub mod network;
pub mod null;
pub mod op;
pub mod pacing;
pub mod params;
mod passes;
pub mod random;
pub mod recorder;
pub mod replay;
pub mod sandbox;
mod shuffle;
mod side_by_side;
pub mod task;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod units;
mod urgency;
pub mod workload;
