//! The modes and keys of `tree`, and the parameters derived from them.

use super::synthetic::{Builtin, SyntheticTree};
use crate::engine::author::*;
use std::path::PathBuf;

const WHOLE: Data = Data::Laid("the whole tree, one for each worker");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeMode {
    Unpack,
    Read,
    Walk,
    Remove,
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "unpack",
        meaning: "makes everything in the order of the archive: mkdirat; open(O_CREAT|O_EXCL), write, fsync where asked, \
                  close; symlinkat; linkat. Owners and times are not restored. The directory is entered and the archive \
                  read between the operations, or between the writes of a large file, outside of its time",
        needs: Data::Nothing,
        leaves: WHOLE,
        ops: &[Op::Create, Op::Mkdir, Op::Symlink, Op::Link],
    },
    ModeInfo {
        name: "read",
        meaning: "reads each file in the order of the archive, as tar does: open, read to its end, close; with `verify`, \
                  each is held against the archive, or against what was made",
        needs: WHOLE,
        leaves: WHOLE,
        ops: &[Op::Read],
    },
    ModeInfo {
        name: "walk",
        meaning: "lists each directory and looks up each name in it, depth first, as find -ls does",
        needs: WHOLE,
        leaves: WHOLE,
        ops: &[Op::Stat, Op::List],
    },
    ModeInfo {
        name: "remove",
        meaning: "lists each directory, removes what is in it, then the directory, depth first, as rm -r does",
        needs: WHOLE,
        leaves: Data::Nothing,
        ops: &[Op::Delete, Op::List, Op::Rmdir],
    },
];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct TreeKeys {
        /// A tar archive on the agents, plain or compressed by gzip, xz or zstd, that they allow to be read. One with
        /// devices, sparse files, or names that lead out of the tree is refused before anything is made.
        "archive" archive: Option<PathBuf> = none("the tree is made");
        /// A tree from a study: an operating system's sources (124960 files, 7042 directories) or its ports (295333
        /// files, 36725 directories, most of them tiny).
        "tree" tree: Option<Builtin> = none("source");
        /// Files of the tree that is made, in the proportions of `tree`.
        "files" files: Option<u64> = none("those of `tree`");
        /// Directories of the tree that is made, eight in each one.
        "directories" directories: Option<u64> = none("as many per file as `tree` has");
        /// Symlinks of the tree that is made.
        "symlinks" symlinks: Option<u64> = none("0");
        /// Bytes of each file that is made; tables as in workload `files`.
        "size" size: Option<SizeSpec> = none("those of `tree`");
        /// Workers per task, each with a copy of the whole tree.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Fsync each file before it is closed.
        "fsync" fsync: bool = false, in ["unpack"];
        /// Bytes per read or write call. A smaller file takes one call.
        "bs" bs: Bytes = "1m", min 1, max "1g";
        /// Seed of the sizes and the content: the same seed makes the same tree.
        "seed" seed: Option<u64> = none("1");
        /// `walk`: passes are repeated until then, or until `loops` are done. The other modes end with their one pass,
        /// or then.
        "runtime" runtime: Option<Span> = none("one pass over the tree");
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1, in ["walk"];
        /// The content of each file is compared bit by bit as it is read. With `archive` it has to be what the archive
        /// holds, which is decompressed once more beside the reading, so that an error of the unpacking is found too. A
        /// file of a made tree holds its file and offset in every 4 KiB. One that is missing, shorter or longer is an
        /// error; files beyond the archive's, links and permissions are not looked at. None of it is a part of the
        /// operation's time. A file that differs is a failed read, and each wrong sector of 4 KiB is an error of errno
        /// 74, the first three with their place.
        "verify" verify: bool = false, in ["read"],
            because "nothing reads what it checks before the cell's data are removed";
        include ramp: RampKeys;
        include data: DataKeys;
    }
}

/// Source of the tree.
#[derive(Clone, Debug)]
pub(super) enum TreeOrigin {
    Archive(PathBuf),
    SyntheticTree(SyntheticTree),
}

/// The parameters of one mode, read and checked.
#[derive(Clone, Debug)]
pub(super) struct TreeOptions {
    pub mode: TreeMode,
    pub from: TreeOrigin,
    pub workers: u32,
    pub durable: Durable,
    pub unit: usize,
    pub verify: bool,
    pub timing: Timing,
    /// Passes of a walk.
    pub passes: Passes,
}

impl TreeOptions {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, keys: TreeKeys) -> Result<Self, ParamError> {
        let data = DataSpec::new(&keys.data, keys.verify)?;
        Ok(Self {
            mode: match mode.name {
                "read" => TreeMode::Read,
                "walk" => TreeMode::Walk,
                "remove" => TreeMode::Remove,
                "unpack" => TreeMode::Unpack,
                _ => return Err(mode.unknown()),
            },
            workers: keys.numjobs,
            durable: match keys.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            unit: check_unit("bs", keys.bs)?,
            verify: data.verify,
            timing: Timing::of(keys.ramp.ramp_time, keys.runtime)?,
            passes: Passes::of(keys.loops, keys.runtime),
            from: from(keys, data)?,
        })
    }
}

fn from(keys: TreeKeys, data: DataSpec) -> Result<TreeOrigin, ParamError> {
    let Some(path) = keys.archive else {
        let builtin = keys.tree.unwrap_or_default();
        return SyntheticTree::new(
            builtin,
            (keys.files, keys.directories, keys.symlinks),
            keys.size,
            keys.seed.unwrap_or(1),
            data,
        )
        .map(TreeOrigin::SyntheticTree);
    };
    let beside = [
        ("tree", keys.tree.is_some()),
        ("files", keys.files.is_some()),
        ("directories", keys.directories.is_some()),
        ("symlinks", keys.symlinks.is_some()),
        ("size", keys.size.is_some()),
        ("seed", keys.seed.is_some()),
        ("data", keys.data.kind.is_some()),
    ];
    if let Some((key, _)) = beside.into_iter().find(|(_, is_set)| *is_set) {
        let message =
            "says what tree to make, but `archive` says which one there is: drop one of the two";
        return Err(ParamError::of(key, message));
    }
    Ok(TreeOrigin::Archive(path))
}
