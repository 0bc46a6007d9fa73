//! The whole command line: the declared commands, listed by what a person wants, and `--insecure` where it has a
//! meaning.

use super::Arguments;
use crate::terminal;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// What a person wants, and the commands for it, in the order of `--help`. A test holds every command in exactly one
/// group.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Measure",
        &["measure", "run", "plan", "watch", "stop", "resume", "mark"],
    ),
    ("Try", &["quickstart"]),
    (
        "Set up",
        &[
            "collector",
            "agent",
            "agents",
            "doctor",
            "join",
            "completions",
        ],
    ),
    (
        "Answer",
        &["report", "compare", "findings", "query", "runs"],
    ),
    ("Keep", &["tag", "note", "data", "import", "db", "archive"]),
];

const INSECURE: &str = "insecure";
const INSECURE_HELP: &str =
    "Connect and serve without TLS, on both sides; only for a network that you trust";
/// Width of the list of commands.
const WIDTH: usize = 100;

/// The command line as clap parses it.
pub fn definition() -> Command {
    let command = with_insecure(Arguments::command());
    let commands = grouped(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Parses a command line without a configuration file.
///
/// # Errors
/// As clap's, for help too.
pub fn parse<T: Into<OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<Arguments, clap::Error> {
    of(&definition().try_get_matches_from(line)?)
}

/// The arguments of a command line that clap has parsed.
///
/// # Errors
/// If `--insecure` precedes a command that connects to nothing.
pub fn of(matches: &ArgMatches) -> Result<Arguments, clap::Error> {
    let mut arguments = Arguments::from_arg_matches(matches)?;
    let mut names = Vec::new();
    let mut place = matches;
    let mut command = &definition();
    while let Some((name, inner)) = place.subcommand() {
        names.push(name);
        place = inner;
        command = command.find_subcommand(name).unwrap_or(command);
        arguments.insecure |= matches!(place.try_get_one(INSECURE), Ok(Some(true)));
    }
    let has_meaning = command.get_arguments().any(|arg| arg.get_id() == INSECURE);
    if arguments.insecure && !has_meaning {
        let message = format!(
            "`benchmesh {}` connects to nothing: remove --insecure\n",
            names.join(" ")
        );
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
    }
    Ok(arguments)
}

/// Adds `--insecure` to the collector, and to each command that connects to one.
fn with_insecure(command: Command) -> Command {
    // Joining is about certificates.
    let serves_or_connects = |command: &Command| {
        let mut arguments = command.get_arguments();
        command.get_name() == "collector"
            || command.get_name() != "join" && arguments.any(|arg| arg.get_id() == "collector")
    };
    let names: Vec<String> = (command.get_subcommands())
        .map(|sub| sub.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| {
            let sub = with_insecure(sub);
            match serves_or_connects(&sub) {
                false => sub,
                true => sub.arg(
                    Arg::new(INSECURE)
                        .long(INSECURE)
                        .help(INSECURE_HELP)
                        .action(ArgAction::SetTrue),
                ),
            }
        })
    })
}

/// The commands with their meanings, by group.
fn grouped(command: &Command) -> String {
    let names = command.get_subcommands().map(Command::get_name);
    let widest = names.map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for (group, names) in GROUPS {
        let commands = names
            .iter()
            .filter_map(|name| command.find_subcommand(name));
        text.push_str(group);
        text.push_str(":\n");
        for command in commands {
            let about = command.get_about().map(ToString::to_string);
            let about = terminal::wrapped(&about.unwrap_or_default(), WIDTH - widest - 4);
            for (at, line) in about.iter().enumerate() {
                let name = if at == 0 { command.get_name() } else { "" };
                text.push_str(&format!("  {name:widest$}  {line}\n"));
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let command = definition();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let names: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        for name in &names {
            let places = grouped.iter().filter(|one| *one == name).count();
            assert_eq!(places, 1, "{name}");
        }
        for name in grouped {
            // It is built separately.
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn insecure_is_taken_where_something_connects() {
        for (line, expected) in [
            ("benchmesh run p --insecure", Some(true)),
            ("benchmesh --insecure run p", Some(true)),
            ("benchmesh run p", Some(false)),
            ("benchmesh collector --insecure", Some(true)),
            ("benchmesh collector token --insecure", Some(true)),
            ("benchmesh agents forget node7 --insecure", Some(true)),
            ("benchmesh --insecure agents forget node7", Some(true)),
            ("benchmesh plan show p --insecure", Some(true)),
            ("benchmesh plan check p --insecure", None),
            ("benchmesh --insecure plan check p", None),
            ("benchmesh --insecure completions bash", None),
            ("benchmesh quickstart --insecure", None),
            ("benchmesh --insecure quickstart", None),
        ] {
            let parsed = parse(line.split_whitespace());
            match expected {
                Some(expected) => assert_eq!(parsed.unwrap().insecure, expected, "{line}"),
                None => assert_eq!(parsed.unwrap_err().exit_code(), 2, "{line}"),
            }
        }
    }
}
