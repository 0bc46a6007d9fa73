//! The content of a share's directory: the names of each of its files, and stray entries.
//!
//! In a shared directory, every entry outside this share is left alone.

use super::name::{Name, NameKind, Names};
use super::tree::FilesShare;
use crate::engine::author::*;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ffi::CString;
use std::ops::Range;

/// The names that a file was found under: one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameSet(u8);

const LETTERS: [u8; 4] = [
    Names::Created.letter(),
    Names::Renamed.letter(),
    NameKind::Symlink.letter(),
    NameKind::Subdirectory.letter(),
];

impl NameSet {
    fn bit(letter: u8) -> u8 {
        let place = LETTERS.iter().position(|known| *known == letter);
        place.map_or(0, |place| 1 << place)
    }

    pub(super) fn is(self, letter: u8) -> bool {
        self.0 & Self::bit(letter) != 0
    }
}

#[derive(Debug, Default)]
pub(super) struct DirectoryListing {
    files: Vec<NameSet>,
    pub strays: Vec<CString>,
}

impl DirectoryListing {
    /// Scans `dir` for `files` of the share.
    pub(super) fn scan(
        dir: BorrowedFd<'_>,
        share: &FilesShare,
        files: Range<u64>,
    ) -> Result<Self, Errno> {
        let mut found = Self::default();
        let count = usize::try_from(files.end - files.start).unwrap_or(usize::MAX);
        found.files.resize(count, NameSet::default());
        calls::list(dir, c".", &mut calls::listing_buffer(), |name| {
            let known = LETTERS.into_iter().find_map(|letter| {
                let file = share.file_of(Name::number(letter, name)?)?;
                let place = file.checked_sub(files.start)?;
                let under = found.files.get_mut(usize::try_from(place).ok()?)?;
                under.0 |= NameSet::bit(letter);
                Some(())
            });
            if known.is_none() && share.is_alone() {
                found.strays.push(name.to_owned());
            }
        })?;
        Ok(found)
    }

    pub(super) fn under(&self, place: usize) -> NameSet {
        self.files.get(place).copied().unwrap_or_default()
    }
}
