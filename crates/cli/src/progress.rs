//! Shows the progress of a run on standard error: lines that are redrawn on a terminal, plain lines otherwise.
//!
//! This module only shows updates; `format` makes the text.

mod bars;
mod echo;
pub mod format;
mod lines;
mod names;

use crate::client::Update;
use bars::Bars;
use lines::Lines;
pub use names::Names;
use std::io::IsTerminal;
use std::time::Instant;

/// The destination of progress.
#[derive(Debug)]
pub enum ProgressOutput {
    /// A terminal.
    Bars(Bars),
    /// A file, a pipe, a log.
    Lines(Lines),
}

impl ProgressOutput {
    /// Chooses the form suitable for standard error.
    pub fn for_stderr(names: Names) -> Self {
        if std::io::stderr().is_terminal() {
            Self::Bars(Bars::new(names))
        } else {
            Self::Lines(Lines::new(names))
        }
    }

    /// Shows one update.
    pub fn update(&mut self, update: &Update) {
        match self {
            Self::Bars(bars) => bars.update(update),
            Self::Lines(lines) => {
                for line in lines.update(update, Instant::now()) {
                    crate::output::print_notice(&line);
                }
            }
        }
    }

    /// Prints a message beside the progress.
    pub fn say(&mut self, text: &str) {
        match self {
            Self::Bars(bars) => bars.say(text),
            Self::Lines(_) => crate::output::print_notice(text),
        }
    }

    /// Ends the progress and clears its lines.
    pub fn finish(&mut self) {
        match self {
            Self::Bars(bars) => bars.finish(),
            Self::Lines(_) => {}
        }
    }
}
