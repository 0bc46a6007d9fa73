//! The centre: sessions, scheduler, ingest, store, queries, reports.
//!
//! One process, one database. Agents dial in (`sessions`), plans become steps (`plan`), steps are driven one at a time
//! (`scheduler`), and what the agents measured is committed before it is acknowledged (`ingest`, `store`). Only
//! `service` and the conversions beside it name the types of the wire.

mod causes;
pub mod clock;
pub mod ingest;
pub mod model;
pub mod plan;
pub mod query;
pub mod report;
pub mod results;
pub mod scheduler;
pub mod service;
pub mod sessions;
pub mod store;

pub use service::{Collector, CollectorConfig, CollectorError};
