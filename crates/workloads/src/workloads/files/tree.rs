//! The shape of a worker's tree: its files, the directory of each, and their names. `w000000003/d000000012/c000012345`
//! is file 12345 of worker 3, before the first rename. Workers that share directories take turns with the files in
//! them, so that all are in the same directory at about the same time.
//!
//! This module does not depend on sizes, modes or clocks.

use super::name::Name;
use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, openat};
use rustix::io::Errno;
use std::ops::Range;

declare_words! {
    /// Whose a directory is.
    pub(super) enum Sharing {
        /// Each worker has a tree of its own.
        Worker = "worker",
        /// The workers of a task have one tree together.
        Task = "task",
        /// All tasks of the step have one tree together.
        Step = "step",
    }
}

/// Distribution of a task's files over workers and directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeShape {
    pub files: u64,
    pub workers: u32,
    pub files_per_directory: u64,
    pub sharing: Sharing,
    /// Index of the task, and the number of tasks.
    pub task: (u32, u32),
}

impl TreeShape {
    /// Files of one worker, numbered within the task. The first workers have one more if the division leaves a
    /// remainder.
    pub(super) fn share(&self, worker: u32) -> FilesShare {
        let workers = u64::from(self.workers.max(1));
        let (task, tasks) = (u64::from(self.task.0), u64::from(self.task.1.max(1)));
        let worker = u64::from(worker);
        let base = self.files / workers;
        let extra = self.files % workers;
        let interleave = match self.sharing {
            Sharing::Worker => Interleave { mine: 0, of: 1 },
            Sharing::Task => Interleave {
                mine: worker,
                of: workers,
            },
            Sharing::Step => Interleave {
                mine: task * workers + worker,
                of: tasks * workers,
            },
        };
        FilesShare {
            first: worker * base + worker.min(extra),
            files: base + u64::from(worker < extra),
            files_per_directory: self.files_per_directory.max(1),
            interleave,
        }
    }

    /// Directories of the task: those of its files and one per worker.
    pub(super) fn directories(&self) -> u64 {
        let of_files = match self.sharing {
            Sharing::Worker => (0..self.workers)
                .map(|index| self.share(index).directories())
                .sum(),
            Sharing::Task | Sharing::Step => self.files.div_ceil(self.files_per_directory.max(1)),
        };
        u64::saturating_add(of_files, self.workers.into())
    }

    /// Upper bound (exclusive) of the numbers in names.
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

/// The numbers of one of several workers that take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interleave {
    mine: u64,
    of: u64,
}

/// One worker's files. File `i` of the share is file `first + i` of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilesShare {
    pub first: u64,
    pub files: u64,
    pub files_per_directory: u64,
    pub interleave: Interleave,
}

impl FilesShare {
    /// The number in the name of file `i` of the share.
    #[inline]
    pub(super) fn number(&self, file: u64) -> u64 {
        file * self.interleave.of + self.interleave.mine
    }

    /// The file of the share with this number in its name. Ignores the number of files.
    pub(super) fn file_of(&self, number: u64) -> Option<u64> {
        let before = number.checked_sub(self.interleave.mine)?;
        before
            .is_multiple_of(self.interleave.of)
            .then(|| before / self.interleave.of)
    }

    /// Whether its directories are its own, so that its numbers are consecutive.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.interleave.of == 1
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

    /// Files of the share in one of its directories; can be empty in a shared directory.
    pub(super) fn files_of(&self, directory: u64) -> Range<u64> {
        let begin = directory * self.files_per_directory;
        let from = |number: u64| {
            let before = number.saturating_sub(self.interleave.mine);
            before.div_ceil(self.interleave.of).min(self.files)
        };
        from(begin)..from(begin + self.files_per_directory)
    }
}

/// The directories of a share: all kept open if their number allows it, otherwise one at a time.
#[derive(Debug)]
pub(super) struct Directories {
    root: Dir,
    kept: Vec<OwnedFd>,
    current: Option<OwnedFd>,
}

impl Directories {
    /// Opens the directories below `root` if there are at most `keep`.
    pub(super) fn open(root: Dir, share: &FilesShare, keep: u64) -> Result<Self, Errno> {
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

    /// Whether the directory is open, so that entering it takes no call.
    #[inline]
    pub(super) fn is_at(&self, number: u64) -> bool {
        usize::try_from(number).is_ok_and(|index| index < self.kept.len())
    }

    /// Enters the directory with this number. Called outside of operations, so that opening is never measured.
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
        calls::OPEN_DIRECTORY,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::target::sandbox::{Allowed, Make, RunDirectory};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_every_file_once(files in 0_u64..10_000, workers in 1_u32..40, per in 1_u64..300) {
            let shape = TreeShape {
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
                let shape = TreeShape { files, workers, files_per_directory: per, sharing, task: (task, tasks) };
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
    }

    #[test]
    fn directories_are_kept_open_only_when_all_may_be() {
        let top = tempfile::tempdir().unwrap();
        let allowed = Allowed::new(vec![top.path().to_owned()]).unwrap();
        let share = FilesShare {
            first: 0,
            files: 5,
            files_per_directory: 1,
            interleave: Interleave { mine: 0, of: 1 },
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
}
