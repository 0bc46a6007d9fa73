//! The modes, keys and parameters of `copy`.

use super::NAME;
use super::engine::{DIRECT_BYTES, Way};
use crate::common;
use crate::data::{self, DataSpec, Kind};
use crate::files::calls::Durable;
use crate::files::size::SizeSpec;
use crate::files::{check_unit, one_mib};
use crate::op::Op;
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo, ParamError};
use crate::units::{self, Bytes, Span};
use crate::workload::{Data as CellData, ModeInfo, Params as PlanParams, RAMP_TIME, Timing};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

/// A task knows the name of each of its files while it runs.
pub(super) const MOST_FILES: u64 = 10_000_000;

const COPIED: CellData = CellData::Laid("all files, copied in");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    In,
    Out,
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "in",
        meaning: "copies each file into the target: open both, move all of it in the `way` that is asked for, fsync where \
                  asked, close both; with `verify`, reads each copy after that",
        needs: CellData::Nothing,
        leaves: COPIED,
        ops: &[Op::Copy, Op::Read],
    },
    ModeInfo {
        name: "out",
        meaning: "copies each file from the target into the agent's scratch directory, in the same way",
        needs: COPIED,
        leaves: COPIED,
        ops: &[Op::Copy, Op::Read],
    },
];

pub(super) const KEYS: &[KeyInfo] = &params::join::<
    { OWN_KEYS.len() + DATA.len() + common::KEYS.len() },
>(&[OWN_KEYS, DATA, common::KEYS]);

const DATA: &[KeyInfo] = &[data::DATA];

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "files",
        kind: "count",
        default: "1",
        meaning: "files per task, split over its workers",
    },
    KeyInfo {
        name: "size",
        kind: "size, or a table",
        default: "256m",
        meaning: "bytes of each file; tables as in workload `files`",
    },
    KeyInfo {
        name: "from",
        kind: "path",
        default: "files made in the agent's scratch directory",
        meaning: "copies this file, or all regular files of this tree, instead; the agent has to allow reading it",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task; each copies whole files",
    },
    KeyInfo {
        name: "fsync",
        kind: "true or false",
        default: "false",
        meaning: "fsync each copy before it is closed",
    },
    KeyInfo {
        name: "way",
        kind: "auto, copy-file-range, read-write or direct",
        default: "auto",
        meaning: "auto: copy_file_range, or read and write where the kernel cannot copy between the two file systems; \
                  direct: read and write with O_DIRECT on the side of the target, but for the end of a file that is no \
                  whole block",
    },
    KeyInfo {
        name: "verify",
        kind: "true or false",
        default: "false",
        meaning: "each copy is read when it is made, as an operation of its own, and compared with what was written into \
                  its source, or with the source where that is given by `from`, outside of that operation's time; a copy \
                  that differs is a read that failed, and each wrong sector of 4 KiB is an error of errno 74, the first \
                  three with their place",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "1m",
        meaning: "bytes per read and write where the kernel does not copy; with direct a multiple of 4k",
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
        default: "until all files are copied",
        meaning: "the copying ends then, if not before; a copy that was begun is made to its end",
    },
    RAMP_TIME,
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::only(
        "bs",
        "where the kernel may not copy: not with way = \"copy-file-range\"",
        |_, params| params.get("way").and_then(Value::as_str) != Some("copy-file-range"),
    ),
    effect::RAMP,
];

#[derive(Debug, Deserialize)]
struct CopyParams {
    files: Option<u64>,
    size: Option<SizeSpec>,
    from: Option<PathBuf>,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default, deserialize_with = "units::flag")]
    fsync: bool,
    #[serde(default)]
    way: Way,
    #[serde(default = "one_mib")]
    bs: Bytes,
    seed: Option<u64>,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
    data: Option<Kind>,
    #[serde(default, deserialize_with = "units::flag")]
    verify: bool,
}

fn one() -> u32 {
    1
}

const DEFAULT_FILES: u64 = 1;
const DEFAULT_SEED: u64 = 1;
const DEFAULT_SIZE: SizeSpec = SizeSpec::Fixed(256 << 20);

/// Which files are copied.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    Generated {
        files: u64,
        sizes: SizeSpec,
        seed: u64,
        data: DataSpec,
    },
    From(PathBuf),
}

/// The parameters, checked and in our own words.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub mode: Mode,
    pub source: Source,
    pub workers: u32,
    pub durable: Durable,
    pub way: Way,
    pub verify: bool,
    pub unit: usize,
    pub timing: Timing,
}

impl Plan {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let mode = match mode.name {
            "in" => Mode::In,
            "out" => Mode::Out,
            _ => return Err(mode.unknown()),
        };
        let spec = DataSpec::of(params)?;
        let params: CopyParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        let unit = check_unit(params.bs)?;
        if params.way == Way::Direct && !unit.is_multiple_of(DIRECT_BYTES) {
            let message =
                "must be a multiple of 4k where way = \"direct\": O_DIRECT moves whole blocks";
            return Err(ParamError::of("bs", message));
        }
        Ok(Self {
            mode,
            workers: params.numjobs,
            durable: match params.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            way: params.way,
            verify: params.verify,
            unit,
            timing: Timing::of(params.ramp_time, params.runtime)?,
            source: source_of(params, spec)?,
        })
    }
}

fn source_of(params: CopyParams, data: DataSpec) -> Result<Source, ParamError> {
    if let Some(path) = params.from {
        let beside = [
            ("files", params.files.is_some()),
            ("size", params.size.is_some()),
            ("data", params.data.is_some()),
            ("seed", params.seed.is_some()),
        ];
        if let Some((key, _)) = beside.into_iter().find(|(_, is_set)| *is_set) {
            let message = "says what files to make, but `from` says which ones there are: drop one of the two";
            return Err(ParamError::of(key, message));
        }
        if !path.is_absolute() {
            return Err(ParamError::of(
                "from",
                "must be an absolute path on the agents",
            ));
        }
        return Ok(Source::From(path));
    }
    let files = params.files.unwrap_or(DEFAULT_FILES);
    if files > MOST_FILES {
        return Err(ParamError::of(
            "files",
            format!("at most {MOST_FILES} files per task"),
        ));
    }
    if files < u64::from(params.numjobs) {
        let message = format!(
            "{files} files are too few for {} workers: each copies whole files",
            params.numjobs
        );
        return Err(ParamError::of("files", message));
    }
    Ok(Source::Generated {
        files,
        sizes: params.size.unwrap_or(DEFAULT_SIZE),
        seed: params.seed.unwrap_or(DEFAULT_SEED),
        data,
    })
}
