//! The modes, keys and parameters of `copy`.

use super::engine::{CopyMethod, DIRECT_BYTES};
use crate::engine::author::*;
use std::path::PathBuf;

/// Limit on files: a task keeps the name of each file in memory while it runs.
pub(super) const MAX_FILES: u64 = 10_000_000;

const COPIED: Data = Data::Laid("all files, copied in");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyMode {
    In,
    Overwrite,
    List,
    Out,
}

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "in",
        meaning: "copies each file into the target: open both, transfer by `way`, fsync if set, close both; with \
                  `verify`, reads each copy afterwards",
        needs: Data::Nothing,
        leaves: COPIED,
        ops: &[Op::Copy, Op::Read],
    },
    ModeInfo {
        name: "overwrite",
        meaning: "copies each file over its existing copy, with the same content, as cp over an existing tree does: \
                  look up the name, open it with O_TRUNC, which empties it, then as in `in`. Creates and removes no \
                  file",
        needs: COPIED,
        leaves: COPIED,
        ops: &[Op::Copy, Op::Read],
    },
    ModeInfo {
        name: "list",
        meaning: "walks the tree on the target as ls -lR does: lists each directory to its end, then looks up each \
                  name that was copied into it. The workers take the directories in turn. A listing with a different \
                  number of names, or a missing name, is an error",
        needs: COPIED,
        leaves: COPIED,
        ops: &[Op::List, Op::Stat],
    },
    ModeInfo {
        name: "out",
        meaning: "copies each file from the target into the agent's scratch directory, in the same way",
        needs: COPIED,
        leaves: COPIED,
        ops: &[Op::Copy, Op::Read],
    },
];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct CopyKeys {
        /// Files per task, split over its workers.
        "files" files: Option<u64> = none("1"), max 10000000;
        /// Bytes of each file; tables as in workload `files`.
        "size" size: Option<SizeSpec> = none("256m");
        /// Copies this file, or all regular files of this tree, instead. The agent must allow reading it.
        "from" from: Option<PathBuf> = none("files created in the agent's scratch directory");
        /// Workers per task; each copies whole files.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Fsync each copy before it is closed.
        "fsync" fsync: bool = false;
        /// `auto`: copy_file_range, or read and write if the kernel cannot copy between the two file systems. `direct`:
        /// read and write with O_DIRECT on the target's side, except for a last partial block.
        "way" method: CopyMethod = "auto";
        /// Reads each copy after it is made, as a separate operation, and compares it with the content written to its
        /// source, or with the source `from`, outside of that operation's time. A copy that differs is a failed read.
        /// Each wrong sector of 4 KiB is an error of errno 74; the first three are recorded with their position.
        "verify" verify: bool = false;
        /// Bytes per read and write call if the kernel does not copy. With `direct`, a multiple of 4k.
        "bs" bs: Bytes = "1m", min 1, max "1g",
            only "if read and write may be used: not with way = \
                  \"copy-file-range\"" if |keys, _| keys.method != CopyMethod::CopyFileRange;
        #[doc = others::REORDER_TASKS]
        "reorder-tasks" reorder_tasks: u32 = 0, max 100000, in ["list", "out"];
        /// Seed of the sizes and the content: the same seed gives the same files.
        "seed" seed: Option<u64> = none("1");
        /// Maximum time to copy. A copy that has begun is completed.
        "runtime" runtime: Option<Span> = none("until all files are copied");
        include ramp: RampKeys;
        include data: DataKeys;
    }
}

const DEFAULT_FILES: u64 = 1;
const DEFAULT_SEED: u64 = 1;
const DEFAULT_SIZE: SizeSpec = SizeSpec::Fixed(256 << 20);

/// The files to copy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CopySource {
    Generated {
        files: u64,
        sizes: SizeSpec,
        seed: u64,
        data: DataSpec,
    },
    From(PathBuf),
}

/// The parameters of one mode, read and checked.
#[derive(Clone, Debug)]
pub(super) struct CopyParams {
    pub mode: CopyMode,
    pub source: CopySource,
    pub workers: u32,
    pub durable: Durable,
    pub method: CopyMethod,
    pub verify: bool,
    pub unit: usize,
    pub timing: Timing,
    /// `list` and `out` read the data of task `index + reorder_tasks`, modulo the number of tasks.
    pub reorder_tasks: u32,
}

impl CopyParams {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, keys: CopyKeys) -> Result<Self, ParamError> {
        let mode = match mode.name {
            "in" => CopyMode::In,
            "overwrite" => CopyMode::Overwrite,
            "list" => CopyMode::List,
            "out" => CopyMode::Out,
            _ => return Err(mode.unknown()),
        };
        let spec = DataSpec::new(&keys.data, keys.verify)?;
        let unit = check_unit("bs", keys.bs)?;
        if keys.method == CopyMethod::Direct && !unit.is_multiple_of(DIRECT_BYTES) {
            let message =
                "must be a multiple of 4k with way = \"direct\": O_DIRECT transfers whole blocks";
            return Err(ParamError::of("bs", message));
        }
        Ok(Self {
            mode,
            workers: keys.numjobs,
            durable: match keys.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            method: keys.method,
            verify: keys.verify,
            unit,
            timing: Timing::of(keys.ramp.ramp_time, keys.runtime)?,
            reorder_tasks: match mode {
                CopyMode::In | CopyMode::Overwrite => 0,
                CopyMode::List | CopyMode::Out => keys.reorder_tasks,
            },
            source: source_of(keys, spec)?,
        })
    }
}

fn source_of(keys: CopyKeys, data: DataSpec) -> Result<CopySource, ParamError> {
    if let Some(path) = keys.from {
        let beside = [
            ("files", keys.files.is_some()),
            ("size", keys.size.is_some()),
            ("data", keys.data.kind.is_some()),
            ("seed", keys.seed.is_some()),
        ];
        if let Some((key, _)) = beside.into_iter().find(|(_, is_set)| *is_set) {
            let message =
                "describes files to create, but `from` names existing ones: drop one of the two";
            return Err(ParamError::of(key, message));
        }
        return Ok(CopySource::From(path));
    }
    let files = keys.files.unwrap_or(DEFAULT_FILES);
    if files < u64::from(keys.numjobs) {
        let message = format!(
            "{files} files are too few for {} workers: each copies whole files",
            keys.numjobs
        );
        return Err(ParamError::of("files", message));
    }
    Ok(CopySource::Generated {
        files,
        sizes: keys.size.unwrap_or(DEFAULT_SIZE),
        seed: keys.seed.unwrap_or(DEFAULT_SEED),
        data,
    })
}
