//! What a database file answers: questions in SQL, reports, comparisons, findings, pictures and exports.
//!
//! Everything here reads: of the mesh it sees database files and nothing else, no session, no scheduler and no clock.

pub mod compare;
pub mod export;
pub mod findings;
pub mod pictures;
pub mod query;
pub mod report;
