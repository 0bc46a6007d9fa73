//! The collector's number of connections, within its process's limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;

/// Limit of connections. Every agent has one, and every running command another.
const MAX_CONNECTIONS: usize = 4096;
/// Limit of connections without a valid certificate: half-open ones, and hosts that join. The remaining places are
/// reserved for clients with one.
const MAX_NEWCOMERS: usize = 1024;
/// Limit of connections of one agent. It has one, and a second one while it reconnects after a broken one.
pub(super) const MAX_OF_AGENT: usize = 4;
/// Limit of connections of one operator. Each command that runs has one.
pub(super) const MAX_OF_OPERATOR: usize = 512;
/// Limit of the open calls of a connection.
pub(super) const MAX_CALLS: u32 = 16;
/// Limit of the open calls of one agent, over all of its connections. It has two, and each may hold an incoming message
/// of 8 MiB: 64 MiB in all.
pub(super) const MAX_CALLS_OF_AGENT: usize = 8;
/// A client without a valid certificate must request one and leave within this time, and begin HTTP/2 within a third of
/// it.
pub(super) const NEWCOMER_TIMEOUT: Duration = Duration::from_secs(30);
/// Desired limit of open files, if the system allows it: connections, the page's connections, and the database's files.
const WANTED_FILES: u64 = 16_384;

/// Limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    pub connections: usize,
    pub newcomers: usize,
    /// Maximum lifetime of a connection without a valid certificate.
    pub newcomer_timeout: Duration,
}

impl ConnectionLimits {
    /// Half of the files are for connections, an eighth for the page, and the others for the database.
    fn within(files: Option<u64>) -> Self {
        let files = files.map_or(usize::MAX, |files| {
            usize::try_from(files).unwrap_or(usize::MAX)
        });
        Self {
            connections: MAX_CONNECTIONS.min(files / 2),
            newcomers: MAX_NEWCOMERS.min(files / 8),
            newcomer_timeout: NEWCOMER_TIMEOUT,
        }
    }

    /// Raises this process's limit of open files as far as allowed, and divides it.
    pub fn of_this_process() -> Self {
        let limit = getrlimit(Resource::Nofile);
        if let Some(current) = limit.current {
            let wanted = limit
                .maximum
                .map_or(WANTED_FILES, |most| most.min(WANTED_FILES));
            let raised = Rlimit {
                current: Some(wanted.max(current)),
                maximum: limit.maximum,
            };
            if let Err(error) = setrlimit(Resource::Nofile, raised) {
                tracing::debug!(%error, "cannot raise the limit of open files");
            }
        }
        Self::within(getrlimit(Resource::Nofile).current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_database() {
        for (files, connections, newcomers) in [
            (None, 4096, 1024),
            (Some(1 << 20), 4096, 1024),
            (Some(1024), 512, 128),
            (Some(256), 128, 32),
        ] {
            let limits = ConnectionLimits::within(files);
            assert_eq!(
                (limits.connections, limits.newcomers),
                (connections, newcomers)
            );
        }
    }
}
