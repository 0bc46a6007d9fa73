//! State shared by the readings of all watched processes.

use std::sync::Arc;

use crate::sampler::cpu::TickLength;
use crate::sampler::open_files::FdSizes;
use crate::sampler::poll::Poll;

/// Where a tree of processes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    /// This kernel and this PID namespace: clocks, pidfds and netlink refer to the same pids.
    Live,
    /// A recorded tree, or another namespace: only files are available.
    Foreign,
}

/// Source of a process's context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchSource {
    /// Passed in with each reading.
    Kernel,
    /// The process's `status`, which is correct only for a single thread.
    Status,
}

/// State shared by all readings.
#[derive(Debug)]
pub(crate) struct ReadContext {
    pub(crate) poll: Arc<Poll>,
    pub(crate) tree: Tree,
    pub(crate) tick: TickLength,
    pub(crate) page_bytes: u64,
    pub(crate) fd_sizes: FdSizes,
    /// Whether switches are requested separately, so that `status` need not be read.
    pub(crate) switches: SwitchSource,
    /// Logged once per sampler, not once per daemon and second.
    pub(crate) warned_io: bool,
}
