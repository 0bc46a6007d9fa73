//! The options of the long-lived processes: quickstart, collector and agent.

use super::values::{DEFAULT_COLLECTOR, address, daemon_rule, label, listener, span};
use benchmesh_agent::sampler::DaemonRule;
use clap::{Args, ValueHint};
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
  BENCHMESH_LOG=debug benchmesh collector --listen 127.0.0.1:0

SIGTERM or Ctrl-C ends it cleanly: what it received is stored, and agents keep what it did not.";

pub const AGENT_EXAMPLES: &str = "\
Examples:
  benchmesh agent --label role=client --allow /mnt/cephfs --allow /mnt/gluster
  benchmesh agent --label role=storage                     watches the daemons of a storage node
  benchmesh agent --watch mysqld --watch 'name=shard,cmdline=*--shard=*,instance-option=--port'

The daemons of Ceph, GlusterFS, Sheepdog, MooseFS, NFS and the like are watched without being named.

An agent works only beneath the paths that it is told to allow; nothing is allowed by default.";

#[derive(Debug, Args)]
pub struct QuickstartArguments {
    /// Where the database goes
    #[arg(long, value_name = "FILE", default_value = "benchmesh-quickstart.db", value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
}

#[derive(Debug, Args)]
pub struct CollectorArguments {
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_COLLECTOR, value_parser = listener)]
    pub listen: SocketAddr,
    /// The database; made if it is not there
    #[arg(long, value_name = "FILE", env = "BENCHMESH_DB", default_value = "benchmesh.db", value_hint = ValueHint::FilePath)]
    pub db: PathBuf,
    /// Write the address that it really listens on to this file, once it serves
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub address_file: Option<PathBuf>,
    /// Serve other machines without TLS: only on a network that you trust
    #[arg(long)]
    pub insecure: bool,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
    /// Let mesh time run so many millionths fast: to try the agents' clocks
    #[arg(long, hide = true, value_name = "PPM", default_value_t = 0, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    pub clock_ppm: i32,
}

#[derive(Debug, Args)]
pub struct AgentArguments {
    /// Where the collector listens
    #[arg(long, value_name = "HOST:PORT", env = "BENCHMESH_COLLECTOR", default_value = DEFAULT_COLLECTOR, value_parser = address)]
    pub collector: String,
    /// The agent's name, unique in the mesh [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A label that plans select by, e.g. role=client; may be given several times
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// A directory that targets may lie in; may be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub allow: Vec<PathBuf>,
    /// A raw block device that targets may be, and whose content is lost; may be given several times
    #[arg(long = "allow-device", value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub allow_devices: Vec<PathBuf>,
    /// A directory that sources may be read from; may be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub allow_read: Vec<PathBuf>,
    /// Where the agent keeps what the collector hasn't stored yet; never on a target
    /// [default: $XDG_STATE_HOME/benchmesh/NAME, as root /var/lib/benchmesh/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// A local directory for data that are not on a target, e.g. the other end of copies
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
    /// The address where other agents reach this one [default: as the collector sees it]
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Another daemon to watch: its process name, or name=N with comm=, cmdline=, cgroup=, unit= or instance-option=,
    /// comma-separated; may be given several times
    #[arg(long, value_name = "RULE", value_parser = daemon_rule)]
    pub watch: Vec<DaemonRule>,
    /// How often daemons and the host are sampled, from 100ms on
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1s")]
    pub sample_period: Duration,
    /// Speak to a collector on another machine without TLS: only on a network that you trust
    #[arg(long)]
    pub insecure: bool,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
    /// Write the raw start of every worker to this file: to hold the reported skew against
    #[arg(long, hide = true, value_name = "FILE")]
    pub start_log: Option<PathBuf>,
}
