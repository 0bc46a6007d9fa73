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
            Self::Caveat => "stands behind the verdict as a caveat",
            Self::PerClient => {
                "rates are compared per client, of those that stayed; where none did, they are not comparable"
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
        raised: "The time in which all tasks were active was under 2.5 seconds or under half of the step. The \
                 headline is everything over the time to the last worker's end instead (`headline` is `last-done`).",
        remedy: "Let the step last longer (`runtime`, more files or bytes), or give each client the same amount of \
            work.",
    }
    Undated = "undated" {
        about: "windows",
        severity: Note,
        verdict: Caveat,
        meaning: "operations of seconds did not say when they moved their bytes; the rates are over the whole step, to \
                  the last worker",
        raised: "Over 10 % of what was done in the time in which all tasks were active may as well lie outside of it: \
                 operations reached over its ends that gave no sign of progress for a second or more before they ended \
                 (one system call that takes so long, or a flush or fsync at the end of a file). The headline is \
                 everything over the time to the last worker's end instead (`headline` is `last-done`).",
        remedy: "Let the step last longer than its longest operation many times over (more files, `runtime`), or write \
                 past the caches (`direct`).",
    }
    NoOverlap = "no-overlap" {
        about: "windows",
        severity: Warning,
        verdict: NotComparable,
        meaning: "clients were not active at the same time, so there is no rate of all of them",
        raised: "Some task had ended before another had begun (`headline` is `none`).",
        remedy: "Let the step last longer than its clients' starts lie apart; `v_clients` has each client's own rate.",
    }
    StartUnsure = "start-unsure" {
        about: "starts",
        severity: Warning,
        verdict: Caveat,
        meaning: "the common start is known less exactly than 5 % of the step, so clients may not have measured the \
            same time",
        raised: "The clocks of its agents are known with an error (`tasks.skew_error_us`) of more than 5 % of the \
                 measured time, in a step of several agents.",
        remedy: "Let the step last longer, or give the agents a way to the collector with a shorter round trip.",
    }
    ToolBound = "tool-bound" {
        about: "tool",
        severity: Warning,
        verdict: Caveat,
        meaning: "benchmesh itself took a large share of the time: the storage can do more",
        raised: "benchmesh's own cost, calibrated on each agent, was over 20 % of the time in which the workers had a \
                 CPU. Tasks under a rate are not judged by it. A report names the busiest processes that are not \
                 watched.",
        remedy: "Use more client hosts, or larger operations.",
    }
    CpuShort = "cpu-short" {
        about: "cpu",
        severity: Warning,
        verdict: Caveat,
        meaning: "workers were ready and had no CPU: other processes took it, or there are more workers than CPUs",
        raised: "Workers waited for a CPU over 10 % of their time (`tasks.wait_cpu_us`). Tasks under a rate are not \
                 judged by it. A report names the busiest daemons on the clients' hosts, and the busiest of the \
                 processes that are not watched, with their share of a CPU.",
        remedy: "End what else runs on the clients, or use fewer workers than they have CPUs.",
    }
    CpuStolen = "cpu-stolen" {
        about: "cpu",
        severity: Warning,
        verdict: Caveat,
        meaning: "a client is a virtual machine whose hypervisor gave its CPUs to others for a part of the step",
        raised: "On the host of some client, over 10 % of the CPUs' time was stolen (`v_host_usage.steal_percent`).",
        remedy: "Measure again when the hypervisor is less busy, or reserve CPUs for the client's virtual machine.",
    }
    PolicyBound = "policy-bound" {
        about: "policy",
        severity: Warning,
        verdict: Caveat,
        meaning: "an agent moved as many bytes per second as its own --rate allows: the figure is the policy's, not \
            the storage's",
        raised: "All tasks of some agent together moved at least 95 % of what its policy allows per second \
                 (`rate_bytes_per_s` in `run_agents.policy`).",
        remedy: "Start that agent with a higher `--rate`, or without one.",
    }
    BehindSchedule = "behind-schedule" {
        about: "schedule",
        severity: Warning,
        verdict: Caveat,
        meaning: "fewer operations than were due under the rate, or one in a hundred issued more than 100 ms late",
        raised: "Under a rate, some task did less than 99 % of what was due in its time (one operation per worker, and \
                 three standard deviations of random arrivals, are spared), or one operation in a hundred was issued \
                 over 100 ms late.",
        remedy: "The rate is more than the storage, or the workers, can carry: lower the rate, or add workers or \
            depth.",
    }
    CacheSuspect = "cache-suspect" {
        about: "cached",
        severity: Warning,
        verdict: Caveat,
        meaning: "a cache answered: more was read than came to the clients, or moved faster than their network can \
            carry",
        raised: "The tasks of some client read at least a tenth more than its host received over all interfaces (of a \
                 network file system) or than its disks delivered (of ext4, xfs and the like on a disk) in the same \
                 time; `v_traffic.cached_percent` says how much. Of a step with `cache = \"warm\"` that is the \
                 intent, and no flag. Not judged, with the reason in `v_traffic.not_judged`: file systems on loop and \
                 network block devices, other FUSE file systems, RDMA, memory, and steps that samples do not cover. \
                 What is not judged by bytes is judged by speed: the tasks of some agent read, or wrote, more in a \
                 second than its network can carry. Reads are `read`, `fread`, `getc`, `seek` and `copy` in mode \
                 `out`; writes are `write`, `create`, `append`, `rewrite`, `fwrite`, `putc` and `copy` in modes \
                 `in` and `overwrite`. Judged where the agent's label `link-mbits` says how fast its way to the storage \
                 is, and where the target's file system is one of the network's: there by the most that a `network` \
                 phase in this database ever sent to the agent from other hosts, and a tenth more, but never above the speed of its \
                 interfaces (bridges and bonds do not count beside their members); without such a phase by that speed \
                 alone. Of `network` phases only those count that could send all they would: no `rate` or \
                 `rate_iops`, no group beside them, tasks that ended well. What a step was judged by is \
                 `tasks.link_bytes_per_s`.",
        remedy: "Use `cache = \"cold\"` or `\"bypass\"`, let each client read what another one wrote \
                 (`cache = \"other-client\"`), or use more data than the caches hold.",
    }
    AckSuspect = "ack-suspect" {
        about: "cached",
        severity: Warning,
        verdict: Caveat,
        meaning: "direct writes were acknowledged faster than a round trip to another host: the servers did not have \
            them yet",
        raised: "The median of some task's direct writes is below the least round trip that a `network` phase had \
                 measured by then from its agent to another host (of its last thousand links). Judged where the target \
                 lies behind the network.",
        remedy: "Sync what is written (`fsync`), or turn the client's write-back cache off.",
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
        meaning: "an agent's clock and mesh time jumped apart during the step; its seconds are dated anew from there \
            on",
        raised: "An agent of the step saw its clock and mesh time part by more than the errors of both exchanges and \
                 any slew explain (event `clock-gap`): a machine that was suspended or paused, the agent's or the \
                 collector's. The seconds of a pause are rows without an operation; rows of the second in which it \
                 was seen may lie off by the gap.",
        remedy: "Find what paused or suspended that machine (`detail` of the event has by how much and the likely \
                 cause), and measure again.",
    }
    NotSteady = "not-steady" {
        about: "steady",
        severity: Note,
        verdict: Caveat,
        meaning: "the load did not become steady within its time",
        raised: "The phase has `until = \"steady\"`, and the step ended by its `runtime` (event `not-steady`, with what was \
                 beyond its limit).",
        remedy: "Give it a longer `runtime` or `ss_ramp`, or look at the findings: a load that drifts, or is disturbed again \
                 and again, never becomes steady.",
    }
    Partial = "partial" {
        about: "complete",
        severity: Warning,
        verdict: PerClient,
        meaning: "it was ended early, or not all agents took part to the end; window, rates and seconds are those of \
                  the clients that did",
        raised: "A task was lost, failed, or has not told its end. Where others ended well, the window, what was done \
                 in it and the whole seconds (`seconds`, `zero_seconds` and their spread) are of these alone; `ops`, \
                 `bytes` and the figures to the last worker's end hold what the missing ones are known to have done.",
        remedy: "`tasks.state` and `tasks.error` say which and why; `resume` repeats the cell.",
    }
    BatchesLost = "batches-lost" {
        about: "samples",
        severity: Warning,
        verdict: NotComparable,
        meaning: "a part of what was measured was lost on its way to the database, so counts and rates may be too low",
        raised: "An agent of the step lost batches of its time (table `losses`): its disk had damaged them, its spool \
                 was full, or the collector refused them. Not raised where the agent knows that no operation was in \
                 them.",
        remedy: "The event `spool-gap` or `spool-full` of the agent says why; repeat the step.",
    }
    Errors = "errors" {
        about: "errors",
        severity: Warning,
        verdict: Caveat,
        meaning: "operations failed; table task_errors says which and why",
        raised: "At least one operation failed.",
        remedy: "Look at `task_errors`: operation, system call, error number and the first path.",
    }
    MostlyFailed = "mostly-failed" {
        about: "errors",
        severity: Failed,
        verdict: NotComparable,
        meaning: "more operations failed than succeeded, so the step has failed",
        raised: "In the step, or in one of its groups, over half of the operations failed. A step that had ended well \
                 until then is `failed`, and so is its run.",
        remedy: "Look at `task_errors`: operation, system call, error number and the first path.",
    }
    Saturated = "saturated" {
        about: "latencies",
        severity: Note,
        verdict: Caveat,
        meaning: "operations took longer than an hour; their latencies count as one hour",
        raised: "An operation took more than an hour, which is where histograms end.",
        remedy: "Look for what hung: events `stall` name operation, path and offset.",
    }
    NoData = "no-data" {
        about: "complete",
        severity: Failed,
        verdict: NotComparable,
        meaning: "no operation was measured",
        raised: "No interval of any task has arrived.",
        remedy: "`steps.reason`, `tasks.error` and the run's events say why.",
    }
}

#[cfg(test)]
pub(super) mod reference;
