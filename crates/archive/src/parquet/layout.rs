//! Where everything is in a directory of Parquet files, and who may write there.
//!
//! ```text
//! DIR/_benchmesh.json                                 the layout's version, and the database of each site
//! DIR/_lock                                           held while an export writes
//! DIR/_runs/SITE/RUN_UID.json                         what is there of a run; written when all of it is
//! DIR/TABLE/site=SITE/month=YYYY-MM/RUN_UID.parquet   its rows of one table; without any there is no file
//! ```
//!
//! Engines read a table as `DIR/TABLE/**/*.parquet`, with `site` and `month` from the folders' names. A small file is
//! replaced as a whole: written under another name, synced, renamed.

use super::ExportError;
use super::access::Access;
use super::file::{TEMPORARY_SUFFIX, temporary};
use crate::retention::StepRetention;
use crate::source::EndedRun;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// Raised when files of an older program could not be read together with those of this one.
const VERSION: u32 = 1;
const MARKER: &str = "_benchmesh.json";
const LOCK: &str = "_lock";
const RUNS: &str = "_runs";
/// A new file system has it.
const OF_FILE_SYSTEM: &str = "lost+found";
const MAX_SITE: usize = 64;

/// Contents of the marker.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    version: u32,
    /// By the name of each site: the `meta.mesh_uid` of its database.
    #[serde(default)]
    sites: BTreeMap<String, String>,
}

/// What is there of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMark {
    pub run_uid: String,
    pub name: String,
    pub created_us: i64,
    pub ended_us: i64,
    pub month: String,
    pub tables: BTreeMap<String, TableMark>,
    /// How the database kept the intervals of the run's steps when they were written.
    #[serde(default)]
    pub steps: StepRetention,
}

/// What is there of one table of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableMark {
    pub rows: u64,
    /// Operations and errors in them, if the table has intervals.
    #[serde(default)]
    pub operations: i64,
    /// The size of the file; 0: without rows there is none.
    pub bytes: u64,
    /// CRC-32 of all values.
    pub crc32: u32,
}

/// A directory that this process alone writes to, for one site.
#[derive(Debug)]
pub struct Layout {
    directory: PathBuf,
    site: String,
    access: Access,
    /// Unlocked when it is closed.
    _lock: File,
}

/// Whether a text may be the name of a site or of a run's files.
fn is_name(text: &str, max: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=max).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_allowed)
}

/// The month of an instant in UTC: `2025-06`.
fn month(at_us: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp(at_us.div_euclid(1_000_000))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!("{:04}-{:02}", at.year(), u8::from(at.month()))
}

impl Layout {
    /// Opens or makes a directory for the database `mesh_uid`, whose runs are those of `site`.
    pub fn open(
        directory: &Path,
        site: Option<&str>,
        mesh_uid: &str,
        access: Access,
    ) -> Result<Self, ExportError> {
        let site = site.unwrap_or(mesh_uid);
        if !is_name(site, MAX_SITE) {
            return Err(ExportError::Wrong(format!(
                "{site:?} is not the name of a site: at most {MAX_SITE} letters, digits, '-', '_' and '.', not '.' \
                 first; name one with --site NAME"
            )));
        }
        let is_new = is_empty(directory).map_err(ExportError::writing(directory))?;
        let marker_path = directory.join(MARKER);
        if !is_new && !marker_path.is_file() {
            return Err(ExportError::Wrong(format!(
                "{} has files, but not those of a Parquet export ({MARKER}); name a new or an empty directory",
                directory.display()
            )));
        }
        access
            .create_folders(directory)
            .map_err(ExportError::writing(directory))?;
        let lock = lock(directory, access)?;
        let mut marker = read_marker(&marker_path)?;
        let owner = marker.sites.get(site);
        if let Some(other) = owner.filter(|owner| *owner != mesh_uid) {
            return Err(ExportError::Wrong(format!(
                "site {site:?} in {} is that of another database (mesh uid {other}, here {mesh_uid}); name another \
                 with --site NAME",
                directory.display()
            )));
        }
        if owner.is_none() {
            marker.sites.insert(site.to_owned(), mesh_uid.to_owned());
            replace(&marker_path, &marker, access)?;
        }
        let layout = Self {
            directory: directory.to_owned(),
            site: site.to_owned(),
            access,
            _lock: lock,
        };
        layout.remove_temporary_files()?;
        Ok(layout)
    }

    pub fn access(&self) -> Access {
        self.access
    }

    pub fn site(&self) -> &str {
        &self.site
    }

    /// The file with the rows that a run has in a table.
    pub fn file(&self, table: &str, run: &EndedRun) -> PathBuf {
        self.of_site(table)
            .join(format!("month={}", month(run.created_us)))
            .join(format!("{}.parquet", run.uid))
    }

    fn of_site(&self, table: &str) -> PathBuf {
        self.directory
            .join(table)
            .join(format!("site={}", self.site))
    }

