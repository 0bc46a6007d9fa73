//! The command line: every command, option and default, and the examples that `--help` shows.
//!
//! Declarations only; `command` implements the commands. A rule that clap can check is declared here, so that wrong
//! usage is refused before anything is opened.

pub mod archive;
pub mod compare;
pub mod daemons;
pub mod db;
pub mod definition;
pub mod import;
pub mod limits;
pub mod lists;
pub mod measure;
pub mod plan;
pub mod targets;
pub mod values;

use archive::ArchiveCommand;
use benchmesh_model::targets::Locator;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use compare::{CompareArguments, MarkArguments, NoteArguments, TagArguments};
use daemons::{
    AgentCommand, CollectorArguments, DoctorArguments, JoinArguments, QuickstartArguments,
};
use db::DbCommand;
use import::ImportArguments;
use lists::{AgentsArguments, DataArguments, RunsArguments};
use measure::MeasureArguments;
use plan::PlanCommand;
use std::path::PathBuf;
use std::time::Duration;
use values::{DEFAULT_COLLECTOR, address, begin_at, override_, run_name, span, target};

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
  benchmesh measure /mnt/a /mnt/b      which directory is faster, and by how much
  benchmesh quickstart                 a collector, three agents and 30 s of load on this machine

On a mesh:
  benchmesh collector                  on one central host
  benchmesh agent --allow /mnt/target  on every node, with --collector HOST:4750
  benchmesh run plan.toml              measures, and prints the report
  benchmesh run io --target /mnt/x     one workload, without a plan
  benchmesh query 'SELECT * FROM v_results'

Exit codes: 0 done, 1 failed, 2 wrong usage or plan, 3 done but partial, 10 regression or broken objective.
Environment: BENCHMESH_COLLECTOR, BENCHMESH_DB, BENCHMESH_ARCHIVE_URL, BENCHMESH_CREDENTIALS (a directory; by default \
~/.config/benchmesh), and BENCHMESH_LOG (error, warn, info, debug or trace; by default warn for commands, info \
for the collector and agents)."
)]
pub struct Arguments {
    /// Connect and serve without TLS; also after each command for which it has a meaning
    #[arg(long, hide = true)]
    pub insecure: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Try benchmesh on this machine: a collector, three agents, 30 s of load and the results
    #[command(after_help = daemons::QUICKSTART_EXAMPLES)]
    Quickstart(QuickstartArguments),
    /// Measure directories in turns and compare them; needs nothing else
    #[command(after_help = measure::MEASURE_EXAMPLES)]
    Measure(MeasureArguments),
    /// Run the collector: agents connect to it, and it stores everything in one database
    #[command(after_help = daemons::COLLECTOR_EXAMPLES)]
    Collector(CollectorArguments),
    /// Run an agent; every storage node and every client needs one
    #[command(after_help = daemons::AGENT_EXAMPLES)]
    Agent(AgentCommand),
    /// Check whether this host can run an agent, with a remedy for each problem
    #[command(after_help = daemons::DOCTOR_EXAMPLES)]
    Doctor(DoctorArguments),
    /// Obtain operator credentials for a collector on another machine
    #[command(after_help = daemons::JOIN_EXAMPLES)]
    Join(JoinArguments),
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
    /// List the collector's agents
    #[command(after_help = "Example:\n  benchmesh agents --collector central:4750")]
    Agents(AgentsArguments),
    /// List or remove the data that plans keep on targets
    #[command(after_help = DATA_EXAMPLES)]
    Data(DataArguments),
    /// List runs, newest first
    #[command(
        after_help = RUNS_EXAMPLES
    )]
    Runs(RunsArguments),
    /// Watch a run until it ends; by default the newest
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArguments),
    /// Stop a run cleanly and keep its data
    #[command(
        after_help = "Examples:\n  benchmesh stop                         the current run\n  benchmesh stop 12\n  benchmesh stop nightly --reason 'the array is needed'\n  benchmesh stop soak --after-loop       begin no further loop of the plan"
    )]
    Stop(StopArguments),
    /// Resume a stopped, aborted or failed run: keep its finished cells and measure the rest
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(ResumeArguments),
    /// Print the report of a run
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArguments),
    /// Show anomalies of a run: leaks, drifts, outages, outliers
    #[command(after_help = FINDINGS_EXAMPLES)]
    Findings(FindingsArguments),
    /// Compare two runs, the targets of a run, or a run with earlier ones; or look for changes over all runs of a plan
    #[command(after_help = compare::COMPARE_EXAMPLES)]
    Compare(CompareArguments),
    /// Set or remove tags of a run, to search by
    #[command(
        after_help = "Examples:\n  benchmesh tag 12 pool=ssd ticket=4711\n  benchmesh tag 12 --remove ticket"
    )]
    Tag(TagArguments),
    /// Add a note to a run
    #[command(after_help = "Example:\n  benchmesh note 12 'after the firmware update'")]
    Note(NoteArguments),
    /// Add a mark to the timeline of a run, now or at another time
    #[command(after_help = compare::MARK_EXAMPLES)]
    Mark(MarkArguments),
    /// Import the output of fio, iozone, elbencho, iperf3, bonnie++, rados bench and dd as runs, to compare them with
    /// others
    #[command(after_help = import::IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Check, back up, merge, prune or export database files
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Db(DbCommand),
    /// Push runs to an archive of many collectors in PostgreSQL, search them there, and fetch them back
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Archive(ArchiveCommand),
    /// Query the database with SQL, read-only
    #[command(after_help = QUERY_EXAMPLES)]
    Query(QueryArguments),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  benchmesh completions bash > /etc/bash_completion.d/benchmesh"
    )]
    Completions(CompletionsArguments),
}

