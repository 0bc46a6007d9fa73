//! The report of a run: the output of `benchmesh report`, the answer of `Control.Report`, the JSON document.
//!
//! [`load`] reads it from a database, through the views and tables that docs/database.md documents. Everything else
//! is a pure function of a [`Report`]: [`tables`] for people (a terminal, Markdown), [`csv`] and JSON for programs.
//! This module does not know about terminals, and derives no figure that the database does not contain.

mod bands;
pub mod card;
mod comparison;
mod csv;
mod load;
mod markdown;
mod row;
mod sections;
mod table;
mod tables;

pub use benchmesh_workloads::figures;
pub use comparison::{ComparisonDocument, comparison_csv, comparison_tables};
pub use csv::{csv, field as csv_field};
pub use load::{load, load_file};
pub use markdown::{comparison_markdown, markdown};
pub use row::ReportError;
pub use sections::*;
pub use table::{Align, Column, Table};
pub use tables::{Detail, SectionName, heading, tables, tables_within};

#[cfg(test)]
mod tests;