    fn mark_path(&self, run: &EndedRun) -> PathBuf {
        let of_site = self.directory.join(RUNS).join(&self.site);
        of_site.join(format!("{}.json", run.uid))
    }

    /// What is there of a run. Nothing of one whose mark is missing or unreadable: it is written anew.
    pub fn mark(&self, run: &EndedRun) -> Result<RunMark, ExportError> {
        if !is_name(&run.uid, 2 * MAX_SITE) {
            return Err(ExportError::Wrong(format!(
                "run {} has the uid {:?}, which cannot be the name of a file",
                run.id, run.uid
            )));
        }
        let path = self.mark_path(run);
        let mark = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => RunMark::default(),
            Err(error) => return Err(ExportError::writing(&path)(error)),
        };
        Ok(RunMark {
            run_uid: run.uid.clone(),
            name: run.name.clone(),
            created_us: run.created_us,
            ended_us: run.ended_us,
            month: month(run.created_us),
            ..mark
        })
    }

    pub fn write_mark(&self, run: &EndedRun, mark: &RunMark) -> Result<(), ExportError> {
        let path = self.mark_path(run);
        if let Some(parent) = path.parent() {
            let made = self.access.create_folders(parent);
            made.map_err(ExportError::writing(parent))?;
        }
        replace(&path, mark, self.access)
    }

    /// A killed export leaves files under their temporary names.
    fn remove_temporary_files(&self) -> Result<(), ExportError> {
        let mut folders = vec![self.directory.join(RUNS).join(&self.site)];
        for table in entries(&self.directory)? {
            folders.extend(entries(&table.join(format!("site={}", self.site)))?);
        }
        for folder in folders {
            for file in entries(&folder)? {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX) {
                    std::fs::remove_file(&file).map_err(ExportError::writing(&file))?;
                }
            }
        }
        Ok(())
    }
}

/// Whether nothing is there of others.
fn is_empty(directory: &Path) -> io::Result<bool> {
    let found = match std::fs::read_dir(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    for entry in found {
        let name = entry?.file_name();
        if name != LOCK && name != OF_FILE_SYSTEM && name != temporary(Path::new(MARKER)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lock(directory: &Path, access: Access) -> Result<File, ExportError> {
    let path = directory.join(LOCK);
    let file = access
        .create_file(&path)
        .map_err(ExportError::writing(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ExportError::Wrong(format!(
            "another export writes to {}; wait for its end",
            directory.display()
        ))),
        // Some network file systems have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(ExportError::writing(&path)(error)),
    }
}

fn read_marker(path: &Path) -> Result<Marker, ExportError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Marker {
                version: VERSION,
                sites: BTreeMap::new(),
            });
        }
        Err(error) => return Err(ExportError::writing(path)(error)),
    };
    let marker: Marker = serde_json::from_slice(&text).map_err(|error| {
        ExportError::Wrong(format!(
            "{} is not the marker of a Parquet export ({error}); name another directory",
            path.display()
        ))
    })?;
    if marker.version != VERSION {
        return Err(ExportError::Wrong(format!(
            "{} has layout {}, this benchmesh writes layout {VERSION}; name another directory",
            path.display(),
            marker.version
        )));
    }
    Ok(marker)
}

/// What is in a folder; nothing if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, ExportError> {
    let found = match std::fs::read_dir(folder) {
        Ok(found) => found,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(ExportError::writing(folder)(error)),
    };
    let paths = found.map(|entry| entry.map(|entry| entry.path()));
    paths
        .collect::<io::Result<_>>()
        .map_err(ExportError::writing(folder))
}

fn replace(path: &Path, content: &impl Serialize, access: Access) -> Result<(), ExportError> {
    let write = || {
        let temporary = temporary(path);
        let mut text = serde_json::to_vec_pretty(content)?;
        text.push(b'\n');
        let mut file = access.create_file(&temporary)?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = std::fs::remove_file(&temporary);
            return Err(error);
        }
        std::fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), sync_directory)
    };
    write().map_err(ExportError::writing(path))
}

/// Makes names in a directory survive a loss of power.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_those_of_utc() {
        for (at_us, expected) in [
            (1_750_000_000_000_000, "2025-06"),
            (1_735_689_599_999_999, "2024-12"),
            (1_735_689_600_000_000, "2025-01"),
            (-1, "1969-12"),
            (i64::MAX, "1970-01"),
        ] {
            assert_eq!(month(at_us), expected);
        }
    }

    #[test]
    fn names_are_those_of_folders() {
        for (name, expected) in [
            ("lab1", true),
            ("north-2_b.example", true),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
            ("", false),
            ("..", false),
            ("a/b", false),
            ("a=b", false),
            ("müllheim", false),
        ] {
            assert_eq!(is_name(name, MAX_SITE), expected, "{name:?}");
        }
    }
}
