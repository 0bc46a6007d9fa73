//! `db`: maintenance of database files.

use super::CollectorAddress;
use super::values::{label, run_name, span};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_DB: &str = "benchmesh.db";

#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Look for damage; a collector may be writing to the file
    #[command(after_help = "Example:\n  benchmesh db check --db benchmesh.db")]
    Check(DbFile),
    /// Copy a database, compacted, into a new file; a collector may be writing to it
    #[command(
        after_help = "Example:\n  benchmesh db backup /backup/benchmesh.db --db benchmesh.db"
    )]
    Backup(BackupArguments),
    /// Merge all runs of another database, with its agents, hosts and samples; no collector may have either open
    #[command(
        after_help = "Example:\n  benchmesh db merge lab2.db --db benchmesh.db\n\nA run that both have is refused, and nothing is changed."
    )]
    Merge(MergeArguments),
    /// Remove an ended run with everything that belongs only to it; no collector may have the file open
    #[command(after_help = "Example:\n  benchmesh db delete 12 --db benchmesh.db")]
    Delete(DeleteArguments),
    /// Merge or delete rows of seconds of old runs now, while the collector runs
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(PruneArguments),
    /// Write tables and views as CSV or JSON lines; a collector may be writing to the file
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArguments),
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  benchmesh db export --out everything --format jsonl     a file per table and view, of all runs
  benchmesh db export 12 --out run12                      of run 12 alone: its rows, and the samples of its hosts in its time
  benchmesh db export 12 --table v_results                one table on the standard output

The directory has its name only once everything is in it.";

const PRUNE_EXAMPLES: &str = "\
Examples:
  benchmesh db prune --older 30d --dry-run                how many runs and steps it concerns
  benchmesh db prune --older 30d                          merge their rows of seconds into rows of 60 s
  benchmesh db prune --older 90d --to nothing             delete them
  benchmesh db prune --older 30d --keep tag=release       but for runs that were tagged `tag=release`
  benchmesh db prune --older 30d --db old.db              in a file that no collector has open

Only rows of seconds are merged or deleted: intervals of operations and samples. Results, what daemons used
in steps, events, marks, notes and findings stay. Ctrl-C ends it at any time; what was done is whole, and the
same command goes on. The collector does the same by itself: `benchmesh collector --help`, Retention.";

/// What becomes of rows of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PruneTo {
    /// Rows of 10 s
    #[value(name = "10s")]
    TenSeconds,
    /// Rows of 60 s
    #[default]
    #[value(name = "60s")]
    Minute,
    /// They are deleted
    Nothing,
}

#[derive(Debug, Args)]
pub struct PruneArguments {
    /// How long ago a run has ended at least
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub older: Duration,
    /// What becomes of the rows
    #[arg(long, value_enum, default_value_t)]
    pub to: PruneTo,
    /// Leave runs with this tag alone; may be given several times
    #[arg(long, value_name = "K=V", value_parser = label)]
    pub keep: Vec<(String, String)>,
    /// Only say what it concerns
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// A database file that no collector has open [default: ask the collector]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub db: Option<PathBuf>,
}

/// File format of exported rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    #[default]
    Csv,
    /// A JSON object per line
    Jsonl,
    /// Refused, with a hint at the right command
    #[value(hide = true)]
    Parquet,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The run's id, uid or name [default: all runs]
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: Option<String>,
    /// A new directory, with a file per table
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath, required_unless_present = "table")]
    pub out: Option<PathBuf>,
    /// A table or view; several times [default: all]
    #[arg(long, value_name = "NAME")]
    pub table: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    #[command(flatten)]
    pub file: DbFile,
}

#[derive(Debug, Args)]
pub struct DbFile {
    /// The database file
    #[arg(long, value_name = "FILE", env = "BENCHMESH_DB", default_value = DEFAULT_DB, value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
}

#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The copy; it must not exist yet
    #[arg(value_name = "COPY", value_hint = ValueHint::FilePath)]
    pub copy: PathBuf,
    #[command(flatten)]
    pub file: DbFile,
}

#[derive(Debug, Args)]
pub struct MergeArguments {
    /// The database to merge from
    #[arg(value_name = "OTHER", value_hint = ValueHint::FilePath)]
    pub other: PathBuf,
    #[command(flatten)]
    pub file: DbFile,
}

#[derive(Debug, Args)]
pub struct DeleteArguments {
    /// The run's id, uid or name
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: String,
    #[command(flatten)]
    pub file: DbFile,
}
