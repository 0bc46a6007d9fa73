//! Runs a load: the traits that a workload implements, tasks and their threads, preparation, stalls.
//!
//! Does not refer to any workload by name.

pub(crate) mod author;
pub mod common;
mod definition;
pub(crate) mod mix;
mod mode;
pub(crate) mod others;
pub(crate) mod parallel;
pub(crate) mod passes;
mod prep_threads;
mod prepare_control;
mod receiver;
mod spec;
mod stall;
mod syscall;
pub mod task;
pub(crate) mod worker_dirs;
pub mod workload;
