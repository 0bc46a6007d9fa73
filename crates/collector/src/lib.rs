//! The centre: sessions, scheduler, ingest, store, queries, reports.

pub mod model;
pub mod query;
pub mod report;
