//! Options of the long-running processes (quickstart, collector and agent), and of joining a mesh.

use super::limits::LimitArguments;
use super::targets::TargetArguments;
use super::values::{
    DEFAULT_COLLECTOR, address, daemon_rule, http, join_token, keep_for, label, listener, max_size,
    span,
};
use super::{CollectorAddress, ListFormat};
use benchmesh_agent::facts::FactSources;
use benchmesh_agent::policy::{Bytes, NetworkRule, PortRange, WorkloadNames};
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
the end. Only the database stays. An existing file is never overwritten: the database gets another
name instead.";

pub const COLLECTOR_EXAMPLES: &str = "\
Examples:
  benchmesh collector
  benchmesh collector --db /srv/benchmesh/mesh.db
  benchmesh collector --config /etc/benchmesh/collector.toml
  BENCHMESH_LOG=debug benchmesh collector --listen 127.0.0.1:0

It prints the URL of its live page, with the access token. For Prometheus, keep the token in a file:
  benchmesh collector --http-token-file /etc/benchmesh/token

Agents and commands of the same user on this machine find their credentials automatically. For other
machines and users, create join tokens:
  benchmesh collector --listen 0.0.0.0:4750
  benchmesh collector token --uses 12          for twelve agents, within an hour
  benchmesh collector token --role operator    for `benchmesh join`
  benchmesh collector revoke node7             disconnect this agent and refuse it from now on

SIGTERM or Ctrl-C stops it cleanly: it stores the data that it received, and agents keep the rest.";

pub const TOKEN_EXAMPLES: &str = "\
Examples:
  benchmesh collector token                                for one agent, within an hour
  benchmesh collector token --uses 12 --ttl 1d             for twelve
  benchmesh collector token --replace                      for a reinstalled machine
  benchmesh collector token --replace node7                for an agent that replaces node7
  benchmesh collector token list                           list tokens that can still be used
  benchmesh collector token cancel 5f0d3a91                nobody can join with it any more
  (umask 077; ssh central benchmesh collector token > token)
  benchmesh agent --join-file token --collector central:4750

The token goes to standard output. It holds a secret and the fingerprint of the collector's CA, so
that nobody else can pose as the collector. Anyone who has the token can join: send it as a secret, and
keep it out of command lines, which other users can see.";

pub const JOIN_EXAMPLES: &str = "\
Examples:
  ssh central benchmesh collector token --role operator |
      benchmesh join --token-file - --collector central:4750
  benchmesh join --token-file token --collector central:4750
  benchmesh run plan.toml --collector central:4750

The token comes from `benchmesh collector token --role operator`, on the collector's machine. The
credentials are kept in ~/.config/benchmesh, readable only by this user.";

pub const DOCTOR_EXAMPLES: &str = "\
Examples:
  benchmesh doctor --config /etc/benchmesh/agent.toml
  benchmesh doctor --collector central:4750 --allow /mnt/cephfs --allow-drop-caches
  benchmesh doctor --format json

It takes the options of `benchmesh agent` and checks this host for an agent with these options. Each
line is ok, warn or FAIL, with a remedy. Run it as the agent's user. It leaves nothing behind; on each
allowed path it briefly writes an unnamed file.
Exit code 1 if a line is FAIL.";

pub const AGENT_EXAMPLES: &str = "\
Examples:
  benchmesh agent --collector central:4750 --join-file token --allow /mnt/cephfs
  benchmesh agent --label role=client --allow /mnt/cephfs --allow-network --allow-drop-caches
  benchmesh agent --label role=storage --allow-drop-caches  samples a storage node
  benchmesh agent --config /etc/benchmesh/agent.toml
  benchmesh agent --watch mysqld --watch 'name=shard,cmdline=*--shard=*,instance-option=--port'

--join-file is needed once, on a machine or for a user other than the collector's. The agent keeps its
certificate in the state directory and renews it. `benchmesh collector token` prints a token.

With --config, SIGHUP reloads the file. The agent applies changes as soon as it holds no task.

