//! A command on a terminal of its own: what a person types, and what is then on the screen.

use super::wait;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A running command whose three streams are a terminal.
pub struct OnTerminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// What was looked at.
    seen: usize,
}

impl OnTerminal {
    pub fn spawn(command: &mut Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(
            path,
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let child = command
            .env("TERM", "xterm")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        let keyboard = File::from(ours);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error: the other side has no holder any more.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                shown.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            keyboard,
            screen,
            seen: 0,
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text comes after what was looked at; returns all up to it.
    pub fn until_shows(&mut self, text: &str) -> String {
        self.until_shows_by(text, || {})
    }

    /// The same, with something that is done before each look.
    pub fn until_shows_by(&mut self, text: &str, mut act: impl FnMut()) -> String {
        let found = wait::try_until(LIMIT, || {
            act();
            let screen = self.screen.lock().unwrap();
            let at = screen[self.seen..].find(text)? + self.seen + text.len();
            Some((at, screen[self.seen..at].to_owned()))
        });
        let Some((at, shown)) = found else {
            panic!(
                "{text:?} is not on the screen: {}",
                self.screen.lock().unwrap()
            );
        };
        self.seen = at;
        shown
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub fn ends(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
