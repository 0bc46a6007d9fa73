//! The operations of `mix`, drawn by weight. Each leaves the data unchanged. Pure.

use crate::engine::author::*;

/// What one operation does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixedOp {
    Read,
    /// Overwrites the content with the same bytes.
    Write,
    Stat,
    Chmod,
}

impl Mixed for MixedOp {
    const NAMED: &'static [(&'static str, Self)] = &[
        ("read", Self::Read),
        ("write", Self::Write),
        ("stat", Self::Stat),
        ("chmod", Self::Chmod),
    ];
    const WORDS: &'static str =
        "weights of `read`, `write`, `stat` and `chmod`, such as { read = 70, write = 30 }";
}

impl MixedOp {
    pub(super) const fn op(self) -> Op {
        match self {
            Self::Read => Op::Read,
            Self::Write => Op::Write,
            Self::Stat => Op::Stat,
            Self::Chmod => Op::Chmod,
        }
    }

    /// Default weights.
    pub(super) fn ordinary() -> Weighted<Self> {
        Weighted::of(&[(Self::Read, 70), (Self::Write, 30)])
    }
}
