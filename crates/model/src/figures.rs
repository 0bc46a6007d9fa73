//! The figures that are sampled from daemons, hosts, disks, interfaces and targets: one table for each kind of series.
//!
//! A figure's index in its table is its number on the wire: new figures go to the end, and none is ever removed or
//! moved. The tables define the rows of the sampler, the wire format, the checks and statements of the ingest, the
//! figures that a step stores of its daemons, and the places that show a figure ([`ShownIn`]). Each figure has its
//! column in `store/schema.sql`.

use std::fmt::Debug;

use InStep::{Amount, AtEnd, Most};
use ShownIn::{Live, Page, Reports};
use Unit::{Bytes, Count, Hundredths, Micros};

/// The value of a figure that was not read, or is not available.
pub const UNKNOWN: i64 = -1;

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The column in the database.
    pub name: &'static str,
    /// The column with its table: `daemon_samples.fds`.
    pub path: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    /// The figure may be NULL: not always read, not available on every kernel, or not permitted. Other figures always
    /// have a value.
    pub is_optional: bool,
    /// The aggregation stored in `step_daemons`.
    pub in_step: Option<InStep>,
    /// The meaning, as written in docs/database.md.
    pub meaning: &'static str,
    /// The meaning of its column in `step_daemons`.
    pub meaning_in_step: &'static str,
    /// Its label where it is shown; empty if it is only in its table.
    pub word: &'static str,
    /// Where it is shown, in addition to `v_daemon_usage`, which has every figure with a label that steps store.
    pub shown: &'static [ShownIn],
    /// Its name in `/metrics`, if different.
    pub metric: Option<&'static str>,
}

/// Where a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownIn {
    /// A separate column in the table of the daemons of a run.
    Reports,
    /// A column of the live page.
    Page,
    /// `/metrics` and the page's JSON, with the newest value.
    Live,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Micros,
    Count,
    /// Hundredths on the wire, a fraction in the database.
    Hundredths,
}

impl Unit {
    /// The unit as written in the documentation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Micros => "us",
            Self::Count | Self::Hundredths => "",
        }
    }
}

/// The behaviour of a value over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cumulative.
    Counter,
    Gauge,
}

/// How a step's samples are aggregated into one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InStep {
    /// The increase of a counter.
    Amount,
    /// The value at the step's end.
    AtEnd,
    /// The largest value.
    Most,
}

impl Figure {
    const fn of(kind: Kind, unit: Unit, meaning: &'static str) -> Self {
        Self {
            name: "",
            path: "",
            unit,
            kind,
            is_optional: false,
            in_step: None,
            meaning,
            meaning_in_step: "",
            word: "",
            shown: &[],
            metric: None,
        }
    }

    const fn named(mut self, name: &'static str, path: &'static str) -> Self {
        self.name = name;
        self.path = path;
        self
    }

    const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    const fn in_step(mut self, in_step: InStep, meaning: &'static str) -> Self {
        self.in_step = Some(in_step);
        self.meaning_in_step = meaning;
        self
    }

    const fn shown(mut self, word: &'static str, shown: &'static [ShownIn]) -> Self {
        self.word = word;
        self.shown = shown;
        self
    }

    const fn metric(mut self, metric: &'static str) -> Self {
        self.metric = Some(metric);
        self
    }

    /// Its column in `v_daemon_usage`, and the divisor of that column's unit; `None` if the view does not have it.
    #[must_use]
    pub fn column_of_step(&self) -> Option<(String, Option<&'static str>)> {
        self.in_step.filter(|_| !self.word.is_empty())?;
        let word = self.word;
        Some(match self.unit {
            Bytes => (format!("{word}_mib"), Some("1048576.0")),
            Micros => (format!("{word}_s"), Some("1e6")),
            Count | Hundredths => (word.to_owned(), None),
        })
    }

    /// The title of that column in a report.
    #[must_use]
    pub fn title_of_step(&self) -> String {
        match self.unit {
            Bytes => format!("{} MiB", self.word),
            Micros => format!("{} s", self.word),
            Count | Hundredths => self.word.to_owned(),
        }
    }

    /// The key of its newest value in JSON, which is a rate for a counter.
    #[must_use]
    pub fn live_key(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_per_s", self.name),
            Kind::Gauge => self.name.to_owned(),
        }
    }

    /// A value in its displayed form; times in seconds.
    #[must_use]
    pub fn scaled(&self, value: f64) -> f64 {
        match self.unit {
            Micros => value / 1e6,
            Hundredths => value / 100.0,
            Bytes | Count => value,
        }
    }

    /// Its name in `/metrics`, without the prefix for the kind of series.
    #[must_use]
    pub fn metric_name(&self) -> String {
        let mut name = self.metric.unwrap_or(self.name).to_owned();
        if self.unit == Micros {
            name = name.trim_end_matches("_us").to_owned() + "_seconds";
        }
        if self.kind == Kind::Counter {
            name.push_str("_total");
        }
        name
    }
}

