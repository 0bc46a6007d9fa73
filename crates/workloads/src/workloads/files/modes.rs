//! The modes of `files`: what each does, which data it needs, and which data it leaves.
//!
//! This module depends neither on existing directories nor on parameters.

use super::name::{NameKind, Names};
use crate::engine::author::*;

const ALL_FILES: Data = Data::Laid("all files, under their current name");
const DIRECTORIES: Data = Data::Laid("the directories, empty");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilesMode {
    Create,
    List,
    ListStat,
    Stat,
    Read,
    Append,
    Chmod,
    Mix,
    SetXattr,
    GetXattr,
    Rename,
    Symlink,
    Mkdir,
    Rmdir,
    Delete,
}

/// Known state of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatasetState {
    pub content: DatasetContent,
    pub extras: Extras,
}

/// Files that a mode needs at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedFiles {
    None,
    /// All files, under either name.
    All,
    /// All or none: the mode does not touch them.
    Either,
}

/// State that a mode needs at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub files: WantedFiles,
    /// Whether each file must, or must not, have an entry of this kind; `None` if it does not matter.
    pub companion: Option<(NameKind, bool)>,
    /// Size in bytes of the attribute that each file must have.
    pub attribute: Option<u32>,
}

impl FilesMode {
    pub(super) const ALL: [Self; 15] = [
        Self::Create,
        Self::List,
        Self::ListStat,
        Self::Stat,
        Self::Read,
        Self::Append,
        Self::Chmod,
        Self::Mix,
        Self::SetXattr,
        Self::GetXattr,
        Self::Rename,
        Self::Symlink,
        Self::Mkdir,
        Self::Rmdir,
        Self::Delete,
    ];

    /// The operation that its workers record; `mix` draws others too.
    pub(super) const fn op(self) -> Op {
        match self {
            Self::Create => Op::Create,
            Self::List => Op::List,
            Self::ListStat => Op::ListStat,
            Self::Stat => Op::Stat,
            Self::Read | Self::Mix => Op::Read,
            Self::Append => Op::Append,
            Self::Chmod => Op::Chmod,
            Self::SetXattr => Op::SetXattr,
            Self::GetXattr => Op::GetXattr,
            Self::Rename => Op::Rename,
            Self::Symlink => Op::Symlink,
            Self::Mkdir => Op::Mkdir,
            Self::Rmdir => Op::Rmdir,
            Self::Delete => Op::Delete,
        }
    }

    /// A mode's name is that of its operation, if there is one.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            one => one.op().as_str(),
        }
    }

    /// Whether a pass leaves the data unchanged, so that it can be repeated.
    pub(super) fn repeats(self) -> bool {
        matches!(
            self,
            Self::List
                | Self::ListStat
                | Self::Stat
                | Self::Read
                | Self::Chmod
                | Self::Mix
                | Self::GetXattr
        )
    }

    /// Kind of entry that the mode works on instead of files.
    pub(super) fn companion(self) -> Option<NameKind> {
        match self {
            Self::Symlink => Some(NameKind::Symlink),
            Self::Mkdir | Self::Rmdir => Some(NameKind::Subdirectory),
            _ => None,
        }
    }

    pub(super) fn wants(self, attribute_bytes: u32) -> Wanted {
        Wanted {
            files: match self {
                Self::Create => WantedFiles::None,
                Self::Symlink | Self::Mkdir | Self::Rmdir => WantedFiles::Either,
                _ => WantedFiles::All,
            },
            companion: self.companion().map(|kind| (kind, self == Self::Rmdir)),
            attribute: (self == Self::GetXattr).then_some(attribute_bytes),
        }
    }

    /// State after a whole pass; `None` if the pass changes nothing that matters.
    pub(super) fn leaves(self, found: DatasetState, sizes: Sizes) -> Option<DatasetState> {
        let DatasetState { content, extras } = found;
        let now = match self {
            Self::List
            | Self::ListStat
            | Self::Stat
            | Self::Read
            | Self::Chmod
            | Self::Mix
            | Self::GetXattr => return None,
            Self::Create => (DatasetContent::Created, extras),
            Self::Rename if content == DatasetContent::Renamed => (DatasetContent::Created, extras),
            Self::Rename => (DatasetContent::Renamed, extras),
            Self::Append => (
                content,
                Extras {
                    appended: extras.appended.saturating_add(sizes.append),
                    ..extras
                },
            ),
            Self::SetXattr => (
                content,
                Extras {
                    attribute: Some(sizes.attribute),
                    ..extras
                },
            ),
            Self::Symlink => (
                content,
                Extras {
                    symlinks: true,
                    ..extras
                },
            ),
            Self::Mkdir | Self::Rmdir => (
                content,
                Extras {
                    subdirectories: self == Self::Mkdir,
                    ..extras
                },
            ),
            Self::Delete => (
                DatasetContent::Empty,
                Extras {
                    appended: 0,
                    attribute: None,
                    ..extras
                },
            ),
        };
        Some(DatasetState {
            content: now.0,
            extras: now.1,
        })
    }
}

/// Bytes that one operation adds to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub append: u64,
    pub attribute: u32,
}

impl DatasetState {
    /// State of empty directories.
    pub(super) fn empty() -> Self {
        Self {
            content: DatasetContent::Empty,
            extras: Extras::default(),
        }
    }

