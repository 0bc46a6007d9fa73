//! Which writings of a task's files may stand in their blocks.
//!
//! Each mode that writes is a generation of its own. Invariants, kept by whoever writes them down: the range holds
//! every generation that a block may be of, even when a mode ends in its midst; it narrows to one only after every
//! block has been written without an error.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Generations {
    pub oldest: u64,
    pub newest: u64,
    /// A write may have failed, or been left, within a block: its sectors need not be of one generation.
    #[serde(default)]
    pub torn: bool,
}

impl Generations {
    pub(crate) fn range(self) -> RangeInclusive<u64> {
        self.oldest..=self.newest
    }

    /// With what a mode will write.
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
