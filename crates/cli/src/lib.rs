//! The command line of benchmesh: arguments, terminal tables, progress. A thin layer over the library crates, which
//! plan, measure, store and report.
//!
//! Results go to standard output, everything else to standard error. `--format json` always prints one valid document,
//! also on failure. Exit codes: 0 done, 1 failed, 2 wrong usage or plan, 3 done but partial.

mod args;
mod client;
mod command;
pub mod config_file;
mod daemon;
mod failure;
mod follow;
mod input_file;
mod interrupts;
mod junit;
mod local_mesh;
mod logging;
mod output;
mod progress;
mod systemd;
mod terminal;

use clap::error::ErrorKind;
use config_file::ParseError;
use failure::Outcome;
use std::process::ExitCode;

/// The definition of the command line, from which man pages are generated.
#[must_use]
pub fn definition() -> clap::Command {
    args::definition::definition()
}

/// Parses the command line, executes it, and maps the outcome to an exit code.
pub fn main() -> ExitCode {
    let arguments = match config_file::parse(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(ParseError::Typed(error)) => return refuse(&error),
        Err(ParseError::File(error)) => {
            failure::print_error(&error, false);
            return failure::exit_code(&error);
        }
    };
    logging::start(&arguments.command);
    let json = arguments.command.answers_in_json();
    match command::execute(arguments) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) if failure::reader_left(&error) => Outcome::Done.exit_code(),
        Err(error) => {
            failure::print_error(&error, json);
            failure::exit_code(&error)
        }
    }
}

/// Help and the version are normal output; anything else is wrong usage.
fn refuse(error: &clap::Error) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if !asked && output::json_was_asked(std::env::args_os()) {
        output::json_error(&error.render().to_string(), failure::WRONG_USAGE);
    }
    // Standard output or error may be closed.
    let _ = error.print();
    if asked {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(failure::WRONG_USAGE)
    }
}
