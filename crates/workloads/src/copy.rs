//! `copy`: whole files into the target and out of it again, as cp does it: one large or many small.
//!
//! The other side is a directory of the task's own in the agent's scratch, or, with `from`, files beneath a path that
//! the agent's configuration allows to be read. A tree is copied as a tree; its directories are there before the start.
//! Nothing is known here of time or of other tasks.

mod engine;
mod prepared;
mod scratch;
mod tree;
mod verify;
mod worker;

pub use scratch::remove_abandoned;

use crate::common;
use crate::data::{self, Content as DataContent, DataSpec, Kind};
use crate::files::calls::Durable;
use crate::files::size::SizeSpec;
use crate::files::state::Content;
use crate::files::{BLOCK_BYTES, check_unit, one_mib};
use crate::op::Op;
use crate::params::{self, KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::{Allowed, Dir};
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::units::{self, Bytes};
use crate::workload::{
    Data as CellData, Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker,
    Workload,
};
use engine::{DIRECT_BYTES, Engine, TargetSide, Way};
use prepared::LAY_OUT_BYTES;
use prepared::Prepared;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use verify::Verifier;
use worker::CopyWorker;

const NAME: &str = "copy";
/// A task knows the name of each of its files while it runs.
const MOST_FILES: u64 = 10_000_000;

const COPIED: CellData = CellData::Laid("all files, copied in");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    In,
    Out,
}

const MODES: &[ModeInfo] = &[
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

const KEYS: &[KeyInfo] = &params::join::<{ OWN_KEYS.len() + DATA.len() + common::KEYS.len() }>(&[
    OWN_KEYS,
    DATA,
    common::KEYS,
]);

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
                  its source, or with the source where that is given by `from`; a difference is an error with its place",
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
];

#[derive(Debug, Deserialize)]
struct CopyParams {
    files: Option<u64>,
    size: Option<SizeSpec>,
    from: Option<PathBuf>,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default)]
    fsync: bool,
    #[serde(default)]
    way: Way,
    #[serde(default = "one_mib")]
    bs: Bytes,
    #[serde(default = "first_seed")]
    seed: u64,
    data: Option<Kind>,
    #[serde(default, deserialize_with = "units::flag")]
    verify: bool,
}

fn one() -> u32 {
    1
}

fn first_seed() -> u64 {
    1
}

const DEFAULT_FILES: u64 = 1;
const DEFAULT_SIZE: SizeSpec = SizeSpec::Fixed(256 << 20);

/// Which files are copied.
#[derive(Clone, Debug, PartialEq)]
enum Source {
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
struct Plan {
    mode: Mode,
    source: Source,
    workers: u32,
    durable: Durable,
    way: Way,
    verify: bool,
    unit: usize,
}

/// The workload.
#[derive(Debug)]
pub struct Copy;

impl Copy {
    fn parse(&self, mode: &str, params: &PlanParams) -> Result<Plan, ParamError> {
        let mode = match self.mode(mode)?.name {
            "out" => Mode::Out,
            _ => Mode::In,
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
        Ok(Plan {
            mode,
            workers: params.numjobs,
            durable: match params.fsync {
                true => Durable::Fsync,
                false => Durable::No,
            },
            way: params.way,
            verify: params.verify,
            unit,
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
        seed: params.seed,
        data,
    })
}

impl Workload for Copy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        2
    }

    fn summary(&self) -> &'static str {
        "whole files into the target and out of it, as cp does it"
    }

    fn needs(&self) -> Needs {
        Needs::Target
    }

    fn modes(&self) -> &'static [ModeInfo] {
        MODES
    }

    fn keys(&self) -> &'static [KeyInfo] {
        KEYS
    }

    /// What `from` holds is known only on the agent; there, space is looked at when the task is prepared.
    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = self.parse(mode, params)?;
        let workers = plan.workers;
        Ok(match plan.source {
            Source::Generated {
                files, sizes, seed, ..
            } => Footprint {
                workers,
                files,
                bytes: sizes.total(seed, files, BLOCK_BYTES),
                scratch_bytes: sizes.total(seed, files, BLOCK_BYTES),
                moved_bytes: sizes.total(seed, files, 1),
                runtime: None,
            },
            Source::From(_) => Footprint {
                workers,
                ..Footprint::default()
            },
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let plan = self
            .parse(&spec.mode, &spec.params)
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            let why = "a copy as cp makes it goes past no cache; use way = \"direct\", or cache = \"cold\"".into();
            return Err(TaskError::Unfit { why });
        }
        Ok(Box::new(CopyLoad {
            plan,
            warm: spec.cache == Cache::Warm,
            task: spec.dir()?,
            task_index: spec.task_index,
            scratch: spec.scratch.clone(),
            sources: spec.sources.clone(),
            prepared: Mutex::default(),
            whole: Arc::default(),
        }))
    }
}

struct CopyLoad {
    plan: Plan,
    warm: bool,
    task: Dir,
    task_index: u32,
    scratch: Option<PathBuf>,
    sources: Allowed,
    prepared: Mutex<Option<Arc<Prepared>>>,
    whole: Arc<AtomicU32>,
}

impl CopyLoad {
    fn engine(&self) -> Result<Engine, TaskError> {
        let target = match self.plan.mode {
            Mode::In => TargetSide::To,
            Mode::Out => TargetSide::From,
        };
        Engine::new(self.plan.way, target, self.plan.unit)
            .map_err(|error| TaskError::io("get memory for a worker's buffer", error))
    }

    /// What stands in the files that are made here; `None` where they come from elsewhere.
    fn content(&self) -> Option<DataContent> {
        match &self.plan.source {
            Source::Generated { seed, data, .. } => {
                let own = [*seed, u64::from(self.task_index)];
                Some(DataContent::new(*data, Random::of(&own).next_u64()))
            }
            Source::From(_) => None,
        }
    }

    fn prepared(&self) -> Result<Arc<Prepared>, TaskError> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.clone().ok_or_else(|| TaskError::Unfit {
            why: "nothing was prepared to be copied".into(),
        })
    }
}

impl Load for CopyLoad {
    fn workers(&self) -> u32 {
        self.plan.workers
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let prepared = Prepared::make(self, control)?;
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(prepared));
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let prepared = self.prepared()?;
        let engine = self.engine()?;
        let verifier = self
            .plan
            .verify
            .then(|| Verifier::new(self.content(), LAY_OUT_BYTES));
        Ok(Box::new(CopyWorker::new(
            prepared,
            index,
            engine,
            self.plan.durable,
            verifier,
            Arc::clone(&self.whole),
        )))
    }

    fn path_of(&self, _worker: u32, file: u64) -> Option<String> {
        let prepared = self.prepared().ok()?;
        let entry = prepared.tree.files.get(usize::try_from(file).ok()?)?;
        let path = prepared.to.path().join(prepared.tree.path_of_file(entry));
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(prepared) = prepared.take() else {
            return Ok(());
        };
        let is_whole = self.whole.load(Ordering::Acquire) >= self.plan.workers;
        if self.plan.mode == Mode::In
            && is_whole
            && let Err(error) = prepared.state(Content::Created).write(&self.task)
        {
            // The result stands; the next mode will lay the data out again.
            tracing::warn!(%error, path = %self.task.path().display(), "the state of the data was not written");
        }
        prepared.remove_scratch()
    }
}

#[cfg(test)]
mod tests;
