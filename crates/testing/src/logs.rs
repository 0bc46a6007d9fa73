//! Captures log lines of this test program at WARN and above, for tests that check the log.
//!
//! Lines of all tests of the program are kept together: search for text that only one test logs.

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};
use tracing_subscriber::filter::LevelFilter;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct KeptLogs;

impl Write for KeptLogs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures lines from now on. Call it before the code under test.
pub fn keep_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(LevelFilter::WARN)
            .with_ansi(false)
            .with_writer(|| KeptLogs)
            .init();
    });
}

/// The kept lines that contain `part`.
#[must_use]
pub fn warnings(part: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&lines);
    let with_part = text.lines().filter(|line| line.contains(part));
    with_part.map(str::to_owned).collect()
}
