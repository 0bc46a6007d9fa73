//! Computes the expected data of each read from the list alone, before the start.
//!
//! A file consists of the laid-out data and the list's writes so far. Each write is a generation of its own, so that
//! older data is not mistaken for it. Renamed files keep their data. If the list does something that cannot be tracked
//! (it renames a directory), nothing is expected of the files there.

mod file_model;

use super::list::{List, ReplayAction};
use crate::engine::author::*;
pub(super) use file_model::Piece;
use file_model::{FileModel, LaidOut};
use std::collections::HashMap;

/// Limit on the parts of all reads, which take half a GiB.
const MAX_PIECES: usize = 1 << 23;

/// Expected data of a list's reads.
#[derive(Debug)]
pub(super) struct Expected {
    /// Parts by line; empty for lines that do not read, or whose data is unknown.
    reads: Vec<Box<[Piece]>>,
    /// Number of the file by number of the open file.
    files: Vec<usize>,
}

/// Generation of the data that a line writes.
pub(super) fn generation(line: usize) -> u64 {
    // Generation 0 is the laid-out data.
    u64::try_from(line).unwrap_or(u64::MAX).saturating_add(1)
}

impl Expected {
    /// Files are laid out in blocks of `unit` bytes.
    ///
    /// # Errors
    /// If the reads have too many parts.
    pub(super) fn of(list: &List, unit: u64) -> Result<Self, TaskError> {
        Self::within(list, unit, MAX_PIECES)
    }

    fn within(list: &List, unit: u64, most: usize) -> Result<Self, TaskError> {
        let mut world = Model::before(list, unit);
        let mut reads = Vec::with_capacity(list.lines.len());
        let mut left = most;
        for (number, line) in list.lines.iter().enumerate() {
            let found = world.after(generation(number), &line.path, &line.action, left);
            let Some(pieces) = found else {
                let why = format!(
                    "what the list's reads have to find is in more than {most} parts, too many to be kept in memory: set \
                     `verify = false`, or use a shorter list"
                );
                return Err(TaskError::Unsupported { why });
            };
            left = left.saturating_sub(pieces.len());
            reads.push(pieces);
        }
        Ok(Self {
            reads,
            files: world.open,
        })
    }

    pub(super) fn of_line(&self, line: usize) -> &[Piece] {
        self.reads.get(line).map_or(&[], |pieces| pieces)
    }

    /// Number of the file behind an open file, the same each time that it is opened.
    pub(super) fn file(&self, open: usize) -> usize {
        self.files.get(open).copied().unwrap_or(usize::MAX)
    }
}

/// State of the files after the lines so far.
struct Model {
    names: HashMap<Vec<u8>, usize>,
    files: Vec<FileModel>,
    /// Number of the file by number of the open file.
    open: Vec<usize>,
}

impl Model {
    fn before(list: &List, unit: u64) -> Self {
        let mut world = Self {
            names: HashMap::new(),
            files: Vec::new(),
            open: vec![usize::MAX; list.files],
        };
        for (number, (path, bytes)) in (0_u64..).zip(&list.expected) {
            let Some(bytes) = *bytes else { continue };
            let laid = LaidOut {
                file: number,
                unit,
                bytes,
            };
            world.add(path, FileModel::laid_out(laid));
        }
        world
    }

    fn add(&mut self, path: &[u8], file_model: FileModel) -> usize {
        let number = self.files.len();
        self.files.push(file_model);
        self.names.insert(path.to_vec(), number);
        number
    }

    /// Parts of a read; `None` if there are more than `most`. All other actions update the model.
    fn after(
        &mut self,
        generation: u64,
        path: &[u8],
        action: &ReplayAction,
        most: usize,
    ) -> Option<Box<[Piece]>> {
        match action {
            ReplayAction::Create { file } => {
                let made = self.add(path, FileModel::default());
                self.opens(*file, made);
            }
            ReplayAction::Open { file } => {
                let known = self.names.get(path).copied();
                let found = known.unwrap_or_else(|| self.add(path, FileModel::unknown()));
                self.opens(*file, found);
            }
            ReplayAction::Write {
                file,
                offset,
                bytes,
            } => {
                let written = Written {
                    file: u64::try_from(*file).unwrap_or(u64::MAX),
                    offset: *offset,
                    bytes: *bytes,
                    generation,
                };
                if let Some(file_model) = self.file_model(*file) {
                    file_model.write(written);
                }
            }
            ReplayAction::Truncate { file, bytes } => {
                if let Some(file_model) = self.file_model(*file) {
                    file_model.truncate(*bytes);
                }
            }
            ReplayAction::Read {
                file,
                offset,
                bytes,
            } => {
                let file_model = self
                    .file_model(*file)
                    .filter(|file_model| !file_model.is_unknown);
                return match file_model {
                    Some(file_model) => file_model.read(*offset, *bytes, most),
                    None => Some(Box::default()),
                };
            }
            ReplayAction::Rename { to } => self.rename(path, to),
            ReplayAction::Delete | ReplayAction::Symlink { .. } => drop(self.names.remove(path)),
            ReplayAction::Close { .. }
            | ReplayAction::Fsync { .. }
            | ReplayAction::Stat
            | ReplayAction::List
            | ReplayAction::Mkdir
            | ReplayAction::Rmdir => {}
        }
        Some(Box::default())
    }

    fn opens(&mut self, number: usize, file: usize) {
        if let Some(slot) = self.open.get_mut(number) {
            *slot = file;
        }
    }

    fn file_model(&mut self, number: usize) -> Option<&mut FileModel> {
        let file = self.open.get(number)?;
        self.files.get_mut(*file)
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) {
        if let Some(file) = self.names.remove(path) {
            self.names.insert(to.to_vec(), file);
            return;
        }
        let is_in = |name: &[u8], directory: &[u8]| {
            let rest = name.strip_prefix(directory);
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        };
        for (name, file) in &self.names {
            if (is_in(name, path) || is_in(name, to))
                && let Some(file_model) = self.files.get_mut(*file)
            {
                file_model.is_unknown = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
