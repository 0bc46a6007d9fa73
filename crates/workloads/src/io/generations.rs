//! Which writings of a task's files may stand in their blocks, kept beside them from mode to mode.
//!
//! Each mode that writes is a generation of its own; what was laid out is generation 0. Invariants: the range on the
//! target holds every generation that a block may be of, even when a mode ends in its midst; it narrows to one only after
//! every block has been written without an error.

use crate::sandbox::Dir;
use crate::task::TaskError;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::RangeInclusive;

const NAME: &str = "state";
const UNBORN: &str = "state.new";
const MOST_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Generations {
    pub oldest: u64,
    pub newest: u64,
}

impl Generations {
    pub(super) fn range(self) -> RangeInclusive<u64> {
        self.oldest..=self.newest
    }

    /// With what a mode will write.
    pub(super) fn and_one_more(self) -> Generations {
        Generations {
            newest: self.newest.saturating_add(1),
            ..self
        }
    }

    pub(super) fn newest_only(self) -> Generations {
        Generations {
            oldest: self.newest,
            ..self
        }
    }

    /// What was written down in `dir`; generation 0 where nothing was.
    pub(super) fn read(dir: &Dir) -> Result<Generations, TaskError> {
        if dir.file_bytes(NAME).map_err(TaskError::Sandbox)?.is_none() {
            return Ok(Generations::default());
        }
        let doing = || format!("read {}", dir.path().join(NAME).display());
        let opened = dir.open(NAME, OFlags::RDONLY, Mode::empty());
        let file = File::from(opened.map_err(TaskError::Sandbox)?);
        let mut text = String::new();
        let read = file.take(MOST_BYTES).read_to_string(&mut text);
        read.map_err(|error| TaskError::io(doing(), error))?;
        serde_json::from_str(&text).map_err(|error| TaskError::io(doing(), error))
    }

    /// Writes it down, whole or not at all.
    pub(super) fn write(self, dir: &Dir) -> Result<(), TaskError> {
        let doing = || format!("write {}", dir.path().join(NAME).display());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let opened = dir.open(UNBORN, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.map_err(TaskError::Sandbox)?);
        let text = serde_json::to_vec(&self).unwrap_or_default();
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        written.map_err(|error| TaskError::io(doing(), error))?;
        let renamed = rustix::fs::renameat(dir.fd(), UNBORN, dir.fd(), NAME);
        renamed.map_err(|error| TaskError::io(doing(), error))
    }
}
