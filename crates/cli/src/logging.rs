//! The log: to standard error, as much as BENCHMESH_LOG says.

use crate::args::Command;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// The environment variable that says what is logged: a level, or directives such as `benchmesh_agent=debug`.
pub const VARIABLE: &str = "BENCHMESH_LOG";

/// From now on events are logged. Daemons say what they do, commands only what is wrong.
pub fn start(command: &Command) {
    let level = match command {
        Command::Collector(_) | Command::Agent(_) => "info",
        _ => "warn",
    };
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let (filter, mistake) = match EnvFilter::try_new(if wanted.trim().is_empty() {
        level
    } else {
        &wanted
    }) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(level), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if let Some(error) = mistake {
        tracing::warn!(%error, "{VARIABLE}={wanted:?} is not understood; logging at {level}");
    }
}

/// Standard error, and nothing once it is closed: whoever reads the log of a daemon may end before it does.
#[derive(Debug)]
struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
