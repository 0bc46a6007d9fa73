//! Standard output for results, standard error for everything else.
//!
//! Nothing here panics when a reader closes the pipe, and a JSON document is always completed.

use crate::terminal;
use anyhow::Context;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Marks a failure to write to standard output.
#[derive(Clone, Copy, Debug)]
pub struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write to standard output")
    }
}

/// Marks an error already contained in the JSON document on standard output.
#[derive(Clone, Copy, Debug)]
pub struct DocumentClosed;

impl fmt::Display for DocumentClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("answer the query")
    }
}

/// Writes a result.
pub fn result(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    write_to(&mut out, text).context(StdoutClosed)
}

/// Capacity of the queue of pieces for standard output; bounds the memory for a slow reader.
const PIECES_AHEAD: usize = 4;

/// A long result, written by a separate thread: with a slow reader the command waits, while its runtime keeps answering
/// the collector.
#[derive(Debug)]
pub struct Results {
    pieces: mpsc::Sender<String>,
    /// `None` once the result has been received.
    written: Option<oneshot::Receiver<io::Result<()>>>,
}

impl Results {
    /// Writes to standard output. On a terminal, control characters are filtered.
    pub fn begin() -> anyhow::Result<Self> {
        match io::stdout().is_terminal() {
            true => Self::over(CleanLines(io::stdout())),
            false => Self::over(io::stdout()),
        }
    }

    fn over(mut out: impl Write + Send + 'static) -> anyhow::Result<Self> {
        let (pieces, mut rest) = mpsc::channel::<String>(PIECES_AHEAD);
        let (done, written) = oneshot::channel();
        let write = move || {
            let mut result = Ok(());
            while let Some(text) = rest.blocking_recv() {
                result = write_to(&mut out, &text);
                if result.is_err() {
                    break;
                }
            }
            drop(rest);
            // The receiver is dropped only after an earlier failure.
            let _ = done.send(result);
        };
        std::thread::Builder::new()
            .name(String::from("stdout"))
            .spawn(write)
            .context("start the thread that writes the result")?;
        Ok(Self {
            pieces,
            written: Some(written),
        })
    }

    /// Queues a piece. Waits while the reader is slow.
    pub async fn write(&mut self, text: String) -> anyhow::Result<()> {
        match self.pieces.send(text).await {
            Ok(()) => Ok(()),
            // The thread ends early only on a write error.
            Err(_) => match self.written.take() {
                Some(written) => write_result(written.await),
                None => write_result(Ok(Err(io::ErrorKind::BrokenPipe.into()))),
            },
        }
    }

    /// Waits until everything is written. A failure is reported once, here or by [`Results::write`].
    pub async fn end(self) -> anyhow::Result<()> {
        drop(self.pieces);
        match self.written {
            Some(written) => write_result(written.await),
            None => Ok(()),
        }
    }
}

fn write_result(written: Result<io::Result<()>, oneshot::error::RecvError>) -> anyhow::Result<()> {
    written
        .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
        .context(StdoutClosed)
}

/// Writes a result as one JSON document.
pub fn document(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("write the answer as JSON")?;
    text.push('\n');
    result(&text)
}

/// The directory of a file to be written. Checked in advance where the result takes long.
pub fn directory_for(path: &Path) -> anyhow::Result<&Path> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !directory.is_dir() {
        anyhow::bail!(
            "write {}: there is no directory {}",
            path.display(),
            directory.display()
        );
    }
    Ok(directory)
}

/// Writes a result to a file, atomically; to standard output if no file is given.
pub fn result_to(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = file else {
        return result(text);
    };
    let directory = directory_for(path)?;
    let what = || format!("write {}", path.display());
    let mut draft = tempfile::NamedTempFile::new_in(directory).with_context(what)?;
    draft.write_all(text.as_bytes()).with_context(what)?;
    // A temporary file is private; a report gets the usual permissions of a new file.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666 & !umask());
    draft.as_file().set_permissions(mode).with_context(what)?;
    draft.as_file().sync_all().with_context(what)?;
    draft
        .persist(path)
        .map_err(|error| error.error)
        .with_context(what)?;
    Ok(())
}

/// Prints a line to standard error; a closed one is ignored.
pub fn print_notice(text: &str) {
    let _ = write_notice(format!("{text}\n").as_bytes());
}

