//! The table of flags, which qualify the figures of a step.
//!
//! Notes below tables, a report's validity, a comparison's caveats, the live page and docs/flags.md are generated from
//! it. [`super::sum`] raises the flags; only this table explains them.

use serde::Serialize;

/// The severity of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlagSeverity {
    /// Limits the meaning of the figures.
    Note,
    /// Figures may be wrong or missing.
    Warning,
    /// There are no usable figures.
    Failed,
}

impl FlagSeverity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Effect of one side's flag on a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictEffect {
    Nothing,
    /// The verdict stays, with the flag appended.
    Caveat,
    /// Rates are compared per client, over the clients that stayed to the end.
    PerClient,
    /// Rates that sum over clients are not compared.
    NotComparable,
}

impl VerdictEffect {
    /// The wording of docs/flags.md.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Caveat => "is appended to the verdict as a caveat",
            Self::PerClient => {
                "rates are compared per client, over the clients that stayed; if none did, they are not comparable"
            }
            Self::NotComparable => "rates that sum over clients are not comparable",
        }
    }
}

/// The definition of one flag.
#[derive(Debug)]
pub struct FlagRow {
    pub flag: Flag,
    /// The name in the database and the commands.
    pub name: &'static str,
    /// The line of a report's validity that lists it.
    pub about: &'static str,
    pub severity: FlagSeverity,
    pub verdict: VerdictEffect,
    /// Its meaning for the figures, as a clause without its full stop.
    pub meaning: &'static str,
    /// The condition that raises it, in sentences.
    pub raised: &'static str,
    /// The remedy, in sentences.
    pub remedy: &'static str,
}

impl FlagRow {
    /// Whether it says that a client, not the storage, limited the load.
    pub fn is_client_limit(&self) -> bool {
        matches!(self.about, "tool" | "cpu" | "policy")
    }

    /// Its column of the view `v_results`.
    pub fn column(&self) -> String {
        format!("flag_{}", self.name.replace('-', "_"))
    }
}

macro_rules! flags {
    ($($variant:ident = $name:literal {
        about: $about:literal,
        severity: $severity:ident,
        verdict: $verdict:ident,
        meaning: $meaning:literal,
        raised: $raised:literal,
        remedy: $remedy:literal $(,)?
    })+) => {
        /// A qualification of a step's figures.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Flag { $($variant),+ }

        impl Flag {
            /// The table, in the order of listing.
            pub const ROWS: &'static [FlagRow] = &[$(FlagRow {
                flag: Self::$variant,
                name: $name,
                about: $about,
                severity: FlagSeverity::$severity,
                verdict: VerdictEffect::$verdict,
                meaning: $meaning,
                raised: $raised,
                remedy: $remedy,
            }),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

impl Flag {
    /// The row with this name; `None` for a flag of another version.
    pub fn row_of(name: &str) -> Option<&'static FlagRow> {
        Self::ROWS.iter().find(|row| row.name == name)
    }
}

/// The meaning of a flag; for a flag of another version, a pointer to the documentation.
pub fn meaning(name: &str) -> &'static str {
    Flag::row_of(name).map_or("see docs/flags.md", |row| row.meaning)
}

