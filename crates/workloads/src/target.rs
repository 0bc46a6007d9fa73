//! The storage under test: system calls and their errors, buffers, content and its verification, the sandbox.
//!
//! Does not know tasks, threads or workloads.

pub(crate) mod block_io;
pub(crate) mod block_size;
pub(crate) mod calls;
pub(crate) mod cursor;
pub mod data;
pub(crate) mod dataset;
pub(crate) mod fault;
pub mod memory;
pub mod place;
pub mod rados;
pub(crate) mod read_back;
pub mod sandbox;
pub(crate) mod size;
pub(crate) mod write_buffer;
