//! The command line: every command, option and default, and the examples that `--help` shows.
//!
//! Declarations only; what a command does is in `command`. A rule that clap can check is declared here, so that wrong
//! usage is refused before anything is opened.

pub mod daemons;
pub mod values;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use daemons::{AgentArguments, CollectorArguments, QuickstartArguments};
use std::path::PathBuf;
use std::time::Duration;
use values::{DEFAULT_COLLECTOR, address, override_, span};

/// Measures distributed storage: synchronised load on many hosts, every daemon sampled, one SQLite database.
#[derive(Debug, Parser)]
#[command(
    name = "benchmesh",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "\
Start here:
  benchmesh quickstart                 a collector, three agents and 20 s of load on this machine

On a mesh:
  benchmesh collector                  in the centre
  benchmesh agent --allow /mnt/target  on every node, with --collector HOST:4750
  benchmesh run plan.toml              measures, and prints the report
  benchmesh query 'SELECT * FROM v_results'

Exit codes: 0 done, 1 failed, 2 wrong usage or plan, 3 done but partial.
Environment: BENCHMESH_COLLECTOR, BENCHMESH_DB, and BENCHMESH_LOG (error, warn, info, debug or
trace; by default warn for commands, info for the collector and agents)."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Try it: a collector, three agents and 20 s of load on this machine, and the results
    #[command(after_help = daemons::QUICKSTART_EXAMPLES)]
    Quickstart(QuickstartArguments),
    /// Run the collector: the centre that agents dial, with the one database
    #[command(after_help = daemons::COLLECTOR_EXAMPLES)]
    Collector(CollectorArguments),
    /// Run an agent: on every storage node and every client
    #[command(after_help = daemons::AGENT_EXAMPLES)]
    Agent(AgentArguments),
    /// Execute a plan on the mesh, watch it, and print its report
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArguments),
    /// Check a plan, or show the steps that it expands into
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Plan(PlanCommand),
    /// List the agents that the collector knows
    #[command(after_help = "Example:\n  benchmesh agents --collector central:4750")]
    Agents(ListArguments),
    /// List the runs, the newest first
    #[command(after_help = "Example:\n  benchmesh runs --limit 5 --format json")]
    Runs(RunsArguments),
    /// Watch a run until it ends; the newest when none is named
    #[command(
        after_help = "Examples:\n  benchmesh watch\n  benchmesh watch 12\n\nCtrl-C stops watching, not the run: that is `benchmesh stop RUN`."
    )]
    Watch(WatchArguments),
    /// Stop a run cleanly and keep its data
    #[command(
        after_help = "Examples:\n  benchmesh stop 12\n  benchmesh stop nightly --reason 'the array is needed'"
    )]
    Stop(StopArguments),
    /// Print the report of a run
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArguments),
    /// Ask the database in SQL; nothing is ever changed
    #[command(after_help = QUERY_EXAMPLES)]
    Query(QueryArguments),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  benchmesh completions bash > /etc/bash_completion.d/benchmesh"
    )]
    Completions(CompletionsArguments),
}

const RUN_EXAMPLES: &str = "\
Examples:
  benchmesh run plan.toml
  benchmesh run plan.toml --agents 8 --set repeat=3 --set phase.records.runtime=60s
  benchmesh run plan.toml --dry-run          what would be done, step by step
  benchmesh run plan.toml --detach           then: benchmesh watch

Ctrl-C stops the run cleanly and keeps its data; a second Ctrl-C leaves at once.";

const REPORT_EXAMPLES: &str = "\
Examples:
  benchmesh report last
  benchmesh report 12 --format csv --out results.csv
  benchmesh report nightly --db archive.db --format json | jq .steps

Without --db or --collector it asks BENCHMESH_DB, then BENCHMESH_COLLECTOR, then ./benchmesh.db if
it is there, then the collector on this machine.";

const QUERY_EXAMPLES: &str = "\
Examples:
  benchmesh query 'SELECT phase, mode, op, ops_per_s, p99_ms FROM v_results'
  benchmesh query --db archive.db --format csv 'SELECT * FROM v_daemon_usage' > usage.csv
  benchmesh query \"SELECT name FROM sqlite_schema WHERE type = 'view'\"

One statement that reads; a live database answers too. Blobs are shown as hex, NULL as nothing
(null in JSON).
Without --db or --collector it asks BENCHMESH_DB, then BENCHMESH_COLLECTOR, then ./benchmesh.db if
it is there, then the collector on this machine.";

