//! The operations on an object. Pure.

use crate::engine::author::*;

/// Type of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    Stat,
    Omap,
    Delete,
}

impl Mixed for Action {
    const NAMED: &'static [(&'static str, Self)] = &[
        ("read", Self::Read),
        ("write", Self::Write),
        ("stat", Self::Stat),
        ("omap", Self::Omap),
    ];
    const WORDS: &'static str =
        "weights of `read`, `write`, `stat` and `omap`, such as { read = 70, write = 30 }";
}

impl Action {
    pub(super) fn op(self) -> Op {
        match self {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
            Action::Stat => Op::Stat,
            Action::Omap => Op::Omap,
            Action::Delete => Op::Delete,
        }
    }

    /// Whether it uses a block instead of the whole object.
    pub(super) fn moves_a_block(self) -> bool {
        matches!(self, Action::Read | Action::Write)
    }
}
