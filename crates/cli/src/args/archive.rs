//! `archive`: runs beyond one machine, in a PostgreSQL server that many collectors share.

use super::RowFormat;
use super::db::DbFile;
use super::lists::ListArguments;
use super::values::{instant, run_name};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Copy ended runs of a database into an archive, also while a collector writes to the database
    #[command(after_help = PUSH_EXAMPLES)]
    Push(PushArguments),
    /// List the runs of an archive, newest first
    #[command(after_help = RUNS_EXAMPLES)]
    Runs(ArchiveRunsArguments),
    /// Copy runs of an archive into a database file, as they were; no collector may have the file open
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch(FetchArguments),
    /// Show which runs wait to be copied by a collector that has --archive, and why they cannot be
    #[command(after_help = QUEUE_EXAMPLES)]
    Queue(ListArguments),
    /// Make an archive, or bring it up to date, with the role that owns it
    #[command(after_help = PREPARE_EXAMPLES)]
    Prepare(PrepareArguments),
}

const PUSH_EXAMPLES: &str = "\
Examples:
  benchmesh archive push --to postgres://collector@db.lab/bench        all runs that have ended
  benchmesh archive push 12 nightly --to postgres://collector@db.lab/bench --password-file ~/.bench-password
  BENCHMESH_ARCHIVE_URL=postgres://collector@db.lab/bench benchmesh archive push --db benchmesh.db

A run that the archive has is skipped, one that has changed is replaced: the same command goes on after an interruption.
The server's certificate is verified unless the URL has another sslmode; sslrootcert=FILE names its authority.
Passwords: --password-file, PGPASSWORD, PGPASSFILE or ~/.pgpass, or a URL in BENCHMESH_ARCHIVE_URL.";

const RUNS_EXAMPLES: &str = "\
Examples:
  benchmesh archive runs --from postgres://me@db.lab/bench
  benchmesh archive runs nightly --site lab1 --tag pool=ssd --target cephfs --since 30d
  benchmesh archive runs --version 18.2 --format json       of any Ceph 18.2, or of benchmesh 18.2";

const FETCH_EXAMPLES: &str = "\
Examples:
  benchmesh archive fetch lab1:12 lab2:nightly --from postgres://me@db.lab/bench --db both.db
  benchmesh archive fetch lab1:12 --db run12.db && benchmesh report --db run12.db

RUN is a uid, an id or a name (the newest run of that name), with the site before it where several have one. FILE is \
made if it is not there; a run that it has is left alone.";

const QUEUE_EXAMPLES: &str = "\
Examples:
  benchmesh archive queue
  benchmesh archive queue --collector lab1:4750 --format json | jq .archive.waiting_runs";

const PREPARE_EXAMPLES: &str = "\
Example:
  benchmesh archive prepare --to postgres://owner@db.lab/bench

It makes the schema benchmesh and the roles benchmesh_writer and benchmesh_reader. A first push does the same if its \
role may; collectors with less rights need it done before: GRANT benchmesh_writer TO collector.";

#[derive(Debug, Args)]
pub struct PushArguments {
    /// Runs by id, uid or name [default: all that have ended]
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub runs: Vec<String>,
    /// The archive: postgres://USER@HOST/DATABASE [default: BENCHMESH_ARCHIVE_URL]
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    #[command(flatten)]
    pub login: ArchiveLogin,
    /// The name of this collector in the archive [default: the one it has there, else the host's name]
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    #[command(flatten)]
    pub file: DbFile,
}

#[derive(Debug, Args)]
pub struct ArchiveRunsArguments {
    /// Only runs with this text in their name, a note or the value of a tag
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    #[command(flatten)]
    pub source: ArchiveSource,
    /// Only runs of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only runs with this tag; may be given several times, then only runs with all of them
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// Only runs of this collector
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Only runs that measured this target; the name of a target or of its system
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Only runs with this version, or one that begins so: of a daemon, of a measured system's packages, or of
    /// benchmesh
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Only runs queued at this time or later: a date, or a span ago
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub since: Option<i64>,
    /// Only runs queued before this time
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub until: Option<i64>,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,
}

#[derive(Debug, Args)]
pub struct FetchArguments {
    /// Runs by uid, id or name, each with its site before it where needed: SITE:RUN
    #[arg(value_name = "RUN", required = true, value_parser = run_name)]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub source: ArchiveSource,
    /// The database file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
}

#[derive(Debug, Args)]
pub struct PrepareArguments {
    /// The archive: postgres://OWNER@HOST/DATABASE [default: BENCHMESH_ARCHIVE_URL]
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    #[command(flatten)]
    pub login: ArchiveLogin,
}

/// The archive that a command reads.
#[derive(Debug, Args)]
pub struct ArchiveSource {
    /// The archive: postgres://USER@HOST/DATABASE [default: BENCHMESH_ARCHIVE_URL]
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
    #[command(flatten)]
    pub login: ArchiveLogin,
}

#[derive(Debug, Args)]
pub struct ArchiveLogin {
    /// A file whose first line is the password
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
}
