//! How a command ends: the documented exit codes, and an error printed once with its whole chain.

use crate::{output, terminal};
use std::fmt;
use std::io;
use std::process::ExitCode;

pub const FAILED: u8 = 1;
pub const WRONG_USAGE: u8 = 2;
pub const PARTIAL: u8 = 3;
pub const REGRESSION: u8 = 10;

/// The result of a command that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Done, but a part of the result is missing.
    Partial,
    /// The command completed, but its run failed; everything has been printed.
    RunFailed,
    /// A condition of --fail-if holds, or an objective of the command line is broken.
    Regression,
    /// `doctor` found a problem that prevents an agent from working; everything has been printed.
    Unfit,
    /// The plan has mistakes. All of them have been printed.
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

/// Marks an error as a mistake in the command line or the plan.
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

/// Whether the error is only a closed standard output (`| head`).
pub fn reader_left(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }) && error.downcast_ref::<output::StdoutClosed>().is_some()
}

/// Prints the chain to standard error, and as a document to standard output if JSON was requested.
pub fn print_error(error: &anyhow::Error, json: bool) {
    let message = chain(error);
    if json && error.downcast_ref::<output::DocumentClosed>().is_none() {
        output::json_error(&message, code(error));
    }
    output::print_notice(&terminal::clean_lines(&format!("error: {message}")));
}

/// Each cause on its own line, unless the previous text already contains it.
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

/// The chain on one line, for an error of a library.
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
