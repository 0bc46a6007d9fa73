//! Decides which processes are daemons: the built-in ones, and those of the rules in an agent's configuration.
//!
//! Pure: from a process's name, command line and cgroups it determines the daemon's name. The kernel truncates names to
//! 15 characters, so longer ones are compared truncated.

use benchmesh_model::systems::{Daemon, Naming, daemons};
use serde::Deserialize;
use thiserror::Error;

use super::arguments::Arguments;
use super::instance;

/// A rule of the agent's configuration. Every given condition must hold, and at least one must be given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DaemonRule {
    /// The daemon's name in the database.
    pub name: String,
    /// The process's name as the kernel reports it (`ps -o comm`); `*` matches any run of characters.
    #[serde(default)]
    pub comm: Option<String>,
    /// Must occur in the command line, arguments joined by spaces; `*` matches any run of characters.
    #[serde(default)]
    pub cmdline: Option<String>,
    /// Must occur in the path of a cgroup of the process; `*` matches any run of characters.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// systemd unit in which the process runs, with or without `.service`.
    #[serde(default)]
    pub unit: Option<String>,
    /// The option whose value names the instance, such as `--port` or `-p`.
    #[serde(default)]
    pub instance_option: Option<String>,
}

#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RuleError {
    #[error("its name is empty: give the name of the daemon for the database")]
    NoName,
    #[error(
        "it has no condition and would match every process: give comm, cmdline, cgroup or unit"
    )]
    NoCondition,
    #[error("`{key}` is empty and would match every process: leave it out or give a pattern")]
    EmptyPattern { key: &'static str },
}

impl DaemonRule {
    /// Checks the rule. Returns its first mistake.
    pub fn check(&self) -> Result<(), RuleError> {
        if self.name.trim().is_empty() {
            return Err(RuleError::NoName);
        }
        let conditions = [
            ("comm", &self.comm),
            ("cmdline", &self.cmdline),
            ("cgroup", &self.cgroup),
            ("unit", &self.unit),
        ];
        if conditions.iter().all(|(_, condition)| condition.is_none()) {
            return Err(RuleError::NoCondition);
        }
        let matches_all =
            |pattern: &String| pattern.bytes().all(|byte| byte == b'*' || byte == b' ');
        match conditions
            .iter()
            .find(|(_, condition)| condition.as_ref().is_some_and(matches_all))
        {
            Some((key, _)) => Err(RuleError::EmptyPattern { key }),
            None => Ok(()),
        }
    }

    fn holds(&self, process: &ProcessFacts<'_>) -> bool {
        let comm = self
            .comm
            .as_ref()
            .is_none_or(|pattern| comm_matches(pattern, process.comm));
        let cmdline = |pattern: &String| occurs(pattern, &process.arguments.joined());
        let cgroup =
            |pattern: &String| cgroup_paths(process.cgroups).any(|path| occurs(pattern, path));
        let unit = |pattern: &String| {
            cgroup_paths(process.cgroups)
                .flat_map(|path| path.split('/'))
                .any(|component| {
                    matches(pattern, component)
                        || component
                            .strip_suffix(".service")
                            .is_some_and(|unit| matches(pattern, unit))
                })
        };
        comm && self.cmdline.as_ref().is_none_or(cmdline)
            && self.cgroup.as_ref().is_none_or(cgroup)
            && self.unit.as_ref().is_none_or(unit)
    }
}

/// The facts about a process that rules can match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessFacts<'facts> {
    pub(crate) comm: &'facts str,
    pub(crate) arguments: &'facts Arguments,
    /// The text of `/proc/PID/cgroup`; empty unless a rule needs it.
    pub(crate) cgroups: &'facts str,
}

/// The identity of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) instance: String,
}

/// How much of a process must be read to decide on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needed {
    None,
    CommandLine,
    CommandLineAndCgroups,
}

#[derive(Debug, Clone)]
pub(crate) struct Rules {
    own: Vec<DaemonRule>,
}

impl Rules {
    /// Checks the rules. Returns the first invalid one, with its name.
    pub(crate) fn new(own: Vec<DaemonRule>) -> Result<Rules, (String, RuleError)> {
        match own
            .iter()
            .find_map(|rule| rule.check().err().map(|error| (rule.name.clone(), error)))
        {
            Some(wrong) => Err(wrong),
            None => Ok(Rules { own }),
        }
    }

    /// What must be read to decide on a process with this name. Most need only the name.
    pub(crate) fn needed(&self, comm: &str) -> Needed {
        let possible = |rule: &&DaemonRule| {
            rule.comm
                .as_ref()
                .is_none_or(|pattern| comm_matches(pattern, comm))
        };
        let mut possible = self.own.iter().filter(possible).peekable();
        if possible.peek().is_none() {
            return if built_in(comm).is_some() {
                Needed::CommandLine
            } else {
                Needed::None
            };
        }
        match possible.any(|rule| rule.cgroup.is_some() || rule.unit.is_some()) {
            true => Needed::CommandLineAndCgroups,
            false => Needed::CommandLine,
        }
    }

    /// The identity of the process, if it is a daemon. The configuration's rules come first.
    pub(crate) fn identify(&self, process: &ProcessFacts<'_>) -> Option<Identity> {
        // A program that prints and leaves. Other short-lived processes are excluded by their age
        // (`daemons/withheld.rs`).
        if process.arguments.have_any(&["--version", "--help"]) {
            return None;
        }
        let built_in = built_in(process.comm);
        if let Some(rule) = self.own.iter().find(|rule| rule.holds(process)) {
            let instance = match &rule.instance_option {
                Some(option) => process
                    .arguments
                    .option(&[option.as_str()])
                    .unwrap_or_default()
                    .to_owned(),
                None => {
                    let naming = built_in.map_or(Naming::None, |known| known.naming);
                    instance::of(naming, process.comm, process.arguments)
                }
            };
            return Some(Identity {
                name: rule.name.clone(),
                instance,
            });
        }
        let known = built_in?;
        Some(Identity {
            name: known.name.to_owned(),
            instance: instance::of(known.naming, process.comm, process.arguments),
        })
    }
}

fn built_in(comm: &str) -> Option<&'static Daemon> {
    daemons()
        .iter()
        .find(|known| comm_matches(known.comm, comm))
}

/// The kernel keeps 15 characters of a name.
const COMM_MAX: usize = 15;

fn comm_matches(pattern: &str, comm: &str) -> bool {
    let cut = |length: usize| pattern.get(..length).is_some_and(|head| head == comm);
    matches(pattern, comm) || (pattern.len() > COMM_MAX && comm.len() == COMM_MAX && cut(COMM_MAX))
}

/// The third field of each line: `ID:CONTROLLERS:PATH`.
fn cgroup_paths(cgroups: &str) -> impl Iterator<Item = &str> {
    cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
}

/// Whether the pattern occurs anywhere in the text.
fn occurs(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(place) => {
            rest = rest
                .get(place.saturating_add(part.len())..)
                .unwrap_or_default();
            true
        }
        None => false,
    })
}

/// Whether the pattern matches the whole text; `*` matches any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    text.strip_suffix(last)
        .is_some_and(|text| occurs(middle, text))
}

#[cfg(test)]
mod tests;