/// The figures shown in this place, with their indices in the table.
pub fn shown_in<F: Figures>(place: ShownIn) -> impl Iterator<Item = (usize, &'static Figure)> {
    let all = F::ALL.iter().enumerate();
    all.filter(move |(_, figure)| figure.shown.contains(&place))
}

const fn counter(unit: Unit, meaning: &'static str) -> Figure {
    Figure::of(Kind::Counter, unit, meaning)
}

const fn gauge(unit: Unit, meaning: &'static str) -> Figure {
    Figure::of(Kind::Gauge, unit, meaning)
}

/// The figures of one kind of series, as in one sample: [`UNKNOWN`] where a value is missing.
pub trait Figures: Copy + Debug + PartialEq + Send + Sync + 'static {
    /// One value for each figure.
    type Values: AsRef<[i64]> + IntoIterator<Item = i64>;
    /// The table in the database.
    const TABLE: &'static str;
    /// All figures, in the order of the wire.
    const ALL: &'static [Figure];
    /// A sample in which no figure is known.
    const UNREAD: Self;

    /// The values in the order of [`Self::ALL`].
    fn values(&self) -> Self::Values;

    /// Takes values in that order. Missing values are [`UNKNOWN`]; those of later versions are ignored.
    fn from_values(values: impl IntoIterator<Item = i64>) -> Self;
}

/// The values of all rows, as one column per figure.
pub fn columns<F: Figures>(rows: impl ExactSizeIterator<Item = F>) -> Vec<Vec<i64>> {
    let column = |_| Vec::with_capacity(rows.len());
    let mut columns: Vec<Vec<i64>> = F::ALL.iter().map(column).collect();
    for row in rows {
        for (column, value) in columns.iter_mut().zip(row.values()) {
            column.push(value);
        }
    }
    columns
}

/// Declares a table of figures: a struct with a field for each, and the facts about each.
macro_rules! figures {
    ($(#[$about:meta])* $name:ident, $table:literal, $($figure:ident: $facts:expr,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $(pub $figure: i64,)*
        }

        impl Figures for $name {
            type Values = [i64; Self::ALL.len()];
            const TABLE: &'static str = $table;
            const ALL: &'static [Figure] = &[
                $($facts.named(stringify!($figure), concat!($table, ".", stringify!($figure))),)*
            ];
            const UNREAD: Self = Self { $($figure: UNKNOWN,)* };

            fn values(&self) -> Self::Values {
                [$(self.$figure),*]
            }

            fn from_values(values: impl IntoIterator<Item = i64>) -> Self {
                let mut values = values.into_iter();
                Self { $($figure: values.next().unwrap_or(UNKNOWN),)* }
            }
        }
    };
}

figures! {
    /// Of a daemon.
    DaemonFigures, "daemon_samples",
    cpu_user_us: counter(Micros, "CPU time in user mode, cumulative"),
    cpu_system_us: counter(Micros, "CPU time in the kernel, cumulative"),
    rss_bytes: gauge(Bytes, "resident memory").shown("memory", &[Page, Live]).metric("resident_memory_bytes"),
    vsz_bytes: gauge(Bytes, "virtual memory").in_step(Most, "maximum of virtual memory").shown("vsz", &[]),
    threads: gauge(Count, "threads, see below")
        .optional()
        .in_step(AtEnd, "at the end; NULL when not read then")
        .shown("threads", &[Page, Live]),
    fds: gauge(Count, "open files, see below; NULL when not permitted to be read")
        .optional()
        .in_step(AtEnd, "open files at the end; NULL when not permitted to be read")
        .shown("fds", &[Live]),
    read_bytes: counter(Bytes, "read from storage, cumulative; NULL when not permitted to be read")
        .optional()
        .in_step(Amount, "read from storage; NULL when not permitted to be read")
        .shown("read", &[Page, Live]),
    write_bytes: counter(Bytes, "written to storage, cumulative; NULL when not permitted to be read")
        .optional()
        .in_step(Amount, "written to storage; NULL when not permitted to be read")
        .shown("written", &[Page, Live]),
    vol_ctx: counter(Count,
        "voluntary context switches of the live threads, cumulative; NULL when not permitted to be read",
    )
    .optional()
    .in_step(Amount, "voluntary context switches; NULL when not permitted to be read"),
    invol_ctx: counter(Count, "involuntary context switches, likewise")
        .optional()
        .in_step(Amount, "involuntary context switches, likewise"),
    minor_faults: counter(Count, "page faults without I/O, cumulative, see below")
        .optional()
        .in_step(Amount, "page faults without I/O"),
    major_faults: counter(Count, "page faults with I/O, cumulative, see below")
        .optional()
        .in_step(Amount, "page faults with I/O"),
    rss_peak_bytes: gauge(Bytes,
        "maximum resident memory since its start (`VmHWM`); NULL: not read; only the samples at a step's start and end \
         read it",
    )
    .optional(),
    swap_bytes: gauge(Bytes, "swapped out (`VmSwap`); read with `rss_peak_bytes`")
        .optional()
        .in_step(AtEnd, "swapped out at the end; NULL when not read then")
        .shown("swap", &[Reports, Page, Live]),
}