The agent watches daemons of Ceph, GlusterFS, Sheepdog, MooseFS, NFS and the like without --watch.

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
    /// Disconnect an agent or operator, and refuse its certificate from now on
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
    /// How many agents or operators can join with the token
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: u32,
    /// Role of the new members
    #[arg(long, value_enum, default_value_t = TokenRole::Agent)]
    pub role: TokenRole,
    /// Allow a name that another certificate holds, and revoke that certificate. With NAME, the new member replaces
    /// NAME, including its uid, under any name: this renames an agent
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    pub replace: Option<Option<String>>,
}

#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// List the tokens that can still be used
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
    /// The token's id, as `token list` shows it
    #[arg(required_unless_present = "token_file")]
    pub id: Option<String>,
    /// A file that contains the token itself; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    pub token_file: Option<PathBuf>,
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
    /// Read the token from this file, or from standard input with -; other users can see command lines
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
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_COLLECTOR, value_parser = listener)]
    pub listen: SocketAddr,
    /// The database; created if it does not exist
    #[arg(long, value_name = "FILE", env = "BENCHMESH_DB", default_value = "benchmesh.db", value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
    /// Write the actual listen address to this file, once the collector serves
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub address_file: Option<PathBuf>,
    /// Address of the live page, JSON and metrics, or off
    /// [default: 127.0.0.1:4751, or any free port if that is taken]
    #[arg(long, value_name = "ADDR:PORT|off", value_parser = http)]
    pub http: Option<HttpListen>,
    /// Keep the page's token in this file, so that it stays the same; created if it does not exist.
    /// Without this option each start has a new token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub http_token_file: Option<PathBuf>,
    /// A host name at which browsers reach the page, besides IP addresses and localhost; may be given several times
    #[arg(long = "http-name", value_name = "NAME")]
    pub http_names: Vec<String>,
    /// Write the page's URL with its token to this file, once the collector serves it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub http_url_file: Option<PathBuf>,
    /// Directory of the collector's CA and its certificates [default: beside the database, FILE.tls]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub tls_dir: Option<PathBuf>,
    /// Serve the page to other machines, without TLS; only for a network that you trust
    #[arg(long)]
    pub http_insecure: bool,
    /// Program to run when an alarm of a plan is raised or ends, and when an objective is broken: its absolute path and
    /// its arguments, without a shell. docs/operations.md describes its input
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub on_alarm: Option<AlarmCommand>,
    #[command(flatten)]
    pub archive: ArchiveArguments,
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

/// Where a collector copies its ended runs. docs/archive.md describes it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Archive: ended runs are copied to a PostgreSQL server")]
pub struct ArchiveArguments {
    /// Copy runs to this archive within a minute after their end, and again when late data, tags or notes change them:
    /// postgres://USER@HOST/DATABASE, without a password
    #[arg(long, value_name = "URL")]
    pub archive: Option<String>,
    /// This collector's name in the archive [default: the one it has there, else the host's name]
    #[arg(long, value_name = "NAME", requires = "archive")]
    pub archive_site: Option<String>,
    /// A file whose first line is the password of the archive's role
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "archive")]
    pub archive_password_file: Option<PathBuf>,
}

/// What the database keeps how long. docs/operations.md describes it.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Retention: how long the database keeps rows; results, events, marks, notes and findings stay"
)]
pub struct RetentionArguments {
    /// How long to keep rows of seconds (intervals and samples) after their run has ended, or forever. Then the
    /// collector merges them into rows of 10 s
    #[arg(long, value_name = "SPAN|forever", default_value = "7d", value_parser = keep_for)]
    pub keep_seconds: KeepFor,
    /// How long to keep rows of 10 s after their run has ended, or forever. Then the collector merges them into rows of
    /// 60 s
    #[arg(long, value_name = "SPAN|forever", default_value = "30d", value_parser = keep_for)]
    pub keep_10s: KeepFor,
    /// Maximum size of the database, or unlimited. Above it, the collector merges rows of the oldest ended runs, and
    /// deletes them as a last resort
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
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

/// The load that an agent allows. docs/security.md describes each option.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Policy: the load that this agent accepts; a collector cannot widen it"
)]
pub struct PolicyArguments {
    #[command(flatten)]
    pub targets: TargetArguments,
    /// Allow plans to read sources from this directory; may be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub allow_read: Vec<PathBuf>,
    /// Let plans measure links to agents in this network, e.g. 10.1.0.0/16; without a value or with `local`, in the
    /// networks of this host's interfaces; may be given several times
    #[arg(long, value_name = "NETWORK", num_args = 0..=1, default_missing_value = "local")]
    pub allow_network: Vec<NetworkRule>,
    /// Ports on which this agent listens for links, TCP and UDP, e.g. 5201-5300 [default: any free port]
    #[arg(long, value_name = "FIRST-LAST")]
    pub link_ports: Option<PortRange>,
    /// Let plans drop this host's caches (`cache = "cold"`); needs root
    #[arg(long)]
    pub allow_drop_caches: bool,
    /// The allowed workloads, comma-separated, or `all`
    #[arg(long, value_name = "NAMES", default_value = "all")]
    pub workloads: WorkloadNames,
    #[command(flatten)]
    pub limits: LimitArguments,
}

