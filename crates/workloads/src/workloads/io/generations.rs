//! The generations known to be in a task's files. They are stored beside the files from mode to mode; the layout writes
//! generation 0.

use crate::engine::author::*;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Write};

const NAME: &str = "state";
const TEMP_NAME: &str = "state.new";
const MAX_BYTES: u64 = 4096;

/// Generations stored in `dir`; generation 0 if none are stored.
pub(super) fn read(dir: &Dir) -> Result<Generations, TaskError> {
    if dir.file_bytes(NAME).map_err(TaskError::Sandbox)?.is_none() {
        return Ok(Generations::default());
    }
    let doing = || format!("read {}", dir.path().join(NAME).display());
    let opened = dir.open(NAME, OFlags::RDONLY, Mode::empty());
    let file = File::from(opened.map_err(TaskError::Sandbox)?);
    let mut text = String::new();
    let read = file.take(MAX_BYTES).read_to_string(&mut text);
    read.map_err(|error| TaskError::io(doing(), error))?;
    serde_json::from_str(&text).map_err(|error| TaskError::io(doing(), error))
}

/// Stores `generations` atomically.
pub(super) fn write(generations: Generations, dir: &Dir) -> Result<(), TaskError> {
    let doing = || format!("write {}", dir.path().join(NAME).display());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let opened = dir.open(TEMP_NAME, flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(opened.map_err(TaskError::Sandbox)?);
    let text = serde_json::to_vec(&generations).unwrap_or_default();
    let written = file.write_all(&text).and_then(|()| file.sync_data());
    written.map_err(|error| TaskError::io(doing(), error))?;
    let renamed = rustix::fs::renameat(dir.fd(), TEMP_NAME, dir.fd(), NAME);
    renamed.map_err(|error| TaskError::io(doing(), error))
}
