//! The centre: sessions, scheduler, ingest, store, queries, reports.

pub mod ingest;
pub mod model;
pub mod results;
pub mod store;
