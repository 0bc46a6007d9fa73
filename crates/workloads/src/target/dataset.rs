//! Records the state of a task's dataset beside it, so that the next mode, or another process after a restart, need not
//! scan every file. A scan would also fill the caches that the next mode is to be measured against.
//!
//! Does not know what a workload does. Invariant: before the data are changed, the state becomes `Unsettled`. It
//! becomes another state only once the data are known to match it. A reader that finds `Unsettled`, or an unreadable
//! record, has to scan.

use crate::target::data::Generations;
use crate::target::sandbox::{Dir, SandboxError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};

const NAME: &str = "state";
const TEMP_NAME: &str = "state.new";
/// Longer than any record that we write.
const MAX_BYTES: u64 = 1 << 20;

/// State of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DatasetContent {
    /// Unknown: a mode changed them and did not finish.
    Unsettled,
    /// Directories without files.
    Empty,
    /// Every file, under the name that it was created with.
    Created,
    /// Every file, under its other name.
    Renamed,
}

/// What exists beside the files, or was done to all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Extras {
    /// A symlink for each file.
    pub symlinks: bool,
    /// A directory for each file.
    pub subdirectories: bool,
    /// Bytes appended to each file.
    pub appended: u64,
    /// Length of the extended attribute of each file.
    pub attribute: Option<u32>,
    /// Generations that the blocks may have, if they are self-describing.
    pub generations: Generations,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatasetRecord {
    /// The parameters that shape the data, as text. Data with other parameters cannot be reused.
    pub shape: String,
    pub content: DatasetContent,
    #[serde(default)]
    pub extras: Extras,
    /// Bytes of each worker's part, if the parameters do not determine them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u64>,
}

impl DatasetRecord {
    /// The state of the data in `dir`; `None` if there is no record, or not a complete one of ours.
    pub(crate) fn read(dir: &Dir) -> Result<Option<Self>, SandboxError> {
        if dir.file_bytes(NAME)?.is_none() {
            return Ok(None);
        }
        let fd = dir.open(NAME, OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty())?;
        let mut text = String::new();
        if let Err(error) = File::from(fd).take(MAX_BYTES).read_to_string(&mut text) {
            tracing::warn!(%error, path = %dir.path().display(), "the state of laid out data cannot be read; looking at them");
            return Ok(None);
        }
        Ok(serde_json::from_str(&text).ok())
    }

    /// Marks the data as unknown, durably, before anything changes them. If the target has no space for the record,
    /// removes it instead.
    pub(crate) fn unsettle(shape: String, dir: &Dir) -> Result<(), SandboxError> {
        let state = Self {
            shape,
            content: DatasetContent::Unsettled,
            extras: Extras::default(),
            parts: Vec::new(),
        };
        match state.write(dir) {
            Err(error) if [Some(libc::ENOSPC), Some(libc::EDQUOT)].contains(&error.errno()) => {
                dir.remove_file(NAME)
            }
            other => other,
        }
    }

    /// As [`DatasetRecord::write`], after a load. A failure does not affect the result; the next mode then lays the
    /// data out again.
    pub(crate) fn write_or_warn(&self, dir: &Dir) {
        if let Err(error) = self.write(dir) {
            tracing::warn!(%error, path = %dir.path().display(), "the state of the data was not written");
        }
    }

    /// Replaces the state of the data in `dir`, durably.
    pub(crate) fn write(&self, dir: &Dir) -> Result<(), SandboxError> {
        let failed = |source: io::Error| SandboxError::Io {
            doing: "write the state of the data in",
            path: dir.path().to_owned(),
            source,
        };
        let text = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        let mut file = File::from(dir.open(TEMP_NAME, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        drop(file);
        rustix::fs::renameat(dir.fd(), TEMP_NAME, dir.fd(), NAME)
            .map_err(|errno| failed(errno.into()))?;
        match rustix::fs::fsync(dir.fd()) {
            // Some file systems cannot sync a directory; a power failure may restore an older state there.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::BADF) => Ok(()),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}
