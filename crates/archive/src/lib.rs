//! Runs beyond one machine: `parquet` writes them as files for engines that read such, `postgres` keeps them in a
//! server that many collectors share.
//!
//! `tables` says what of a database is archived, `source` reads it: run by run, in one transaction, in slices. Both
//! ways out take the tables from there, so that a further column of `store/schema.sql` needs no line here, and from
//! `retention` which of their rows stay when the database has merged or deleted its own. This crate knows no report and
//! no scheduler; whoever answers questions reads SQLite.

pub mod histogram;
pub mod parquet;
pub mod postgres;
mod retention;
pub mod source;
pub mod tables;

#[cfg(test)]
benchmesh_testing::counts_memory!();
