//! The content of blocks that a load writes, and the verification of blocks that it reads.
//!
//! A [`DataSpec`] is the part of a plan; a [`Content`] makes and checks any block of any file from it. This module does
//! not know how blocks reach the storage. Invariants: under `verify`, the same seed, file, offset and generation always
//! give the same bytes. No two blocks are equal, except for those that are meant to be, and nothing repeats within a
//! unit that storage compresses at once ([`EntropyPool`]).

mod content;
mod entropy_pool;
mod generations;
mod pattern;
mod spec;

pub(crate) use crate::measure::mismatch::SECTOR_BYTES;
pub use crate::measure::mismatch::{FoundData, Mismatch, Mismatches};
pub use content::Content;
pub(crate) use entropy_pool::{EntropyPool, VARIETY_BYTES};
pub(crate) use generations::Generations;
pub(crate) use pattern::Written;
pub use spec::{DataKeys, DataKind, DataSpec, VERIFY};
