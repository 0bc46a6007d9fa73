//! What one sample hands to its sink: rows with the names and units of the wire, counters as the kernel counts them.
//!
//! Instants are on the agent's own monotonic clock; the caller maps them to mesh time. Sizes are bytes, CPU and disk
//! times microseconds. `-1` means that the figure cannot be had on this host or with these rights, never zero.

use std::sync::Arc;

use benchmesh_model::figures::{DaemonFigures, DiskFigures, HostFigures, NetFigures};
use benchmesh_workloads::clock::MonoNanos;

/// All that was read at one instant. Rows carry their own instants: a reading has a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The tick, mark or exit that asked for it.
    pub at: MonoNanos,
    /// Daemons found, renamed or ended since the last sample. They come before the samples that refer to them.
    pub seen: Vec<DaemonSeen>,
    pub daemons: Vec<DaemonSample>,
    pub host: Option<HostSample>,
    pub disks: Vec<DiskSample>,
    pub nets: Vec<NetSample>,
    /// Interfaces that lost their carrier or have it again.
    pub carriers: Vec<CarrierChange>,
    /// Interfaces that make errors or have fallen silent.
    pub links: Vec<LinkChange>,
    /// Ticks that passed unsampled since the sampler started, because it was late by a whole period or more.
    pub skipped_ticks: u64,
    pub cost: Cost,
    /// A step or a task of it has just ended: somebody may wait for this sample.
    pub awaited: bool,
}

/// What the sampler itself has used since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the sampler's thread up to just before this sample was handed over.
    pub cpu_ns: u64,
    pub samples: u64,
    pub scans: u64,
    /// Daemons watched at the moment.
    pub daemons: usize,
}

/// A daemon is (pid, start ticks); a restart is a new daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSeen {
    pub at: MonoNanos,
    pub pid: i32,
    pub start_ticks: u64,
    pub name: String,
    /// `osd.3`, a brick's path, a port; empty where the command line names none.
    pub instance: String,
    pub cmdline: String,
    /// By its program's own words; empty: not known.
    pub version: String,
    /// The file that it runs was removed or replaced since it began.
    pub is_replaced: bool,
    pub ended: bool,
    /// How long it had run at `at`.
    pub age_us: i64,
    pub change: Change,
}

/// What has happened to a daemon that is described.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Change {
    /// It was there before the sampler, or is described again.
    #[default]
    None,
    /// Its process was born while the host was sampled; it is described as seen from its birth on.
    Born,
    /// The same, after another process of its name and instance had ended.
    Restarted,
    Ended,
    /// It does not run, because a signal stopped it (state `T`).
    Stopped,
    /// It does not run, because its cgroup is frozen.
    Frozen,
    /// It was stopped or frozen, and runs again.
    Continued,
    /// It has ended, and was no daemon: all it did was to start one of its name and instance, which went into the
    /// background.
    Parent,
}

/// Brief samples carry CPU time and memory; other fields are -1. A daemon has them between two turns when many are
/// awake, and in the dense samples at a step's start. Marks and a daemon's first and last sample are complete.
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
    /// Who else was busy since this was said last; `None`: nobody, or nobody looked.
    pub others: Option<BusyOthers>,
}

/// Processes that are not watched and took CPU time, the most first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyOthers {
    pub from: MonoNanos,
    pub until: MonoNanos,
    /// Name and CPU time in microseconds; all processes of a name together.
    pub processes: Vec<(String, i64)>,
}

/// A whole disk, a loop device in use, a dm or md device; never a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSample {
    pub at: MonoNanos,
    pub disk: Arc<str>,
    /// It stands on other disks of this host, where its work is counted again.
    pub stacked: bool,
    pub figures: DiskFigures,
}

/// An interface whose other end has gone, or is back: a cable, a switch's port, the peer of a veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierChange {
    pub at: MonoNanos,
    pub interface: Arc<str>,
    pub has_carrier: bool,
}

/// Something that goes wrong on an interface with a carrier, or is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkChange {
    pub at: MonoNanos,
    pub interface: Arc<str>,
    pub trouble: LinkTrouble,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTrouble {
    /// So many more since that instant, of so many packets that came or went.
    Errors {
        rx_errors: i64,
        tx_errors: i64,
        rx_dropped: i64,
        tx_dropped: i64,
        packets: i64,
        since: MonoNanos,
    },
    /// Nothing was received since then, although it sent.
    Silent { since: MonoNanos, sent_packets: i64 },
    /// A silence since then is over.
    Heard { since: MonoNanos },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetSample {
    pub at: MonoNanos,
    pub interface: Arc<str>,
    pub figures: NetFigures,
}
