//! Generated trees with given numbers and sizes of files and directories: the same parameters give the same tree.
//!
//! Directories have up to eight subdirectories each and equally many files. A directory's files come right after it, as
//! in an archive. Only the current position is kept in memory.

use super::source::{EntryKind, SourceError, TreeEntry, TreeSource};
use crate::engine::author::*;
use std::fmt;
use std::io::{self, Write as _};
use std::time::Duration;

/// Subdirectories per directory.
const FAN_OUT: u64 = 8;
/// Limit from the digits of a name.
const MAX_COUNT: u64 = 1_000_000_000;

declare_words! {
    /// Two trees as a study counted them, in an operating system's sources and in its ports. The study counts
    /// directories as files of 1 to 10 KiB (an ext4 directory has 4 KiB or more). They are left out here, so that files
    /// and directories add up to its totals.
    #[derive(Default)]
    pub(super) enum Builtin {
        #[default]
        Source = "source",
        Ports = "ports",
    }
}

impl Builtin {
    const fn directories(self) -> u64 {
        match self {
            Self::Source => 7042,
            Self::Ports => 36_725,
        }
    }

    /// Files below 1 KiB, 10 KiB, 100 KiB, 1024 KiB, and larger ones.
    const fn files(self) -> [u64; 5] {
        match self {
            Self::Source => [27_335, 75_354 - 7042, 26_991, 2225, 97],
            Self::Ports => [235_632, 89_000 - 36_725, 6157, 1135, 134],
        }
    }

    fn sizes(self) -> Result<SizeSpec, String> {
        // The study only gives 1 MiB and more for the last row.
        let ends = [0, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20];
        let rows = self
            .files()
            .into_iter()
            .zip(ends)
            .zip(ends.into_iter().skip(1));
        let rows: Vec<SizeRow> = rows
            .map(|((files, min), end)| SizeRow {
                files,
                min: Bytes(min),
                max: Bytes(end - 1),
            })
            .collect();
        Rows::new(&rows).map(SizeSpec::Rows)
    }
}

/// Parameters of a generated tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SyntheticTree {
    pub files: u64,
    pub directories: u64,
    pub symlinks: u64,
    pub sizes: SizeSpec,
    pub seed: u64,
    pub data: DataSpec,
}

impl SyntheticTree {
    pub(super) fn new(
        builtin: Builtin,
        (files, directories, symlinks): (Option<u64>, Option<u64>, Option<u64>),
        sizes: Option<SizeSpec>,
        seed: u64,
        data: DataSpec,
    ) -> Result<Self, ParamError> {
        let all_files: u64 = builtin.files().into_iter().sum();
        let files = files.unwrap_or(all_files);
        let in_proportion = u128::from(files) * u128::from(builtin.directories());
        let in_proportion =
            u64::try_from(in_proportion / u128::from(all_files)).unwrap_or(MAX_COUNT);
        let sizes = match sizes {
            Some(sizes) => sizes,
            None => builtin.sizes().map_err(|why| ParamError::of("tree", why))?,
        };
        let made = Self {
            files,
            directories: directories.unwrap_or(in_proportion.max(1)),
            symlinks: symlinks.unwrap_or(0),
            sizes,
            seed,
            data,
        };
        let counts = [
            ("files", made.files),
            ("directories", made.directories),
            ("symlinks", made.symlinks),
        ];
        if let Some((key, _)) = counts.into_iter().find(|(_, count)| *count > MAX_COUNT) {
            return Err(ParamError::of(
                key,
                format!("at most {MAX_COUNT} in a tree"),
            ));
        }
        if made.directories == 0 {
            let message = "must be at least 1: everything lies in the first one";
            return Err(ParamError::of("directories", message));
        }
        debug_assert!(made.sizes.largest() <= LARGEST_BYTES);
        Ok(made)
    }

    pub(super) fn entries(&self) -> u64 {
        self.files + self.directories + self.symlinks
    }

    /// Bytes of all files, each rounded up to a multiple of `unit`.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        self.sizes.total(self.seed, self.files, unit)
    }
}

impl fmt::Display for SyntheticTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files of {} bytes, {} directories, {} symlinks, seed {}, {:?}",
            self.files, self.sizes, self.directories, self.symlinks, self.seed, self.data
        )
    }
}

/// Index of the first of `count` entries that lies in `directory`, if they are spread evenly over `directories`.
fn first_in(directory: u64, directories: u64, count: u64) -> u64 {
    let first = u128::from(directory) * u128::from(count);
    u64::try_from(first.div_ceil(u128::from(directories))).unwrap_or(count)
}

/// The next directory, depth first: the first child, else the next sibling of the nearest ancestor that has one.
fn after(directory: u64, directories: u64) -> Option<u64> {
    let child = directory * FAN_OUT + 1;
    if child < directories {
        return Some(child);
    }
    let mut at = directory;
    while at > 0 {
        let is_last = at.is_multiple_of(FAN_OUT);
        if !is_last && at + 1 < directories {
            return Some(at + 1);
        }
        at = (at - 1) / FAN_OUT;
    }
    None
}

#[derive(Debug)]
pub(super) struct SyntheticSource {
    made: SyntheticTree,
    data: WriteBuffer,
    directory: Option<u64>,
    /// Path of the current directory, and the range of its files that are left.
    path: Vec<u8>,
    files: std::ops::Range<u64>,
    symlinks: std::ops::Range<u64>,
    /// The file whose content is read, and the position in it.
    file: u64,
    bytes: u64,
    written: u64,
}

impl SyntheticSource {
    pub(super) fn new(made: SyntheticTree, data: WriteBuffer) -> Self {
        Self {
            made,
            data,
            directory: None,
            path: Vec::new(),
            files: 0..0,
            symlinks: 0..0,
            file: 0,
            bytes: 0,
            written: 0,
        }
    }

