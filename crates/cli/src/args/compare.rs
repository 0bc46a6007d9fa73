//! `compare`, `tag`, `note` and `mark`: options of the commands that compare or annotate runs.

use super::values::{instant, label, run_name};
use super::{ListFormat, QuerySource, ReportFormat};
use benchmesh_answers::compare::conditions::Condition;
use benchmesh_answers::compare::{FigureName, Listed, Only};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;

pub const COMPARE_EXAMPLES: &str = "\
Examples:
  benchmesh compare                              the newest run against the one before of its plan
  benchmesh compare nightly                      the newest run of a plan against the one before
  benchmesh compare 11 12                        run 12 against run 11
  benchmesh compare --by target 12               the targets of run 12
  benchmesh compare --by bs 12 --where mode=randread
  benchmesh compare --by version nightly         a plan's runs by benchmesh's version, or a tag.NAME
  benchmesh compare nightly --last 5             the newest run of a plan against the 5 before it
  benchmesh compare --save good 11               then: benchmesh compare --baseline good 12
  benchmesh compare 11 12 --fail-if 'p99 > +10%' --fail-if 'ops < -5%'
  benchmesh compare nightly --last 5 --fail-if slower --junit results.xml
  benchmesh compare 11 12 --figure p95,p99.9     with two more percentiles
  benchmesh compare nightly --trend              where figures changed, over all runs of a plan
  benchmesh compare lab1:12 lab2:nightly         two runs of an archive

--fail-if: FIGURE > CHANGE or FIGURE < CHANGE, or a verdict (slower, costlier, worse, 'not comparable').
Figures: those of --figure. Changes: +10%, -5%, 2x. A condition holds only if the difference is more than noise; \
the exit code is then 10. If no condition could be tested, the exit code is 3.";

pub const MARK_EXAMPLES: &str = "\
Examples:
  benchmesh mark 'osd.7 out'                     now, on the current run
  benchmesh mark --run 12 'recovery begins' --at 2026-11-21T09:41:32Z
  benchmesh mark 'scrub began' --at 5m           five minutes ago

The view v_marks lists all marks; starts and ends of daemons are marks too.";

#[derive(Debug, Args)]
pub struct CompareArguments {
    /// Runs by id, uid or name, or one plan's name; a single one is compared with the run before it of the same plan
    /// [default: the newest run]
    #[arg(value_name = "RUN", num_args = 0..=2, value_parser = run_name)]
    pub runs: Vec<String>,
    /// Compare the results of one run by this key: target, phase, mode, op, group, clients, cache, link or a key of
    /// the plan such as bs; or the runs of a plan by version or tag.NAME
    #[arg(long, value_name = "KEY", conflicts_with_all = ["last", "baseline", "trend", "save"])]
    pub by: Option<String>,
    /// With --by: only results with this value of a key, e.g. mode=randread; may be given several times
    #[arg(long = "where", value_name = "K=V", requires = "by", value_parser = Only::from_str)]
    pub only: Vec<Only>,
    /// Compare the newest run of a plan with this many runs before it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with_all = ["baseline", "trend", "save"])]
    pub last: Option<u32>,
    /// Compare with the run saved under this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["trend", "save"])]
    pub baseline: Option<String>,
    /// Save the run under this name, as a baseline
    #[arg(long, value_name = "NAME", conflicts_with = "trend")]
    pub save: Option<String>,
    /// Look for changes of level over all runs of a plan
    #[arg(long)]
    pub trend: bool,
    /// List this figure too, without a verdict; several are separated by commas. Some are always listed
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = figure_names(), conflicts_with = "save")]
    pub figure: Vec<FigureName>,
    /// Exit with code 10 if this condition holds; may be given several times
    #[arg(long, value_name = "CONDITION", conflicts_with = "trend")]
    pub fail_if: Vec<Condition>,
    /// Write the verdicts on the conditions to this file as JUnit XML, for a CI system
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "fail_if")]
    pub junit: Option<PathBuf>,
    /// Fetch the named runs from this archive (postgres://USER@HOST/DATABASE) and compare them; by default that of
    /// BENCHMESH_ARCHIVE_URL if a run is named with its site, SITE:RUN
    #[arg(long, value_name = "URL", conflicts_with_all = ["last", "baseline", "trend", "save", "db", "collector"])]
    pub archive: Option<String>,
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// The names of the table of figures, with their titles in the help.
fn figure_names() -> impl TypedValueParser<Value = FigureName> {
    let names = FigureName::ROWS.iter().map(|row| {
        let listed = match row.listed {
            Listed::Always => "; always listed",
            Listed::OnRequest => "",
        };
        PossibleValue::new(row.name).help(format!("{} in {}{listed}", row.title, row.unit))
    });
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse::<FigureName>())
}

/// Options shared by all commands that annotate a run.
#[derive(Debug, Args)]
pub struct AnnotateArguments {
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct TagArguments {
    /// The run's id, uid or name
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: String,
    /// Tags to set
    #[arg(value_name = "K=V", value_parser = label, required_unless_present = "remove")]
    pub set: Vec<(String, String)>,
    /// Tags to remove
    #[arg(long, value_name = "K")]
    pub remove: Vec<String>,
    #[command(flatten)]
    pub common: AnnotateArguments,
}

#[derive(Debug, Args)]
pub struct NoteArguments {
    /// The run's id, uid or name
    #[arg(value_name = "RUN", value_parser = run_name)]
    pub run: String,
    /// The text of the note
    #[arg(value_name = "TEXT")]
    pub text: String,
    #[command(flatten)]
    pub common: AnnotateArguments,
}

#[derive(Debug, Args)]
pub struct MarkArguments {
    /// A description of the event
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// The run's id, uid or name [default: the current one, else the newest]
    #[arg(
        long,
        value_name = "RUN",
        default_value = "",
        hide_default_value = true
    )]
    pub run: String,
    /// When it happened: an instant in UTC, or a span ago [default: now]
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub at: Option<i64>,
    #[command(flatten)]
    pub common: AnnotateArguments,
}
