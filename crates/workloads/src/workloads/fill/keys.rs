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
        meaning: "writes new files, `bs` at a time, until the aim is reached; a target that comes down to `floor` before \
                  ends the step with an error that says so; with `floor = 0` a full target is an end like any other",
        needs: Data::Nothing,
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
        meaning: "removes the files: unlinkat; those that a `fill` has left that ended before its aim, too",
        needs: FULL,
        leaves: Data::Nothing,
        ops: &[Op::Delete],
    },
];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct FillKeys {
        /// Percentage of the target's space that is in use at the end, with what other users have there.
        "share" share: Option<u8> = none("90, where there is no `amount`"), min 1, max 100;
        /// Bytes that each task writes, instead of `share`. `2 x ram`: as for `size` of `io`.
        "amount" amount: Option<DataSize> = none("what `share` asks for"), min 1, max "1024p";
        /// Bytes of the target that stay free for others, whatever is asked for.
        "floor" floor: Bytes = "1g";
        /// How long the target is kept full.
        "hold" hold: Span = "10s", in ["hold"];
        /// Bytes of each file. The last one is smaller.
        "file-size" file_size: Bytes = "1g", max "1024p";
        /// Bytes per write and read call.
        "bs" bs: Option<Bytes> = none("1m"), min 1, max "1g";
        /// Workers per task, each with files of its own.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Seed of the content.
        "seed" seed: u64 = 1;
        /// The modes end then, if not before.
        "runtime" runtime: Option<Span> = none("until the aim is reached"), in ["fill", "read", "remove"];
        /// How long it runs before the results count, on top of `runtime` or `hold`.
        "ramp_time" ramp_time: Option<Span> = none("none"),
            only "with `runtime`, without which the work may be over before anything counts, or in the mode `hold`"
            if |keys, scope| scope.mode == "hold" || keys.runtime.is_some();
        /// What was written is compared bit by bit, outside of the operation's time. Every 4 KiB hold their file,
        /// offset and generation; zeros and patterns have to be just that. An operation that reads anything else counts
        /// as failed, and each wrong sector of 4 KiB is an error of errno 74, the first three with their place. A file
        /// that is missing, shorter or longer is an error too. The phase needs the mode `read`, best after `hold`, and
        /// with `cache = "cold"` so that the storage is read.
        "verify" verify: bool = false, in ["read"],
            because "nothing reads what it checks before the cell's data are removed";
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
                let message = "says how far to fill, and so does `amount`: drop one of the two";
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
