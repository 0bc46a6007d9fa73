//! One life of a daemon: from its birth as one program to its end.

use benchmesh_workloads::clock::MonoNanos;

use super::parse::AddressLayout;
use super::rules::Identity;

/// Identity, birth and memory layout of one life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) identity: Identity,
    /// Rounded down to a tick.
    pub(crate) born: MonoNanos,
    pub(crate) layout: Option<AddressLayout>,
}