    fn enter(&mut self, directory: u64) {
        let SyntheticTree {
            files,
            directories,
            symlinks,
            ..
        } = self.made;
        let range = |count| {
            first_in(directory, directories, count)..first_in(directory + 1, directories, count)
        };
        (self.files, self.symlinks) = (range(files), range(symlinks));
        let mut way = vec![directory];
        let mut at = directory;
        while at > 0 {
            at = (at - 1) / FAN_OUT;
            way.push(at);
        }
        self.path.clear();
        for (depth, number) in way.into_iter().rev().enumerate() {
            let slash = if depth == 0 { "" } else { "/" };
            // A write into a vector cannot fail.
            let _ = write!(self.path, "{slash}d{number:09}");
        }
        self.directory = Some(directory);
    }
}

impl TreeSource for SyntheticSource {
    fn next(&mut self, entry: &mut TreeEntry) -> Result<bool, SourceError> {
        (entry.bytes, entry.executable) = (0, false);
        entry.target.clear();
        (self.bytes, self.written) = (0, 0);
        let name = if let Some(file) = self.files.next() {
            entry.kind = EntryKind::File;
            entry.bytes = self.made.sizes.of(self.made.seed, file);
            (self.file, self.bytes) = (file, entry.bytes);
            Some(('f', file))
        } else if let Some(symlink) = self.symlinks.next() {
            entry.kind = EntryKind::Symlink;
            let file = self.files.start.saturating_sub(1);
            let _ = write!(entry.target, "f{file:09}");
            Some(('s', symlink))
        } else {
            let next = match self.directory {
                None => Some(0),
                Some(directory) => after(directory, self.made.directories),
            };
            let Some(next) = next else {
                return Ok(false);
            };
            self.enter(next);
            entry.kind = EntryKind::Directory;
            None
        };
        entry.path.clone_from(&self.path);
        if let Some((letter, number)) = name {
            let _ = write!(entry.path, "/{letter}{number:09}");
        }
        Ok(true)
    }

    fn content(&mut self) -> io::Result<&[u8]> {
        let left = usize::try_from(self.bytes - self.written).unwrap_or(usize::MAX);
        let piece = self.data.stamped(self.file, self.written, left);
        self.written += u64::try_from(piece.len()).unwrap_or(0);
        Ok(piece)
    }

    fn take_excluded_time(&mut self) -> Duration {
        self.data.take_excluded_time()
    }

    fn check(&self, found: &[u8], offset: u64, wrong: &mut Mismatches) {
        let written = Written {
            file: self.file,
            offset,
            bytes: self.written.saturating_sub(offset),
            generation: 0,
        };
        let content = self.data.content();
        content.check_part(found, offset, &written, wrong);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn made(files: u64, directories: u64, symlinks: u64) -> SyntheticTree {
        let counts = (Some(files), Some(directories), Some(symlinks));
        SyntheticTree::new(Builtin::Source, counts, None, 1, DataSpec::default()).unwrap()
    }

    proptest! {
        #[test]
        fn everything_comes_once_and_after_its_directory(
            files in 0_u64..300, directories in 1_u64..200, symlinks in 0_u64..40,
        ) {
            let mut source = SyntheticSource::new(made(files, directories, symlinks), WriteBuffer::new(4096, 1));
            let mut entry = TreeEntry::new();
            let mut seen = HashSet::new();
            let mut counts = [0_u64; 3];
            while source.next(&mut entry).unwrap() {
                if let Some(slash) = entry.path.iter().rposition(|byte| *byte == b'/') {
                    prop_assert!(seen.contains(entry.path.get(..slash).unwrap()));
                }
                prop_assert!(seen.insert(entry.path.clone()));
                let kind = match entry.kind {
                    EntryKind::File => 0,
                    EntryKind::Directory => 1,
                    _ => 2,
                };
                if let Some(count) = counts.get_mut(kind) {
                    *count += 1;
                }
                let mut bytes = 0;
                loop {
                    let piece = source.content().unwrap().len();
                    if piece == 0 {
                        break;
                    }
                    bytes += u64::try_from(piece).unwrap();
                }
                prop_assert_eq!(bytes, entry.bytes);
            }
            prop_assert_eq!(counts, [files, directories, symlinks]);
        }
    }

    #[test]
    fn the_builtin_trees_are_as_large_as_the_study_says() {
        for (builtin, files, directories) in [
            (Builtin::Source, 124_960, 7042),
            (Builtin::Ports, 295_333, 36_725),
        ] {
            let made =
                SyntheticTree::new(builtin, (None, None, None), None, 1, DataSpec::default())
                    .unwrap();
            assert_eq!((made.files, made.directories), (files, directories));
            let mut counts = [0_u64; 5];
            for index in 0..made.files {
                let row = match made.sizes.of(1, index) {
                    0..1024 => 0,
                    1024..10_240 => 1,
                    10_240..102_400 => 2,
                    102_400..1_048_576 => 3,
                    _ => 4,
                };
                if let Some(count) = counts.get_mut(row) {
                    *count += 1;
                }
            }
            // Sizes are drawn at random: each row is within five standard deviations of its share.
            for (count, expected) in counts.into_iter().zip(builtin.files()) {
                let deviation = count.abs_diff(expected);
                assert!(deviation * deviation <= 25 * expected, "{counts:?}");
            }
        }
        let part = SyntheticTree::new(
            Builtin::Ports,
            (Some(1000), None, None),
            None,
            1,
            DataSpec::default(),
        )
        .unwrap();
        assert_eq!(part.directories, 124);
    }
}
