//! The modes, keys and parameters of `fill`.

use super::NAME;
use crate::common;
use crate::data::{self, DataSpec, Kind};
use crate::files::size::LARGEST_BYTES;
use crate::files::{check_unit, one_mib};
use crate::op::Op;
use crate::params::effect::Effect;
use crate::params::{self, KeyInfo, ParamError};
use crate::units::{self, Bytes, Span};
use crate::workload::{Data as CellData, ModeInfo, Params as PlanParams, Timing};
use serde::Deserialize;
use std::time::Duration;

const FULL: CellData = CellData::Laid("the files that fill the target");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Fill,
    Hold,
    Read,
    Remove,
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "fill",
        meaning: "writes new files, `bs` at a time, until the aim is reached; a target that comes down to `floor` before \
                  ends the step with an error that says so",
        needs: CellData::Nothing,
        leaves: FULL,
        ops: &[Op::Write],
    },
    ModeInfo {
        name: "hold",
        meaning: "leaves the target full for the time of `hold`, and asks it ten times a second how full it is",
        needs: FULL,
        leaves: FULL,
        ops: &[Op::Statfs],
    },
    ModeInfo {
        name: "read",
        meaning: "reads the files again, `bs` at a time, in the order in which they were written: openat on the way, pread; \
                  with `verify`, each block is checked, and that the file ends where it should",
        needs: FULL,
        leaves: FULL,
        ops: &[Op::Read],
    },
    ModeInfo {
        name: "remove",
        meaning: "removes the files: unlinkat",
        needs: FULL,
        leaves: CellData::Nothing,
        ops: &[Op::Delete],
    },
];

pub(super) const KEYS: &[KeyInfo] =
    &params::join::<{ OWN_KEYS.len() + 2 + common::KEYS.len() }>(&[
        OWN_KEYS,
        &[data::DATA, VERIFY],
        common::KEYS,
    ]);

const VERIFY: KeyInfo = KeyInfo {
    name: "verify",
    kind: "true or false",
    default: "false",
    meaning: "what was written is checked bit by bit, outside of the operation's time; every 4 KiB know their file, \
              offset and generation, zeros have to be zeros. An operation that has read what was not written there is one \
              that failed, and each wrong sector of 4 KiB is an error of errno 74, the first three with their place; a file \
              that is missing, shorter or longer is an error too. The phase needs the mode `read`, best after `hold`, and \
              with `cache = \"cold\"` so that it is the storage that is read",
};

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "share",
        kind: "1 to 100",
        default: "90, where there is no `amount`",
        meaning: "so many percent of the target's space are in use at the end, whoever uses it",
    },
    KeyInfo {
        name: "amount",
        kind: "size",
        default: "what `share` asks for",
        meaning: "bytes that each task writes instead",
    },
    KeyInfo {
        name: "floor",
        kind: "size",
        default: "1g",
        meaning: "bytes of the target that stay free for others, whatever is asked for",
    },
    KeyInfo {
        name: "hold",
        kind: "duration",
        default: "10s",
        meaning: "how long",
    },
    KeyInfo {
        name: "file-size",
        kind: "size",
        default: "1g",
        meaning: "bytes of each file; the last one is smaller",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "1m",
        meaning: "bytes per write and read call",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task, each with files of its own",
    },
    KeyInfo {
        name: "seed",
        kind: "count",
        default: "1",
        meaning: "of the content",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "until the aim is reached",
        meaning: "the modes end then, if not before",
    },
    KeyInfo {
        name: "ramp_time",
        kind: "duration",
        default: "none",
        meaning: "how long it runs before the results count, on top of `runtime` or `hold`",
    },
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::in_modes("hold", &["hold"]),
    Effect::in_modes("runtime", &["fill", "read", "remove"]),
    Effect::verify(&["read"]),
    Effect::only(
        "ramp_time",
        "with `runtime`, without which the work may be over before anything counts, or in the mode `hold`",
        |mode, params| mode == "hold" || params.contains_key("runtime"),
    ),
];

#[derive(Debug, Deserialize)]
struct FillParams {
    share: Option<u8>,
    amount: Option<Bytes>,
    #[serde(default = "one_gib")]
    floor: Bytes,
    hold: Option<Span>,
    #[serde(rename = "file-size", default = "one_gib")]
    file_size: Bytes,
    bs: Option<Bytes>,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default = "first")]
    seed: u64,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
    #[serde(rename = "data")]
    _data: Option<Kind>,
    #[serde(rename = "verify", default, deserialize_with = "units::flag")]
    _verify: bool,
}

fn one_gib() -> Bytes {
    Bytes(1 << 30)
}

fn one() -> u32 {
    1
}

fn first() -> u64 {
    1
}

const DEFAULT_SHARE: u8 = 90;
const DEFAULT_HOLD: Span = Span(Duration::from_secs(10));

/// When the target is full enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Percent of its space that are in use.
    Share(u8),
    /// Bytes that the task has written.
    Amount(u64),
}

/// The parameters, checked and in our own words.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub mode: Mode,
    pub aim: Aim,
    pub floor: u64,
    pub file_bytes: u64,
    pub unit: usize,
    pub workers: u32,
    pub seed: u64,
    pub data: DataSpec,
    pub timing: Timing,
}

impl Plan {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let data = DataSpec::or_zeros(params)?;
        let params: FillParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        let mode = match mode.name {
            "hold" => Mode::Hold,
            "read" => Mode::Read,
            "remove" => Mode::Remove,
            "fill" => Mode::Fill,
            _ => return Err(mode.unknown()),
        };
        let aim = match (params.share, params.amount) {
            (Some(_), Some(_)) => {
                let message = "says how far to fill, and so does `amount`: drop one of the two";
                return Err(ParamError::of("share", message));
            }
            (None, Some(amount)) if amount.0 > 0 && amount.0 <= LARGEST_BYTES => {
                Aim::Amount(amount.0)
            }
            (None, Some(_)) => return Err(ParamError::of("amount", "must be at least 1 byte")),
            (share, None) => Aim::Share(share.unwrap_or(DEFAULT_SHARE)),
        };
        if let Aim::Share(percent) = aim
            && !(1..=100).contains(&percent)
        {
            let message = "is a share in percent: 1 to 100";
            return Err(ParamError::of("share", message));
        }
        let bs = params.bs.unwrap_or(one_mib());
        let unit = check_unit(bs)?;
        if let (Aim::Amount(amount), Some(bs)) = (aim, params.bs)
            && bs.0 > amount.div_ceil(params.numjobs.into())
        {
            let message = "is more than each worker writes: `amount` by the workers of `numjobs`";
            return Err(ParamError::of("bs", message));
        }
        if params.file_size.0 < bs.0 || params.file_size.0 > LARGEST_BYTES {
            let message = "must be at least `bs`, and no more than a file may have";
            return Err(ParamError::of("file-size", message));
        }
        let timing = match mode {
            Mode::Hold => Timing::of(params.ramp_time, params.hold.or(Some(DEFAULT_HOLD)))
                .map_err(|error| ParamError {
                    key: Some("hold".to_owned()),
                    ..error
                })?,
            Mode::Fill | Mode::Read | Mode::Remove => Timing::of(params.ramp_time, params.runtime)?,
        };
        Ok(Self {
            mode,
            aim,
            floor: params.floor.0,
            file_bytes: params.file_size.0,
            unit,
            workers: params.numjobs,
            seed: params.seed,
            data,
            timing,
        })
    }
}
