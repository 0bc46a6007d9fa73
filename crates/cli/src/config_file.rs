//! Configuration files of `benchmesh agent` and `benchmesh collector`.
//!
//! A key is a long option of the command without its dashes. The file is converted to options, which clap parses as if
//! they had been typed, so that a new option becomes a key without code here. The command line overrides the
//! environment, which overrides the file. Hidden options are not keys.

pub mod example;
mod reload;

pub use reload::{ConfigFile, ReloadedConfig, Reloads};

use crate::args::Arguments;
use crate::args::definition::{self, definition};
use crate::failure::wrong_usage;
use crate::input_file::{self, Accept};
use benchmesh_model::text::{did_you_mean, nearest};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The option that names the file; not a key itself.
const OPTION: &str = "config";

/// Maximum size of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why parsing gave no arguments.
#[derive(Debug)]
pub enum ParseError {
    /// The command line has an error or asks for help.
    Typed(clap::Error),
    /// The configuration file has an error.
    File(anyhow::Error),
}

/// Parses a command line, and the configuration file that it names.
///
/// # Errors
/// If either has a mistake.
pub fn parse(line: Vec<OsString>) -> Result<Arguments, ParseError> {
    let matches = definition()
        .try_get_matches_from(&line)
        .map_err(ParseError::Typed)?;
    let Some((name, typed)) = matches.subcommand() else {
        return definition::of(&matches).map_err(ParseError::Typed);
    };
    let Some(file) = file_of(typed) else {
        return definition::of(&matches).map_err(ParseError::Typed);
    };
    let options = read(file, name)
        .map_err(ParseError::File)?
        .into_iter()
        .filter(|option| !is_given(typed, &option.id))
        .map(|option| option.argument);
    let mut whole = line.clone();
    // Only flags without values can precede the command.
    let after = line.iter().skip(1).position(|word| word == name);
    let at = after.map_or(whole.len(), |position| position + 2);
    whole.splice(at..at, options);
    definition::parse(whole).map_err(|error| {
        // Each value is valid by itself: two options contradict each other.
        let text = error.render().to_string();
        ParseError::File(wrong_usage(format!(
            "the configuration file {} with the options of the command line: {}",
            file.display(),
            text.trim_start_matches("error: ").trim_end()
        )))
    })
}

fn file_of(matches: &ArgMatches) -> Option<&Path> {
    let file = matches.try_get_one::<std::path::PathBuf>(OPTION).ok()??;
    Some(file)
}

/// Whether the command line or the environment sets it.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let source = matches
        .try_contains_id(id)
        .ok()
        .and_then(|_| matches.value_source(id));
    matches!(
        source,
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

/// One value of the file, as an argument.
struct FileOption {
    id: String,
    argument: OsString,
}

/// The options allowed in a file of the command.
fn keys(command: &Command) -> Vec<&Arg> {
    command
        .get_arguments()
        .filter(|arg| {
            let is_value = matches!(
                arg.get_action(),
                ArgAction::Set | ArgAction::Append | ArgAction::SetTrue
            );
            arg.get_long().is_some()
                && is_value
                && !arg.is_hide_set()
                && arg.get_id().as_str() != OPTION
        })
        .collect()
}

/// The command with all of its options.
fn built(name: &str) -> Option<Command> {
    let mut all = definition();
    all.build();
    all.find_subcommand(name).cloned()
}

fn read(file: &Path, name: &str) -> anyhow::Result<Vec<FileOption>> {
    let text = read_file(file).map_err(|error| {
        wrong_usage(format!(
            "the configuration file {} cannot be read: {error}",
            file.display()
        ))
    })?;
    options(&text, &file.display().to_string(), name)
        .map_err(|mistakes| wrong_usage(mistakes.join("\n")))
}

/// An agent reads its file while it runs, so that only a regular file will do.
fn read_file(file: &Path) -> std::io::Result<String> {
    input_file::read_text(file, MAX_FILE_BYTES, Accept::RegularFile)
}

/// Every value of the file as an option of the command `name`.
fn options(text: &str, file: &str, name: &str) -> Result<Vec<FileOption>, Vec<String>> {
    // `doctor` reads an agent's file.
    let owner = if name == "doctor" { "agent" } else { name };
    let command = built(owner).ok_or_else(|| vec![format!("there is no command {name}")])?;
    let keys = keys(&command);
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, &span));
        vec![format!("{file}:{line}: {}", error.message())]
    })?;
    let mut options = Vec::new();
    let mut mistakes = Vec::new();
    for (key, value) in document.get_ref() {
        let known = keys
            .iter()
            .find(|arg| arg.get_long() == Some(key.get_ref().as_ref()));
        let read = match known {
            Some(arg) => arguments(arg, value).and_then(|arguments| {
                check(name, &arguments)?;
                Ok((arg, arguments))
            }),
            None => Err(unknown(key.get_ref(), &keys)),
        };
        match read {
            Ok((arg, arguments)) => {
                options.extend(arguments.into_iter().map(|argument| FileOption {
                    id: arg.get_id().to_string(),
                    argument,
                }))
            }
            Err(problem) => mistakes.push((
                line_of(text, &key.span()),
                format!("`{}`: {problem}", key.get_ref()),
            )),
        }
    }
    if mistakes.is_empty() {
        return Ok(options);
    }
    mistakes.sort();
    let mistakes = mistakes.into_iter();
    Err(mistakes
        .map(|(line, problem)| format!("{file}:{line}: {problem}"))
        .collect())
}

fn unknown(key: &str, keys: &[&Arg]) -> String {
    let names = keys.iter().filter_map(|arg| arg.get_long());
    match nearest(key, names) {
        Some(name) => format!("unknown key; {}", did_you_mean(&format!("`{name}`"))),
        None => "unknown key; the keys are the long options of the command".to_owned(),
    }
}

/// One key as arguments: none for a disabled flag, several for a list.
fn arguments(arg: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<OsString>, String> {
    let long = arg.get_long().unwrap_or_default();
    let flag = OsString::from(format!("--{long}"));
    let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
    let may_be_bare = arg
        .get_num_args()
        .is_some_and(|range| range.min_values() == 0);
    let with = |text: &str| OsString::from(format!("--{long}={text}"));
    match value.get_ref() {
        DeValue::Boolean(true) if is_flag || may_be_bare => Ok(vec![flag]),
        DeValue::Boolean(false) if is_flag || may_be_bare => Ok(Vec::new()),
        _ if is_flag => Err("write true or false".to_owned()),
        DeValue::Array(values) if matches!(arg.get_action(), ArgAction::Append) => values
            .iter()
            .map(|value| Ok(with(&scalar(value.get_ref())?)))
            .collect(),
        DeValue::Array(_) => Err("it takes one value, not a list".to_owned()),
        value => Ok(vec![with(&scalar(value)?)]),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err("write a string in quotes, a number, or a list of these".to_owned())
        }
    }
}

/// Checks each value of one key with clap.
fn check(name: &str, arguments: &[OsString]) -> Result<(), String> {
    let line = [OsString::from("benchmesh"), OsString::from(name)]
        .into_iter()
        .chain(arguments.iter().cloned());
    match definition().try_get_matches_from(line) {
        Ok(_) => Ok(()),
        // Another key of the file may supply it.
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => Ok(()),
        Err(error) => Err(first_words(&error)),
    }
}

/// The problem without clap's advice on the command line.
fn first_words(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ");
    let words = text.split("\n\nFor more information").next();
    let words = words.unwrap_or(text).split("\n\nUsage").next();
    let words = words.unwrap_or(text).trim();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lines are counted from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().get(..span.start).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
