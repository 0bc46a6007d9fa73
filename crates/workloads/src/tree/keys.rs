//! The modes, keys and parameters of `tree`, and what they come to.

use super::NAME;
use super::made::{Builtin, Made};
use crate::common;
use crate::data::{self, DataSpec, Kind};
use crate::files::calls::Durable;
use crate::files::size::SizeSpec;
use crate::files::{check_unit, one_mib};
use crate::op::Op;
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo, ParamError};
use crate::passes::{self, Passes};
use crate::units::{self, Bytes, Span};
use crate::workload::{Data as CellData, ModeInfo, Params as PlanParams, RAMP_TIME, Timing};
use serde::Deserialize;
use std::path::PathBuf;

const WHOLE: CellData = CellData::Laid("the whole tree, one for each worker");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
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
        needs: CellData::Nothing,
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
        leaves: CellData::Nothing,
        ops: &[Op::Delete, Op::List, Op::Rmdir],
    },
];

pub(super) const KEYS: &[KeyInfo] = &params::join::<
    { OWN_KEYS.len() + data::KEYS.len() + common::KEYS.len() },
>(&[OWN_KEYS, &[data::DATA, VERIFY], common::KEYS]);

const VERIFY: KeyInfo = KeyInfo {
    name: "verify",
    kind: "true or false",
    default: "false",
    meaning: "the content of each file is compared bit by bit as it is read. With `archive` it has to be what the \
              archive holds for it, which is decompressed once more beside the reading, so that an error of the unpacking \
              is found too; a file of a made tree has to know its file and offset in every 4 KiB. One that is missing, \
              shorter or longer is an error; files beyond the archive's, links and permissions are not looked at. None of \
              it is a part of the operation's time; a file that is not right is a read that failed, and each wrong sector \
              of 4 KiB is an error of errno 74, the first three with their place",
};

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "archive",
        kind: "path",
        default: "the tree is made",
        meaning: "a tar archive on the agents, plain or compressed by gzip, xz or zstd, that they allow to be read; one \
                  with devices, sparse files, or names that lead out of the tree is refused before anything is made",
    },
    KeyInfo {
        name: "tree",
        kind: "source or ports",
        default: "source",
        meaning: "a tree of the field: an operating system's sources (124960 files, 7042 directories) or its ports \
                  (295333 files, 36725 directories, most of them tiny)",
    },
    KeyInfo {
        name: "files",
        kind: "count",
        default: "those of `tree`",
        meaning: "files of the tree that is made, in the proportions of `tree`",
    },
    KeyInfo {
        name: "directories",
        kind: "count",
        default: "as many per file as `tree` has",
        meaning: "directories of the tree that is made, eight in each one",
    },
    KeyInfo {
        name: "symlinks",
        kind: "count",
        default: "0",
        meaning: "symlinks of the tree that is made",
    },
    KeyInfo {
        name: "size",
        kind: "size, or a table",
        default: "those of `tree`",
        meaning: "bytes of each file that is made; tables as in workload `files`",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task, each with a copy of the whole tree",
    },
    KeyInfo {
        name: "fsync",
        kind: "true or false",
        default: "false",
        meaning: "fsync each file before it is closed",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "1m",
        meaning: "bytes per read or write call; a smaller file takes one call",
    },
    KeyInfo {
        name: "seed",
        kind: "count",
        default: "1",
        meaning: "of the sizes and the content: the same seed makes the same tree",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "one pass over the tree",
        meaning: "walk: passes until then, or until `loops` are done; the other modes end at the end of their one pass, or \
                  then",
    },
    passes::LOOPS,
    RAMP_TIME,
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::in_modes("fsync", &["unpack"]),
    Effect::verify(&["read"]),
    Effect::in_modes("loops", &["walk"]),
    effect::RAMP,
];

#[derive(Debug, Deserialize)]
struct TreeParams {
    archive: Option<PathBuf>,
    tree: Option<Builtin>,
    files: Option<u64>,
    directories: Option<u64>,
    symlinks: Option<u64>,
    size: Option<SizeSpec>,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default, deserialize_with = "units::flag")]
    fsync: bool,
    #[serde(default = "one_mib")]
    bs: Bytes,
    seed: Option<u64>,
    loops: Option<u64>,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
    data: Option<Kind>,
    #[serde(rename = "verify", default, deserialize_with = "units::flag")]
    _verify: bool,
}

fn one() -> u32 {
    1
}

/// Where the tree comes from.
#[derive(Clone, Debug)]
pub(super) enum From {
    Archive(PathBuf),
    Made(Made),
}

/// The parameters, checked and in our own words.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub mode: Mode,
    pub from: From,
    pub workers: u32,
    pub durable: Durable,
    pub unit: usize,
    pub verify: bool,
    pub timing: Timing,
    /// Of a walk.
    pub passes: Passes,
}

impl Plan {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let data = DataSpec::of(params)?;
        let params: TreeParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        Ok(Self {
            mode: match mode.name {
                "read" => Mode::Read,
                "walk" => Mode::Walk,
                "remove" => Mode::Remove,
                "unpack" => Mode::Unpack,
                _ => return Err(mode.unknown()),
            },
            workers: params.numjobs,
            durable: match params.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            unit: check_unit(params.bs)?,
            verify: data.verify,
            timing: Timing::of(params.ramp_time, params.runtime)?,
            passes: Passes::of(params.loops, params.runtime)?,
            from: from(params, data)?,
        })
    }
}

fn from(params: TreeParams, data: DataSpec) -> Result<From, ParamError> {
    let Some(path) = params.archive else {
        let builtin = params.tree.unwrap_or_default();
        return Made::new(
            builtin,
            (params.files, params.directories, params.symlinks),
            params.size,
            params.seed.unwrap_or(1),
            data,
        )
        .map(From::Made);
    };
    let beside = [
        ("tree", params.tree.is_some()),
        ("files", params.files.is_some()),
        ("directories", params.directories.is_some()),
        ("symlinks", params.symlinks.is_some()),
        ("size", params.size.is_some()),
        ("seed", params.seed.is_some()),
        ("data", params.data.is_some()),
    ];
    if let Some((key, _)) = beside.into_iter().find(|(_, is_set)| *is_set) {
        let message =
            "says what tree to make, but `archive` says which one there is: drop one of the two";
        return Err(ParamError::of(key, message));
    }
    if !path.is_absolute() {
        let message = "must be an absolute path on the agents";
        return Err(ParamError::of("archive", message));
    }
    Ok(From::Archive(path))
}