figures! {
    /// Of a host.
    HostFigures, "host_samples",
    user_us: counter(Micros, "in user mode"),
    nice_us: counter(Micros, "in user mode at low priority"),
    system_us: counter(Micros, "in the kernel"),
    idle_us: counter(Micros, "idle"),
    iowait_us: counter(Micros, "idle with I/O under way"),
    irq_us: counter(Micros, "in interrupts"),
    softirq_us: counter(Micros, "in soft interrupts"),
    steal_us: counter(Micros, "taken by the hypervisor"),
    memory_total_bytes: gauge(Bytes, "memory").shown("memory", &[Live]),
    memory_available_bytes: gauge(Bytes, "available without swapping").shown("available", &[Page, Live]),
    memory_free_bytes: gauge(Bytes, "unused"),
    cached_bytes: gauge(Bytes, "page cache"),
    dirty_bytes: gauge(Bytes, "waiting to be written"),
    writeback_bytes: gauge(Bytes, "being written"),
    swap_used_bytes: gauge(Bytes, "swapped out"),
    load1: gauge(Hundredths, "load average over a minute").shown("load", &[Live]),
    cpu_some_us: counter(Micros,
        "time in which some task waited for a CPU, cumulative; this and the next four are NULL if the kernel does not \
         count them",
    )
    .optional(),
    io_some_us: counter(Micros, "some task waited for I/O").optional(),
    io_full_us: counter(Micros, "all tasks waited for I/O").optional(),
    memory_some_us: counter(Micros, "some task waited for memory").optional(),
    memory_full_us: counter(Micros, "all tasks waited for memory").optional(),
    skipped_ticks: counter(Count,
        "samples that the agent's sampler has missed since it started, because it was late by a whole period",
    ),
    sampler_cpu_us: counter(Micros, "CPU time of the sampler itself since it started, cumulative"),
}

figures! {
    /// Of a disk.
    DiskFigures, "disk_samples",
    reads: counter(Count, "reads completed"),
    read_bytes: counter(Bytes, "read"),
    read_us: counter(Micros, "spent reading, summed over requests"),
    writes: counter(Count, "writes completed"),
    write_bytes: counter(Bytes, "written"),
    write_us: counter(Micros, "spent writing, summed over requests"),
    in_flight: gauge(Count, "requests under way"),
    busy_us: counter(Micros, "time with any request under way"),
    queue_us: counter(Micros, "time under way, summed over requests"),
    discards: counter(Count, "discards completed"),
    flushes: counter(Count, "flushes completed"),
}

figures! {
    /// Of a network interface.
    NetFigures, "net_samples",
    rx_bytes: counter(Bytes, "received"),
    rx_packets: counter(Count, "received"),
    rx_errors: counter(Count, "received in error"),
    rx_dropped: counter(Count, "received and dropped"),
    tx_bytes: counter(Bytes, "sent"),
    tx_packets: counter(Count, "sent"),
    tx_errors: counter(Count, "not sent because of an error"),
    tx_dropped: counter(Count, "dropped before they were sent"),
}

figures! {
    /// Of a target under load.
    TargetFigures, "target_samples",
    size_bytes: gauge(Bytes, "total size, without the space reserved for root"),
    free_bytes: gauge(Bytes, "free part of that size"),
    files: gauge(Count, "inodes in total; NULL: it has no limit, or does not report it").optional(),
    free_files: gauge(Count, "free inodes; NULL likewise").optional(),
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_in_the_order_of_the_table() {
        let row = NetFigures {
            rx_bytes: 0,
            tx_bytes: 7,
            ..NetFigures::UNREAD
        };
        assert_eq!(row.values(), [0, -1, -1, -1, 7, -1, -1, -1]);
        assert_eq!(NetFigures::from_values([0, -1, -1, -1, 7]), row);
        let of_later = row.values().into_iter().chain([9, 9]);
        assert_eq!(NetFigures::from_values(of_later), row);
    }

    #[test]
    fn a_name_tells_the_unit_and_comes_once() {
        fn check<F: Figures>() {
            for (place, figure) in F::ALL.iter().enumerate() {
                assert_eq!(figure.name.ends_with("_bytes"), figure.unit == Bytes);
                assert_eq!(figure.name.ends_with("_us"), figure.unit == Micros);
                let same = F::ALL.iter().position(|other| other.name == figure.name);
                assert_eq!(same, Some(place), "{}", figure.name);
            }
        }
        check::<DaemonFigures>();
        check::<HostFigures>();
        check::<DiskFigures>();
        check::<NetFigures>();
        check::<TargetFigures>();
    }
}
