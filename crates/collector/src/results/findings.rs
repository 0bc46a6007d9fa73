//! The kinds of anomalies of a run, in one table.
//!
//! `crate::findings` computes them; reports, the database and docs/findings.md take their texts from here.

use crate::model::{FindingVerdict, Severity};
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
        meaning: "the rate or the p99 of an operation goes up or down over a step",
        judged: "The slope of the logarithm of rate and p99 of each operation of each step of 300 s or more, by up to \
                 128 points spread over it. Found where it is shown at 1 % for all operations of the run together, \
                 with autocorrelation allowed for, is at least 2 % of the rate or 10 % of the p99 over the step, and \
                 the last tenth of the step differs from the first in the same direction. The p99 of a point is the \
                 mean of its seconds'.",
        remedy: "Compare with what daemons and disks did over the same time (fragmentation, compaction, a filling \
                 cache, a device that throttles); leave such a step's start out of results with `ramp`.",
    }
    Outage = "outage" {
        meaning: "a load stood still for seconds",
        judged: "Seconds below 5 % of a step's usual rate (the median of up to 128 points; at least 20 operations per \
                 second), over all operations of a group and all clients, while all clients were active. Found where there \
                 were three or more of them, or two in a row. It is over at the end of the last second below half of \
                 the usual rate, within 30 s after the longest gap.",
        remedy: "Look at marks and events of the same time: a daemon that died, a link that was cut, a stall. The \
                 SQL lists the seconds around the longest gap.",
    }
    Outlier = "outlier" {
        meaning: "one daemon or client is unlike its equals",
        judged: "CPU time of the daemons of one name in each step of 30 s or more, and the rate of each client's tasks in \
                 each step of 10 s or more, against the median of the others: at least twice the CPU time and 20 % of a \
                 CPU more, or at most 0.7 of the rate, and four times their scatter away. Of up to five it must be \
                 so against each of the others; of three, it takes three times the CPU time or half of the rate. \
                 Found where it is so in half of the steps that have it. Steps between pairs of hosts (`network`) are not judged.",
        remedy: "Look for an uneven distribution of data (`ceph osd df`, brick sizes), a slower disk or link, or a \
                 leader among equals.",
    }
}

/// One anomaly, or a sentence on a judged kind without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: String,
    pub verdict: String,
    pub severity: String,
    /// The name of its subject.
    pub subject: String,
    /// The anomalous figure: `rss_bytes`, `threads`, `fds`, `ops_per_s`, `p99_ms`, `cpu_percent`.
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
    /// Corrected for all that was judged together.
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

    /// Whether it is an anomaly and not a sentence on a judged kind.
    pub fn is_found(&self) -> bool {
        self.verdict == FindingVerdict::Found.as_str()
    }
}

#[cfg(test)]
mod reference;
