//! Facts of a storage cluster: the read-only commands that the agent's own configuration names, and one reading of them.
//!
//! Neither a plan nor a collector names a command. There is no shell. A command that hangs, floods or fails costs its
//! facts and nothing else. When to read is `runner::cluster`'s decision.

mod execute;

use benchmesh_model::systems::fact_sets;
use benchmesh_model::systems::facts::{EACH, FactSet, Facts, parse_own};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

/// Sources of one agent: each costs some processes at every reading.
pub const MAX_SOURCES: usize = 16;
/// Names of one command that runs for each of them.
const MAX_EACH: usize = 16;
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
        /// Follow the program's name: `--conf FILE`.
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
        "`{given}` is no built-in set of facts; those are {known}. An own command is NAME=/PROGRAM ARGUMENTS"
    )]
    Unknown { given: String, known: String },
    #[error("`{0}` names no command: write NAME=/PROGRAM ARGUMENTS, with spaces between them")]
    NoProgram(String),
    #[error("`{0}` is no absolute path: an own command is NAME=/PROGRAM ARGUMENTS")]
    NotAbsolute(String),
    #[error("`{0}` is no name: write letters, digits, dots and dashes, at most {MAX_NAME_BYTES}")]
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

/// What one reading of a source gave.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub facts: Facts,
    /// Commands without facts, with the reason.
    pub failures: Vec<String>,
}

impl FactSource {
    /// The system whose facts they are.
    #[must_use]
    pub fn system(&self) -> &str {
        &self.system
    }

    /// Runs its commands, one after the other, until `stop` is set. Blocks.
    #[must_use]
    pub fn read(&self, stop: &AtomicBool) -> Reading {
        let mut reading = Reading::default();
        match &self.commands {
            Commands::Own { program, arguments } => {
                let parse = |output: &str, facts: &mut Facts| parse_own(output, facts);
                reading.add(program, arguments, stop, parse);
            }
            Commands::BuiltIn { set, arguments } => {
                for command in set.commands {
                    let names = match command.each {
                        None => vec![String::new()],
                        Some(each) => each(&reading.facts),
                    };
                    for name in names.iter().take(MAX_EACH) {
                        let own = command.arguments.iter().map(|argument| match *argument {
                            EACH => name.clone(),
                            argument => argument.to_owned(),
                        });
                        let all: Vec<String> = arguments.iter().cloned().chain(own).collect();
                        let parse =
                            |output: &str, facts: &mut Facts| (command.parse)(output, name, facts);
                        reading.add(set.program, &all, stop, parse);
                    }
                }
                (set.conclude)(&mut reading.facts);
            }
        }
        reading
    }
}

impl Reading {
    fn add<E: std::fmt::Display>(
        &mut self,
        program: &str,
        arguments: &[String],
        stop: &AtomicBool,
        parse: impl Fn(&str, &mut Facts) -> Result<(), E>,
    ) {
        let problem = match execute::output(program, arguments, stop, execute::LIMITS) {
            Ok(output) => parse(&output, &mut self.facts)
                .err()
                .map(|error| error.to_string()),
            Err(error) => Some(benchmesh_workloads::error_chain(&error)),
        };
        if let Some(problem) = problem {
            self.failures
                .push(format!("`{program} {}`: {problem}", arguments.join(" ")));
        }
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
            ("lustre=state", Err("no absolute path")),
            ("lustre=", Err("names no command")),
            ("=/bin/x", Err("is no name")),
            ("beegfs", Err("ceph, gluster")),
            ("", Err("no built-in set")),
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

    #[test]
    fn an_own_command_is_read_without_a_shell() {
        let source: FactSource = "x=/bin/echo health=ok $HOME;id".parse().unwrap();
        let reading = source.read(&AtomicBool::new(false));
        assert_eq!(reading.facts.text("health"), Some("ok $HOME;id"));
        assert!(reading.failures.is_empty(), "{reading:?}");
        let missing: FactSource = "x=/bin/no-such-program".parse().unwrap();
        let reading = missing.read(&AtomicBool::new(false));
        assert!(
            reading.failures.concat().contains("/bin/no-such-program"),
            "{reading:?}"
        );
    }
}
