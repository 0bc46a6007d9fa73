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
        meaning: "memory, threads or open files of a daemon grow continuously",
        judged: "The slope of each daemon's resident memory, threads and open files over all steps of the run: Theil \
                 and Sen's, over up to 128 points, only between points of the same load. Excluded are the pauses \
                 between steps, the first tenth of the run (at least a minute) and the first tenth of each step (at \
                 most 10 s). A leak is significant at 0.5 % for all daemons together, with allowance for the noise's \
                 autocorrelation; it is at least 0.5 % of the level (and 1 MiB, 3 threads, 5 files) over the run, is \
                 not a single jump and continues in the last third. `steady`: the 95 % interval excludes more than 2 % \
                 over the run; `unsure`: neither is significant. With less than 300 s of load, nothing is judged.",
        remedy: "Let the load run longer to make sure; check the daemon's own memory statistics (`ceph daemon osd.N \
                 dump_mempools`, `gluster volume statedump`), and report it with the rows of the SQL. The time at \
                 which memory runs out is when the host's available memory at the end would be used up; limits of open \
                 files are not sampled.",
    }
    Drift = "drift" {
        meaning: "the rate or the p99 of an operation rises or falls, over a step or from step to step",
        judged: "The slope of the logarithm of rate and p99 of each operation: over each step of 300 s or more, in 128 \
                 parts, and over all steps of the same load (the same step of each loop or repeat), if there are ten \
                 or more. Found if it is significant at 1 % for all operations of the run together, with allowance for \
                 autocorrelation, is at least 2 % of the rate or 10 % of the p99 over the time, and the last tenth \
                 differs from the first in the same direction; a slope that is over 1.3 times that difference is told \
                 with the size of the difference. Fewer than 24 steps are judged by Kendall's rank \
                 correlation, without an interval. The p99 of a part is the geometric mean of the p99 of its seconds. \
                 A daily cycle that explains most of the variation over 2 to 42 days is removed first, and the sentence \
                 gives its size; the SQL shows the figures with it. In more than ten steps of one load, drifts below 5 \
                 % of the rate and 25 % of the p99 count only if a tenth of the steps has them. A move at a single \
                 instant is a `change`. If a load does the same in several steps, one finding is shown.",
        remedy: "Compare with the daemons and disks over the same time (fragmentation, compaction, a filling cache, a \
                 device that throttles); exclude the start of such a step from results with `ramp_time`.",
    }
    Change = "change" {
        meaning: "the rate or the p99 of an operation moved to another level at an instant and stayed there",
        judged: "The series of `drift` with 24 points or more: the largest cumulated deviation from the \
                 mean, scaled by the scatter around the levels before and after with allowance for autocorrelation, \
                 against a Brownian bridge, at 1 % for all operations of the run together. Found if it is at least 5 % \
                 of the rate or 25 % of the p99, each level lasts an eighth of the time, and a step describes the \
                 series better than a line. A temporary level gives two changes, and is judged over 900 s or more; \
                 in a shorter series, only a single change that lasts to its end is. The finding names events and marks of \
                 the half minute before.",
        remedy: "Check the events in the sentence, and other activity at that time: a restarted daemon, a rebuild or a \
                 scrub, a full cache, a link that fell back to a lower speed.",
    }
    Outage = "outage" {
        meaning: "a load stopped for seconds",
        judged: "Seconds below 5 % of a step's usual rate (the median of its seconds with work; at least 20 operations \
                 per second), over all operations of a group and all clients, while all clients were active. Found if \
                 there were three or more of them, or two in a row. An error if a gap took 10 s or more, or if the \
                 load stood still for most of the step. A gap takes as long as the operation that ended it, if that \
                 is known to have begun just before. Loads that flush much at once (`end_fsync`, `fsync` above 1) or \
                 replay recorded times pause by themselves: they are judged if they worked for half of the time, and not by their last \
                 flush. It ends with the last second below half of the \
                 usual rate, within 30 s after the longest gap. The finding names daemons that used no CPU in the \
                 longest gap while others of their name did, or twice as much as in the minute before and half of a \
                 CPU more; disks that became 90 % busy; and events and marks of that time.",
        remedy: "Look at marks and events of the same time: a daemon that died, a link that was cut, a stall. The \
                 SQL lists the seconds around the longest gap.",
    }
    Periodic = "periodic" {
        meaning: "a load slows down periodically",
        judged: "Rate and p99 of each group of each step of 180 s or more, second by second. The first half yields a \
                 candidate period, by autocorrelation, of 6 s to a twelfth of the step, and its slowest position. \
                 Found if that position is among the slowest tenth of its period (below 30 s, if it or a neighbouring \
                 second is the slowest) in at least 55 % of the periods of the second half beyond those by chance, at \
                 0.1 % for each series, and costs 10 % of the rate or makes the p99 1.5 times as long. In a step of \
                 fewer than 16 periods, nearly all of them must be disturbed. The finding names the daemon and the \
                 disk that work at least 10 % of a CPU, or of the time, more in the disturbances than between them, \
                 in four of five.",
        remedy: "Look for activity with that period: compaction, a scrub, a flush, a snapshot, a cron job, the \
                 collection of metrics. The SQL lists rate and p99 over a period.",
    }
    Outlier = "outlier" {
        meaning: "one daemon, disk, client or link differs from its peers",
        judged: "CPU time of the daemons of one name in each step of 30 s or more, and the rate of each client's tasks \
                 in each step of 10 s or more, against the median of the others: at least twice the CPU time and 20 % \
                 of a CPU more, or at most 0.7 of the rate, and four times their scatter away. With up to five, this \
                 must hold against each of the others; with three, at three times the CPU time or half of the rate. \
                 Found if it holds in half of the steps that have the daemon or client. Links of `network` are judged \
                 against the other links of their load, by their rates over all of its steps, except links from a host \
                 to itself. By bytes: those read and written over all steps by daemons of one name that serve a \
                 target, and over the run by disks of one name: twice that of those that moved 16 KiB/s or more, and 1 \
                 MiB/s more. Likewise, in any part of the run of at least a minute and 2 % of it, the CPU time of \
                 daemons, the rate of clients (in steps of 300 s or more) and the time that an operation takes at a \
                 disk (twice that of others, and 2 ms more, among disks of 20 operations per second that do half as \
                 many as the others or more).",
        remedy: "Look for an uneven distribution of data (`ceph osd df`, brick sizes), a slower disk or link, or a \
                 leader among the daemons.",
    }
    Daemon = "daemon" {
        meaning: "a daemon ended, restarted, was stopped or was stuck",
        judged: "Daemons that had lived for a minute and ended between the first step's start and the last one's end, \
                 with the next one of the same name and instance within an hour; those that were stopped by a signal \
                 or had a frozen cgroup; and those that used no CPU at all for 10 s and two windows of counters (of 5 \
                 s, in a run of more than 85 minutes of a 1024th of it) while most others of their name did half of \
                 their usual work or more. Daemons that usually use less than 2 % of a CPU are not judged by this, as \
                 they are often idle. If some daemons are known to serve the targets of the run, one line counts \
                 leaks, outliers and these findings of daemons that are known not to.",
        remedy: "Read its log, and the kernel's log for a killed or hung process (state D).",
    }
    Host = "host" {
        meaning: "a host ran out of CPU or memory, or a target of space",
        judged: "Counters of each host at up to 1024 instants over the run. Found if, for at least 30 s and 1 % of the \
                 run, 95 % of its CPU time was used, 10 % of it was stolen, less than 5 % of its memory was available, \
                 all tasks waited for memory 10 % of the time, or 256 MiB more than at the beginning were swapped out. \
                 A target is sampled every 10 s under load: found if less than 5 % of its space or inodes, and less \
                 than 100 GiB or 1,000,000 inodes, was free at any time (less than 2 %, and 10 GiB or 100,000 inodes: \
                 an error), except in steps of workload `fill`; and if the slope of its usage, judged as for `leak`, \
                 fills it within 90 days (within 7 days: an error). Only this slope excludes data that a load writes \
                 and removes: a load of six or more loops is compared only with itself at the same position of its \
                 step in other loops; one of fewer loops is judged over its steps if its mode uses existing data that \
                 remain. A target that agents share, by their run directory or by file system and size on one host, \
                 counts once.",
        remedy: "Results of such a host reflect its shortage: use more clients or fewer workers, or find what uses the \
                 resource. For a target, look for data that were not removed (other users, logs, snapshots, space that \
                 is freed late), or enlarge it.",
    }
    Clock = "clock" {
        meaning: "a clock jumped",
        judged: "Events `clock-gap` and `wall-clock-step` between the first step's start and the last one's end, per agent.",
        remedy: "A machine was suspended or paused, or somebody set its clock. Mesh time does not follow a wall clock; \
                 a `clock-gap` flags the steps.",
    }
    Telemetry = "telemetry" {
        meaning: "samples are missing",
        judged: "Rows that an agent counted as lost, and gaps of 10 s or more in the samples of a host (in a run of \
                 more than 85 minutes, of two 1024ths of it; shorter gaps are found only by chance).",
        remedy: "Daemons and disks are not known for that time. Check the agent's log, its disk, and events \
                 `agent-lost` and `spool-gap`.",
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
