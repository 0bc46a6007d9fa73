//! Options of the long-running processes (quickstart, collector and agent), and of joining a mesh.

use super::targets::TargetArguments;
use super::values::{
    DEFAULT_COLLECTOR, address, daemon_rule, http, join_token, keep_for, label, listener, max_size,
    rate, span,
};
use super::{CollectorAddress, ListFormat};
use benchmesh_agent::facts::FactSources;
use benchmesh_agent::policy::{Bytes, Floor, Hours, Memory, NetworkRule, PortRange, WorkloadNames};
use benchmesh_agent::sampler::DaemonRule;
use benchmesh_collector::alarms::AlarmCommand;
use benchmesh_collector::web::HttpListen;
use benchmesh_model::targets::POOL;
use benchmesh_store::retention::{KeepFor, MaxSize};
use benchmesh_trust::JoinToken;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub const QUICKSTART_EXAMPLES: &str = "\
Examples:
  benchmesh quickstart
  benchmesh quickstart --db /tmp/try.db

Everything runs on loopback and in a temporary directory (under TMPDIR, or /tmp) that is removed at
the end. What stays is the database. A file that is there already is never overwritten: a new name
is taken instead.";

pub const COLLECTOR_EXAMPLES: &str = "\
Examples:
  benchmesh collector
  benchmesh collector --db /srv/benchmesh/mesh.db
  benchmesh collector --config /etc/benchmesh/collector.toml
  BENCHMESH_LOG=debug benchmesh collector --listen 127.0.0.1:0

It prints the address of its live page, with the token that opens it. For Prometheus keep the token:
  benchmesh collector --http-token-file /etc/benchmesh/token

Agents and commands of the same user on this machine find their credentials by themselves. For
other machines and users make join tokens:
  benchmesh collector --listen 0.0.0.0:4750
  benchmesh collector token --uses 12          for twelve agents, within an hour
  benchmesh collector token --role operator    for `benchmesh join`
  benchmesh collector revoke node7             its agent is cut off and stays out

SIGTERM or Ctrl-C ends it cleanly: what it received is stored, and agents keep what it did not.";

pub const TOKEN_EXAMPLES: &str = "\
Examples:
  benchmesh collector token                                for one agent, within an hour
  benchmesh collector token --uses 12 --ttl 1d             for twelve
  benchmesh collector token --replace                      for a machine that was set up anew
  benchmesh collector token --replace node7                for an agent that had this name
  benchmesh collector token list                           which can still be used
  benchmesh collector token cancel 5f0d3a91                nobody joins with it any more
  (umask 077; ssh central benchmesh collector token > token)
  benchmesh agent --join-file token --collector central:4750

The token goes to standard output. It holds a secret and the fingerprint of the collector's CA, so
that nobody else can pose as the collector. Whoever has it can join: send it as a secret, and keep it
out of command lines, which other users see.";

pub const JOIN_EXAMPLES: &str = "\
Examples:
  ssh central benchmesh collector token --role operator |
      benchmesh join --token-file - --collector central:4750
  benchmesh join --token-file token --collector central:4750
  benchmesh run plan.toml --collector central:4750

The token comes from `benchmesh collector token --role operator`, on the collector's machine. The
credentials are kept in ~/.config/benchmesh, for this user alone.";

pub const DOCTOR_EXAMPLES: &str = "\
Examples:
  benchmesh doctor --config /etc/benchmesh/agent.toml
  benchmesh doctor --collector central:4750 --allow /mnt/cephfs --allow-drop-caches
  benchmesh doctor --format json

It takes the options of `benchmesh agent` and looks at what an agent with them would find here: ok,
warn or FAIL per line, with a remedy. Run it as the agent's user. Nothing stays behind; on each
allowed path a file without a name is written for a moment.
Exit code 1 when a line says FAIL.";

pub const AGENT_EXAMPLES: &str = "\
Examples:
  benchmesh agent --collector central:4750 --join-file token --allow /mnt/cephfs
  benchmesh agent --label role=client --allow /mnt/cephfs --allow-network --allow-drop-caches
  benchmesh agent --label role=storage --allow-drop-caches  samples a storage node
  benchmesh agent --config /etc/benchmesh/agent.toml
  benchmesh agent --watch mysqld --watch 'name=shard,cmdline=*--shard=*,instance-option=--port'

