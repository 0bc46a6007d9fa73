//! The modes, keys and parameters of `fill`.

use crate::engine::author::*;

const FULL: Data = Data::Laid("the files that fill the target");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillMode {
    Fill,
    Hold,
    Read,
    Remove,
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "fill",
        meaning: "writes new files, `bs` at a time, until the goal is reached; if free space falls to `floor` before, \
                  the step ends with an error; with `floor = 0` a full target is a normal end",
        needs: Data::Nothing,
        leaves: FULL,
        ops: &[Op::Write],
    },
    ModeInfo {
        name: "hold",
        meaning: "keeps the target full for the time `hold`, and queries its free space ten times a second",
        needs: FULL,
        leaves: FULL,
        ops: &[Op::Statfs],
    },
    ModeInfo {
        name: "read",
        meaning: "reads the files, `bs` at a time, in the order in which they were written: openat as needed, pread; \
                  with `verify`, checks each block and the size of each file",
        needs: FULL,
        leaves: FULL,
        ops: &[Op::Read],
    },
    ModeInfo {
        name: "remove",
        meaning: "removes the files: unlinkat; also those of a `fill` that ended before its goal",
        needs: FULL,
        leaves: Data::Nothing,
        ops: &[Op::Delete],
    },
];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct FillKeys {
        /// Percentage of the target's space in use at the end, including the data of other users.
        "share" share: Option<u8> = none("90, without `amount`"), min 1, max 100;
        /// Bytes to write per task, instead of `share`. `2 x ram`: as for `size` of `io`.
        "amount" amount: Option<DataSize> = none("as needed for `share`"), min 1, max "1024p";
        /// Bytes of the target that remain free for others in any case.
        "floor" floor: Bytes = "1g";
        /// Time for which the target is kept full.
        "hold" hold: Span = "10s", in ["hold"];
        /// Bytes of each file. The last one is smaller.
        "file-size" file_size: Bytes = "1g", max "1024p";
        /// Bytes per write and read call.
        "bs" bs: Option<Bytes> = none("1m"), min 1, max "1g";
        /// Workers per task, each with its own files.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Seed of the content.
        "seed" seed: u64 = 1;
        /// Maximum duration of the modes.
        "runtime" runtime: Option<Span> = none("until the goal is reached"), in ["fill", "read", "remove"];
        /// Time before the results count, in addition to `runtime` or `hold`.
        "ramp_time" ramp_time: Option<Span> = none("none"),
            only "with `runtime`, because the load may otherwise end within the ramp, or in the mode `hold`"
            if |keys, scope| scope.mode == "hold" || keys.runtime.is_some();
        /// Compares the data read bit by bit, outside of the operation's time. Every 4 KiB contain their file, offset
        /// and generation; zeros and patterns are compared with the expected bytes. An operation that reads wrong data
        /// counts as failed. Each wrong sector of 4 KiB is an error of errno 74; the first three are recorded with
        /// their position. A missing, shorter or longer file is also an error. The phase needs the mode `read`,
        /// preferably after `hold` and with `cache = "cold"`, so that data come from the storage.
        "verify" verify: bool = false, in ["read"],
            because "no mode reads the data before they are removed with the cell";
        include data: DataKeys;
    }
}

const DEFAULT_SHARE: u8 = 90;
const DEFAULT_BS: Bytes = Bytes(1 << 20);

/// The aim at which the target is full enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Percentage of its space in use.
    Share(u8),
    /// Bytes written by the task.
    Amount(u64),
}

/// The parameters of one mode, read and checked.
#[derive(Clone, Debug)]
pub(super) struct FillOptions {
    pub mode: FillMode,
    pub aim: Aim,
    pub floor: u64,
    pub file_bytes: u64,
    pub unit: usize,
    pub workers: u32,
    pub seed: u64,
    pub data: DataSpec,
    pub timing: Timing,
}

impl FillOptions {
    /// The percentage in use at the end, if that is the aim.
    pub(super) fn share(&self) -> Option<u8> {
        match self.aim {
            Aim::Amount(_) => None,
            Aim::Share(percent) => Some(percent),
        }
    }

    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, keys: &FillKeys) -> Result<Self, ParamError> {
        let data = DataSpec::or_repeated(&keys.data, keys.verify)?;
        let mode = match mode.name {
            "hold" => FillMode::Hold,
            "read" => FillMode::Read,
            "remove" => FillMode::Remove,
            "fill" => FillMode::Fill,
            _ => return Err(mode.unknown()),
        };
        let aim = match (keys.share, keys.amount) {
            (Some(_), Some(_)) => {
                let message =
                    "conflicts with `amount`, both define how far to fill: drop one of the two";
                return Err(ParamError::of("share", message));
            }
            (None, Some(DataSize(amount))) => Aim::Amount(amount.0),
            (share, None) => Aim::Share(share.unwrap_or(DEFAULT_SHARE)),
        };
        let bs = keys.bs.unwrap_or(DEFAULT_BS);
        let unit = check_unit("bs", bs)?;
        if let (Aim::Amount(amount), Some(bs)) = (aim, keys.bs)
            && bs.0 > amount.div_ceil(keys.numjobs.into())
        {
            let message = "is more than each worker writes: `amount` by the workers of `numjobs`";
            return Err(ParamError::of("bs", message));
        }
        if keys.file_size < bs {
            let message = "must be at least `bs`";
            return Err(ParamError::of("file-size", message));
        }
        let timing = match mode {
            FillMode::Hold => {
                Timing::of(keys.ramp_time, Some(keys.hold)).map_err(|error| ParamError {
                    key: Some("hold".to_owned()),
                    ..error
                })?
            }
            FillMode::Fill | FillMode::Read | FillMode::Remove => {
                Timing::of(keys.ramp_time, keys.runtime)?
            }
        };
        Ok(Self {
            mode,
            aim,
            floor: keys.floor.0,
            file_bytes: keys.file_size.0,
            unit,
            workers: keys.numjobs,
            seed: keys.seed,
            data,
            timing,
        })
    }
}
