//! `import`: the logs, and facts that the logs do not contain.

use super::{ListFormat, QuerySource};
use benchmesh_results::import::Tool;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

pub const IMPORT_EXAMPLES: &str = "\
Examples:
  fio --output-format=json --output=fio.json job.fio
  benchmesh import fio.json --target cephfs
  benchmesh import --repeats a.json b.json c.json --name records --target gluster
  dd if=/dev/zero of=/mnt/x bs=1M count=1000 oflag=direct 2> dd.log
  benchmesh import dd.log --mode write

Then: benchmesh compare RUN RUN. A truncated log is refused; the error names the line.";

/// The tool that wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToolName {
    Fio,
    #[value(name = "bonnie++")]
    Bonnie,
    Rados,
    Dd,
    Iozone,
    Elbencho,
    Iperf3,
    Time,
}

impl From<ToolName> for Tool {
    fn from(name: ToolName) -> Self {
        match name {
            ToolName::Fio => Self::Fio,
            ToolName::Bonnie => Self::Bonnie,
            ToolName::Rados => Self::Rados,
            ToolName::Dd => Self::Dd,
            ToolName::Iozone => Self::Iozone,
            ToolName::Elbencho => Self::Elbencho,
            ToolName::Iperf3 => Self::Iperf3,
            ToolName::Time => Self::Time,
        }
    }
}

/// The direction in which dd, or a timed cp, moved the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Output of fio (JSON), iozone, bonnie++ (its CSV line), elbencho (CSV), iperf3 (JSON), rados bench, dd, the
    /// shell's time
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Import the files as repeats of one run, instead of one run per file
    #[arg(long)]
    pub repeats: bool,
    /// The run's name [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The name of the storage under test
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// The storage system of the target [default: the target's name]
    #[arg(long, value_name = "NAME")]
    pub system: Option<String>,
    /// The tool that wrote the output [default: detected from the text]
    #[arg(long, value_enum)]
    pub tool: Option<ToolName>,
    /// Whether dd or `time cp` read or wrote; their output does not contain it
    #[arg(long, value_enum, default_value = "write")]
    pub mode: Direction,
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}