--join-file is needed once, on other machines than the collector's or as another user; the certificate
is kept in the state directory and renews itself. `benchmesh collector token` prints a token.

With --config, SIGHUP reads the file again. An agent takes changes over as soon as it holds no task.

The daemons of Ceph, GlusterFS, Sheepdog, MooseFS, NFS and the like are watched without being named.

Nothing is allowed by default: without --allow, --allow-device, --allow-pool or --allow-network an
agent takes no load and only samples. A collector cannot widen what an agent allows.";

#[derive(Debug, Args)]
pub struct QuickstartArguments {
    /// The path of the database
    #[arg(long, value_name = "FILE", default_value = "benchmesh-quickstart.db", value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum CollectorAction {
    /// Print a join token, with which a machine or a person obtains a certificate
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(TokenArguments),
    /// Cut an agent or operator off, and refuse its certificate from now on
    #[command(after_help = "Example:\n  benchmesh collector revoke node7")]
    Revoke(RevokeArguments),
}

/// The role that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TokenRole {
    /// Attaches, and runs tasks of plans within its policy
    Agent,
    /// Starts and stops runs, and reads results
    Operator,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TokenArguments {
    #[command(subcommand)]
    pub action: Option<TokenAction>,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Lifetime of the token
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = span)]
    pub ttl: Duration,
    /// How many may join with it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: u32,
    /// Role of those who join
    #[arg(long, value_enum, default_value_t = TokenRole::Agent)]
    pub role: TokenRole,
    /// Allow a name that another certificate holds, which is then revoked; with NAME, the new member replaces NAME
    /// under any name, uid included: this renames an agent
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    pub replace: Option<Option<String>>,
}

#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// List the tokens that somebody can still join with
    #[command(after_help = "Example:\n  benchmesh collector token list")]
    List(TokenListArguments),
    /// Cancel a token: nobody can join with it any more; members that have joined stay
    #[command(after_help = "Example:\n  benchmesh collector token cancel 5f0d3a91")]
    Cancel(TokenCancelArguments),
}

#[derive(Debug, Args)]
pub struct TokenListArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Output format
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    pub format: ListFormat,
}

#[derive(Debug, Args)]
pub struct TokenCancelArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// Its digits, as `token list` shows them
    pub id: String,
}

#[derive(Debug, Args)]
pub struct RevokeArguments {
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// The name of an agent or operator
    pub name: String,
}

#[derive(Debug, Args)]
pub struct JoinArguments {
    /// The token that `benchmesh collector token --role operator` prints
    #[arg(value_parser = join_token, required_unless_present = "token_file")]
    pub token: Option<JoinToken>,
    /// Read the token from this file, or with - from standard input: other users can see command lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub collector: CollectorAddress,
    /// The operator's name [default: USER@HOST]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CollectorArguments {
    #[command(subcommand)]
    pub action: Option<CollectorAction>,
    /// Read options from this TOML file; the command line overrides it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Address to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_COLLECTOR, value_parser = listener)]
    pub listen: SocketAddr,
    /// The database; created if it does not exist
    #[arg(long, value_name = "FILE", env = "BENCHMESH_DB", default_value = "benchmesh.db", value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
    /// Write the address that it really listens on to this file, once it serves
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub address_file: Option<PathBuf>,
    /// Address of the live page, JSON and metrics, or off
    /// [default: 127.0.0.1:4751, or any free port if that is taken]
    #[arg(long, value_name = "ADDR:PORT|off", value_parser = http)]
    pub http: Option<HttpListen>,
    /// Keep the page's token in this file, so that it stays the same; created if it does not exist.
    /// Without it each start has a new token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub http_token_file: Option<PathBuf>,
    /// A host name of the page for browsers, beside addresses and localhost; may be given several times
    #[arg(long = "http-name", value_name = "NAME")]
    pub http_names: Vec<String>,
    /// Write the page's address with its token to this file, once it is served
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub http_url_file: Option<PathBuf>,
    /// Directory of the collector's CA and its certificates [default: beside the database, FILE.tls]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub tls_dir: Option<PathBuf>,
    /// Serve the page to other machines, although it has no TLS: only on a network that you trust
    #[arg(long)]
    pub http_insecure: bool,
    /// A program, by its whole path, and its arguments: run, without a shell, for each alarm of a run's plan that is
    /// raised or over, and each objective that is broken. docs/operations.md says what it gets
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub on_alarm: Option<AlarmCommand>,
    #[command(flatten)]
    pub retention: RetentionArguments,
    /// How long certificates are good for: to try their renewal
    #[arg(long, hide = true, value_name = "SPAN", value_parser = span)]
    pub certificate_lifetime: Option<Duration>,
    /// Maximum lifetime of a connection without a valid certificate: to test that it is closed
    #[arg(long, hide = true, value_name = "SPAN", value_parser = span)]
    pub newcomer_timeout: Option<Duration>,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
    /// Let mesh time run fast by this many millionths: to test the agents' clocks
    #[arg(long, hide = true, value_name = "PPM", default_value_t = 0, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    pub clock_ppm: i32,
}

