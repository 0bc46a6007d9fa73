//! The modes, keys and parameters of `bytes`.

use super::NAME;
use crate::common;
use crate::data::{self, DataSpec, Kind};
use crate::files::size::LARGEST_BYTES;
use crate::files::{check_unit, one_mib};
use crate::op::Op;
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo, ParamError};
use crate::passes::{self, Passes};
use crate::units::{self, Bytes, Span};
use crate::workload::{Data as CellData, ModeInfo, Params as PlanParams, RAMP_TIME, Timing};
use serde::Deserialize;

const WHOLE: CellData = CellData::Laid("each worker's file, whole");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Putc,
    Rewrite,
    Getc,
    Fwrite,
    Fread,
    Seek,
}

impl Mode {
    const ALL: [Self; 6] = [
        Self::Putc,
        Self::Rewrite,
        Self::Getc,
        Self::Fwrite,
        Self::Fread,
        Self::Seek,
    ];

    pub(super) const fn op(self) -> Op {
        match self {
            Self::Putc => Op::Putc,
            Self::Rewrite => Op::Rewrite,
            Self::Getc => Op::Getc,
            Self::Fwrite => Op::Fwrite,
            Self::Fread => Op::Fread,
            Self::Seek => Op::Seek,
        }
    }

    /// Whether it begins with an empty file.
    pub(super) fn makes_file(self) -> bool {
        matches!(self, Self::Putc | Self::Fwrite)
    }
}

const fn mode(
    name: &'static str,
    meaning: &'static str,
    needs: CellData,
    ops: &'static [Op],
) -> ModeInfo {
    ModeInfo {
        name,
        meaning,
        needs,
        leaves: WHOLE,
        ops,
    }
}

pub(super) const MODES: &[ModeInfo] = &[
    mode(
        "putc",
        "writes an empty file a byte at a time: each byte is put into the buffer by a call, and a full buffer is written; \
         an operation is one buffer",
        CellData::Nothing,
        &[Op::Putc],
    ),
    mode(
        "rewrite",
        "goes through the file a buffer at a time: read, each byte taken, changed and put back by calls, lseek, written \
         back; an operation is one buffer",
        WHOLE,
        &[Op::Rewrite],
    ),
    mode(
        "getc",
        "reads the file a byte at a time: an empty buffer is filled by one read, and each byte is taken by a call; an \
         operation is one buffer",
        WHOLE,
        &[Op::Getc],
    ),
    mode(
        "fwrite",
        "writes an empty file in records of `bs` through the buffer, whole buffers of a larger record past it; an \
         operation is one record, or as many as fill the buffer",
        CellData::Nothing,
        &[Op::Fwrite],
    ),
    mode(
        "fread",
        "reads the file in records of `bs` through the buffer, whole buffers of a larger record past it; an operation is \
         one record, or as many as fill the buffer",
        WHOLE,
        &[Op::Fread],
    ),
    mode(
        "seek",
        "goes to random places of the file, multiples of `bs`: lseek, read; some are changed, sought again and written \
         back at once",
        WHOLE,
        &[Op::Seek],
    ),
];

pub(super) const KEYS: &[KeyInfo] = &params::join::<
    { OWN_KEYS.len() + data::KEYS.len() + common::KEYS.len() },
>(&[OWN_KEYS, data::KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "size",
        kind: "size",
        default: "256m",
        meaning: "bytes of each worker's file",
    },
    KeyInfo {
        name: "buffer",
        kind: "size",
        default: "4k",
        meaning: "bytes of the buffer, as stdio has one; at most 1g",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "8k, or the file",
        meaning: "fwrite, fread: bytes of a record; seek: bytes that are read at each place",
    },
    KeyInfo {
        name: "seeks",
        kind: "count",
        default: "8000, or without end when `runtime` is set",
        meaning: "places per worker; with `runtime`, until what comes first",
    },
    KeyInfo {
        name: "rewrite-share",
        kind: "0 to 100",
        default: "10",
        meaning: "so many percent of the places are written back",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task, each with a file of its own",
    },
    KeyInfo {
        name: "fsync",
        kind: "true or false",
        default: "false",
        meaning: "fsync at the end of the file, a part of the last operation",
    },
    KeyInfo {
        name: "seed",
        kind: "count",
        default: "1",
        meaning: "of the content and the places",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "one pass over the file, or all `seeks`",
        meaning: "rewrite, getc and fread: over and over until then, or until `loops` are done; seek ends after its `seeks`, \
                  putc and fwrite with the file, or then",
    },
    passes::LOOPS,
    RAMP_TIME,
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::in_modes("buffer", &["putc", "rewrite", "getc", "fwrite", "fread"]),
    Effect::in_modes("bs", &["fwrite", "fread", "seek"]),
    Effect::in_modes("seeks", &["seek"]),
    Effect::in_modes("rewrite-share", &["seek"]),
    Effect::in_modes("fsync", &["putc", "rewrite", "fwrite"]),
    Effect::verify(&["rewrite", "getc", "fread", "seek"]),
    Effect::in_modes("loops", &["rewrite", "getc", "fread"]),
    effect::RAMP,
];

