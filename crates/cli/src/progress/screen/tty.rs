//! Takes the terminal for a full-screen view, and gives it back as it was: at the end, after an error, in a panic.
//!
//! Signals still come from keys (Ctrl-C, Ctrl-Z), so that they work even when this process is busy; only the line
//! discipline and the echo are off. Ctrl-\ and Ctrl-S are off too: the one would leave the terminal as it is, the other
//! would stop the command at its next line.

use crate::output;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{self, Write, stderr};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The alternate screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[0m\x1b[?1049l";
/// Turns a special character off.
const DISABLED: u8 = 0;

/// The modes to restore; `None` while the terminal is not taken.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal is ours until this is dropped. Lines for standard error wait meanwhile.
#[derive(Debug)]
pub struct TakenTerminal {
    _notices: output::HeldNotices,
}

impl TakenTerminal {
    pub fn take() -> io::Result<Self> {
        restore_on_panic();
        enter()?;
        Ok(Self {
            _notices: output::hold_notices(),
        })
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        // Before the notices, which are printed when they are dropped.
        leave();
    }
}

/// Takes the terminal again after [`leave`]. From the background of a terminal this would stop the process.
pub fn enter() -> io::Result<()> {
    let before = tcgetattr(stderr())?;
    let mut modes = before.clone();
    modes
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL);
    modes.input_modes.remove(InputModes::IXON);
    for (code, value) in [
        (SpecialCodeIndex::VQUIT, DISABLED),
        (SpecialCodeIndex::VMIN, 1),
        (SpecialCodeIndex::VTIME, 0),
    ] {
        modes.special_codes[code] = value;
    }
    // Stored first: whatever happens next, the modes are restored.
    *stored() = Some(before);
    // Keys that were typed before are not meant for the view.
    if let Err(error) = tcsetattr(stderr(), OptionalActions::Flush, &modes) {
        *stored() = None;
        return Err(error.into());
    }
    write(ENTER);
    Ok(())
}

pub fn is_taken() -> bool {
    stored().is_some()
}

/// Gives the terminal back; returns whether it was taken.
pub fn leave() -> bool {
    let before = stored().take();
    let Some(before) = before else { return false };
    write(LEAVE);
    // Keys that were typed into the view are not meant for the shell.
    if tcsetattr(stderr(), OptionalActions::Flush, &before).is_err() {
        // There is no other way, and the error cannot be reported.
        let _ = tcsetattr(stderr(), OptionalActions::Now, &before);
    }
    true
}

fn stored() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Errors are ignored: the terminal may be gone.
fn write(sequence: &str) {
    let mut out = stderr().lock();
    let _ = out
        .write_all(sequence.as_bytes())
        .and_then(|()| out.flush());
}

/// The message of a panic would be lost with the alternate screen.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
    });
}
