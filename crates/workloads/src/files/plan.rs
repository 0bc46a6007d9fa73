//! The modes, keys and parameters of `files`, and what they come to.
//!
//! It knows nothing of directories that exist: everything here is decided by the plan alone.

use super::calls::Durable;
use super::layout::{Layout, Wanted};
use super::size::SizeSpec;
use super::state::Content;
use super::tree::{MOST_FILES, Names, Shape};
use crate::common;
use crate::op::Op;
use crate::params::{self, KeyInfo, ParamError};
use crate::units::{Bytes, Span};
use crate::workload::{Data as CellData, ModeInfo, Params as PlanParams, Timing};
use serde::Deserialize;

/// File systems give a file whole blocks; no check of free space should be surprised by many small files.
pub(crate) const BLOCK_BYTES: u64 = 4096;

const ALL_FILES: CellData =
    CellData::Laid("all files, under the name that the last mode gave them");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Create,
    List,
    Stat,
    Read,
    Rename,
    Delete,
}

impl Mode {
    const ALL: [Self; 6] = [
        Self::Create,
        Self::List,
        Self::Stat,
        Self::Read,
        Self::Rename,
        Self::Delete,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::List => "list",
            Self::Stat => "stat",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Delete => "delete",
        }
    }

    /// Whether a pass leaves the data as they were, so that another can follow.
    pub(super) fn repeats(self) -> bool {
        matches!(self, Self::List | Self::Stat | Self::Read)
    }

    pub(super) fn wants(self) -> Wanted {
        match self {
            Self::Create => Wanted::Empty,
            _ => Wanted::Files,
        }
    }

    /// What a whole pass over files of these names leaves; `None` when it changes nothing.
    pub(super) fn leaves(self, names: Names) -> Option<Content> {
        match (self, names) {
            (Self::Create, _) | (Self::Rename, Names::Renamed) => Some(Content::Created),
            (Self::Rename, Names::Created) => Some(Content::Renamed),
            (Self::Delete, _) => Some(Content::Empty),
            (Self::List | Self::Stat | Self::Read, _) => None,
        }
    }
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "create",
        meaning: "makes each file: open(O_CREAT|O_EXCL), write, fsync where asked, close; directories are there before",
        needs: CellData::Nothing,
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
        name: "stat",
        meaning: "looks each file up: fstatat; its clock starts where the one before ended",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Stat],
    },
    ModeInfo {
        name: "read",
        meaning: "reads each file whole: open, read until all of its bytes are here, close",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Read],
    },
    ModeInfo {
        name: "rename",
        meaning: "gives each file another name in its directory: renameat; a second time, the first name again; \
                  its clock starts where the one before ended",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Rename],
    },
    ModeInfo {
        name: "delete",
        meaning: "removes each file: unlinkat; the directories stay until the cell is removed; its clock \
                  starts where the one before ended",
        needs: ALL_FILES,
        leaves: CellData::Laid("the directories, empty"),
        ops: &[Op::Delete],
    },
];

pub(super) const KEYS: &[KeyInfo] =
    &params::join::<{ OWN_KEYS.len() + common::KEYS.len() }>(&[OWN_KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "files",
        kind: "count",
        default: "1000",
        meaning: "files per task, split over its workers",
    },
    KeyInfo {
        name: "size",
        kind: "size, or a table",
        default: "4k",
        meaning: "bytes of each file; { min, max } picks evenly, { mean, sigma, min, max } log-normally (sigma of the \
                  natural logarithm, default 1; max defaults to 100 times the mean)",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task, each with a directory tree of its own",
    },
    KeyInfo {
        name: "dirs",
        kind: "count",
        default: "1000",
        meaning: "files per directory",
    },
    KeyInfo {
        name: "fsync",
        kind: "true or false",
        default: "false",
        meaning: "create: fsync each file before it is closed",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "1m",
        meaning: "bytes per write or read call; a smaller file takes one call",
    },
    KeyInfo {
        name: "seed",
        kind: "count",
        default: "1",
        meaning: "of the sizes and the content: the same seed makes the same files",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "one pass over the files",
        meaning: "list, stat and read: passes until then; the other modes end at the end of their one pass, or then",
    },
    KeyInfo {
        name: "ramp_time",
        kind: "duration",
        default: "none",
        meaning: "how long it runs before the results count, on top of `runtime`",
    },
];

#[derive(Debug, Deserialize)]
struct FilesParams {
    #[serde(default = "thousand")]
    files: u64,
    #[serde(default = "four_kib")]
    size: SizeSpec,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default = "thousand")]
    dirs: u64,
    #[serde(default)]
    fsync: bool,
    #[serde(default = "one_mib")]
    bs: Bytes,
    #[serde(default = "first_seed")]
    seed: u64,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
}

fn thousand() -> u64 {
    1000
}

fn four_kib() -> SizeSpec {
    SizeSpec::Fixed(4096)
}

fn one() -> u32 {
    1
}

fn first_seed() -> u64 {
    1
}

pub(crate) fn one_mib() -> Bytes {
    Bytes(1 << 20)
}

/// The largest unit of one write or read: every worker has a buffer of it.
const MOST_UNIT_BYTES: u64 = 1 << 30;

/// A key that says how much one call moves.
pub(crate) fn check_unit(bs: Bytes) -> Result<usize, ParamError> {
    match usize::try_from(bs.0) {
        Ok(0) => Err(ParamError::of("bs", "must be at least 1 byte")),
        Ok(bytes) if bs.0 <= MOST_UNIT_BYTES => Ok(bytes),
        _ => Err(ParamError::of(
            "bs",
            format!(
                "{bs} is more than the {} that one call may move",
                Bytes(MOST_UNIT_BYTES)
            ),
        )),
    }
}

/// The parameters, checked and in our own words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub mode: Mode,
    pub layout: Layout,
    pub durable: Durable,
    pub timing: Timing,
}

impl Plan {
    /// Bytes of all files, each rounded up to a multiple of `unit`.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        let Layout {
            shape, sizes, seed, ..
        } = self.layout;
        sizes.total(seed, shape.files, unit)
    }
}

impl Plan {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let mode = Mode::ALL
            .into_iter()
            .find(|known| known.as_str() == mode.name)
            .ok_or_else(|| ParamError::of("modes", format!("no mode `{}`", mode.name)))?;
        let params: FilesParams = params::parse(super::NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        if params.files < u64::from(params.numjobs) {
            let message = format!(
                "{} files are too few for {} workers: each needs at least one",
                params.files, params.numjobs
            );
            return Err(ParamError::of("files", message));
        }
        if params.files > MOST_FILES {
            return Err(ParamError::of(
                "files",
                format!("at most {MOST_FILES} files per task"),
            ));
        }
        if params.dirs == 0 {
            return Err(ParamError::of(
                "dirs",
                "must be at least 1: it is the files per directory",
            ));
        }
        Ok(Self {
            mode,
            layout: Layout {
                shape: Shape {
                    files: params.files,
                    workers: params.numjobs,
                    files_per_directory: params.dirs,
                },
                sizes: params.size,
                seed: params.seed,
                task_index: 0,
                unit: check_unit(params.bs)?,
            },
            durable: match params.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            timing: Timing::of(params.ramp_time, params.runtime)?,
        })
    }
}
