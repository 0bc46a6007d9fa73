//! The shape of a worker's tree: which files of the task are its own, in which directory each lies, and what it is
//! called. `w000000003/d000000012/c000012345` is file 12345 of worker 3, before the first rename. Where several share
//! their directories, their files take turns in them, so that all are in the same directory at about the same time.
//!
//! It knows nothing of sizes, modes or clocks. Invariant: a name never needs memory beyond the buffer that holds it.

use crate::sandbox::Dir;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::ops::Range;

/// Whose directories the files lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sharing {
    /// Each worker has a tree of its own.
    #[default]
    Worker,
    /// The workers of a task have one tree together.
    Task,
    /// All tasks of the step have one tree together.
    Step,
}

/// How a task's files are spread over workers and directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub files: u64,
    pub workers: u32,
    pub files_per_directory: u64,
    pub sharing: Sharing,
    /// Which of how many tasks.
    pub task: (u32, u32),
}

impl Shape {
    /// The files of one worker, numbered within the task. The first workers have one more where it does not divide.
    pub(super) fn share(&self, worker: u32) -> Share {
        let workers = u64::from(self.workers.max(1));
        let (task, tasks) = (u64::from(self.task.0), u64::from(self.task.1.max(1)));
        let worker = u64::from(worker);
        let base = self.files / workers;
        let extra = self.files % workers;
        let turn = match self.sharing {
            Sharing::Worker => Turn { mine: 0, of: 1 },
            Sharing::Task => Turn {
                mine: worker,
                of: workers,
            },
            Sharing::Step => Turn {
                mine: task * workers + worker,
                of: tasks * workers,
            },
        };
        Share {
            first: worker * base + worker.min(extra),
            files: base + u64::from(worker < extra),
            files_per_directory: self.files_per_directory.max(1),
            turn,
        }
    }

    /// One more than the highest number that a name can get.
    pub(super) fn names(&self) -> u64 {
        let each = self.files.div_ceil(u64::from(self.workers.max(1)));
        let together = match self.sharing {
            Sharing::Worker => 1,
            Sharing::Task => u64::from(self.workers),
            Sharing::Step => u64::from(self.workers) * u64::from(self.task.1.max(1)),
        };
        each.saturating_mul(together)
    }
}

/// Whose turn a number is, where several count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    mine: u64,
    of: u64,
}

/// One worker's files. File `i` of the share is file `first + i` of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub first: u64,
    pub files: u64,
    pub files_per_directory: u64,
    pub turn: Turn,
}

impl Share {
    /// The number in the name of file `i` of the share.
    #[inline]
    pub(super) fn number(&self, file: u64) -> u64 {
        file * self.turn.of + self.turn.mine
    }

    /// The file of the share that has this number in its name, were there enough files.
    pub(super) fn file_of(&self, number: u64) -> Option<u64> {
        let before = number.checked_sub(self.turn.mine)?;
        before
            .is_multiple_of(self.turn.of)
            .then(|| before / self.turn.of)
    }

    /// Whether nobody else has files in its directories: then its numbers follow each other.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.turn.of == 1
    }

    #[inline]
    pub(super) fn directory_of(&self, file: u64) -> u64 {
        self.number(file) / self.files_per_directory
    }

    pub(super) fn directories(&self) -> u64 {
        match self.files.checked_sub(1) {
            Some(last) => self.directory_of(last) + 1,
            None => 0,
        }
    }

    /// The files of the share that lie in one of its directories; may be none where directories are shared.
    pub(super) fn files_of(&self, directory: u64) -> Range<u64> {
        let begin = directory * self.files_per_directory;
        let from = |number: u64| {
            let before = number.saturating_sub(self.turn.mine);
            before.div_ceil(self.turn.of).min(self.files)
        };
        from(begin)..from(begin + self.files_per_directory)
    }
}

/// The two names a file can have: rename goes from one to the other and, the next time, back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Names {
    Created,
    Renamed,
}

impl Names {
    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Created => b'c',
            Self::Renamed => b'r',
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Created => Self::Renamed,
            Self::Renamed => Self::Created,
        }
    }
}

