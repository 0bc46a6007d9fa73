//! What stands in the blocks that a load writes, and how a block that was read is known to be the right one.
//!
//! A [`DataSpec`] is what a plan says; a [`Content`] makes any block of any file from it, and checks it. It knows nothing
//! of how blocks reach the storage. Invariants: under `verify` the same seed, file, offset and generation are the same
//! bytes, whoever asks; no two blocks are equal, but for those that are to be, and nothing repeats within what storage
//! compresses in one piece ([`Turns`]).

mod content;
mod generations;
mod mismatch;
mod pattern;
mod spec;
mod turns;

pub use content::Content;
pub(crate) use generations::Generations;
pub use mismatch::{Found, Mismatch, Mismatches};
pub(crate) use pattern::Written;
pub use spec::{DATA, DataSpec, KEYS, Kind};
pub(crate) use turns::Turns;

/// Storage looks at blocks of this size when it compresses and deduplicates.
pub(crate) const SECTOR_BYTES: usize = 4096;