pub const CLEAN_EXAMPLES: &str = "\
Example:
  benchmesh agent clean --allow /mnt/cephfs

It looks for directories of runs directly in the given paths. Give the paths that plans name as targets.
It skips a directory that an agent uses, on this host or on another that mounts it, and a directory that
changed recently. It lists all others and removes them after you confirm. If the file system's locks do
not show whether another host uses a directory, name the ended run with --ended.";

#[derive(Debug, Subcommand)]
pub enum AgentAction {
    /// Find and remove leftovers of crashed runs on targets
    #[command(after_help = CLEAN_EXAMPLES)]
    Clean(CleanArguments),
}

#[derive(Debug, Args)]
pub struct CleanArguments {
    /// A target; may be given several times
    #[arg(long, value_name = "PATH", required_unless_present = "allow_pool", value_hint = ValueHint::DirPath)]
    pub allow: Vec<PathBuf>,
    /// A RADOS pool that was a target; may be given several times. Remove leftovers of runs there with --ended
    #[arg(long, value_name = POOL.value_name)]
    pub allow_pool: Vec<String>,
    /// Skip directories that changed within this time; a run may pause between its steps
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = span)]
    pub unchanged_for: Duration,
    /// A run that you know has ended: remove its directories even if the file system's locks do not show whether an
    /// agent on another host uses them; may be given several times
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
    /// Obtain a certificate with this token from `benchmesh collector token`; ignored once the agent has one
    #[arg(long, value_name = "TOKEN", value_parser = join_token)]
    pub join: Option<JoinToken>,
    /// Read the join token from this file, if the file exists; other users can see command lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "join")]
    pub join_file: Option<PathBuf>,
    /// The agent's name, unique in the mesh [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A label by which plans select agents, e.g. role=client; may be given several times
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub policy: PolicyArguments,
    /// Drop the capabilities that the agent does not use, and the ability to gain new ones
    #[arg(long)]
    pub drop_privileges: bool,
    /// Directory for the data that the collector hasn't stored yet; never on a target
    /// [default: $XDG_STATE_HOME/benchmesh/NAME, as root /var/lib/benchmesh/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// Maximum size of the data that the collector hasn't stored yet, at least 16MiB. Near the limit, the agent merges
    /// seconds and drops samples; at the limit, it drops the oldest data and counts each loss
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
    /// are combined
    #[arg(long, value_name = "RULE", value_parser = daemon_rule)]
    pub watch: Vec<DaemonRule>,
    /// Sampling period of daemons and the host, at least 100ms
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1s")]
    pub sample_period: Duration,
    /// Also sample the host between runs; without this option only from the start of a run to 5 s after its end
    #[arg(long)]
    pub sample_always: bool,
    /// Read the state of the storage cluster with read-only commands: a built-in set (`ceph`, `gluster`), optionally
    /// with arguments ("ceph --conf FILE --id USER"), or your own command as NAME=/PROGRAM ARGUMENTS, which prints a
    /// JSON object or lines such as health=ok; may be given several times
    #[arg(long, value_name = "FACTS")]
    pub facts: Vec<FactSources>,
    /// Minimum time between two readings of --facts, at least 1s: after steps, and while the cluster is degraded
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "10s")]
    pub facts_period: Duration,
    /// Timeout of a --facts command, from 1s to 10m; the agent then kills it
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "60s")]
    pub facts_timeout: Duration,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
    /// Write the raw start of every worker to this file: a reference for the reported skew
    #[arg(long, hide = true, value_name = "FILE")]
    pub start_log: Option<PathBuf>,
}
