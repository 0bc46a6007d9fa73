//! Ids, mesh time and states of the collector's runs, steps and tasks.
//!
//! This module does not use SQL, gRPC or TOML. Ids are the database's row ids; instants are mesh time.

use crate::text::meant_first;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The refusal of every command that is asked for a run while there is none.
pub const NO_RUN_YET: &str = "there is no run yet: benchmesh run PLAN";

/// Ends the refusal of an unknown run. A command that reads a file adds `--db`.
pub const RUNS_LISTS_THEM: &str = "`benchmesh runs` lists them";

/// The refusal of every command that is asked for an unknown run. `near`: the name of a run that was probably meant.
pub fn no_such_run(wanted: &str, near: Option<&str>) -> String {
    let meant = meant_first(near);
    format!("there is no run {wanted:?}; {meant}{RUNS_LISTS_THEM}")
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A row of `agents`.
    AgentId
);
id!(
    /// A row of `hosts`: one kernel and PID namespace.
    HostId
);
id!(
    /// A row of `runs`.
    RunId
);
id!(
    /// A row of `steps`.
    StepId
);
id!(
    /// A row of `tasks`.
    TaskId
);
id!(
    /// A row of `daemons`.
    DaemonId
);

/// An instant of mesh time: microseconds since the Unix epoch on the collector's clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MeshMicros(pub i64);

impl MeshMicros {
    /// Microseconds since `from`; 0 before it, and if it is unknown.
    pub fn since(self, from: Option<Self>) -> i64 {
        from.map_or(0, |from| self.0.saturating_sub(from.0).max(0))
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every value, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in the database and the commands.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The state with this name; `None` for any other text.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words!(
    /// State of a run.
    #[derive(Default)]
    RunState {
        #[default]
        Queued = "queued",
        Running = "running",
        Done = "done",
        Failed = "failed",
        Stopped = "stopped",
    }
);

words!(
    /// States of a step; `done`, `failed` and `stopped` are final.
    #[derive(Default)]
    StepState {
        #[default]
        Planned = "planned",
        Prepare = "prepare",
        Settle = "settle",
        Ready = "ready",
        Armed = "armed",
        Running = "running",
        Cleaning = "cleaning",
        Done = "done",
        Failed = "failed",
        Stopped = "stopped",
    }
);

words!(
    /// State of a task.
    TaskState {
        Planned = "planned",
        Prepare = "prepare",
        Ready = "ready",
        Armed = "armed",
        Running = "running",
        Done = "done",
        Failed = "failed",
        Stopped = "stopped",
        Lost = "lost",
    }
);

words!(
    /// Severity of an event.
    Severity {
        Info = "info",
        Warning = "warning",
        Error = "error",
    }
);

words!(
    /// The result of a finding.
    FindingVerdict {
        Found = "found",
        Steady = "steady",
        Unsure = "unsure",
        NotJudged = "not-judged",
    }
);

words!(
    /// The treatment of caches before a step.
    CachePolicy {
        Asis = "asis",
        Warm = "warm",
        Cold = "cold",
        Bypass = "bypass",
        OtherClient = "other-client",
    }
);

words!(
    /// A cache that is dropped before a cold step, or that cannot be dropped.
    CacheLayer {
        PageCache = "page-cache",
        DentriesInodes = "dentries-inodes",
        FuseClient = "fuse-client",
        DaemonCaches = "daemon-caches",
    }
);

words!(
    /// Data that an agent may lose: rows of a table, or whole batches with the operations in them.
    LossKind {
        DaemonSamples = "daemon_samples",
        HostSamples = "host_samples",
        DiskSamples = "disk_samples",
        NetSamples = "net_samples",
        ClockOffsets = "clock_offsets",
        Batches = "batches",
        Operations = "operations",
    }
);

impl RunState {
    /// Whether the state of the run is final.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}

impl StepState {
    /// Whether the state of the step is final.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}
