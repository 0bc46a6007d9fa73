//! The keys of `files` and the parameters derived from them.
//!
//! This module does not depend on existing directories: the plan alone decides everything here.

use super::calls::Durable;
use super::layout::FilesLayout;
use super::mixed::MixedOp;
use super::modes::{FilesMode, Sizes};
use super::name::MAX_FILES;
use super::tree::{Sharing, TreeShape};
use crate::engine::author::*;

declare_keys! {
    #[derive(Debug)]
    pub(super) struct FilesKeys {
        /// Files per task, split over its workers.
        "files" files: u64 = 1000;
        /// Bytes of each file. `{ min, max }`: uniform. `{ mean, sigma, min, max }`: log-normal (`sigma` of the natural
        /// logarithm, default 1; `max` defaults to 100 times the mean). `{ rows = [{ files, min, max }, ...] }`: rows
        /// in the proportions of `files`, log-uniform within a row.
        "size" size: SizeSpec = "4k";
        /// Workers per task.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Files per directory.
        "dirs" dirs: u64 = 1000, min 1;
        /// Scope of a directory tree: one per worker, one for the workers of a task, or one for all tasks of the step.
        /// Workers that share a directory take its names in turn, so that all of them work in it at the same time.
        "directories-per" directories_per: Sharing = "worker";
        /// After a `create` that was ended by `runtime`, the other modes use only the files that exist. By default the
        /// rest of `files` is laid out before them, unmeasured. For `order = "sequential"`.
        "only-existing" only_existing: bool = false;
        /// `random`: each file once per pass, in an order that differs between passes and modes.
        "order" order: FileOrder = "sequential";
        /// Bytes to append to each file.
        "append" append: Bytes = "4k", min 1, max "1024p", in ["append"];
        /// Bytes of the attribute. Linux allows at most 64k.
        "xattr-size" xattr_size: Bytes = 64, min 1, max "64k", in ["setxattr", "getxattr"];
        /// Fsync each file before it is closed.
        "fsync" fsync: bool = false, in ["create", "append", "mix"];
        /// Bytes per write or read call. A smaller file takes one call.
        "bs" bs: Bytes = "1m", min 1, max "1g";
        #[doc = others::REORDER_TASKS]
        "reorder-tasks" reorder_tasks: u32 = 0, max 100000, in READ_ONLY;
        /// Seed of the sizes and the content: the same seed gives the same files.
        "seed" seed: u64 = 1;
        /// Repeats passes for this time, or until `loops` are done. Modes that cannot be repeated end after one pass,
        /// or at this time.
        "runtime" runtime: Option<Span> = none("one pass over the files");
        /// Relative frequency of each operation. One pass draws as many operations as there are files.
        "mix" mix: Option<Weighted<MixedOp>> = none("{ read = 70, write = 30 }"), in ["mix"];
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1, in REPEATED;
        #[doc = data::VERIFY]
        "verify" verify: bool = false, in ["read", "mix"],
            because "no mode reads the data before they are removed with the cell";
        include ramp: RampKeys;
        include data: DataKeys;
    }
}

/// Modes whose passes leave the data unchanged: [`FilesMode::repeats`].
const REPEATED: &[&str] = &[
    "list",
    "list-stat",
    "stat",
    "read",
    "chmod",
    "mix",
    "getxattr",
];

/// The modes that change nothing at all.
const READ_ONLY: &[&str] = &["list", "list-stat", "stat", "read", "getxattr"];

declare_words! {
    /// In which order a pass goes through the files.
    pub(super) enum FileOrder {
        Sequential = "sequential",
        Random = "random",
    }
}

/// The parameters of one mode, read and checked.
#[derive(Clone, Debug)]
pub(super) struct FilesOptions {
    pub mode: FilesMode,
    pub layout: FilesLayout,
    pub order: FileOrder,
    pub mix: Weighted<MixedOp>,
    pub added: Sizes,
    pub durable: Durable,
    pub timing: Timing,
    pub passes: Passes,
    /// Reading modes read the data of task `index + reorder_tasks`, modulo the number of tasks.
    pub reorder_tasks: u32,
}

impl FilesOptions {
    /// Bytes of all files, each rounded up to a multiple of `unit`.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        let FilesLayout {
            shape, sizes, seed, ..
        } = &self.layout;
        sizes.total(*seed, shape.files, unit)
    }
}

impl FilesOptions {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, keys: FilesKeys) -> Result<Self, ParamError> {
        let mode = FilesMode::ALL
            .into_iter()
            .find(|known| known.as_str() == mode.name)
            .ok_or_else(|| mode.unknown())?;
        let data = DataSpec::new(&keys.data, keys.verify)?;
        if keys.files < u64::from(keys.numjobs) {
            let message = format!(
                "{} files are too few for {} workers: each needs at least one",
                keys.files, keys.numjobs
            );
            return Err(ParamError::of("files", message));
        }
        let added = Sizes {
            append: keys.append.0,
            attribute: u32::try_from(keys.xattr_size.0).unwrap_or(u32::MAX),
        };
        let shape = TreeShape {
            files: keys.files,
            workers: keys.numjobs,
            files_per_directory: keys.dirs,
            sharing: keys.directories_per,
            task: (0, 1),
        };
        check_names(&shape)?;
        if keys.only_existing && keys.order == FileOrder::Random {
            let message = "needs files created in order: leave out `order`";
            return Err(ParamError::of("only-existing", message));
        }
        let passes = Passes::of(keys.loops, keys.runtime);
        Ok(Self {
            mode,
            order: keys.order,
            mix: keys.mix.unwrap_or_else(MixedOp::ordinary),
            added,
            layout: FilesLayout {
                shape,
                sizes: keys.size,
                seed: keys.seed,
                data,
                unit: check_unit("bs", keys.bs)?,
                only_existing: keys.only_existing,
            },
            durable: match keys.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            timing: Timing::of(keys.ramp.ramp_time, keys.runtime)?,
            reorder_tasks: match READ_ONLY.contains(&mode.as_str()) {
                true => keys.reorder_tasks,
                false => 0,
            },
            passes: match mode.repeats() {
                true => passes,
                false => Passes::ONE,
            },
        })
    }
}

/// Refuses more files than names can distinguish. The number of tasks is known only when a task is made.
pub(super) fn check_names(shape: &TreeShape) -> Result<(), ParamError> {
    if shape.files <= MAX_FILES && shape.names() <= MAX_FILES {
        return Ok(());
    }
    let message = format!("at most {MAX_FILES} files per task, and in directories that are shared");
    Err(ParamError::of("files", message))
}
