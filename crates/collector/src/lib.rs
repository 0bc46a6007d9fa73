//! The collector as a process: its service for agents and operators, trust, the live page, alarms, start and shutdown.
//!
//! One process, one database. Agents dial in, plans become steps (`benchmesh_plan`), steps are driven one at a time
//! (`benchmesh_scheduler`), and the agents' data is committed before it is acknowledged (`benchmesh_store`). Only
//! `service` names the types of the wire.

pub mod alarms;
pub mod archive;
pub mod overview;
mod refusals;
pub mod service;
pub mod trust;
pub mod web;

pub use benchmesh_workloads::error_chain;
pub use service::{Collector, CollectorConfig, CollectorError, INSECURE};

#[cfg(test)]
benchmesh_testing::counts_memory!();
