//! The workloads, one folder each. None imports another; shared code belongs to a layer below.

pub mod copy;
pub mod files;
pub mod fill;
pub mod io;
pub mod network;
pub mod null;
pub mod objects;
pub mod replay;
pub mod tree;
