//! The kinds of anomalies of a run, in one table.
//!
//! `crate::findings` computes them; reports, the database and docs/findings.md take their texts from here.

use benchmesh_model::mesh::{FindingVerdict, Severity};
use serde::{Deserialize, Serialize};

/// The definition of one kind.
#[derive(Debug)]
pub struct FindingRow {
    pub kind: FindingKind,
    /// The name in the database and the commands.
    pub name: &'static str,
    /// Its meaning, as a clause without its full stop.
    pub meaning: &'static str,
    /// The examined data and the criterion, in sentences.
    pub judged: &'static str,
    /// The remedy, in sentences.
    pub remedy: &'static str,
}

macro_rules! kinds {
    ($($variant:ident = $name:literal {
        meaning: $meaning:literal,
        judged: $judged:literal,
        remedy: $remedy:literal $(,)?
    })+) => {
        /// A kind of anomaly.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingKind { $($variant),+ }

        impl FindingKind {
            /// The table, in the order of listing.
            pub const ROWS: &'static [FindingRow] = &[$(FindingRow {
                kind: Self::$variant,
                name: $name,
                meaning: $meaning,
                judged: $judged,
                remedy: $remedy,
            }),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The position of the kind with this name in the table; after all others if there is none.
            pub fn place(name: &str) -> usize {
                let place = Self::ROWS.iter().position(|row| row.name == name);
                place.unwrap_or(Self::ROWS.len())
            }
        }
    };
}

kinds! {
    Leak = "leak" {
        meaning: "memory, threads or open files of a daemon grow on and on",
        judged: "The slope of each daemon's resident memory, threads and open files over all steps of the run: Theil \
                 and Sen's, over up to 128 points, only between points of the same load. Left out are the pauses \
                 between steps, the first tenth of the run (at least a minute) and the first tenth of each step (at \
                 most 10 s). A leak is shown at 0.5 % for all daemons together, with the scatter's autocorrelation \
                 allowed for, is at least 0.5 % of the level (and 1 MiB, 3 threads, 5 files) over the run, did not come in \
                 one jump and still goes on in the last third. `steady`: the 95 % interval leaves no more than 2 % \
                 over the run; `unsure`: neither is shown. Under 300 s of load nothing is judged.",
        remedy: "Let the load run longer to make sure; look at the daemon's own statistics of memory (`ceph daemon \
                 osd.N dump_mempools`, `gluster volume statedump`), and report it with the SQL's rows. Memory counts \
                 as run out where the host's available memory at the end would be used up; limits of open files are \
                 not sampled.",
    }
    Drift = "drift" {
        meaning: "the rate or the p99 of an operation goes up or down, over a step or from step to step",
        judged: "The slope of the logarithm of rate and p99 of each operation: over each step of 300 s or more, by 128 parts \
                 of it, and over all steps of the same load (the same step of each loop or repeat), if there are ten or \
                 more. Found where it is shown at 1 % for all operations of the run together, with autocorrelation \
                 allowed for, is at least 2 % of the rate or 10 % of the p99 over the time, and the last tenth differs \
                 from the first in the same direction. Fewer than 24 steps are judged by Kendall's rank correlation, \
                 without an interval. The p99 of a part is the geometric mean of its seconds'. What moved at one \
                 instant is a `change`. Of a load that does the same in several steps, one finding is shown.",
        remedy: "Compare with what daemons and disks did over the same time (fragmentation, compaction, a filling \
                 cache, a device that throttles); leave such a step's start out of results with `ramp`.",
    }
    Change = "change" {
        meaning: "the rate or the p99 of an operation moved to another level at an instant and stayed there",
        judged: "The series of `drift` with 24 points and 900 s or more: the largest cumulated deviation from the mean, scaled by \
                 the scatter around the levels before and after with autocorrelation allowed for, against a Brownian \
                 bridge, at 1 % for all operations of the run together. Found where it is at least 5 % of the rate or \
                 25 % of the p99, each level lasts an eighth of the time, and a step describes the series better than a \
                 line. A level that is left for a time and taken up again gives two changes. Events and marks of \
                 the half minute before are named.",
        remedy: "Look at what the sentence names, and at what else happened at that time: a daemon that was \
                 started again, a rebuild or a scrub, a cache that was full, a link that fell back.",
    }
    Outage = "outage" {
        meaning: "a load stood still for seconds",
        judged: "Seconds below 5 % of a step's usual rate (the median of its seconds; at least 20 operations per \
                 second), over all operations of a group and all clients, while all clients were active. Found where there \
                 were three or more of them, or two in a row. It is over at the end of the last second below half of \
                 the usual rate, within 30 s after the longest gap. Named are daemons that used no CPU in the longest \
                 gap while others of their name did, or twice as much as in the minute before and half of a CPU more; disks \
                 that became 90 % busy; and events and marks of that time.",
        remedy: "Look at marks and events of the same time: a daemon that died, a link that was cut, a stall. The \
                 SQL lists the seconds around the longest gap.",
    }
    Periodic = "periodic" {
        meaning: "a load is slower again and again, every so many seconds",
        judged: "Rate and p99 of each group of each step of 120 s or more, second by second. The first half proposes \
                 a period, by autocorrelation, of 5 s to an eighth of the step, and the place in it that is slowest. \
                 Found where that place is among the slowest tenth in 60 % of the periods of the second half or more, \
                 at 0.1 % for each series, and costs 10 % of the rate or makes the p99 1.5 times as long. \
                 Named are the daemon and the disk that work at least 10 % of a CPU, or of the time, more in the \
                 disturbances than between them, in four of five.",
        remedy: "Look for what runs with that period: compaction, a scrub, a flush, a snapshot, a cron job, the \
                 collection of metrics. The SQL lists rate and p99 over a period.",
    }
    Outlier = "outlier" {
        meaning: "one daemon, disk, client or link is unlike its equals",
        judged: "CPU time of the daemons of one name in each step of 30 s or more, and the rate of each client's tasks in \
                 each step of 10 s or more, against the median of the others: at least twice the CPU time and 20 % of a \
                 CPU more, or at most 0.7 of the rate, and four times their scatter away. Of up to five it must be \
                 so against each of the others; of three, it takes three times the CPU time or half of the rate. \
                 Found where it is so in half of the steps that have it. Links of `network` are judged against the other links of \
                 their load, by their rates over all of its steps, but for those from a host to itself. By bytes: what daemons of one \
                 name that serve a target read and wrote over all steps, and what disks of one name did over the run: twice \
                 that of those that moved 16 KiB/s or more, and 1 MiB/s more. \
                 Likewise, in any part of the run of a minute and 2 % of it or more, the CPU time of daemons, the rate \
                 of clients (in steps of 300 s or more) and the time that an operation takes at a disk (twice that of others, and 2 ms more, among disks of 20 operations \
                 per second that do half as many as the others or more).",
        remedy: "Look for an uneven distribution of data (`ceph osd df`, brick sizes), a slower disk or link, or a \
                 leader among equals.",
    }
    Daemon = "daemon" {
        meaning: "a daemon ended, was started again, was stopped or stood still",
        judged: "Daemons that had lived for a minute and ended between the first step's start and the last one's end, \
                 with the next one of the same name and instance within an hour; those that an agent saw stopped by a \
                 signal or with a frozen cgroup; and those that used no CPU at all for 10 s and two windows of counters \
                 (of 5 s, in a run of more than 85 minutes of a 1024th of it) while most others of their name did \
                 half of their usual work or more. Daemons that usually use less than 2 % of a CPU stand still by themselves. Where some daemons are known to \
                 serve the targets of the run, leaks, outliers and these findings of those that are known not to are counted in one line.",
        remedy: "Read its log, and the kernel's for a process that was killed or hangs (state D).",
    }
    Host = "host" {
        meaning: "a host ran out of CPU or memory, or a target of space",
        judged: "Counters of each host at up to 1024 instants over the run. Found where for 30 s and 1 % of the run or \
                 more 95 % of its CPU time was used, 10 % of it was stolen, less than 5 % of its memory was available, all \
                 tasks waited for memory 10 % of the time, or 256 MiB more than at the beginning were swapped out. \
                 Of each target, sampled every 10 s while a load is on it: found where less than 5 % of its space or \
                 inodes, and less than 100 GiB or 1,000,000 inodes, was free at any time (less than 2 %, and 10 GiB or \
                 100,000 inodes: an error), except in steps of workload `fill`; and where the slope of what is used, judged as a `leak` is, \
                 fills it within 90 days (within 7 days: an error). What a load writes and removes is left out of this pace \
                 only: a load of six or more loops is only compared with itself at the same place of its step in other \
                 loops; one of fewer loops is judged over its steps where its mode works on data that are there before and stay. \
                 A target that agents share, by their run directory or by file system and size on one host, is one.",
        remedy: "Results of such a host are those of its shortage: use more clients or fewer workers, or look for what \
                 uses it up. Of a target, look for what was not removed (other users, logs, snapshots, space that is given \
                 back late), or enlarge it.",
    }
    Clock = "clock" {
        meaning: "a clock jumped",
        judged: "Events `clock-gap` and `wall-clock-step` between the first step's start and the last one's end, per agent.",
        remedy: "A machine was suspended or paused, or somebody set its clock. Mesh time does not follow a wall \
                 clock; of a `clock-gap`, steps are flagged.",
    }
    Telemetry = "telemetry" {
        meaning: "samples are missing",
        judged: "Rows that an agent counted as lost, and times without a sample of a host of 10 s or more (in a run of more \
                 than 85 minutes, of two 1024ths of it; a shorter gap is seen by chance).",
        remedy: "Nothing is known of daemons and disks for that time. Look at the agent's log, at its disk, and at \
                 events `agent-lost` and `spool-gap`.",
    }
}

