//! Which way an operation moves data between the client and the target.

/// Operations that bring data from the storage.
const READS: [&str; 4] = ["read", "fread", "getc", "seek"];
/// Operations that send data to the storage.
const WRITES: [&str; 7] = [
    "write",
    "append",
    "create",
    "rewrite",
    "fwrite",
    "putc",
    "overwrite",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromStorage,
    ToStorage,
}

pub(crate) fn direction_of(op: &str, mode: &str) -> Option<Direction> {
    match (op, mode) {
        ("copy", "out") => Some(Direction::FromStorage),
        ("copy", "in") => Some(Direction::ToStorage),
        (op, _) if READS.contains(&op) => Some(Direction::FromStorage),
        (op, _) if WRITES.contains(&op) => Some(Direction::ToStorage),
        _ => None,
    }
}

pub(crate) fn is_write(op: &str) -> bool {
    WRITES.contains(&op)
}
