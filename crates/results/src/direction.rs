//! The direction in which an operation moves data between the client and the target.

use benchmesh_workloads::op::{Moves, Op};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    FromStorage,
    ToStorage,
}

pub fn direction_of(op: &str, mode: &str) -> Option<Direction> {
    match (Op::parse(op)?.moves(), mode) {
        (Moves::FromTarget, _) => Some(Direction::FromStorage),
        (Moves::ToTarget, _) => Some(Direction::ToStorage),
        (Moves::Either, "out") => Some(Direction::FromStorage),
        (Moves::Either, "in" | "overwrite") => Some(Direction::ToStorage),
        (Moves::Either | Moves::Nothing, _) => None,
    }
}

pub fn is_write(op: &str) -> bool {
    Op::parse(op).is_some_and(|op| op.moves() == Moves::ToTarget)
}
