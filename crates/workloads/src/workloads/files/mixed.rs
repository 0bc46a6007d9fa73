//! The operations of `mix`, drawn by their weights. Each leaves the data as they are. Pure.

use crate::engine::author::*;

/// What one operation does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixedOp {
    Read,
    /// Over what stands there, with the same.
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

    /// Where a plan does not say it.
    pub(super) fn ordinary() -> Weighted<Self> {
        Weighted::of(&[(Self::Read, 70), (Self::Write, 30)])
    }
}
