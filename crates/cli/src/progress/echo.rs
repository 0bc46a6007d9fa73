//! Prevents the terminal from echoing `^C` into lines that are redrawn in place, which would shift them.

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::stderr;

/// Control characters are hidden until this is dropped.
#[derive(Debug)]
pub struct EchoOff {
    shown_before: bool,
}

impl EchoOff {
    pub fn new() -> Self {
        Self {
            shown_before: show(EchoShown::No),
        }
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        if self.shown_before {
            show(EchoShown::Yes);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EchoShown {
    Yes,
    No,
}

/// Returns whether they were shown before. Has no effect on anything but a terminal.
fn show(wanted: EchoShown) -> bool {
    let Ok(mut modes) = tcgetattr(stderr()) else {
        return false;
    };
    let before = modes.local_modes.contains(LocalModes::ECHOCTL);
    modes
        .local_modes
        .set(LocalModes::ECHOCTL, wanted == EchoShown::Yes);
    // Only the appearance depends on it.
    let _ = tcsetattr(stderr(), OptionalActions::Now, &modes);
    before
}