flags! {
    WindowShort = "window-short" {
        about: "windows",
        severity: Note,
        verdict: Caveat,
        meaning: "all workers were active together for less than 2.5 seconds or half the step; the rates are over \
                  the whole step, to the last worker",
        raised: "The time in which all tasks were active was under 2.5 seconds or under half of the step. The headline \
                 is then all work over the time to the last worker's end (`headline` is `last-done`).",
        remedy: "Let the step last longer (`runtime`, more files or bytes), or give each client the same amount of \
            work.",
    }
    Undated = "undated" {
        about: "windows",
        severity: Note,
        verdict: Caveat,
        meaning: "the progress of operations that took seconds is not known; the rates are over the whole step, to the \
                  last worker",
        raised: "Over 10 % of the work in the time in which all tasks were active may belong outside of it: operations \
                 overlapped its ends and reported no progress for a second or more before they ended (one system call \
                 of that duration, or a flush or fsync at the end of a file). The headline is then all work over the \
                 time to the last worker's end (`headline` is `last-done`).",
        remedy: "Let the step last many times longer than its longest operation (more files, `runtime`), or bypass the \
                 caches (`direct`).",
    }
    NoOverlap = "no-overlap" {
        about: "windows",
        severity: Warning,
        verdict: NotComparable,
        meaning: "clients were not active at the same time, so there is no rate of all of them",
        raised: "A task ended before another one began (`headline` is `none`).",
        remedy: "Let the step last longer than the differences between its clients' starts; `v_clients` has each \
                 client's own rate.",
    }
    StartUnsure = "start-unsure" {
        about: "starts",
        severity: Warning,
        verdict: Caveat,
        meaning: "the error of the common start is above 5 % of the step, so clients may have measured different times",
        raised: "In a step of several agents, the error of their clocks (`tasks.skew_error_us`) is above 5 % of the \
                 measured time.",
        remedy: "Let the step last longer, or use a network path with a shorter round trip between agents and \
                 collector.",
    }
    ToolBound = "tool-bound" {
        about: "tool",
        severity: Warning,
        verdict: Caveat,
        meaning: "benchmesh itself took a large share of the time: the storage can do more",
        raised: "benchmesh's own cost, calibrated on each agent, was over 20 % of the time in which the workers had a \
                 CPU. Tasks with a rate are not judged. A report names the busiest processes that are not watched.",
        remedy: "Use more client hosts, or larger operations.",
    }
    CpuShort = "cpu-short" {
        about: "cpu",
        severity: Warning,
        verdict: Caveat,
        meaning: "workers were ready and had no CPU: other processes took it, or there are more workers than CPUs",
        raised: "Workers waited for a CPU over 10 % of their time (`tasks.wait_cpu_us`); with a rate, over 10 % of the \
                 time in which they had an operation to do, and over 0.2 ms for each operation. A report names the busiest daemons and the busiest unwatched processes on the clients' hosts, \
                 with their share of a CPU.",
        remedy: "Stop other processes on the clients, or use fewer workers than they have CPUs.",
    }
    CpuStolen = "cpu-stolen" {
        about: "cpu",
        severity: Warning,
        verdict: Caveat,
        meaning: "a client is a virtual machine whose hypervisor gave its CPUs to others for a part of the step",
        raised: "On a client's host, over 10 % of the CPU time was stolen (`v_host_usage.steal_percent`).",
        remedy: "Measure again when the hypervisor is less busy, or reserve CPUs for the client's virtual machine.",
    }
    PolicyBound = "policy-bound" {
        about: "policy",
        severity: Warning,
        verdict: Caveat,
        meaning: "an agent reached the bytes per second that its own --rate allows: the figure shows the policy, not \
            the storage",
        raised: "All tasks of an agent together moved at least 95 % of the bytes per second that its policy allows \
                 (`rate_bytes_per_s` in `run_agents.policy`).",
        remedy: "Start that agent with a higher `--rate`, or without one.",
    }
    BehindSchedule = "behind-schedule" {
        about: "schedule",
        severity: Warning,
        verdict: Caveat,
        meaning: "fewer operations than the rate requires, or one in a hundred issued more than 100 ms late",
        raised: "With a rate, a task did less than 99 % of the operations due in its time (with a tolerance of one \
                 operation per worker, and of three standard deviations of random arrivals), or issued one operation \
                 in a hundred over 100 ms late.",
        remedy: "The storage or the workers cannot sustain the rate: lower the rate, or add workers or depth.",
    }
    CacheSuspect = "cache-suspect" {
        about: "cached",
        severity: Warning,
        verdict: Caveat,
        meaning: "a cache served the load: the clients read more than they received, or moved data faster than their \
            network can",
        raised: "The tasks of a client read at least a tenth more than its host received over all interfaces (network \
                 file systems), or than its disks delivered (ext4, xfs and the like on a disk), in the same time; \
                 `v_traffic.cached_percent` contains the share. A step with `cache = \"warm\"` is not flagged for \
                 this, as it is intended. On ext2 to ext4 and xfs, only disk reads of benchmesh's own processes count. \
                 On loop and network block devices, the bytes of that device count, which prove a cache, but not \
                 that there was none. Behind a network, also raised if a tenth of the names asked for (`stat`, `list`, \
                 `list-stat`) cannot have been answered by what was received, at 64 bytes for each. Not judged, with \
                 the reason in `v_traffic.not_judged`: hosts that read over twice as much as the load, loop and \
                 network block devices that carried it all, other FUSE file systems, RDMA, memory, and steps that \
                 samples do not cover. Steps that are not judged by bytes are judged by speed: the tasks of an agent read, or wrote, \
                 more in a second than its network can transfer. Reads are `read`, `fread`, `getc`, `seek` and `copy` \
                 in mode `out`; writes are `write`, `create`, `append`, `rewrite`, `fwrite`, `putc` and `copy` in \
                 modes `in` and `overwrite`. The limit is the agent's label `link-mbits`, the speed of its path to the \
                 storage. Without the label, network file systems are judged by the highest rate at which a `network` \
                 phase in this database ever sent to the agent from other hosts, plus a tenth, but at most the speed \
                 of its interfaces (bridges and bonds are not counted in addition to their members); without such a \
                 phase, by that speed alone. Only `network` phases at full speed count: without `rate` or `rate_iops`, \
                 without a group beside them, with tasks that ended well. `tasks.link_bytes_per_s` contains the limit \
                 of a step.",
        remedy: "Use `cache = \"cold\"` or `\"bypass\"`, let each client read the data of another one (`cache = \
                 \"other-client\"`), or use more data than the caches hold.",
    }
    WriteCached = "write-cached" {
        about: "cached",
        severity: Warning,
        verdict: Caveat,
        meaning: "writes only reached a cache of the client: more was written than left it in the step, so the rate is \
            not the storage's",
        raised: "The tasks of a client wrote at least a tenth more than its host sent over all interfaces (network \
                 file systems), or than was written to its disks (ext4, xfs and the like on a disk) or to the target's \
                 loop or network block device, in the same time. Not judged: less than 16 MiB per client, steps \
                 under 1 s, and targets for which `cache-suspect` names no counter.",
        remedy: "Let the load wait for its data (`end_fsync`, `fsync`), bypass the cache (`direct`), or write many \
            times as much as the caches hold.",
    }
    AckSuspect = "ack-suspect" {
        about: "cached",
        severity: Warning,
        verdict: Caveat,
        meaning: "direct writes were acknowledged faster than a round trip to another host: the servers did not have \
            them yet",
        raised: "The median of a task's direct writes is below the shortest round trip that earlier `network` phases \
                 measured from its agent to another host (of its last thousand links). Judged if the target is reached \
                 over the network.",
        remedy: "Sync the writes (`fsync`), or disable the client's write-back cache.",
    }
    ClientFrozen = "client-frozen" {
        about: "clients",
        severity: Warning,
        verdict: Caveat,
        meaning: "an agent did not run for a while during the step",
        raised: "An agent of the step did not run for 2 s or more (event `client-frozen`).",
        remedy: "Find what stopped that host (a paused VM, a debugger, no memory), and measure again.",
    }
    ClockGap = "clock-gap" {
        about: "clients",
        severity: Warning,
        verdict: Caveat,
        meaning: "an agent's clock and mesh time jumped apart during the step; its seconds are dated by a new mapping \
            from then on",
        raised: "At an agent of the step, clock and mesh time diverged by more than the errors of both exchanges and \
                 any slew explain (event `clock-gap`): the agent's or the collector's machine was suspended or paused. \
                 The seconds of a pause are rows without operations; rows of the second in which it was detected may \
                 be off by the gap.",
        remedy: "Find what paused or suspended that machine (`detail` of the event contains the size and the likely \
                 cause), and measure again.",
    }
    NotSteady = "not-steady" {
        about: "steady",
        severity: Note,
        verdict: Caveat,
        meaning: "the load did not become steady within its time",
        raised: "The phase has `until = \"steady\"`, and the step ended by its `runtime` (event `not-steady`, which \
                 names the exceeded limit).",
        remedy: "Use a longer `runtime` or `ss_ramp`, or check the findings: a load that drifts, or is disturbed \
                 repeatedly, never becomes steady.",
    }
    Partial = "partial" {
        about: "complete",
        severity: Warning,
        verdict: PerClient,
        meaning: "it was ended early, or not all agents took part to the end; window, rates and seconds are those of \
                  the clients that did",
        raised: "A task was lost, failed, or did not report its end. If others ended well, the window, the work in it \
                 and the whole seconds (`seconds`, `zero_seconds` and their spread) are only theirs; `ops`, `bytes` \
                 and the figures to the last worker's end include the known work of the missing ones.",
        remedy: "`tasks.state` and `tasks.error` name the tasks and the reasons; `resume` repeats the cell.",
    }
    BatchesLost = "batches-lost" {
        about: "samples",
        severity: Warning,
        verdict: NotComparable,
        meaning: "some measurements were lost on the way to the database, so counts and rates may be too low",
        raised: "An agent of the step lost batches of that time (table `losses`): its disk damaged them, its spool was \
                 full, or the collector refused them. Not raised if the agent knows that they contained no operation, nor \
                 for lost tasks, which make the step `partial`.",
        remedy: "The event `spool-gap` or `spool-full` of the agent gives the reason; repeat the step.",
    }
    Errors = "errors" {
        about: "errors",
        severity: Warning,
        verdict: Caveat,
        meaning: "operations failed; table task_errors lists them with their reasons",
        raised: "At least one operation failed.",
        remedy: "Look at `task_errors`: operation, system call, error number and the first path.",
    }
    MostlyFailed = "mostly-failed" {
        about: "errors",
        severity: Failed,
        verdict: NotComparable,
        meaning: "more operations failed than succeeded, so the step has failed",
        raised: "In the step, or in one of its groups, over half of the operations failed. A step that otherwise ended \
                 well becomes `failed`, and so does its run.",
        remedy: "Look at `task_errors`: operation, system call, error number and the first path.",
    }
    Saturated = "saturated" {
        about: "latencies",
        severity: Note,
        verdict: Caveat,
        meaning: "operations took longer than an hour; their latencies count as one hour",
        raised: "An operation took more than an hour, the upper end of histograms.",
        remedy: "Find the operation that hung: events `stall` name operation, path and offset.",
    }
    NoData = "no-data" {
        about: "complete",
        severity: Failed,
        verdict: NotComparable,
        meaning: "no operation was measured",
        raised: "No interval of any task has arrived.",
        remedy: "`steps.reason`, `tasks.error` and the run's events contain the reason.",
    }
}

#[cfg(test)]
pub(super) mod reference;
