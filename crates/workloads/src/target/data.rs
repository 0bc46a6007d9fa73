//! What stands in the blocks that a load writes, and how a block that was read is known to be the right one.
//!
//! A [`DataSpec`] is what a plan says; a [`Content`] makes any block of any file from it, and checks it. It knows
//! nothing of how blocks reach the storage. Invariants: under `verify` the same seed, file, offset and generation are
//! the same bytes, whoever asks; no two blocks are equal, but for those that are to be, and nothing repeats within what
//! storage compresses in one piece ([`EntropyPool`]).

mod content;
mod entropy_pool;
mod generations;
mod pattern;
mod spec;

pub(crate) use crate::measure::mismatch::SECTOR_BYTES;
pub use crate::measure::mismatch::{Found, Mismatch, Mismatches};
pub use content::Content;
pub(crate) use entropy_pool::{EntropyPool, VARIETY_BYTES};
pub(crate) use generations::Generations;
pub(crate) use pattern::Written;
pub use spec::{DataKeys, DataKind, DataSpec, VERIFY};
