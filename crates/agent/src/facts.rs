//! Facts of a storage cluster: the read-only commands that the agent's own configuration names, and one reading of
//! them.
//!
//! Neither a plan nor a collector can name a command. No shell is involved. A command that hangs, floods or fails only
//! loses its own facts. `runner::cluster` decides when to read.

use crate::execute::{self, ExecuteError, Limits};
use benchmesh_model::systems::fact_sets;
use benchmesh_model::systems::facts::{EACH, FactSet, Facts, parse_own};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum number of sources of one agent. Each source starts some processes at every reading.
pub const MAX_SOURCES: usize = 16;
/// Maximum number of names for a command that runs once per name.
const MAX_EACH: usize = 16;
const MAX_OUTPUT_BYTES: usize = 1 << 20;
const MAX_NAME_BYTES: usize = 32;

/// Where facts come from: a built-in set of commands, or one command of the operator's own.
#[derive(Clone, Debug)]
pub struct FactSource {
    system: String,
    commands: Commands,
}

#[derive(Clone, Debug)]
enum Commands {
    BuiltIn {
        set: &'static FactSet,
        /// Arguments that follow the program's name: `--conf FILE`.
        arguments: Vec<String>,
    },
    Own {
        program: String,
        arguments: Vec<String>,
    },
}

/// The sources that one text names: `ceph,gluster`, `ceph --conf FILE`, `NAME=/PROGRAM ARGUMENTS`.
#[derive(Clone, Debug)]
pub struct FactSources(pub Vec<FactSource>);

/// A mistake in the text of a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error(
        "`{given}` is not a built-in set of facts; the sets are {known}. Write your own command as \
         NAME=/PROGRAM ARGUMENTS"
    )]
    Unknown { given: String, known: String },
    #[error("`{0}` names no command: write NAME=/PROGRAM ARGUMENTS, with spaces between them")]
    NoProgram(String),
    #[error("`{0}` is not an absolute path: write your own command as NAME=/PROGRAM ARGUMENTS")]
    NotAbsolute(String),
    #[error(
        "`{0}` is not a valid name: write letters, digits, dots and dashes, at most {MAX_NAME_BYTES}"
    )]
    Name(String),
}

impl FromStr for FactSources {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let is_list = !text.trim().contains([' ', '=']);
        let sources = match is_list {
            true => text.split(',').map(FactSource::from_str).collect(),
            false => FactSource::from_str(text).map(|source| vec![source]),
        };
        sources.map(Self)
    }
}

impl FromStr for FactSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        let own = text
            .split_once('=')
            .filter(|(name, _)| !name.trim().contains(' '));
        if let Some((name, command)) = own {
            return own_command(name.trim(), command);
        }
        let mut words = text.split_whitespace().map(str::to_owned);
        let name = words.next().unwrap_or_default();
        let sets = fact_sets();
        let set = sets.iter().find(|set| set.system == name);
        let set = set.ok_or_else(|| {
            let known: Vec<&str> = sets.iter().map(|set| set.system).collect();
            SourceError::Unknown {
                given: name.clone(),
                known: known.join(", "),
            }
        })?;
        Ok(Self {
            system: name,
            commands: Commands::BuiltIn {
                set,
                arguments: words.collect(),
            },
        })
    }
}

fn own_command(name: &str, command: &str) -> Result<FactSource, SourceError> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_of_name) {
        return Err(SourceError::Name(name.to_owned()));
    }
    let mut words = command.split_whitespace().map(str::to_owned);
    let program = words
        .next()
        .ok_or_else(|| SourceError::NoProgram(name.to_owned()))?;
    if !Path::new(&program).is_absolute() {
        return Err(SourceError::NotAbsolute(program));
    }
    Ok(FactSource {
        system: name.to_owned(),
        commands: Commands::Own {
            program,
            arguments: words.collect(),
        },
    })
}

/// Result of one reading of a source.
#[derive(Clone, Debug, Default)]
pub struct FactsReading {
    pub facts: Facts,
    /// Commands that returned no facts.
    pub failures: Vec<Failure>,
}

/// A command that returned no facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Without the arguments from the agent's configuration, which may contain secrets.
    pub command: String,
    pub problem: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.command, self.problem)
    }
}

/// Whether to try the next command of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextCommand {
    Try,
    Skip,
}

impl FactSource {
    /// The system that the facts describe.
    #[must_use]
    pub fn system(&self) -> &str {
        &self.system
    }

