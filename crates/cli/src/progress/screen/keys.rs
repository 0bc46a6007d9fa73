//! Keys typed into the full-screen view, from the controlling terminal.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `q`: leave the view.
    Leave,
    /// Ctrl-L: draw everything anew.
    Redraw,
}

/// The keyboard. Opened anew, so that reading without waiting changes nothing for the shell, which shares the
/// descriptors that this process was started with.
#[derive(Debug)]
pub struct Keys(Option<AsyncFd<OwnedFd>>);

impl Keys {
    /// Needs a runtime. Without a controlling terminal there are no keys.
    pub fn open() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open("/dev/tty", flags, Mode::empty());
        Self(opened.ok().and_then(|tty| {
            // SAFETY: the descriptor is open, and owned by what registers it, until that is dropped.
            unsafe { AsyncFd::register(tty) }.ok()
        }))
    }

    /// The next key that asks for something. Cancel-safe.
    pub async fn next(&mut self) -> Key {
        loop {
            let Some(tty) = &self.0 else {
                return std::future::pending().await;
            };
            let mut typed = [0; 64];
            let read = match tty.readable().await {
                Ok(mut ready) => match ready.try_io(|tty| Ok(rustix::io::read(tty, &mut typed)?)) {
                    Ok(read) => read,
                    Err(_would_block) => continue,
                },
                Err(error) => Err(error),
            };
            match read {
                Ok(count @ 1..) => {
                    if let Some(key) = asked(typed.get(..count).unwrap_or_default()) {
                        return key;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The terminal is gone.
                Ok(_) | Err(_) => self.0 = None,
            }
        }
    }
}

/// The first key in these bytes that asks for something. Keys such as arrows are sequences that contain letters.
fn asked(typed: &[u8]) -> Option<Key> {
    let mut bytes = typed.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'q' | b'Q' => return Some(Key::Leave),
            0x0c => return Some(Key::Redraw),
            0x1b => match bytes.next() {
                Some(b'[') => {
                    bytes.find(|byte| (0x40..=0x7e).contains(*byte));
                }
                Some(b'O') => {
                    bytes.next();
                }
                _ => {}
            },
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_typed_q_leaves() {
        let check = |typed: &[u8], key| assert_eq!(asked(typed), key, "{typed:?}");
        check(b"q", Some(Key::Leave));
        check(b"xQ", Some(Key::Leave));
        check(b"\x0c", Some(Key::Redraw));
        check(b"x\n ", None);
        // Arrows, function keys, a mouse, Alt-q.
        check(b"\x1b[A\x1bOQ\x1b[1;5Q", None);
        check(b"\x1b[200~q", Some(Key::Leave));
        check(b"\x1bq", None);
        check(b"\x1b[", None);
        check(b"", None);
    }
}
