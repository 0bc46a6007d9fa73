//! `benchmesh plan`: plans checked, shown and made.

use super::values::{override_, renamed_agents};
use super::{CollectorAddress, ListFormat};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

const FROM_FIO_EXAMPLES: &str = "\
Examples:
  benchmesh plan from-fio job.fio --out plan.toml
  DEVICE=/dev/nvme1n1 benchmesh plan from-fio job.fio | benchmesh run -

Each job becomes a phase. The exit code is 3 if something of the job file is not in the plan; standard error and \
comments of the plan name it. Included files and ${VARIABLES} are read as fio reads them.";

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Check a plan without a collector; show all errors at once, each with its line and a remedy
    #[command(
        after_help = "Examples:\n  benchmesh plan check plan.toml\n  benchmesh plan check plan.toml --set repeat=3"
    )]
    Check(PlanCheckArguments),
    /// Show the steps that a plan expands into, with the expected bytes, files and time
    #[command(
        after_help = "Examples:\n  benchmesh plan show plan.toml                        on the agents of the collector\n  benchmesh plan show plan.toml --assume-agents 3      on three assumed agents, offline"
    )]
    Show(PlanShowArguments),
    /// Make a plan of a fio job file; each option that a plan has no word for is named with its line
    #[command(name = "from-fio", after_help = FROM_FIO_EXAMPLES)]
    FromFio(FromFioArguments),
    /// Print the JSON Schema of a plan, for editors to complete and check TOML
    #[command(
        after_help = "Example, for Taplo and Even Better TOML:\n  benchmesh plan schema > plan.schema.json\nand at the top of a plan:\n  #:schema ./plan.schema.json"
    )]
    Schema,
    /// List the presets that a phase can name, or print one
    #[command(
        after_help = "Examples:\n  benchmesh plan preset\n  benchmesh plan preset bonnie-1.97\nand in a plan:\n  [[phase]]\n  preset = \"bonnie-1.97\"\n  size = \"4g\""
    )]
    Preset {
        /// Print the phases of this preset
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct PlanCheckArguments {
    /// The plan file; - reads standard input
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Override a value of the plan, e.g. repeat=3
    #[arg(long, value_name = "K=V", value_parser = override_)]
    pub set: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct FromFioArguments {
    /// The job file; - reads standard input
    #[arg(value_name = "JOB", value_hint = ValueHint::FilePath)]
    pub job: PathBuf,
    /// Write the plan to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PlanShowArguments {
    #[command(flatten)]
    pub plan: PlanCheckArguments,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Assume this many agents that allow everything, without asking a collector
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub assume_agents: Option<u32>,
    /// The former name of --assume-agents, which has another meaning in `run`
    #[arg(long, hide = true, value_name = "N", value_parser = renamed_agents)]
    pub agents: Option<u32>,
}