    /// Runs the commands of the source in order, until `stop` is set or one exceeds `timeout`. Blocks.
    #[must_use]
    pub fn read(&self, stop: &AtomicBool, timeout: Duration) -> FactsReading {
        let limits = Limits {
            time: timeout,
            bytes: MAX_OUTPUT_BYTES,
        };
        let mut reading = FactsReading::default();
        match &self.commands {
            Commands::Own { program, arguments } => {
                let output = standard_output(program, arguments, stop, limits);
                reading.add(program.clone(), output, parse_own);
            }
            Commands::BuiltIn { set, arguments } => {
                'commands: for command in set.commands {
                    let names = match command.each {
                        None => vec![String::new()],
                        Some(each) => each(&reading.facts),
                    };
                    for name in names.iter().take(MAX_EACH) {
                        let own = command.arguments.iter().map(|argument| match *argument {
                            EACH => name.clone(),
                            argument => argument.to_owned(),
                        });
                        let own: Vec<String> = own.collect();
                        let shown = format!("{} {}", set.program, own.join(" "));
                        let all: Vec<String> = arguments.iter().cloned().chain(own).collect();
                        let output = standard_output(set.program, &all, stop, limits);
                        let parse =
                            |output: &str, facts: &mut Facts| (command.parse)(output, name, facts);
                        if reading.add(shown, output, parse) == NextCommand::Skip {
                            break 'commands;
                        }
                    }
                }
                (set.conclude)(&mut reading.facts);
            }
        }
        reading
    }
}

fn standard_output(
    program: &str,
    arguments: &[String],
    stop: &AtomicBool,
    limits: Limits,
) -> Result<String, ExecuteError> {
    let mut command = Command::new(program);
    command.args(arguments);
    execute::output(command, stop, limits)
}

impl FactsReading {
    fn add<E: fmt::Display>(
        &mut self,
        command: String,
        output: Result<String, ExecuteError>,
        parse: impl Fn(&str, &mut Facts) -> Result<(), E>,
    ) -> NextCommand {
        let (problem, next) = match output {
            Ok(output) => match parse(&output, &mut self.facts) {
                Ok(()) => return NextCommand::Try,
                Err(error) => (error.to_string(), NextCommand::Try),
            },
            Err(ExecuteError::Stopped) => return NextCommand::Skip,
            Err(error) => {
                let next = match error {
                    // If the cluster does not answer this command, it will not answer the next one either.
                    ExecuteError::TooLong(_) => NextCommand::Skip,
                    _ => NextCommand::Try,
                };
                (benchmesh_workloads::error_chain(&error), next)
            }
        };
        self.failures.push(Failure { command, problem });
        next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sources_are_sets_or_own_commands() {
        for (text, expected) in [
            ("ceph", Ok(vec!["ceph"])),
            ("ceph,gluster", Ok(vec!["ceph", "gluster"])),
            ("ceph --conf=/etc/c --id reader", Ok(vec!["ceph"])),
            ("lustre=/bin/state --json", Ok(vec!["lustre"])),
            ("lustre=state", Err("not an absolute path")),
            ("lustre=", Err("names no command")),
            ("=/bin/x", Err("is not a valid name")),
            ("beegfs", Err("ceph, gluster")),
            ("", Err("not a built-in set")),
        ] {
            let found = text.parse::<FactSources>();
            match (found, expected) {
                (Ok(found), Ok(systems)) => {
                    let found: Vec<&str> = found.0.iter().map(FactSource::system).collect();
                    assert_eq!(found, systems, "{text}");
                }
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{text}: {error}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    fn read(source: &str) -> FactsReading {
        let source: FactSource = source.parse().unwrap();
        source.read(&AtomicBool::new(false), Duration::from_secs(20))
    }

    #[test]
    fn an_own_command_is_read_without_a_shell() {
        let reading = read("x=/bin/echo health=ok $HOME;id");
        assert_eq!(reading.facts.text("health"), Some("ok $HOME;id"));
        assert!(reading.failures.is_empty(), "{reading:?}");
    }

    #[test]
    fn a_failure_names_the_command_without_its_arguments() {
        let reading = read("x=/bin/no-such-program --key SECRET");
        let [failure] = reading.failures.as_slice() else {
            panic!("{reading:?}");
        };
        assert_eq!(failure.command, "/bin/no-such-program");
        assert!(!failure.to_string().contains("SECRET"), "{failure}");
    }

    #[test]
    fn a_stop_is_no_failure() {
        let source: FactSource = "x=/bin/sleep 20".parse().unwrap();
        let reading = source.read(&AtomicBool::new(true), Duration::from_secs(20));
        assert!(reading.failures.is_empty(), "{reading:?}");
    }
}
