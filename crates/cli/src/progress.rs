//! Shows the progress of a run: full-screen or as lines that are redrawn on a terminal, plain lines otherwise.
//!
//! This module only shows updates; `format` makes the text.

mod bars;
mod echo;
pub mod format;
mod lines;
mod names;
mod screen;

use crate::interrupts::OnInterrupt;
use bars::Bars;
use benchmesh_scheduler::snapshot::RunUpdate;
use lines::Lines;
pub use names::Names;
use screen::{Screen, Severity};
use std::io::{IsTerminal, stderr, stdout};
use std::time::Instant;

/// The least size of a terminal for the full-screen view.
const MIN_SCREEN: (u16, u16) = (40, 10);

/// The destination of progress.
#[derive(Debug)]
pub enum ProgressOutput {
    /// A terminal that shows nothing else.
    Screen(Box<Screen>),
    /// Lines at the bottom of a terminal.
    Bars(Bars),
    /// A file, a pipe, a log.
    Lines(Lines),
}

/// The richest form that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Screen,
    Bars,
    Lines,
}

/// What the form depends on.
#[derive(Clone, Copy, Debug)]
struct TerminalFacts<'a> {
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    term: &'a str,
    /// Columns and rows; `None` if the terminal does not know.
    size: Option<(u16, u16)>,
    is_in_background: bool,
}

impl ProgressOutput {
    /// Chooses the form that suits the terminal, `richest` at most. Ctrl-C has the given effect.
    pub fn open(names: Names, richest: Form, on_interrupt: OnInterrupt) -> Self {
        let term = std::env::var("TERM").unwrap_or_default();
        let terminal = TerminalFacts {
            stdout_is_terminal: stdout().is_terminal(),
            stderr_is_terminal: stderr().is_terminal(),
            term: &term,
            size: terminal_size(),
            is_in_background: is_in_background(),
        };
        match terminal.form(richest) {
            Form::Screen => match Screen::open(names.clone(), on_interrupt) {
                Ok(screen) => Self::Screen(Box::new(screen)),
                Err(_) => Self::Bars(Bars::new(names)),
            },
            Form::Bars => Self::Bars(Bars::new(names)),
            Form::Lines => Self::Lines(Lines::new(names)),
        }
    }

    /// Whether clients, daemons and events are shown.
    pub fn shows_detail(&self) -> bool {
        matches!(self, Self::Screen(_))
    }

    /// Shows one update.
    pub fn update(&mut self, update: &RunUpdate) {
        match self {
            Self::Screen(screen) => screen.update(update),
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
        self.print_message(text, Severity::Info);
    }

    /// Prints a message that needs a look.
    pub fn warn(&mut self, text: &str) {
        self.print_message(text, Severity::Warning);
    }

    /// The run is to be stopped, and followed to its end.
    pub fn stopping(&mut self) {
        match self {
            Self::Screen(screen) => screen.stopping(),
            Self::Bars(_) | Self::Lines(_) => {
                self.say("stopping the run; its data are kept (Ctrl-C again exits at once)");
            }
        }
    }

    /// Returns when the user leaves the full-screen view; otherwise never. Cancel-safe.
    pub async fn left(&mut self) {
        match self {
            Self::Screen(screen) => screen.left().await,
            Self::Bars(_) | Self::Lines(_) => std::future::pending().await,
        }
    }

    /// Ends the progress, and clears its lines or gives the terminal back.
    pub fn finish(self) {
        if let Self::Bars(bars) = self {
            bars.finish();
        }
    }

    fn print_message(&mut self, text: &str, severity: Severity) {
        match self {
            Self::Screen(screen) => screen.say(text, severity),
            Self::Bars(bars) => bars.say(text),
            Self::Lines(_) => crate::output::print_notice(text),
        }
    }
}

impl TerminalFacts<'_> {
    fn form(&self, richest: Form) -> Form {
        // A dumb terminal cannot move its cursor. A process in the background must not change a terminal's modes.
        let can_redraw =
            self.stderr_is_terminal && !matches!(self.term, "" | "dumb") && !self.is_in_background;
        let (columns, rows) = MIN_SCREEN;
        let is_wide = self.size.is_none_or(|size| size.0 >= columns);
        let has_room = is_wide && self.size.is_some_and(|size| size.1 >= rows);
        match richest {
            // Lines that wrap cannot be redrawn in place.
            _ if !can_redraw || !is_wide => Form::Lines,
            Form::Screen if self.stdout_is_terminal && has_room => Form::Screen,
            Form::Screen | Form::Bars => Form::Bars,
            Form::Lines => Form::Lines,
        }
    }
}

/// Columns and rows of the terminal that progress is drawn on.
fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(stderr()).ok()?;
    Some((size.ws_col, size.ws_row)).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

/// Whether a shell has put this process into the background of the terminal.
fn is_in_background() -> bool {
    rustix::termios::tcgetpgrp(stderr()).is_ok_and(|group| group != rustix::process::getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_suits_the_terminal() {
        let usual = TerminalFacts {
            stdout_is_terminal: true,
            stderr_is_terminal: true,
            term: "xterm-256color",
            size: Some((80, 24)),
            is_in_background: false,
        };
        let check = |terminal: TerminalFacts, richest, form| {
            assert_eq!(terminal.form(richest), form, "{terminal:?}");
        };
        check(usual, Form::Screen, Form::Screen);
        check(usual, Form::Bars, Form::Bars);
        check(usual, Form::Lines, Form::Lines);
        let piped = TerminalFacts {
            stdout_is_terminal: false,
            ..usual
        };
        check(piped, Form::Screen, Form::Bars);
        let logged = TerminalFacts {
            stderr_is_terminal: false,
            ..usual
        };
        check(logged, Form::Screen, Form::Lines);
        for term in ["", "dumb"] {
            check(TerminalFacts { term, ..usual }, Form::Screen, Form::Lines);
            check(TerminalFacts { term, ..usual }, Form::Bars, Form::Lines);
        }
        for (size, form) in [
            (Some((40, 10)), Form::Screen),
            (Some((39, 10)), Form::Lines),
            (Some((40, 9)), Form::Bars),
            (Some((20, 24)), Form::Lines),
            (None, Form::Bars),
        ] {
            check(TerminalFacts { size, ..usual }, Form::Screen, form);
        }
        let in_background = TerminalFacts {
            is_in_background: true,
            ..usual
        };
        check(in_background, Form::Screen, Form::Lines);
    }
}