const RUNS_EXAMPLES: &str = "\
Examples:
  benchmesh runs --limit 5 --format json
  benchmesh runs nightly --tag pool=ssd --target cephfs --since 7d
  benchmesh runs --db archive.db

Without --db or --collector it uses BENCHMESH_DB, else BENCHMESH_COLLECTOR, else ./benchmesh.db if that file \
exists, else the collector on this machine.";

const DATA_EXAMPLES: &str = "\
Examples:
  benchmesh data                                     list all kept data: location, size, run and age
  benchmesh data remove big-files                    from all targets that have it
  benchmesh data remove big-files --target /mnt/gluster --yes

A phase with keep = \"big-files\" leaves its data on the target; a phase with use = \"big-files\" works on that \
data.";

const RUN_EXAMPLES: &str = "\
Examples:
  benchmesh run plan.toml
  benchmesh run plan.toml --agents 8 --set repeat=3 --set phase.records.runtime=60s
  benchmesh run io --target /mnt/cephfs --set bs=4k --set modes=randread --set runtime=30s
  benchmesh run files --target /mnt/a --target /mnt/b --set files=10000
  benchmesh run plan.toml --objective 'p99 < 10ms for 99% of seconds' --junit results.xml
  benchmesh run plan.toml --dry-run          show the steps without running them
  benchmesh run plan.toml --detach           then: benchmesh watch
  benchmesh run plan.toml --at 02:00 --detach   tonight, also if the collector restarts before

A WORKLOAD instead of a plan is one phase of it; --set sets its keys (docs/workloads.md).
--objective: FIGURE < LIMIT for PERCENT of seconds (or >). Figures: p50, p99, max, rate, throughput. The exit \
code is 10 if one is broken, and 3 if one is not judged: q leaves before the end, or no second was rated.
On a terminal the run is shown in a full-screen view; --lines prints lines, as do pipes. q leaves the view, the \
run continues. Ctrl-C stops the run cleanly and keeps its data; a second Ctrl-C exits at once.";

const WATCH_EXAMPLES: &str = "\
Examples:
  benchmesh watch
  benchmesh watch 12
  benchmesh watch 12 --lines                 in a terminal that keeps its history

On a terminal: a full-screen view with the step and the time left, rate and p99 of the last seconds, the slowest \
clients, the busiest daemons, alarms, objectives and events. NO_COLOR turns its colours off.
q or Ctrl-C stops watching; the run continues. To stop the run: `benchmesh stop RUN`.";

const RESUME_EXAMPLES: &str = "\
Examples:
  benchmesh resume 12
  benchmesh resume nightly --detach
  benchmesh resume 12 --even-if-changed     even if a target was recreated

A stopped, aborted or failed run continues with its first unfinished cell, as the next attempt of that cell, \
with the same plan, agents and targets. The pause does not count towards `loop-for`.";

const REPORT_EXAMPLES: &str = "\
Examples:
  benchmesh report                                      the newest run
  benchmesh report 12 all                               each step, client, host and daemon
  benchmesh report 12 validity                          one section: findings, daemons, ...
  benchmesh report 12 --rows size --cols bs             rows and columns of the results
  benchmesh report 12 --cols target                     targets side by side
  benchmesh report 12 --format csv --out results.csv
  benchmesh report 12 --junit results.xml               objectives for a CI system
  benchmesh report 12 --format html --out report.html   one file with charts, to keep or to send
  benchmesh report nightly --db archive.db --format json | jq .steps