/// One anomaly, or a sentence about an examined kind without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: String,
    pub verdict: String,
    pub severity: String,
    /// The name of its subject.
    pub subject: String,
    /// The anomalous figure, such as `rss_bytes`, `ops_per_s`, `cpu_percent`.
    pub figure: Option<String>,
    pub step_id: Option<i64>,
    pub group_name: Option<String>,
    pub op: Option<String>,
    pub agent_id: Option<i64>,
    pub host_id: Option<i64>,
    pub daemon_id: Option<i64>,
    pub from_us: Option<i64>,
    pub until_us: Option<i64>,
    /// The size in `unit`, with its 95 % interval if there is one.
    pub size: Option<f64>,
    pub unit: Option<String>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The p value, corrected for everything that was tested together.
    pub p: Option<f64>,
    pub sentence: String,
    /// A query that shows it.
    pub sql: Option<String>,
}

impl Finding {
    pub fn new(
        severity: Severity,
        kind: FindingKind,
        verdict: FindingVerdict,
        subject: &str,
        sentence: String,
    ) -> Self {
        Self {
            kind: kind.as_str().to_owned(),
            verdict: verdict.as_str().to_owned(),
            severity: severity.as_str().to_owned(),
            subject: subject.to_owned(),
            sentence,
            ..Self::default()
        }
    }

    /// Whether it is an anomaly rather than a sentence about an examined kind.
    pub fn is_found(&self) -> bool {
        self.verdict == FindingVerdict::Found.as_str()
    }
}

#[cfg(test)]
mod reference;
