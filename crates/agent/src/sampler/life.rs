//! One life of a daemon: from its birth as one program to its end.

use benchmesh_workloads::clock::MonoNanos;

use super::parse::Layout;
use super::rules::Identity;

/// One life of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) identity: Identity,
    /// Rounded down to a tick.
    pub(crate) born: MonoNanos,
    pub(crate) layout: Option<Layout>,
}