Without --db or --collector it uses BENCHMESH_DB, else BENCHMESH_COLLECTOR, else ./benchmesh.db if that file \
exists, else the collector on this machine.";

const FINDINGS_EXAMPLES: &str = "\
Examples:
  benchmesh findings                                    the newest run, also while it is running
  benchmesh findings 12
  benchmesh findings soak --db archive.db --format json | jq '.[] | select(.verdict == \"found\")'

docs/findings.md describes each kind of finding, how it is detected and what to do about it.";

const QUERY_EXAMPLES: &str = "\
Examples:
  benchmesh query 'SELECT phase, mode, op, ops_per_s, p99_ms FROM v_results'
  benchmesh query --db archive.db --format csv 'SELECT * FROM v_daemon_usage' > usage.csv
  benchmesh query --examples                            the documented questions
  benchmesh query --example worst-seconds --run nightly
  benchmesh query \"SELECT name FROM sqlite_schema WHERE type = 'view'\"
  benchmesh query                                       a prompt with history and completion
  benchmesh query --db benchmesh.db - < question.sql

One read-only statement; a live database works too. Blobs are shown as hex, NULL as an empty field (null in \
JSON).
Without --db or --collector it uses BENCHMESH_DB, else BENCHMESH_COLLECTOR, else ./benchmesh.db if that file \
exists, else the collector on this machine.";

/// Output format of a report: for people, for a wiki, a row per step and operation, or everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    #[default]
    Table,
    Markdown,
    Csv,
    Json,
    /// One file with tables and charts, for a browser
    Html,
}

/// Output format of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FindingsFormat {
    /// Sentences, each with its SQL
    #[default]
    Text,
    Json,
}

/// Output format of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    #[default]
    Table,
    Csv,
    Json,
}

/// Output format of a short answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    #[default]
    Table,
    Json,
}

/// The address of the collector that a command uses.
#[derive(Debug, Args)]
pub struct CollectorAddress {
    /// Address of the collector
    #[arg(long, value_name = "HOST:PORT", env = "BENCHMESH_COLLECTOR", default_value = DEFAULT_COLLECTOR, value_parser = address)]
    pub collector: String,
}

/// The database file or collector to query. The environment is read later, because a flag for one overrides an
/// environment variable for the other.
#[derive(Debug, Args)]
pub struct QuerySource {
    /// The database file to use
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "collector")]
    pub db: Option<PathBuf>,
    /// The collector to use
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub collector: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// The plan file, - for standard input, or a workload to run without a plan: files, io, copy, tree, fill, replay,
    /// objects, network or null
    #[arg(value_name = "PLAN|WORKLOAD", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// With a WORKLOAD: where to measure, a path or pool=NAME; several are measured in turns
    #[arg(long, value_name = "PATH", value_parser = target)]
    pub target: Vec<Locator>,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Override a value of the plan, e.g. repeat=3
    #[arg(long, value_name = "K=V", value_parser = override_)]
    pub set: Vec<String>,
    /// Add an objective to the plan, e.g. 'p99 < 10ms for 99% of seconds'; exit code 10 if it is broken
    #[arg(long, value_name = "OBJECTIVE")]
    pub objective: Vec<String>,
    /// Wait until this many agents have attached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub agents: Option<u32>,
    /// How long to wait for --agents
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = span)]
    pub agents_wait: Duration,
    /// Also use agents that have never been in a run of this mesh, if the plan has no [clients]
    #[arg(long)]
    pub new_agents: bool,
    /// Start the run at this time or later: 02:00 (the next one), 2026-12-24T02:00; local time unless Z or an offset
    /// is given
    #[arg(long, value_name = "TIME", conflicts_with = "dry_run", value_parser = begin_at)]
    pub at: Option<i64>,
    /// Print lines instead of a full-screen view
    #[arg(long)]
    pub lines: bool,
    /// Queue the run, print its id and exit
    #[arg(long)]
    pub detach: bool,
    /// Show the steps without running them
    #[arg(long, conflicts_with = "detach")]
    pub dry_run: bool,
    /// Write the verdicts on the run and its objectives to this file as JUnit XML, for a CI system
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["detach", "dry_run"])]
    pub junit: Option<PathBuf>,
    /// Output format of the report
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The run's id, uid or name [default: the newest run]
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: Option<String>,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Print lines instead of a full-screen view
    #[arg(long)]
    pub lines: bool,
}

