//! The collector with simulated agents over real gRPC on loopback. A fake agent is a real client that answers commands
//! and publishes batches, with a script for faults.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod archive;
mod caches;
mod comparisons;
mod fake_agent;
mod hostile;
mod limits;
mod log;
mod order;
mod page;
mod refusals;
mod runs;
mod sessions;
mod settle;
mod stage;

benchmesh_testing::tests_at_once!(10);