/// What else than a file can lie beside the files, under their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Symlink,
    Subdirectory,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Symlink, Self::Subdirectory];

    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Symlink => b's',
            Self::Subdirectory => b'm',
        }
    }

    /// How it is removed.
    pub(super) fn removal(self) -> AtFlags {
        match self {
            Self::Symlink => AtFlags::empty(),
            Self::Subdirectory => AtFlags::REMOVEDIR,
        }
    }
}

/// More files than this in one share do not fit the name.
pub(super) const MOST_FILES: u64 = 1_000_000_000;

const DIGITS: usize = 9;
const NAME_LEN: usize = 1 + DIGITS;

/// A letter, nine digits and the NUL that the kernel wants, in place. Counting up writes one digit as a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    bytes: [u8; NAME_LEN + 1],
}

impl Name {
    pub(super) fn new(letter: u8, number: u64) -> Self {
        let mut name = Self {
            bytes: [b'0'; NAME_LEN + 1],
        };
        let [first, digits @ .., end] = &mut name.bytes;
        *first = letter;
        *end = 0;
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        name
    }

    pub(super) fn file(names: Names, number: u64) -> Self {
        Self::new(names.letter(), number)
    }

    pub(super) fn directory(number: u64) -> Self {
        Self::new(b'd', number)
    }

    pub(super) fn of(kind: Kind, number: u64) -> Self {
        Self::new(kind.letter(), number)
    }

    pub(super) fn worker(number: u32) -> Self {
        Self::new(b'w', u64::from(number))
    }

    /// The next name in order.
    #[inline]
    pub(super) fn advance(&mut self) {
        let [_, digits @ .., _] = &mut self.bytes;
        for digit in digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }

    pub(super) fn letter(&self) -> u8 {
        let [letter, ..] = self.bytes;
        letter
    }

    /// The number of another name, under this one's letter.
    #[inline]
    pub(super) fn take_number(&mut self, other: &Name) {
        let letter = self.letter();
        *self = *other;
        let [first, ..] = &mut self.bytes;
        *first = letter;
    }

    #[inline]
    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes).expect("only the last byte is NUL")
    }

    /// What number a name with this letter has; `None` for any other name.
    pub(super) fn number(letter: u8, name: &CStr) -> Option<u64> {
        let (&first, digits) = name.to_bytes().split_first()?;
        if first != letter || digits.len() != DIGITS || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.as_c_str().to_string_lossy())
    }
}

pub(super) const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The directories of a share: all kept open where their number allows it, otherwise one at a time.
#[derive(Debug)]
pub(super) struct Directories {
    root: Dir,
    kept: Vec<OwnedFd>,
    current: Option<OwnedFd>,
}

impl Directories {
    /// Opens the first `keep` directories below `root`, when those are all of them.
    pub(super) fn open(root: Dir, share: &Share, keep: u64) -> Result<Self, Errno> {
        let mut directories = Self {
            root,
            kept: Vec::new(),
            current: None,
        };
        if share.directories() <= keep {
            for number in 0..share.directories() {
                let fd = open_directory(&directories.root, number)?;
                directories.kept.push(fd);
            }
        }
        Ok(directories)
    }

    /// The directory with this number. Outside of any operation, so opening it is never in a measured time.
    #[inline]
    pub(super) fn enter(&mut self, number: u64) -> Result<BorrowedFd<'_>, Errno> {
        let kept = usize::try_from(number).ok().and_then(|i| self.kept.get(i));
        match kept {
            Some(fd) => Ok(fd.as_fd()),
            None => {
                self.current = None;
                let fd = open_directory(&self.root, number)?;
                let current: &OwnedFd = self.current.insert(fd);
                Ok(current.as_fd())
            }
        }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.fd()
    }
}