/// How a report is written: for people, for a wiki, a row per step and operation, or everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    #[default]
    Table,
    Markdown,
    Csv,
    Json,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    #[default]
    Table,
    Csv,
    Json,
}

/// How a short answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    #[default]
    Table,
    Json,
}

/// The collector that a command speaks to.
#[derive(Debug, Args)]
pub struct CollectorAddress {
    /// Where the collector listens
    #[arg(long, value_name = "HOST:PORT", env = "BENCHMESH_COLLECTOR", default_value = DEFAULT_COLLECTOR, value_parser = address)]
    pub collector: String,
}

/// A database file or a collector to ask. The environment is looked at later, because a flag for one wins over an
/// environment variable for the other.
#[derive(Debug, Args)]
pub struct Source {
    /// The database file to ask
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "collector")]
    pub db: Option<PathBuf>,
    /// The collector to ask
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub collector: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// The plan file; - reads standard input
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Override a value of the plan, e.g. repeat=3
    #[arg(long, value_name = "K=V", value_parser = override_)]
    pub set: Vec<String>,
    /// Wait until so many agents have attached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub agents: Option<u32>,
    /// How long to wait for --agents
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = span)]
    pub agents_wait: Duration,
    /// Start the run and leave; its id goes to standard output
    #[arg(long)]
    pub detach: bool,
    /// Show the steps that would be done, and do nothing
    #[arg(long, conflicts_with = "detach")]
    pub dry_run: bool,
    /// How the report at the end is written
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Check a plan without a collector: every mistake at once, with its line and a remedy
    #[command(
        after_help = "Examples:\n  benchmesh plan check plan.toml\n  benchmesh plan check plan.toml --set repeat=3"
    )]
    Check(PlanCheckArguments),
    /// Show the steps that a plan expands into, with bytes, files and time to expect
    #[command(
        after_help = "Examples:\n  benchmesh plan show plan.toml                        on the agents of the collector\n  benchmesh plan show plan.toml --agents 3             on three assumed agents, offline"
    )]
    Show(PlanShowArguments),
}

#[derive(Debug, Args)]
pub struct PlanCheckArguments {
    /// The plan file; - reads standard input
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Override a value of the plan, e.g. repeat=3
    #[arg(long, value_name = "K=V", value_parser = override_)]
    pub set: Vec<String>,
    /// How the answer is written
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct PlanShowArguments {
    #[command(flatten)]
    pub plan: PlanCheckArguments,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Assume so many agents that allow everything, and ask no collector
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub agents: Option<u32>,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// How the list is written
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct RunsArguments {
    #[command(flatten)]
    pub list: ListArguments,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The run's id, uid or name; the newest when left out
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    #[command(flatten)]
    pub collector: CollectorAddress,
}

#[derive(Debug, Args)]
pub struct StopArguments {
    /// The run's id, uid or name
    #[arg(value_name = "RUN")]
    pub run: String,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Why; kept with the run
    #[arg(long, value_name = "TEXT", default_value = "asked to stop")]
    pub reason: String,
    /// How the answer is written
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The run's id, uid or name, or `last`
    #[arg(value_name = "RUN")]
    pub run: String,
    #[command(flatten)]
    pub source: Source,
    /// How the report is written
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct QueryArguments {
    /// One SQL statement that reads; - reads it from standard input
    #[arg(value_name = "SQL", allow_hyphen_values = true)]
    pub sql: String,
    #[command(flatten)]
    pub source: Source,
    /// How the rows are written
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,
    /// Give up after so long, on a file; a collector has its own limit
    #[arg(long, value_name = "SPAN", default_value = "10m", value_parser = span)]
    pub time_limit: Duration,
}

#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell to complete in
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

impl Command {
    /// Whether whoever reads standard output expects one JSON document, whatever goes wrong.
    pub fn answers_in_json(&self) -> bool {
        match self {
            Self::Run(run) => run.format == ReportFormat::Json,
            Self::Plan(PlanCommand::Check(plan)) => plan.format == ListFormat::Json,
            Self::Plan(PlanCommand::Show(show)) => show.plan.format == ListFormat::Json,
            Self::Agents(list) => list.format == ListFormat::Json,
            Self::Runs(runs) => runs.list.format == ListFormat::Json,
            Self::Stop(stop) => stop.format == ListFormat::Json,
            Self::Report(report) => report.format == ReportFormat::Json && report.out.is_none(),
            Self::Query(query) => query.format == RowFormat::Json,
            Self::Quickstart(_)
            | Self::Collector(_)
            | Self::Agent(_)
            | Self::Watch(_)
            | Self::Completions(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