/// What the database keeps how long. docs/operations.md describes it.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Retention: what the database keeps how long; results, events, marks, notes and findings stay"
)]
pub struct RetentionArguments {
    /// How long rows of seconds (intervals and samples) are kept after their run has ended, or forever. Then they are
    /// merged into rows of 10 s
    #[arg(long, value_name = "SPAN|forever", default_value = "7d", value_parser = keep_for)]
    pub keep_seconds: KeepFor,
    /// How long rows of 10 s are kept after their run has ended, or forever. Then they are merged into rows of 60 s
    #[arg(long, value_name = "SPAN|forever", default_value = "30d", value_parser = keep_for)]
    pub keep_10s: KeepFor,
    /// How large the database may become, or unlimited. Above it the rows of the oldest ended runs are merged, and
    /// at last deleted
    #[arg(long, value_name = "SIZE|unlimited", default_value = "20GB", value_parser = max_size)]
    pub max_size: MaxSize,
    /// Runs with this tag keep all their rows, e.g. keep=yes; may be given several times
    #[arg(long = "keep-tag", value_name = "K=V", value_parser = label)]
    pub keep_tags: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct DoctorArguments {
    #[command(flatten)]
    pub agent: AgentArguments,
    /// How the findings are written
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

/// The load that an agent allows. docs/security.md describes each option.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy: what load this agent takes, whatever a collector asks for")]
pub struct PolicyArguments {
    #[command(flatten)]
    pub targets: TargetArguments,
    /// A directory that sources may be read from; may be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub allow_read: Vec<PathBuf>,
    /// Let plans measure links to agents in this network, e.g. 10.1.0.0/16; without a value or with `local`, in the
    /// networks of this host's interfaces; may be given several times
    #[arg(long, value_name = "NETWORK", num_args = 0..=1, default_missing_value = "local")]
    pub allow_network: Vec<NetworkRule>,
    /// Ports on which this agent listens for links, TCP and UDP, e.g. 5201-5300 [default: any free ones]
    #[arg(long, value_name = "FIRST-LAST")]
    pub link_ports: Option<PortRange>,
    /// Let plans drop this host's caches (`cache = "cold"`); needs root
    #[arg(long)]
    pub allow_drop_caches: bool,
    /// The workloads that it allows, with commas between them, or `all`
    #[arg(long, value_name = "NAMES", default_value = "all")]
    pub workloads: WorkloadNames,
    /// Memory for the buffers of all load together: a size, or a share of the free memory when the agent starts
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "50%")]
    pub memory: Memory,
    /// Threads of all load together [default: 16 per CPU, at least 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// CPUs that the threads of the load may run on [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// Bytes per second of all load together, e.g. 100MiB [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub rate: Option<Bytes>,
    /// Space that stays free on each target: a size, or a share of the file system; 0: none
    /// [default: 5%, at most 1 GiB]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub free_space: Option<Floor>,
    /// Inodes that stay free on each target: a number, or a share; 0: none [default: 1%, at most 10000]
    #[arg(long, value_name = "N|PERCENT")]
    pub free_inodes: Option<Floor>,
    /// Hours of the day, in local time, in which it allows load, e.g. 22:00-06:00,12:00-13:00, or `always`
    #[arg(long, value_name = "HOURS", default_value = "always")]
    pub hours: Hours,
}

pub const CLEAN_EXAMPLES: &str = "\
Example:
  benchmesh agent clean --allow /mnt/cephfs

It looks for directories of runs directly in the paths that are given: those that plans name as targets.
One that an agent works in, on this host or another that mounts it, is left alone, and so is one in which
something has changed lately. Everything else is listed, and removed once you agree, unless the file
system's locks do not tell whether another host works in it: then say with --ended which run has ended.";

