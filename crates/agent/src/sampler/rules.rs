//! Which processes are daemons: built-in names, and the rules of an agent's configuration.
//!
//! Pure: it is given a process's name, command line and cgroups, and says what the daemon is called. The kernel cuts
//! names at 15 characters, so longer ones are compared as cut.

use serde::Deserialize;
use thiserror::Error;

/// A rule of the agent's configuration. Every condition that is given must hold, and at least one must be given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DaemonRule {
    /// What the daemon is called in the database.
    pub name: String,
    /// The process's name as the kernel has it (`ps -o comm`); `*` stands for any run of characters.
    #[serde(default)]
    pub comm: Option<String>,
    /// Must occur in the command line, arguments joined by blanks; `*` stands for any run of characters.
    #[serde(default)]
    pub cmdline: Option<String>,
    /// Must occur in the path of a cgroup of the process; `*` stands for any run of characters.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// systemd unit that the process runs in, with or without `.service`.
    #[serde(default)]
    pub unit: Option<String>,
    /// The option whose value names the instance, such as `--port` or `-p`.
    #[serde(default)]
    pub instance_option: Option<String>,
}

#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RuleError {
    #[error("its name is empty: give the name that the daemon shall have in the database")]
    NoName,
    #[error(
        "it has no condition and would match every process: give comm, cmdline, cgroup or unit"
    )]
    NoCondition,
    #[error("`{key}` is empty and would match every process: leave it out or give a pattern")]
    EmptyPattern { key: &'static str },
}
