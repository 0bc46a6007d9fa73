//! `db`: maintenance of database files.

use super::values::run_name;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;

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
