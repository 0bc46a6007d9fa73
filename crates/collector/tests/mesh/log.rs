//! The log of a collector on this thread.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

/// Captures the log of this thread until it is dropped.
pub struct Log {
    written: Written,
    _is_default: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Written {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

impl Log {
    /// In the format of the binary, without colours.
    pub fn new() -> Self {
        // With a single subscriber, a call site that logs for the first time on a thread without it is cached as
        // disabled.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(written.clone())
            .finish();
        Self {
            written,
            _is_default: tracing::subscriber::set_default(subscriber),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap()
    }

    /// Lines that contain this text.
    pub fn lines_with(&self, part: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    }
}