/// Number of bytes that wait while a view has the terminal. What comes later is lost: only a log at level debug is as
/// long.
const MAX_HELD_BYTES: usize = 1 << 20;

/// Lines for standard error that wait; `None` if nothing holds them back.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Lines for standard error wait until this is dropped: a view has the terminal.
#[derive(Debug)]
pub struct HeldNotices(());

/// Holds back all lines for standard error from now on.
pub fn hold_notices() -> HeldNotices {
    held_notices().get_or_insert_default();
    HeldNotices(())
}

impl Drop for HeldNotices {
    fn drop(&mut self) {
        if let Some(bytes) = held_notices().take() {
            let _ = io::stderr().lock().write_all(&bytes);
        }
    }
}

/// Writes whole lines to standard error, or lets them wait.
pub fn write_notice(bytes: &[u8]) -> io::Result<()> {
    if let Some(waiting) = held_notices().as_mut() {
        if waiting.len() + bytes.len() <= MAX_HELD_BYTES {
            waiting.extend_from_slice(bytes);
        }
        return Ok(());
    }
    io::stderr().lock().write_all(bytes)
}

fn held_notices() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a JSON document that reports an error.
pub fn json_error(message: &str, exit_code: u8) {
    let document = serde_json::json!({ "error": error_value(message, exit_code) });
    let _ = result(&format!("{document}\n"));
}

/// The value of `error` in a document.
pub fn error_value(message: &str, exit_code: u8) -> serde_json::Value {
    serde_json::json!({ "message": message.trim_end(), "exit_code": exit_code })
}

/// Whether an unparsable command line requests JSON.
pub fn json_was_asked(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut after_format = false;
    for argument in arguments {
        if argument == "--format=json" || (after_format && argument == "json") {
            return true;
        }
        after_format = argument == "--format";
    }
    false
}

/// Filters control characters for a terminal.
struct CleanLines<W>(W);

impl<W: Write> Write for CleanLines<W> {
    /// Consumes all of `bytes`, which are whole characters.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(terminal::clean_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn write_to(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn umask() -> u32 {
    let process = File::open("/proc/self/status")
        .and_then(io::read_to_string)
        .unwrap_or_default();
    process
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn json_is_found_on_a_line_that_does_not_parse() {
        let asked = |line: &str| json_was_asked(line.split(' ').map(OsString::from));
        assert!(asked("benchmesh report --format json"));
        assert!(asked("benchmesh report --format=json 1 2 3"));
        assert!(!asked("benchmesh report --format csv json"));
        assert!(!asked("benchmesh query json --format"));
    }

    #[test]
    fn a_reader_that_rests_does_not_hold_up_the_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        runtime.block_on(write_to_a_resting_reader());
    }

    async fn write_to_a_resting_reader() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut results = Results::over(ours).unwrap();
        let piece = || "x".repeat(1 << 20);
        let resting = Duration::from_millis(300);
        // On a single-threaded runtime the time limit fires only if the write does not block.
        let mut waited = false;
        for _ in 0..20 {
            waited = tokio::time::timeout(resting, results.write(piece()))
                .await
                .is_err();
            if waited {
                break;
            }
        }
        assert!(waited, "20 MiB went into a socket that nobody reads");
        drop(theirs);
        let error = loop {
            if let Err(error) = results.write(piece()).await {
                break error;
            }
        };
        assert!(error.downcast_ref::<StdoutClosed>().is_some(), "{error:?}");
    }

    #[tokio::test]
    async fn the_end_waits_until_all_is_written() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            io::Read::read_to_string(&mut theirs, &mut text).map(|_| text)
        });
        let mut results = Results::over(ours).unwrap();
        for piece in ["a", "b", "c"] {
            results.write(piece.repeat(1 << 18)).await.unwrap();
        }
        results.end().await.unwrap();
        assert_eq!(reader.join().unwrap().unwrap().len(), 3 << 18);
    }

    #[test]
    fn a_file_is_written_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.csv");
        std::fs::write(&path, "old").unwrap();
        result_to(Some(&path), "new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let nowhere = directory.path().join("no/such");
        let error = result_to(Some(&nowhere), "x").unwrap_err().to_string();
        assert!(
            error.ends_with(&format!(
                "there is no directory {}/no",
                directory.path().display()
            )),
            "{error}"
        );
    }
}
