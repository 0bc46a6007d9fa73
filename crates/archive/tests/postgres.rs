//! The archive on a real PostgreSQL: pushed, replaced, interrupted, and fetched back as it was.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "postgres/bad_input.rs"]
mod bad_input;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/lab.rs"]
mod lab;
#[path = "postgres/round_trip.rs"]
mod round_trip;
#[path = "postgres/tls.rs"]
mod tls;

benchmesh_testing::tests_at_once!(4);
