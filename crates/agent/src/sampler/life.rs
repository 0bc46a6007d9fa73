//! One life of a daemon: from its birth as one program to its end.

use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;

use super::parse::AddressLayout;
use super::rules::Identity;
use super::sampled::DaemonSample;

/// Identity, birth and memory layout of one life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) identity: Identity,
    /// Rounded down to a tick.
    pub(crate) born: MonoNanos,
    pub(crate) layout: Option<AddressLayout>,
}

/// Monitoring tools and mount helpers that ask daemons' programs for their version take 40 to 200 ms.
pub(crate) const DAEMON_AGE: Duration = Duration::from_secs(1);

/// The rows of a young process.
#[derive(Debug)]
pub(crate) struct Withheld {
    /// Since when it may be a daemon: its birth, or the program that it executed later.
    pub(crate) since: MonoNanos,
    pub(crate) found_at: MonoNanos,
    /// When it became a daemon, if the host was watched then.
    pub(crate) begun: Option<MonoNanos>,
    pub(crate) samples: Vec<DaemonSample>,
}

impl Withheld {
    pub(crate) fn until(&self) -> MonoNanos {
        self.since.saturating_add(DAEMON_AGE)
    }
}