pub(super) fn open_directory(root: &Dir, number: u64) -> Result<OwnedFd, Errno> {
    openat(
        root.fd(),
        Name::directory(number).as_c_str(),
        OPEN_DIRECTORY,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sandbox::{Allowed, Make, RunDirectory};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_every_file_once(files in 0_u64..10_000, workers in 1_u32..40, per in 1_u64..300) {
            let shape = Shape {
                files,
                workers,
                files_per_directory: per,
                sharing: Sharing::Worker,
                task: (0, 1),
            };
            let mut next = 0;
            for worker in 0..workers {
                let share = shape.share(worker);
                prop_assert_eq!(share.first, next);
                let mut inside = 0;
                for directory in 0..share.directories() {
                    let range = share.files_of(directory);
                    prop_assert_eq!(range.start, inside);
                    prop_assert!(range.end - range.start <= per && !range.is_empty());
                    inside = range.end;
                }
                prop_assert_eq!(inside, share.files);
                next += share.files;
            }
            prop_assert_eq!(next, files);
        }

        #[test]
        fn those_who_share_directories_never_meet_in_a_name(
            files in 1_u64..500,
            workers in 1_u32..5,
            tasks in 1_u32..4,
            per in 1_u64..50,
            whole_step: bool,
        ) {
            let sharing = if whole_step { Sharing::Step } else { Sharing::Task };
            let tasks = if whole_step { tasks } else { 1 };
            let mut numbers = std::collections::HashSet::new();
            for task in 0..tasks {
                let shape = Shape { files, workers, files_per_directory: per, sharing, task: (task, tasks) };
                for worker in 0..workers {
                    let share = shape.share(worker);
                    let mut next = 0;
                    for directory in 0..share.directories() {
                        for file in share.files_of(directory) {
                            prop_assert_eq!(file, next);
                            next += 1;
                            let number = share.number(file);
                            prop_assert_eq!(share.directory_of(file), directory);
                            prop_assert_eq!(share.file_of(number), Some(file));
                            prop_assert!(numbers.insert(number) && number < shape.names());
                        }
                    }
                    prop_assert_eq!(next, share.files);
                }
            }
            prop_assert_eq!(u64::try_from(numbers.len()).unwrap(), files * u64::from(tasks));
        }

        #[test]
        fn advancing_a_name_counts(start in 0_u64..999_999_000, steps in 0_u64..1000) {
            let mut name = Name::file(Names::Created, start);
            for _ in 0..steps {
                name.advance();
            }
            let expected = format!("c{:09}", start + steps);
            prop_assert_eq!(name.as_c_str().to_str().unwrap(), expected.as_str());
            prop_assert_eq!(Name::number(b'c', name.as_c_str()), Some(start + steps));
            prop_assert_eq!(Name::number(b'r', name.as_c_str()), None);
        }
    }

    #[test]
    fn directories_are_kept_open_only_when_all_may_be() {
        let top = tempfile::tempdir().unwrap();
        let allowed = Allowed::new(vec![top.path().to_owned()]).unwrap();
        let share = Share {
            first: 0,
            files: 5,
            files_per_directory: 1,
            turn: Turn { mine: 0, of: 1 },
        };
        for (run, keep, kept) in [("a", 5, 5), ("b", 4, 0)] {
            let opened =
                RunDirectory::open_or_make(&allowed, top.path(), "m", run, Make::IfMissing);
            let root = opened.unwrap().unwrap().0.cell("c").unwrap();
            let path = root.path().to_owned();
            for number in 0..5 {
                root.make_dir(&Name::directory(number).to_string()).unwrap();
            }
            let mut directories = Directories::open(root, &share, keep).unwrap();
            assert_eq!(directories.kept.len(), kept);
            for number in [0, 1, 4, 2] {
                let dir = directories.enter(number).unwrap();
                let entered = rustix::fs::fstat(dir).unwrap().st_ino;
                let named =
                    std::fs::metadata(path.join(Name::directory(number).to_string())).unwrap();
                assert_eq!(entered, std::os::unix::fs::MetadataExt::ino(&named));
            }
            assert_eq!(directories.enter(5).unwrap_err(), Errno::NOENT);
        }
    }

    #[test]
    fn a_foreign_name_has_no_number() {
        for name in [c".", c"..", c"c1", c"c00000000x", c"c0000000001", c""] {
            assert_eq!(Name::number(b'c', name), None, "{name:?}");
        }
    }
}
