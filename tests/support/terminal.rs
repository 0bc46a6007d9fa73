//! A command on a terminal of its own, which it controls: what a person types, and what is then on the screen.

use super::wait;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// A running command whose three streams are a terminal.
pub struct OnTerminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    /// Bytes of the screen before the next text that is waited for.
    seen: usize,
    before: Termios,
}

impl OnTerminal {
    /// On a terminal of 100 columns and 30 rows.
    pub fn spawn(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap());
        let keyboard = File::from(ours);
        set_size(&keyboard, 100, 30);
        let before = tcgetattr(&theirs).unwrap();
        command
            .env("TERM", "xterm")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs);
        // SAFETY: both calls are async-signal-safe; descriptor 0 is the terminal.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let (mut output, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with the last process on the terminal.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().extend(&bytes[..read]);
            }
        });
        Self {
            child,
            keyboard,
            screen,
            reader: Some(reader),
            seen: 0,
            before,
        }
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.keyboard, columns, rows);
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Waits until a text has been on the screen at any time.
    pub fn until_shown(&self, text: &str) {
        wait::until_true(text, LIMIT, || self.shown().contains(text));
    }

    /// Waits until a text comes after the one that was waited for last.
    pub fn until_shows(&mut self, text: &str) {
        self.until_shows_by(text, || {});
    }

    /// The same, with something that is done before each look.
    pub fn until_shows_by(&mut self, text: &str, mut act: impl FnMut()) {
        let found = wait::try_until(LIMIT, || {
            act();
            let screen = self.screen.lock().unwrap();
            let mut rest = screen[self.seen..].windows(text.len());
            let at = rest.position(|part| part == text.as_bytes())?;
            Some(self.seen + at + text.len())
        });
        self.seen = found.unwrap_or_else(|| panic!("{text:?} is not in {:?}", self.shown()));
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The exit code, and everything that was on the screen; the terminal's modes are as they were.
    pub fn ends(mut self) -> (Option<i32>, String) {
        let ended = wait::until("the end of the command", LIMIT, || {
            self.child.try_wait().unwrap()
        });
        let after = tcgetattr(&self.keyboard).unwrap();
        self.reader.take().unwrap().join().unwrap();
        let modes = |termios: &Termios| {
            (
                termios.local_modes,
                termios.input_modes,
                termios.output_modes,
                format!("{:?}", termios.special_codes),
            )
        };
        assert_eq!(modes(&after), modes(&self.before));
        (ended.code(), self.shown())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}
