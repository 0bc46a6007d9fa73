//! Queries on a database file: questions in SQL, reports, comparisons, findings, pictures, exports and the list of
//! runs.
//!
//! Everything here only reads, except that findings are stored. It depends on database files only, not on sessions,
//! the scheduler or the mesh's clock.

pub mod compare;
pub mod export;
pub mod findings;
pub mod pictures;
pub mod query;
pub mod report;
mod rows;
pub mod runs;
