//! A batch on its way to the collector, and its position among all batches.
//!
//! This module knows neither the content of a batch nor how it is stored or sent.

use std::fmt;
use uuid::Uuid;

/// Maximum number of unacked batches in flight. An agent sends one batch a second, and the collector gathers up to two
/// minutes of them for one commit.
pub const WINDOW_BATCHES: usize = 256;

/// One file of batches; unique in the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpoolId(pub Uuid);

impl fmt::Display for SpoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a batch in its spool, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A spool as the agent announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub id: SpoolId,
    /// The mesh that its rows belong to; `None` if no mesh is known yet.
    pub mesh: Option<String>,
    /// The sequence that this mesh's collector has acknowledged.
    pub acked: Sequence,
}

/// Position of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPosition {
    pub spool: SpoolId,
    pub sequence: Sequence,
}

/// One batch to send: the encoded body from `wire`, and the range of sequences that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub spool: SpoolId,
    pub first: Sequence,
    pub sequence: Sequence,
    pub body: Vec<u8>,
}
