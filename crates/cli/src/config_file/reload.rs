//! Detects changes in a configuration file since it was last read.

use super::{ParseError, file_of, parse, read_file};
use crate::args::Arguments;
use crate::args::definition::definition;
use anyhow::Context;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, spawn_blocking};
use toml::{Table, Value};

/// The file of this process, and the command line that names it.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    line: Vec<OsString>,
    path: PathBuf,
    read: Table,
}

/// The result of reading a changed file.
#[derive(Debug)]
pub struct ReloadedConfig {
    /// The new configuration; the command line still takes precedence.
    pub arguments: Arguments,
    /// The keys whose value was changed, added or removed.
    pub keys: Vec<String>,
}

impl ConfigFile {
    /// The file that this process's command line names, if any.
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub fn of_process() -> anyhow::Result<Option<Self>> {
        Self::of(std::env::args_os().collect())
    }

    pub(super) fn of(line: Vec<OsString>) -> anyhow::Result<Option<Self>> {
        let matches = definition().try_get_matches_from(&line)?;
        let Some(path) = matches
            .subcommand()
            .and_then(|(_, typed)| file_of(typed))
            .map(Path::to_owned)
        else {
            return Ok(None);
        };
        let read = table(&path)?;
        Ok(Some(Self { line, path, read }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. Returns `None` if nothing has changed. On a mistake, the previous configuration is kept.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or has a mistake.
    pub fn again(&mut self) -> anyhow::Result<Option<ReloadedConfig>> {
        let read = table(&self.path)?;
        let keys = changed(&self.read, &read);
        if keys.is_empty() {
            return Ok(None);
        }
        let arguments = parse(self.line.clone()).map_err(|error| match error {
            ParseError::Typed(error) => error.into(),
            ParseError::File(error) => error,
        })?;
        self.read = read;
        Ok(Some(ReloadedConfig { arguments, keys }))
    }
}

/// Reads the configuration file again at each SIGHUP. Without a file, SIGHUP ends the process as usual.
///
/// A thread of its own reads it, because its file system may hang.
#[derive(Debug)]
pub struct Reloads(Option<Listener>);

#[derive(Debug)]
struct Listener {
    file: ConfigFile,
    hangups: Signal,
    /// A reading that has begun.
    reading: Option<JoinHandle<(ConfigFile, ReadAgain)>>,
}

/// `None`: nothing has changed.
type ReadAgain = anyhow::Result<Option<ReloadedConfig>>;

impl Reloads {
    /// Starts listening.
    ///
    /// # Errors
    ///
    /// If the file can no longer be read, or the signal handler cannot be installed.
    pub fn listen() -> anyhow::Result<Self> {
        let Some(file) = ConfigFile::of_process()? else {
            return Ok(Self(None));
        };
        let hangups = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
        Ok(Self(Some(Listener {
            file,
            hangups,
            reading: None,
        })))
    }

    /// The next change of the file, or its error; with its path. Cancel-safe.
    pub async fn next(&mut self) -> (String, anyhow::Result<ReloadedConfig>) {
        loop {
            let Some(listener) = &mut self.0 else {
                return std::future::pending().await;
            };
            if listener.reading.is_none() && listener.hangups.recv().await.is_none() {
                return std::future::pending().await;
            }
            let mut file = listener.file.clone();
            let path = file.path().display().to_string();
            let reading = listener.reading.get_or_insert_with(|| {
                spawn_blocking(move || {
                    let read = file.again();
                    (file, read)
                })
            });
            let read = match reading.await {
                Ok((file, read)) => {
                    listener.file = file;
                    read
                }
                Err(panicked) => Err(panicked.into()),
            };
            listener.reading = None;
            match read.transpose() {
                Some(change) => return (path, change),
                None => tracing::info!(file = path, "the configuration has not changed"),
            }
        }
    }
}

fn table(path: &Path) -> anyhow::Result<Table> {
    let what = || format!("read the configuration file {}", path.display());
    let text = read_file(path).with_context(what)?;
    text.parse::<Table>().with_context(what)
}

fn changed(old: &Table, new: &Table) -> Vec<String> {
    let differs = |key: &&String| old.get(*key).map(canonical) != new.get(*key).map(canonical);
    let mut keys: Vec<String> = old
        .keys()
        .chain(new.keys())
        .filter(differs)
        .cloned()
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// A single value equals a list of one.
fn canonical(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values.clone(),
        value => vec![value.clone()],
    }
}
