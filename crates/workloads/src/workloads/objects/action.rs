//! The operations on an object. Pure.

use crate::engine::author::*;

/// Type of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectAction {
    Read,
    Write,
    Stat,
    Omap,
    Delete,
}

impl Mixed for ObjectAction {
    const NAMED: &'static [(&'static str, Self)] = &[
        ("read", Self::Read),
        ("write", Self::Write),
        ("stat", Self::Stat),
        ("omap", Self::Omap),
    ];
    const WORDS: &'static str =
        "weights of `read`, `write`, `stat` and `omap`, such as { read = 70, write = 30 }";
}

impl ObjectAction {
    pub(super) fn op(self) -> Op {
        match self {
            ObjectAction::Read => Op::Read,
            ObjectAction::Write => Op::Write,
            ObjectAction::Stat => Op::Stat,
            ObjectAction::Omap => Op::Omap,
            ObjectAction::Delete => Op::Delete,
        }
    }

    /// Whether it uses a block instead of the whole object.
    pub(super) fn moves_a_block(self) -> bool {
        matches!(self, ObjectAction::Read | ObjectAction::Write)
    }
}
