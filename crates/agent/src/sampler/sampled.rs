//! The content of one sample: rows with the names and units of the wire, counters as the kernel counts them.
//!
//! Instants are on the agent's own monotonic clock; the caller maps them to mesh time. Sizes are bytes, CPU and disk
//! times microseconds. `-1` means that the figure is not available on this host or with these rights, never zero.

use std::sync::Arc;

use benchmesh_model::figures::{DaemonFigures, DiskFigures, HostFigures, NetFigures};
use benchmesh_workloads::clock::MonoNanos;

/// All readings of one sample. Rows carry their own instants, because the readings take some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The instant of the tick, mark or exit that caused it.
    pub at: MonoNanos,
    /// Daemons found, renamed or ended since the last sample. They come before the samples that refer to them.
    pub seen: Vec<DaemonSeen>,
    pub daemons: Vec<DaemonSample>,
    pub host: Option<HostSample>,
    pub disks: Vec<DiskSample>,
    pub nets: Vec<NetSample>,
    /// Interfaces that lost or regained their carrier.
    pub carriers: Vec<CarrierChange>,
    /// Interfaces with errors, or that became silent.
    pub links: Vec<LinkChange>,
    /// Skipped ticks since the sampler started, because it was late by a whole period or more.
    pub skipped_ticks: u64,
    pub cost: Cost,
    /// A step or a task of it has just ended: the scheduler may wait for this sample.
    pub awaited: bool,
}

/// Resources that the sampler itself has used since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the sampler's thread up to just before this sample was handed over.
    pub cpu_ns: u64,
    pub samples: u64,
    pub scans: u64,
    /// Daemons watched now.
    pub daemons: usize,
}

/// A daemon is (pid, start ticks); a restart is a new daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSeen {
    pub at: MonoNanos,
    pub pid: i32,
    pub start_ticks: u64,
    pub name: String,
    /// `osd.3`, a brick's path, a port; empty if the command line names none.
    pub instance: String,
    pub cmdline: String,
    /// As reported by the program itself; empty: unknown.
    pub version: String,
    /// The file that it runs was removed or replaced since it started.
    pub is_replaced: bool,
    pub ended: bool,
    /// How long the process had run at `at`.
    pub age_us: i64,
    pub change: DaemonChange,
}

/// The change that a description of a daemon reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DaemonChange {
    /// It existed before the sampler, or is described again.
    #[default]
    None,
    /// Its process was born while the host was sampled; it is described as seen from its birth on.
    Born,
    /// As `Born`, after another process with its name and instance had ended.
    Restarted,
    Ended,
    /// It does not run, because a signal stopped it (state `T`).
    Stopped,
    /// It does not run, because its cgroup is frozen.
    Frozen,
    /// It runs again after being stopped or frozen.
    Continued,
    /// It has ended, and was no daemon: it only daemonized one with its name and instance.
    Parent,
}

/// One sample of a daemon; in a brief one, all fields except CPU time and memory are -1.
///
/// Samples are brief between two whole readings if many daemons are awake, and in the dense samples at a step's start.
/// Marks and a daemon's first and last sample are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonSample {
    pub at: MonoNanos,
    pub pid: i32,
    pub start_ticks: u64,
    pub figures: DaemonFigures,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HostSample {
    pub at: MonoNanos,
    pub figures: HostFigures,
    /// Other busy processes since the last report; `None`: there were none, or they were not read.
    pub others: Option<BusyOthers>,
}

/// Unwatched processes that took CPU time, the busiest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyOthers {
    pub from: MonoNanos,
    pub until: MonoNanos,
    /// Name and CPU time in microseconds; processes with one name are summed.
    pub processes: Vec<(String, i64)>,
}

/// A whole disk, a loop device in use, a dm or md device; never a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSample {
    pub at: MonoNanos,
    pub disk: Arc<str>,
    /// It is stacked on other disks of this host, where its work is counted again.
    pub stacked: bool,
    pub figures: DiskFigures,
}

/// An interface whose carrier is gone or back: a cable, a switch's port, the peer of a veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierChange {
    pub at: MonoNanos,
    pub interface: Arc<str>,
    pub has_carrier: bool,
}

/// The start or end of trouble on an interface with a carrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkChange {
    pub at: MonoNanos,
    pub interface: Arc<str>,
    pub trouble: LinkTrouble,
}

/// The kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTrouble {
    /// Increases since that instant, out of this many received and sent packets.
    Errors {
        rx_errors: i64,
        tx_errors: i64,
        rx_dropped: i64,
        tx_dropped: i64,
        packets: i64,
        since: MonoNanos,
    },
    /// Nothing was received since then, although the interface sent.
    Silent { since: MonoNanos, sent_packets: i64 },
    /// A silence since then has ended.
    Heard { since: MonoNanos },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetSample {
    pub at: MonoNanos,
    pub interface: Arc<str>,
    pub figures: NetFigures,
}
