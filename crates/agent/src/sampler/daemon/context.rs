//! What the readings of all watched processes share.

use std::sync::Arc;

use crate::sampler::cpu::TickLength;
use crate::sampler::open_files::FdSizes;
use crate::sampler::poll::Poll;

/// Whose processes these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    /// This kernel's and this PID namespace's: clocks, pidfds and netlink speak of the same pids.
    Live,
    /// Recorded, or another namespace's: files are all there is.
    Foreign,
}

/// Where the context switches of a process come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchSource {
    /// Told with each reading.
    Kernel,
    /// The process's `status`, which is true of a single thread only.
    Status,
}

/// What all readings share.
#[derive(Debug)]
pub(crate) struct ReadContext {
    pub(crate) poll: Arc<Poll>,
    pub(crate) tree: Tree,
    pub(crate) tick: TickLength,
    pub(crate) page_bytes: u64,
    pub(crate) fd_sizes: FdSizes,
    /// Whether switches are asked for apart, and `status` need not be read.
    pub(crate) switches: SwitchSource,
    /// Said once per sampler, not once per daemon and second.
    pub(crate) warned_io: bool,
}
