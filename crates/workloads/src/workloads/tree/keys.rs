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
        meaning: "creates everything in the order of the archive: mkdirat; open(O_CREAT|O_EXCL), write, fsync if set, \
                  close; symlinkat; linkat. Owners and times are not restored. Directories are entered and the archive \
                  is read outside of the operations' time: between operations, or between the writes of a large file",
        needs: Data::Nothing,
        leaves: WHOLE,
        ops: &[Op::Create, Op::Mkdir, Op::Symlink, Op::Link],
    },
    ModeInfo {
        name: "read",
        meaning: "reads each file in the order of the archive, as tar does: open, read to its end, close; with \
                  `verify`, compares each with the archive, or with its generated content",
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
        meaning: "lists each directory, removes its entries, then the directory, depth first, as rm -r does",
        needs: WHOLE,
        leaves: Data::Nothing,
        ops: &[Op::Delete, Op::List, Op::Rmdir],
    },
];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct TreeKeys {
        /// A tar archive on the agents, plain or compressed by gzip, xz or zstd. The agents must allow reading it. An
        /// archive with devices, sparse files, or names outside of the tree is refused before anything is created.
        "archive" archive: Option<PathBuf> = none("a generated tree");
        /// The generated tree, taken from a study: an operating system's sources (124960 files, 7042 directories) or
        /// its ports (295333 files, 36725 directories, most of them tiny).
        "tree" tree: Option<Builtin> = none("source");
        /// Files of the generated tree, in the proportions of `tree`.
        "files" files: Option<u64> = none("those of `tree`");
        /// Directories of the generated tree, eight in each one.
        "directories" directories: Option<u64> = none("the same number per file as in `tree`");
        /// Symlinks of the generated tree.
        "symlinks" symlinks: Option<u64> = none("0");
        /// Bytes of each generated file; tables as in workload `files`.
        "size" size: Option<SizeSpec> = none("those of `tree`");
        /// Workers per task, each with a copy of the whole tree.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Fsync each file before it is closed.
        "fsync" fsync: bool = false, in ["unpack"];
        /// Bytes per read or write call. A smaller file takes one call.
        "bs" bs: Bytes = "1m", min 1, max "1g";
        /// Seed of the sizes and the content: the same seed gives the same tree.
        "seed" seed: Option<u64> = none("1");
        /// `walk`: repeats passes for this time, or until `loops` are done. The other modes end after one pass, or at
        /// this time.
        "runtime" runtime: Option<Span> = none("one pass over the tree");
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1, in ["walk"];
        /// Compares the content of each file bit by bit as it is read. With `archive`, the reference is the archive,
        /// which is decompressed again during the reads, so that errors of unpacking are found too. A generated file
        /// contains its file and offset in every 4 KiB. A missing, shorter or longer file is an error. Additional
        /// files, links and permissions are not checked. Verification is outside of the operation's time. A file that
        /// differs is a failed read. Each wrong sector of 4 KiB is an error of errno 74; the first three are recorded
        /// with their position.
        "verify" verify: bool = false, in ["read"],
            because "no mode reads the data before they are removed with the cell";
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
        let message = "describes a tree to generate, but `archive` names an existing one: drop one of the two";
        return Err(ParamError::of(key, message));
    }
    Ok(TreeOrigin::Archive(path))
}