#[derive(Debug, Args)]
pub struct StopArguments {
    /// The run's id, uid or name [default: the current one, else the newest]
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: Option<String>,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// The reason; stored with the run
    #[arg(long, value_name = "TEXT", default_value = "asked to stop")]
    pub reason: String,
    /// Let the loop in progress end, and begin no other: the run is then done, not stopped
    #[arg(long)]
    pub after_loop: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct ResumeArguments {
    /// The run's id, uid or name
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: String,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Resume even if the file system, device, size or version of a target has changed since the run began
    #[arg(long)]
    pub even_if_changed: bool,
    /// Print lines instead of a full-screen view
    #[arg(long)]
    pub lines: bool,
    /// Queue the run, print its id and exit
    #[arg(long)]
    pub detach: bool,
    /// Output format of the report
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct FindingsArguments {
    /// The run's id, uid or name [default: the newest run]
    #[arg(value_name = "RUN", default_value = "last", hide_default_value = true, value_parser = run_name)]
    pub run: String,
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: FindingsFormat,
}

#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The run's id, uid or name [default: the newest run]
    #[arg(value_name = "RUN", default_value = "last", hide_default_value = true, value_parser = run_name)]
    pub run: String,
    /// What to show instead of the results: all, or one section, such as findings, validity, daemons, hosts or clients
    #[arg(value_name = "SECTION")]
    pub section: Option<String>,
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// Keys that name the rows of the results: mode, target, clients, or a key of the plan's matrix
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Keys that name the columns
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub cols: Vec<String>,
    /// Write the verdicts on the run and its objectives to this file as JUnit XML, for a CI system; not with HTML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct QueryArguments {
    /// One read-only SQL statement; - reads it from standard input; without one, a prompt asks for statements
    #[arg(value_name = "SQL", allow_hyphen_values = true)]
    pub sql: Option<String>,
    /// Ask a documented question instead
    #[arg(long, value_name = "NAME", conflicts_with = "sql")]
    pub example: Option<String>,
    /// The run to ask about: its id, uid or name [default: the newest run]
    #[arg(long, value_name = "RUN", requires = "example", value_parser = run_name)]
    pub run: Option<String>,
    /// List the documented questions
    #[arg(long, conflicts_with_all = ["sql", "example"])]
    pub examples: bool,
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,
    /// Time limit of a query on a file; a collector has its own limit
    #[arg(long, value_name = "SPAN", default_value = "10m", value_parser = span)]
    pub time_limit: Duration,
}

#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell that will load the script
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

impl Command {
    /// Whether standard output must be one JSON document, also on failure.
    pub fn answers_in_json(&self) -> bool {
        match self {
            Self::Run(run) => run.format == ReportFormat::Json,
            Self::Plan(PlanCommand::Check(plan)) => plan.format == ListFormat::Json,
            Self::Plan(PlanCommand::Show(show)) => show.plan.format == ListFormat::Json,
            Self::Plan(PlanCommand::Schema) => true,
            Self::Plan(PlanCommand::Preset { .. } | PlanCommand::FromFio(_)) => false,
            Self::Agents(agents) => agents.list.format == ListFormat::Json,
            Self::Data(data) => data.action.is_none() && data.list.format == ListFormat::Json,
            Self::Runs(runs) => runs.format == ListFormat::Json,
            Self::Stop(stop) => stop.format == ListFormat::Json,
            Self::Resume(resume) => resume.format == ReportFormat::Json,
            Self::Report(report) => report.format == ReportFormat::Json && report.out.is_none(),
            Self::Findings(findings) => findings.format == FindingsFormat::Json,
            Self::Query(query) => query.format == RowFormat::Json,
            Self::Compare(compare) => compare.format == ReportFormat::Json && compare.out.is_none(),
            Self::Doctor(doctor) => doctor.format == ListFormat::Json,
            Self::Import(import) => import.format == ListFormat::Json,
            Self::Tag(tag) => tag.common.format == ListFormat::Json,
            Self::Note(note) => note.common.format == ListFormat::Json,
            Self::Mark(mark) => mark.common.format == ListFormat::Json,
            Self::Archive(ArchiveCommand::Runs(runs)) => runs.format == RowFormat::Json,
            Self::Archive(ArchiveCommand::Queue(queue)) => queue.format == ListFormat::Json,
            Self::Archive(_)
            | Self::Quickstart(_)
            | Self::Measure(_)
            | Self::Collector(_)
            | Self::Agent(_)
            | Self::Join(_)
            | Self::Watch(_)
            | Self::Db(_)
            | Self::Completions(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