#[derive(Debug, Deserialize)]
struct BytesParams {
    #[serde(default = "default_size")]
    size: Bytes,
    buffer: Option<Bytes>,
    bs: Option<Bytes>,
    seeks: Option<u64>,
    #[serde(rename = "rewrite-share", default = "tenth")]
    rewrite_share: u8,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default, deserialize_with = "units::flag")]
    fsync: bool,
    #[serde(default = "first")]
    seed: u64,
    loops: Option<u64>,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
    #[serde(rename = "data")]
    _data: Option<Kind>,
    #[serde(rename = "verify", default, deserialize_with = "units::flag")]
    _verify: bool,
}

fn default_size() -> Bytes {
    Bytes(256 * one_mib().0)
}

const DEFAULT_SEEKS: u64 = 8000;
const DEFAULT_BUFFER: Bytes = Bytes(4096);
const DEFAULT_RECORD: Bytes = Bytes(8192);

fn tenth() -> u8 {
    10
}

fn one() -> u32 {
    1
}

fn first() -> u64 {
    1
}

/// The parameters, checked and in our own words.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub mode: Mode,
    pub size: u64,
    pub buffer: usize,
    pub record: usize,
    /// Places of each worker; beyond all numbers where time alone ends them.
    pub seeks: u64,
    pub rewrite_share: u8,
    pub workers: u32,
    pub fsync: bool,
    pub seed: u64,
    pub data: DataSpec,
    pub timing: Timing,
    pub passes: Passes,
}

/// What is written of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Nothing,
    Some,
    /// Over what is there.
    AllAgain,
    /// Into an empty file.
    All,
}

/// What is read is checked by whole sectors, whatever mode wrote them.
fn check_sectors(size: Bytes, buffer: Bytes, bs: Bytes) -> Result<(), ParamError> {
    let sector = u64::try_from(data::SECTOR_BYTES).unwrap_or(u64::MAX);
    for (key, bytes) in [("size", size), ("buffer", buffer), ("bs", bs)] {
        if !bytes.0.is_multiple_of(sector) {
            let message = format!(
                "every 4 KiB know their place, and `{key}` = {bytes} is no multiple of that"
            );
            return Err(ParamError::of("verify", message));
        }
    }
    Ok(())
}

impl Plan {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let data = DataSpec::of(params)?;
        let params: BytesParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        let mode = Mode::ALL
            .into_iter()
            .find(|known| known.op().as_str() == mode.name)
            .ok_or_else(|| mode.unknown())?;
        let passes = Passes::of(params.loops, params.runtime)?;
        let refuse = |key, message: &str| Err(ParamError::of(key, message));
        if params.size.0 == 0 || params.size.0 > LARGEST_BYTES {
            return refuse(
                "size",
                "must be at least 1 byte, and no more than a file may have",
            );
        }
        let stdio = params.buffer.unwrap_or(DEFAULT_BUFFER);
        let buffer = check_unit(stdio).map_err(|error| ParamError {
            key: Some("buffer".to_owned()),
            ..error
        })?;
        let bs = params
            .bs
            .unwrap_or(Bytes(DEFAULT_RECORD.0.min(params.size.0)));
        let record = check_unit(bs)?;
        if bs.0 > params.size.0 {
            return refuse("bs", "is larger than the file: there is no record in it");
        }
        if params.buffer.is_some_and(|given| given > params.size) {
            return refuse("buffer", "is larger than the file: it is never full");
        }
        if params.seeks == Some(0) {
            return refuse("seeks", "must be at least 1");
        }
        if params.rewrite_share > 100 {
            return refuse("rewrite-share", "is a share in percent: at most 100");
        }
        if data.verify {
            check_sectors(params.size, stdio, bs)?;
        }
        Ok(Self {
            mode,
            size: params.size.0,
            buffer,
            record,
            seeks: params.seeks.unwrap_or(match params.runtime {
                Some(_) => u64::MAX,
                None => DEFAULT_SEEKS,
            }),
            rewrite_share: params.rewrite_share,
            workers: params.numjobs,
            fsync: params.fsync,
            seed: params.seed,
            data,
            timing: Timing::of(params.ramp_time, params.runtime)?,
            passes: match mode {
                Mode::Rewrite | Mode::Getc | Mode::Fread => passes,
                Mode::Putc | Mode::Fwrite | Mode::Seek => Passes::ONE,
            },
        })
    }

    /// What a mode does to what stands in the file.
    pub(super) fn writes(&self) -> Writes {
        match self.mode {
            Mode::Putc | Mode::Fwrite => Writes::All,
            Mode::Rewrite => Writes::AllAgain,
            Mode::Seek if self.rewrite_share > 0 => Writes::Some,
            Mode::Seek | Mode::Getc | Mode::Fread => Writes::Nothing,
        }
    }

    pub(super) fn record_bytes(&self) -> u64 {
        u64::try_from(self.record).unwrap_or(u64::MAX)
    }

    /// Bytes of one operation, but for the last one of a file and for seeks.
    pub(super) fn operation_bytes(&self) -> u64 {
        let bytes = match self.mode {
            Mode::Putc | Mode::Rewrite | Mode::Getc => self.buffer,
            Mode::Fwrite | Mode::Fread => self.record * self.buffer.div_ceil(self.record),
            Mode::Seek => self.record,
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