    /// Which of its two names each file has.
    pub(super) fn names(&self) -> Names {
        match self.content {
            DatasetContent::Renamed => Names::Renamed,
            _ => Names::Created,
        }
    }

    pub(super) fn has(&self, kind: NameKind) -> bool {
        match kind {
            NameKind::Symlink => self.extras.symlinks,
            NameKind::Subdirectory => self.extras.subdirectories,
        }
    }

    /// Number of names per file.
    pub(super) fn names_per_file(&self) -> u64 {
        let files = matches!(
            self.content,
            DatasetContent::Created | DatasetContent::Renamed
        );
        u64::from(files)
            + NameKind::ALL
                .iter()
                .map(|kind| u64::from(self.has(*kind)))
                .sum::<u64>()
    }

    /// Whether a mode can start from this state.
    pub(super) fn satisfies(&self, wanted: &Wanted) -> bool {
        let files = match wanted.files {
            WantedFiles::None => self.content == DatasetContent::Empty,
            WantedFiles::All => matches!(
                self.content,
                DatasetContent::Created | DatasetContent::Renamed
            ),
            WantedFiles::Either => self.content != DatasetContent::Unsettled,
        };
        let companion = wanted
            .companion
            .is_none_or(|(kind, there)| self.has(kind) == there);
        let attribute = wanted.attribute;
        files && companion && (attribute.is_none() || self.extras.attribute == attribute)
    }

    /// State to lay out so that a mode can start.
    pub(super) fn repaired(&self, wanted: &Wanted) -> DatasetState {
        let known = match self.content {
            DatasetContent::Unsettled => Self::empty(),
            _ => *self,
        };
        let mut goal = known;
        match wanted.files {
            WantedFiles::Either => {}
            WantedFiles::None => {
                goal.content = DatasetContent::Empty;
                (goal.extras.appended, goal.extras.attribute) = (0, None);
            }
            WantedFiles::All => {
                goal.content = DatasetContent::Created;
                (goal.extras.appended, goal.extras.attribute) = (0, wanted.attribute);
            }
        }
        match wanted.companion {
            Some((NameKind::Symlink, there)) => goal.extras.symlinks = there,
            Some((NameKind::Subdirectory, there)) => goal.extras.subdirectories = there,
            None => {}
        }
        goal
    }
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "create",
        meaning: "creates each file: open(O_CREAT|O_EXCL), write, fsync if set, close; directories exist before",
        needs: Data::Nothing,
        leaves: ALL_FILES,
        ops: &[Op::Create],
    },
    ModeInfo {
        name: "list",
        meaning: "reads each directory to its end: open, getdents64, close; no file is looked up",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::List],
    },
    ModeInfo {
        name: "list-stat",
        meaning: "reads each directory to its end and looks up each of its names, as ls -l does",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::ListStat],
    },
    ModeInfo {
        name: "stat",
        meaning: "looks up each file: fstatat; the time of each operation starts at the end of the previous one",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Stat],
    },
    ModeInfo {
        name: "read",
        meaning: "reads each file completely: open, read until all bytes are read, close",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Read],
    },
    ModeInfo {
        name: "append",
        meaning: "adds `append` bytes to each file: open(O_APPEND), pwrite, fsync if set, close",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Append],
    },
    ModeInfo {
        name: "chmod",
        meaning: "changes each file's permissions, alternating between two values from pass to pass: fchmodat2, \
                  follows no symlink",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Chmod],
    },
    ModeInfo {
        name: "mix",
        meaning: "operations drawn by their weights (`mix`), each on an independently drawn file: `read`, `stat` and \
                  `chmod` as in the modes of these names; `write` overwrites a file with its original content: open, \
                  fstat, write, fsync if set, close",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Read, Op::Write, Op::Stat, Op::Chmod],
    },
    ModeInfo {
        name: "setxattr",
        meaning: "sets the attribute user.benchmesh of each file, `xattr-size` bytes: setxattrat",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::SetXattr],
    },
    ModeInfo {
        name: "getxattr",
        meaning: "reads that attribute of each file: getxattrat",
        needs: Data::Laid("all files, each with its attribute"),
        leaves: ALL_FILES,
        ops: &[Op::GetXattr],
    },
    ModeInfo {
        name: "rename",
        meaning: "renames each file within its directory: renameat; a second `rename` restores the first name; the \
                  time of each operation starts at the end of the previous one",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Rename],
    },
    ModeInfo {
        name: "symlink",
        meaning: "creates a symlink to each file in the same directory, whether the file exists or not: symlinkat",
        needs: DIRECTORIES,
        leaves: Data::Laid("a symlink for each file"),
        ops: &[Op::Symlink],
    },
    ModeInfo {
        name: "mkdir",
        meaning: "creates an empty directory beside each file: mkdirat",
        needs: DIRECTORIES,
        leaves: Data::Laid("a directory for each file"),
        ops: &[Op::Mkdir],
    },
    ModeInfo {
        name: "rmdir",
        meaning: "removes the directories created by `mkdir`: unlinkat(AT_REMOVEDIR)",
        needs: Data::Laid("a directory for each file"),
        leaves: DIRECTORIES,
        ops: &[Op::Rmdir],
    },
    ModeInfo {
        name: "delete",
        meaning: "removes each file: unlinkat; the directories remain until the cell is removed; the time of each \
                  operation starts at the end of the previous one",
        needs: ALL_FILES,
        leaves: DIRECTORIES,
        ops: &[Op::Delete],
    },
];
