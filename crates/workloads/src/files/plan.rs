//! The keys and parameters of `files`, and what they come to.
//!
//! It knows nothing of directories that exist: everything here is decided by the plan alone.

use super::calls::Durable;
use super::layout::Layout;
use super::modes::{Mode, Sizes};
use super::name::MOST_FILES;
use super::size::{LARGEST_BYTES, SizeSpec};
use super::tree::{Shape, Sharing};
use crate::common;
use crate::data::{self, DataSpec};
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo, ParamError};
use crate::passes::{self, Passes};
use crate::units::{self, Bytes, Span};
use crate::workload::{ModeInfo, Params as PlanParams, RAMP_TIME, Timing};
use serde::Deserialize;

/// File systems give a file whole blocks; no check of free space should be surprised by many small files.
pub(crate) const BLOCK_BYTES: u64 = 4096;

pub(super) const KEYS: &[KeyInfo] = &params::join::<
    { OWN_KEYS.len() + data::KEYS.len() + common::KEYS.len() },
>(&[OWN_KEYS, data::KEYS, common::KEYS]);

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
                  natural logarithm, default 1; max defaults to 100 times the mean), { rows = [{ files, min, max }, ...] } \
                  in the proportions of `files`, evenly in the logarithm within a row",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task",
    },
    KeyInfo {
        name: "dirs",
        kind: "count",
        default: "1000",
        meaning: "files per directory",
    },
    KeyInfo {
        name: "directories-per",
        kind: "worker, task or step",
        default: "worker",
        meaning: "whose the directories are: each worker's own, one tree for the workers of a task, or one for all tasks \
                  of the step; who shares a directory takes turns with the names in it, so that all are in it at once",
    },
    KeyInfo {
        name: "order",
        kind: "sequential or random",
        default: "sequential",
        meaning: "random: each file once per pass, in an order that differs from pass to pass and from mode to mode",
    },
    KeyInfo {
        name: "append",
        kind: "size",
        default: "4k",
        meaning: "bytes that each file gets",
    },
    KeyInfo {
        name: "xattr-size",
        kind: "size",
        default: "64",
        meaning: "bytes of the attribute, at most 64k",
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
        meaning: "passes until then, or until `loops` are done; the modes that cannot be repeated end at the end of their \
                  one pass, or then",
    },
    passes::LOOPS,
    RAMP_TIME,
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::in_modes("append", &["append"]),
    Effect::in_modes("xattr-size", &["setxattr", "getxattr"]),
    Effect::in_modes("fsync", &["create", "append"]),
    Effect::verify(&["read"]),
    Effect::in_modes("loops", REPEATED),
    effect::RAMP,
];

/// The modes whose passes leave the data as they were: [`Mode::repeats`].
const REPEATED: &[&str] = &["list", "list-stat", "stat", "read", "chmod", "getxattr"];

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
    #[serde(rename = "directories-per", default)]
    directories_per: Sharing,
    #[serde(default)]
    order: Order,
    #[serde(default = "four_kib_more")]
    append: Bytes,
    #[serde(rename = "xattr-size", default = "sixty_four")]
    xattr_size: Bytes,
    #[serde(default, deserialize_with = "units::flag")]
    fsync: bool,
    #[serde(default = "one_mib")]
    bs: Bytes,
    #[serde(default = "first_seed")]
    seed: u64,
    loops: Option<u64>,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
}

fn thousand() -> u64 {
    1000
}

fn four_kib() -> SizeSpec {
    SizeSpec::Fixed(4096)
}

fn four_kib_more() -> Bytes {
    Bytes(4096)
}

fn sixty_four() -> Bytes {
    Bytes(64)
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
pub(crate) const MOST_UNIT_BYTES: u64 = 1 << 30;

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

/// In which order a pass goes through the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    #[default]
    Sequential,
    Random,
}

/// The kernel takes no longer attribute.
const MOST_ATTRIBUTE_BYTES: u64 = 64 << 10;

/// The parameters, checked and in our own words.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub mode: Mode,
    pub layout: Layout,
    pub order: Order,
    pub added: Sizes,
    pub durable: Durable,
    pub timing: Timing,
    pub passes: Passes,
}

impl Plan {
    /// Bytes of all files, each rounded up to a multiple of `unit`.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        let Layout {
            shape, sizes, seed, ..
        } = &self.layout;
        sizes.total(*seed, shape.files, unit)
    }
}

impl Plan {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let mode = Mode::ALL
            .into_iter()
            .find(|known| known.as_str() == mode.name)
            .ok_or_else(|| mode.unknown())?;
        let data = DataSpec::of(params)?;
        let params: FilesParams = params::parse(super::NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        if params.files < u64::from(params.numjobs) {
            let message = format!(
                "{} files are too few for {} workers: each needs at least one",
                params.files, params.numjobs
            );
            return Err(ParamError::of("files", message));
        }
        if params.dirs == 0 {
            return Err(ParamError::of(
                "dirs",
                "must be at least 1: it is the files per directory",
            ));
        }
        let added = Sizes {
            append: params.append.0,
            attribute: check_attribute(params.xattr_size)?,
        };
        if added.append == 0 || added.append > LARGEST_BYTES {
            let message = "must be at least 1 byte, and no more than a file may have";
            return Err(ParamError::of("append", message));
        }
        let shape = Shape {
            files: params.files,
            workers: params.numjobs,
            files_per_directory: params.dirs,
            sharing: params.directories_per,
            task: (0, 1),
        };
        check_names(&shape)?;
        let passes = Passes::of(params.loops, params.runtime)?;
        Ok(Self {
            mode,
            order: params.order,
            added,
            layout: Layout {
                shape,
                sizes: params.size,
                seed: params.seed,
                data,
                unit: check_unit(params.bs)?,
            },
            durable: match params.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            timing: Timing::of(params.ramp_time, params.runtime)?,
            passes: match mode.repeats() {
                true => passes,
                false => Passes::ONE,
            },
        })
    }
}

fn check_attribute(size: Bytes) -> Result<u32, ParamError> {
    match u32::try_from(size.0) {
        Ok(bytes) if (1..=MOST_ATTRIBUTE_BYTES).contains(&size.0) => Ok(bytes),
        _ => Err(ParamError::of(
            "xattr-size",
            "must be at least 1 byte and at most 64k, the longest that Linux takes",
        )),
    }
}

/// Refuses more files than their names can tell apart. How many tasks there are is known only when one is made.
pub(super) fn check_names(shape: &Shape) -> Result<(), ParamError> {
    if shape.files <= MOST_FILES && shape.names() <= MOST_FILES {
        return Ok(());
    }
    let message =
        format!("at most {MOST_FILES} files per task, and in directories that are shared");
    Err(ParamError::of("files", message))
}
