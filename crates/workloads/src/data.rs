//! What stands in the blocks that a load writes, and how a block that was read is known to be the right one.
//!
//! A [`DataSpec`] is what a plan says; a [`Content`] makes any block of any file from it, and checks it. It knows nothing
//! of how blocks reach the storage. Invariants: the same seed, file, offset and generation are the same bytes, whoever
//! asks; no two blocks are equal, but for those that are to be.

mod content;
mod generations;
mod mismatch;
mod pattern;
mod spec;

pub use content::Content;
pub(crate) use generations::Generations;
pub use mismatch::{Found, Mismatch, Mismatches};
pub(crate) use pattern::Written;
pub use spec::{DATA, DataSpec, KEYS, Kind};

/// Storage looks at blocks of this size when it compresses and deduplicates.
pub(crate) const SECTOR_BYTES: usize = 4096;
