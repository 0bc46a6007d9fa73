//! A real agent against a collector in memory that speaks real gRPC: attach, commands, telemetry, and all failures
//! between them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod agent;
mod attach;
mod clock_gap;
mod collector;
mod commands;
mod garbage;
mod policy;
mod telemetry;

// They mostly wait.
benchmesh_testing::tests_at_once!(8);