#[derive(Debug, Subcommand)]
pub enum AgentAction {
    /// Find leftovers of crashed runs on targets, and remove them
    #[command(after_help = CLEAN_EXAMPLES)]
    Clean(CleanArguments),
}

#[derive(Debug, Args)]
pub struct CleanArguments {
    /// A target; may be given several times
    #[arg(long, value_name = "PATH", required_unless_present = "allow_pool", value_hint = ValueHint::DirPath)]
    pub allow: Vec<PathBuf>,
    /// A RADOS pool that was a target; may be given several times. What runs have left there is removed with --ended
    #[arg(long, value_name = POOL.value_name)]
    pub allow_pool: Vec<String>,
    /// Leave directories alone that have changed within this time: a run rests between its steps
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = span)]
    pub unchanged_for: Duration,
    /// A run that you know has ended: its directories are removed also where the file system's locks do not show
    /// whether an agent on another host works in them; may be given several times
    #[arg(long, value_name = "RUN-UID")]
    pub ended: Vec<String>,
    /// Remove without asking
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentCommand {
    #[command(subcommand)]
    pub action: Option<AgentAction>,
    #[command(flatten)]
    pub arguments: AgentArguments,
}

#[derive(Debug, Args)]
pub struct AgentArguments {
    /// Read options from this TOML file; the command line overrides it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Address of the collector
    #[arg(long, value_name = "HOST:PORT", env = "BENCHMESH_COLLECTOR", default_value = DEFAULT_COLLECTOR, value_parser = address)]
    pub collector: String,
    /// Obtain a certificate with this token of `benchmesh collector token`; ignored once there is one
    #[arg(long, value_name = "TOKEN", value_parser = join_token)]
    pub join: Option<JoinToken>,
    /// Read that token from this file, unless it is gone: other users can see command lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "join")]
    pub join_file: Option<PathBuf>,
    /// The agent's name, unique in the mesh [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A label for plans to select by, e.g. role=client; may be given several times
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub policy: PolicyArguments,
    /// Drop the capabilities of root that the agent does not use, and the ability to gain new ones
    #[arg(long)]
    pub drop_privileges: bool,
    /// Directory for the data that the collector hasn't stored yet; never on a target
    /// [default: $XDG_STATE_HOME/benchmesh/NAME, as root /var/lib/benchmesh/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// Maximum size of the data that the collector hasn't stored yet, at least 16MiB. Towards the limit, seconds are
    /// merged and samples given up; at the limit, the oldest data are given up, and each loss is counted
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub spool_limit: Bytes,
    /// A local directory for data that are not on a target, e.g. the other end of copies
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
    /// The IP address where other agents reach this one [default: the address that the collector sees]
    #[arg(long, value_name = "ADDRESS")]
    pub advertise: Option<String>,
    /// Another daemon to watch: its process name, or name=N with comm=, cmdline=, cgroup=, unit= or instance-option=,
    /// comma-separated; may be given several times. The rules of all agents on one host that connect from one address
    /// are joined
    #[arg(long, value_name = "RULE", value_parser = daemon_rule)]
    pub watch: Vec<DaemonRule>,
    /// How often daemons and the host are sampled, from 100ms on
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1s")]
    pub sample_period: Duration,
    /// Sample the host between runs, too; without it only from the start of a run to 5 s after its end
    #[arg(long)]
    pub sample_always: bool,
    /// Read the state of the storage cluster with read-only commands: a built-in set (`ceph`, `gluster`), with further
    /// arguments behind it ("ceph --conf FILE --id USER"), or an own command as NAME=/PROGRAM ARGUMENTS, which writes a
    /// JSON object or lines such as health=ok; may be given several times
    #[arg(long, value_name = "FACTS")]
    pub facts: Vec<FactSources>,
    /// Minimum time between two readings of --facts, from 1s on: after steps, and while the cluster is degraded
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "10s")]
    pub facts_period: Duration,
    /// Kill a command of --facts that takes longer, from 1s to 10m
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "60s")]
    pub facts_timeout: Duration,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
    /// Write the raw start of every worker to this file: a reference for the reported skew
    #[arg(long, hide = true, value_name = "FILE")]
    pub start_log: Option<PathBuf>,
}
