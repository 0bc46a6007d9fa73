//! The files to copy: their names, sizes and directories.
//!
//! A tree does not depend on its location; the same tree can be found, created and opened beneath any directory.
//! Symlinks, devices and other special files are left out and counted. Invariant: a name is one component, resolved in
//! an opened directory, so nothing outside of the tree is ever reached.

use super::keys::MAX_FILES;
use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum number of generated files per directory.
const FILES_PER_DIRECTORY: usize = 1000;
/// Cost of opening and closing a file, as bytes that could be copied in that time, so that a worker with many small
/// files gets fewer bytes than one with a large file.
const FILE_COST_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Directory {
    /// Index of the parent, which always comes before the directory itself.
    parent: usize,
    name: CString,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileEntry {
    /// 0 is the root; `n` is the directory `n - 1` of the list.
    pub directory: usize,
    pub name: CString,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tree {
    directories: Vec<Directory>,
    pub files: Vec<FileEntry>,
    /// Entries that are neither regular files nor directories.
    pub left_out: u64,
}

impl Tree {
    pub(super) fn generated(files: u64, sizes: &SizeSpec, seed: u64) -> Self {
        let mut tree = Self::default();
        for index in 0..files {
            if tree.files.len().is_multiple_of(FILES_PER_DIRECTORY) {
                let name = c_string(format!("d{:06}", tree.directories.len()));
                tree.directories.push(Directory { parent: 0, name });
            }
            tree.files.push(FileEntry {
                directory: tree.directories.len(),
                name: c_string(format!("c{index:09}")),
                bytes: sizes.of(seed, index),
            });
        }
        tree
    }

    /// Finds the regular files beneath `root`; stops at more than one task can copy.
    pub(super) fn scan(root: &Dir, control: &PrepareControl) -> Result<Self, TaskError> {
        let most = usize::try_from(MAX_FILES).unwrap_or(usize::MAX);
        let mut tree = Self::default();
        let mut next = 0;
        while next <= tree.directories.len() && tree.files.len() <= most {
            control.check()?;
            let found = tree.scan_directory(root, next, most);
            found.map_err(|errno| {
                let path = root.path().join(tree.path_of(next));
                TaskError::io(
                    format!("look for files to copy in `{}`", path.display()),
                    errno,
                )
            })?;
            next += 1;
            control.progress(
                u64::try_from(tree.files.len()).unwrap_or(u64::MAX),
                0,
                "files found",
            );
        }
        Ok(tree)
    }

    /// A tree of one file in a directory.
    pub(super) fn one_file(root: &Dir, name: &CStr) -> Result<Self, Errno> {
        let mut tree = Self::default();
        tree.add(root.fd(), 0, name.to_owned(), FileType::RegularFile)?;
        Ok(tree)
    }

    fn scan_directory(&mut self, root: &Dir, directory: usize, most: usize) -> Result<(), Errno> {
        let fd = self.open(root, directory)?;
        // Two of them are `.` and `..`.
        let listed = rustix::fs::Dir::read_from(&fd)?.take(most.saturating_add(3));
        let mut entries: Vec<_> = listed.collect::<Result<_, _>>()?;
        // Sort by name, so that every run copies in the same order, whatever order the file system lists in.
        entries.sort_by(|a, b| a.file_name().cmp(b.file_name()));
        for entry in entries {
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.add(fd.as_fd(), directory, name.to_owned(), entry.file_type())?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        at: BorrowedFd<'_>,
        directory: usize,
        name: CString,
        kind: FileType,
    ) -> Result<(), Errno> {
        match kind {
            FileType::Directory => self.directories.push(Directory {
                parent: directory,
                name,
            }),
            FileType::RegularFile | FileType::Unknown => {
                let facts = statat(at, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                match FileType::from_raw_mode(facts.st_mode) {
                    FileType::RegularFile => self.files.push(FileEntry {
                        directory,
                        name,
                        bytes: u64::try_from(facts.st_size).unwrap_or(0),
                    }),
                    FileType::Directory => self.directories.push(Directory {
                        parent: directory,
                        name,
                    }),
                    _ => self.left_out += 1,
                }
            }
            _ => self.left_out += 1,
        }
        Ok(())
    }

    /// Opens a directory of the tree beneath `root`, component by component.
    pub(super) fn open(&self, root: &Dir, directory: usize) -> Result<OwnedFd, Errno> {
        let mut names = Vec::new();
        let mut at = directory;
        while let Some(step) = at
            .checked_sub(1)
            .and_then(|index| self.directories.get(index))
        {
            names.push(step.name.to_bytes());
            at = step.parent;
        }
        cursor::find(root, names.into_iter().rev(), calls::OPEN_DIRECTORY)
    }

    /// Creates every directory of the tree beneath `root`, which must be empty.
    pub(super) fn make_directories(&self, root: &Dir) -> Result<(), TaskError> {
        let mut parent = OpenDirectory::default();
        for (index, directory) in self.directories.iter().enumerate() {
            let made = parent
                .enter(self, root, directory.parent)
                .and_then(|dir| calls::make_directory(dir, &directory.name));
            made.map_err(|errno| {
                let path = root.path().join(self.path_of(index + 1));
                TaskError::io(format!("make `{}`", path.display()), errno)
            })?;
        }
        Ok(())
    }

    /// Number of directories, including the root.
    pub(super) fn directory_count(&self) -> usize {
        self.directories.len().saturating_add(1)
    }

    /// The files of a directory, if those of the directories before it end at `from`. Files are grouped by directory,
    /// in the order of the directories.
    pub(super) fn files_of(&self, directory: usize, from: usize) -> Range<usize> {
        let rest = self.files.get(from..).unwrap_or_default();
        let own = rest.iter().take_while(|file| file.directory == directory);
        from..from + own.count()
    }

    /// The subdirectories of a directory, likewise.
    pub(super) fn directories_of(&self, directory: usize, from: usize) -> Range<usize> {
        let rest = self.directories.get(from..).unwrap_or_default();
        let own = rest.iter().take_while(|step| step.parent == directory);
        from..from + own.count()
    }

    pub(super) fn names_of_directories(
        &self,
        directories: Range<usize>,
    ) -> impl Iterator<Item = &CStr> {
        let directories = self.directories.get(directories).unwrap_or_default();
        directories.iter().map(|step| step.name.as_c_str())
    }

    /// Path of a directory within the tree, for messages.
    pub(super) fn path_of(&self, directory: usize) -> PathBuf {
        match directory
            .checked_sub(1)
            .and_then(|index| self.directories.get(index))
        {
            Some(step) => self.path_of(step.parent).join(shown(&step.name)),
            None => PathBuf::new(),
        }
    }

    pub(super) fn path_of_file(&self, file: &FileEntry) -> PathBuf {
        self.path_of(file.directory).join(shown(&file.name))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Bytes that the tree takes on a file system that allocates whole blocks.
    pub(super) fn space(&self, block_bytes: u64) -> u64 {
        let taken = |file: &FileEntry| file.bytes.div_ceil(block_bytes).saturating_mul(block_bytes);
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(taken(file)))
    }

    /// Equal for equal trees.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Splits the files over the workers: each file goes to the worker with the least work so far, and each share keeps
    /// the order of the tree.
    pub(super) fn shares(&self, workers: u32) -> Vec<Vec<usize>> {
        let count = usize::try_from(workers).unwrap_or(1);
        let mut shares = vec![Vec::new(); count];
        let mut least: BinaryHeap<_> = (0..count).map(|worker| Reverse((0_u64, worker))).collect();
        for (index, file) in self.files.iter().enumerate() {
            let Some(Reverse((load, worker))) = least.pop() else {
                break;
            };
            if let Some(share) = shares.get_mut(worker) {
                share.push(index);
            }
            let load = load
                .saturating_add(file.bytes)
                .saturating_add(FILE_COST_BYTES);
            least.push(Reverse((load, worker)));
        }
        shares
    }
}

/// The currently open directory of a tree.
#[derive(Debug, Default)]
pub(super) struct OpenDirectory(Option<(usize, OwnedFd)>);

impl OpenDirectory {
    pub(super) fn is_in(&self, directory: usize) -> bool {
        self.0.as_ref().is_some_and(|(open, _)| *open == directory)
    }

    /// Returns the directory, and opens it unless it is the open one.
    pub(super) fn enter(
        &mut self,
        tree: &Tree,
        root: &Dir,
        directory: usize,
    ) -> Result<BorrowedFd<'_>, Errno> {
        if !self.is_in(directory) {
            self.0 = None;
            self.0 = Some((directory, tree.open(root, directory)?));
        }
        self.dir()
    }

    pub(super) fn dir(&self) -> Result<BorrowedFd<'_>, Errno> {
        let open = self.0.as_ref().ok_or(Errno::BADF);
        open.map(|(_, fd)| fd.as_fd())
    }
}

fn c_string(text: String) -> CString {
    CString::new(text).expect("a name that we make has no NUL")
}

fn shown(name: &CStr) -> PathBuf {
    Path::new(&*name.to_string_lossy()).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn generated_files_lie_in_directories_of_a_thousand() {
        let tree = Tree::generated(2500, &SizeSpec::Fixed(10), 1);
        assert_eq!((tree.directories.len(), tree.files.len()), (3, 2500));
        assert_eq!(
            tree.path_of_file(&tree.files[0]),
            Path::new("d000000/c000000000")
        );
        assert_eq!(
            tree.path_of_file(&tree.files[2499]),
            Path::new("d000002/c000002499")
        );
        assert_eq!((tree.bytes(), tree.space(4096)), (25_000, 2500 * 4096));
    }

    proptest! {
        #[test]
        fn shares_cover_every_file_once_and_are_even(
            sizes in proptest::collection::vec(0_u64..1 << 30, 1..200),
            workers in 1_u32..9,
        ) {
            let mut tree = Tree::generated(u64::try_from(sizes.len()).unwrap(), &SizeSpec::Fixed(0), 1);
            for (file, bytes) in tree.files.iter_mut().zip(&sizes) {
                file.bytes = *bytes;
            }
            let shares = tree.shares(workers);
            let mut all: Vec<usize> = shares.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            let cost = |share: &Vec<usize>| share.iter().map(|&i| sizes[i] + FILE_COST_BYTES).sum::<u64>();
            let costs: Vec<u64> = shares.iter().map(cost).collect();
            let largest = sizes.iter().max().unwrap() + FILE_COST_BYTES;
            prop_assert!(costs.iter().max().unwrap() - costs.iter().min().unwrap() <= largest);
        }
    }
}
