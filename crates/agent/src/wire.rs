//! The edge: the only place of this crate that names generated types.
//!
//! Everything that comes in is checked here, field by field, before anything is done with it: the collector is another
//! program, and may be hostile. Everything that goes out is made here from our own types.

pub mod batch;
pub mod command;
pub mod link;
pub mod reply;

pub use batch::WireError;
