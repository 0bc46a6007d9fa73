//! `benchmesh agents`, `data` and `runs`: what the collector has.

use super::values::instant;
use super::{CollectorAddress, ListFormat, QuerySource};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentsArguments {
    #[command(flatten)]
    pub list: ListArguments,
    #[command(subcommand)]
    pub action: Option<AgentsAction>,
}

#[derive(Debug, Subcommand)]
pub enum AgentsAction {
    /// Stop listing an agent that is gone for good; the database keeps its data
    #[command(after_help = "Example:\n  benchmesh agents forget node7")]
    Forget(ForgetArguments),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DataArguments {
    #[command(flatten)]
    pub list: ListArguments,
    #[command(subcommand)]
    pub action: Option<DataAction>,
}

#[derive(Debug, Subcommand)]
pub enum DataAction {
    /// Remove kept data from targets, after confirmation
    #[command(
        after_help = "Examples:\n  benchmesh data remove big-files\n  benchmesh data remove big-files --target /mnt/gluster --yes"
    )]
    Remove(RemoveDataArguments),
}

#[derive(Debug, Args)]
pub struct RemoveDataArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// The name of the kept data, as in `keep` of the plan
    pub name: String,
    /// Only on this target: its path or pool, as `benchmesh data` lists it
    #[arg(long, value_name = "PATH")]
    pub target: Option<String>,
    /// Also forget the data of agents that are not attached; their files stay on the targets
    #[arg(long)]
    pub forget_away: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct ForgetArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// The name of an agent that is not attached
    pub name: String,
}

#[derive(Debug, Args)]
pub struct RunsArguments {
    #[command(flatten)]
    pub source: QuerySource,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Only runs with this text in their name, a note or the value of a tag
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// Only runs with this tag; may be given several times, then only runs with all of them
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// Only runs that measured this target; the name of a target or of its system
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Only runs queued at this time or later: a date, or a span ago
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub since: Option<i64>,
    /// Only runs queued before this time
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub until: Option<i64>,
}
