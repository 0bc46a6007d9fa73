//! `benchmesh measure`: directories measured in turns and compared.

use super::values::{address, size, span};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

pub const MEASURE_EXAMPLES: &str = "\
Examples:
  benchmesh measure /mnt/new                          one directory
  benchmesh measure /mnt/old /mnt/new                 which is faster, and by how much
  benchmesh measure /mnt/old /mnt/new --loads rand-4k --time 1m
  benchmesh measure /mnt/old /mnt/new --quick         a quarter of the time
  benchmesh measure /mnt/a /mnt/b --collector central:4750   on the clients of a mesh
  benchmesh measure /mnt/a /mnt/b --print-plan > plan.toml   to change it: benchmesh run plan.toml

Everything runs on this machine and is removed at the end: no plan, no collector and no token is needed. It \
works in a directory of its own in each DIR; other files there are not touched. The loads bypass the client's \
cache, or are flushed to stable storage where that is not possible. A second measure of the same directories \
also shows what has changed since the last one.

Ctrl-C ends the measurement and shows what there is so far. Exit code 3 if it is incomplete.";

/// A load, as users name it. The order is that of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Load {
    /// Create, stat, read and delete files of 4 KiB
    SmallFiles,
    /// Write and read blocks of 4 KiB in random order
    #[value(name = "rand-4k")]
    Rand4k,
    /// Write and read blocks of 1 MiB, one after the other
    #[value(name = "seq-1m")]
    Seq1m,
    /// Copy files into the directory and out of it
    Copy,
}

#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// The directories to measure
    #[arg(value_name = "DIR", required = true, num_args = 1.., value_hint = ValueHint::DirPath)]
    pub directories: Vec<PathBuf>,
    /// About this time for each directory: a loop that has begun is finished. The measurement ends earlier if its
    /// intervals are narrow
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = span)]
    pub time: Duration,
    /// A quarter of the time
    #[arg(long)]
    pub quick: bool,
    /// Only these loads
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub loads: Vec<Load>,
    /// Number of clients that work at the same time [default: 1; with --collector, all that can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub clients: Option<u32>,
    /// Amount of data of each load and client, instead of one that suits the directories
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Keep the results in this database
    /// [default: measure.db in $XDG_STATE_HOME/benchmesh, as root in /var/lib/benchmesh]
    #[arg(long, value_name = "FILE", conflicts_with = "collector", value_hint = ValueHint::FilePath)]
    pub keep_db: Option<PathBuf>,
    /// Measure on the clients of this collector's mesh, where the directories must exist
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub collector: Option<String>,
    /// Print the plan and do not run it
    #[arg(long)]
    pub print_plan: bool,
}
