//! `db`: maintenance of database files.

use super::CollectorAddress;
use super::values::{label, run_name, span};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_DB: &str = "benchmesh.db";

#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Check a database for damage, also while a collector writes to it
    #[command(after_help = "Example:\n  benchmesh db check --db benchmesh.db")]
    Check(DbFile),
    /// Copy a database, compacted, into a new file, also while a collector writes to it
    #[command(
        after_help = "Example:\n  benchmesh db backup /backup/benchmesh.db --db benchmesh.db"
    )]
    Backup(BackupArguments),
    /// Merge all runs of another database, with its agents, hosts and samples; no collector may have either file open
    #[command(
        after_help = "Example:\n  benchmesh db merge lab2.db --db benchmesh.db\n\n\
                      If both databases have the same run, the merge is refused and changes nothing."
    )]
    Merge(MergeArguments),
    /// Remove an ended run with everything that belongs only to it; no collector may have the file open
    #[command(after_help = "Example:\n  benchmesh db delete 12 --db benchmesh.db")]
    Delete(DeleteArguments),
    /// Merge or delete rows of seconds of old runs now, while the collector runs
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(PruneArguments),
    /// Write tables and views as CSV or JSON lines, or runs as Parquet files, also while a collector writes
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArguments),
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  benchmesh db export --out everything --format jsonl     a file per table and view, of all runs
  benchmesh db export 12 --out run12                      only run 12: its rows, and samples of its hosts during the run
  benchmesh db export 12 --table v_results                one table to standard output
  benchmesh db export --format parquet --out /data/mesh --site lab1     add all new runs to a directory of Parquet files

The directory of CSV or JSON lines must be new, and gets its final name only when the export is complete. A directory of
Parquet files grows with each export: what is there and has not changed is not written again, and what an interrupted
export has left out is completed. It may have the runs of many databases, each under a --site of its own.";

const PRUNE_EXAMPLES: &str = "\
Examples:
  benchmesh db prune --older 30d --dry-run                show how many runs and steps are affected
  benchmesh db prune --older 30d                          merge their rows of seconds into rows of 60 s
  benchmesh db prune --older 90d --to nothing             delete them
  benchmesh db prune --older 30d --keep tag=release       except runs tagged `tag=release`
  benchmesh db prune --older 30d --db old.db              in a file that no collector has open

It merges or deletes only rows of seconds: intervals of operations and samples. Results, daemon usage per step,
events, marks, notes and findings stay. Ctrl-C stops it at any time and leaves the database consistent; the
same command continues. The collector also prunes by itself: see Retention in `benchmesh collector --help`.";

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
    /// Delete the rows
    Nothing,
}

#[derive(Debug, Args)]
pub struct PruneArguments {
    /// Only runs that ended at least this long ago
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub older: Duration,
    /// Merge rows into longer ones, or delete them
    #[arg(long, value_enum, default_value_t)]
    pub to: PruneTo,
    /// Skip runs with this tag; may be given several times
    #[arg(long, value_name = "K=V", value_parser = label)]
    pub keep: Vec<(String, String)>,
    /// Only show what would be pruned
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
    /// A file per run and table, for DuckDB, pandas, Spark, Trino and ClickHouse: tables only
    Parquet,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The run's id, uid or name [default: all runs]
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: Option<String>,
    /// A new directory, with a file per table; for Parquet also one of earlier exports
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath, required_unless_present = "table")]
    pub out: Option<PathBuf>,
    /// A table or view; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    pub table: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    /// Of Parquet files: the name of this database's runs, `site` in queries [default: the uid of its mesh]
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
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
    /// Path of the copy; it must not exist yet
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
