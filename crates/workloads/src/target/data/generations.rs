//! The generations that the blocks of a task's files may have.
//!
//! Each mode that writes has a generation of its own. Invariants, kept by the writers of the record: the range contains
//! every generation that a block may have, even if a mode is interrupted. It narrows to one only after every block has
//! been written without an error.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Generations {
    pub oldest: u64,
    pub newest: u64,
    /// A write may have failed or been interrupted within a block, so its sectors may differ in generation.
    #[serde(default)]
    pub torn: bool,
}

impl Generations {
    pub(crate) fn range(self) -> RangeInclusive<u64> {
        self.oldest..=self.newest
    }

    /// Adds the generation that a mode will write.
    pub(crate) fn and_one_more(self) -> Generations {
        Generations {
            newest: self.newest.saturating_add(1),
            ..self
        }
    }

    pub(crate) fn newest_only(self) -> Generations {
        Generations {
            oldest: self.newest,
            torn: false,
            ..self
        }
    }
}
