//! How a command ends: the exit codes of the contract, and an error told once, with its whole chain.

use crate::{output, terminal};
use std::fmt;
use std::io;
use std::process::ExitCode;

pub const FAILED: u8 = 1;
pub const WRONG_USAGE: u8 = 2;
pub const PARTIAL: u8 = 3;
pub const REGRESSION: u8 = 10;

/// What came of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Done, but something is missing from the result.
    Partial,
    /// The work was done and its subject, the run, failed; all has been said.
    RunFailed,
    /// A comparison fulfils a condition of --fail-if.
    Regression,
    /// `doctor` has found what keeps an agent from working; all has been said.
    Unfit,
    /// The plan has mistakes, all of which have been printed.
    WrongPlan,
}

impl Outcome {
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Partial => PARTIAL,
            Self::RunFailed | Self::Unfit => FAILED,
            Self::Regression => REGRESSION,
            Self::WrongPlan => WRONG_USAGE,
        })
    }
}

/// Marks an error as a mistake of whoever typed the command or wrote the plan.
#[derive(Debug)]
pub struct WrongUsage(pub String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// An error with exit code 2.
pub fn wrong_usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(WrongUsage(message.into()))
}

pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(code(error))
}

pub fn code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<WrongUsage>().is_some() {
        WRONG_USAGE
    } else {
        FAILED
    }
}

/// Whether the error is only that nobody reads standard output any more (`| head`).
pub fn reader_left(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }) && error.downcast_ref::<output::StdoutClosed>().is_some()
}

/// Prints the chain to standard error, and as a document to standard output when JSON was asked for.
pub fn print_error(error: &anyhow::Error, json: bool) {
    let message = chain(error);
    if json && error.downcast_ref::<output::DocumentClosed>().is_none() {
        output::json_error(&message, code(error));
    }
    output::print_notice(&terminal::clean_lines(&format!("error: {message}")));
}

/// Each cause on its own line, unless its text already stands in the one before.
pub fn chain(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    let mut last = message.clone();
    for cause in error.chain().skip(1) {
        // Some libraries repeat their cause in their own message.
        let text = cause.to_string();
        if !last.contains(&text) {
            message.push_str("\n  because: ");
            message.push_str(&text.replace('\n', "\n  "));
            last = text;
        }
    }
    message
}

/// The same on one line, for an error of a library.
pub use benchmesh_collector::error_chain as causes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_told_once() {
        let root = io::Error::other("no space");
        let error = anyhow::Error::new(root)
            .context("write it: no space")
            .context("keep the report");
        assert_eq!(
            chain(&error),
            "keep the report\n  because: write it: no space"
        );
        let error = anyhow::anyhow!("down")
            .context("dial")
            .context("run the plan");
        assert_eq!(
            chain(&error),
            "run the plan\n  because: dial\n  because: down"
        );
    }

    #[test]
    fn wrong_usage_keeps_its_code_beneath_contexts() {
        assert_eq!(code(&wrong_usage("no")), WRONG_USAGE);
        assert_eq!(
            code(&wrong_usage("no").context("check the plan")),
            WRONG_USAGE
        );
        assert_eq!(code(&anyhow::anyhow!("no")), FAILED);
    }
}
