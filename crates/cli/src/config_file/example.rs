//! The annotated example of a configuration file: every key with its documentation, generated from the command line.

use super::{built, keys};
use clap::{Arg, ArgAction};
use std::fmt::Write;

/// Wider lines are wrapped.
const WIDTH: usize = 100;

/// The file for the command `name`: every key, commented out, in the order of `--help`. Empty for an unknown command.
#[must_use]
pub fn example(name: &str) -> String {
    let Some(command) = built(name) else {
        return String::new();
    };
    let mut text = format!(
        "# benchmesh {name} --config FILE: every key, with its default where there is one.\n\
         #\n\
         # A key is a long option of `benchmesh {name}`. The command line overrides the environment, which\n\
         # overrides this file. A list stands for an option that may be given several times.\n\
         # `systemctl reload` (SIGHUP) reloads the file.\n"
    );
    for arg in keys(&command) {
        text.push('\n');
        for line in wrapped(&meaning(arg), WIDTH - 2) {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(
            text,
            "#{} = {}",
            arg.get_long().unwrap_or_default(),
            value(arg)
        );
    }
    text
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| value.get_name().to_owned())
        .collect();
    if !values.is_empty() {
        let _ = write!(text, " [one of: {}]", values.join(", "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " [environment: {}]", variable.to_string_lossy());
    }
    text
}

/// The value in the example: the default, otherwise the placeholder of the help.
fn value(arg: &Arg) -> String {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return "false".to_owned();
    }
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| literal(&value.to_string_lossy()))
        .collect();
    let names = arg.get_value_names().unwrap_or_default();
    let placeholder = names.first().map_or("...", |name| name.as_str());
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    match (defaults.first(), is_list) {
        (Some(_), true) => format!("[{}]", defaults.join(", ")),
        (Some(default), false) => default.clone(),
        (None, true) => format!("[\"{placeholder}\"]"),
        (None, false) => format!("\"{placeholder}\""),
    }
}

fn literal(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("\"{}\"", text.escape_default()),
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let is_full = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.len() + 1 + word.len() > width);
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
