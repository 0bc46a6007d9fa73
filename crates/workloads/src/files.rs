//! `files`: many files, each created, listed, looked up, read, renamed or deleted as a whole.
//!
//! A task's files are split over its workers; each worker has a tree of its own in the task's directory and goes through
//! it in order. The data outlive the mode: the next mode of the cell finds them, whatever process runs it. What the
//! files are is decided by the parameters alone. Nothing is known here of time or of other tasks.

pub(crate) mod calls;
pub(crate) mod data;
mod layout;
pub(crate) mod side_by_side;
pub(crate) mod size;
pub(crate) mod state;
mod tree;
mod worker;

use side_by_side::{Done, side_by_side};
use size::SizeSpec;
use state::Content;

use crate::op::Op;
use crate::params::{self, KeyInfo, ParamError};
use crate::sandbox::Dir;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::units::{Bytes, Span};
use crate::workload::{
    Data as CellData, Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker,
    Workload,
};
use calls::{Durable, listing_buffer};
use layout::{Layout, Wanted, worker_dir};
use rustix::process::{Resource, getrlimit};
use serde::Deserialize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tree::{Directories, MOST_FILES, Names, Shape};
use worker::{FilesWorker, Tools, Walk};

const NAME: &str = "files";

/// File systems give a file whole blocks; no check of free space should be surprised by many small files.
pub(crate) const BLOCK_BYTES: u64 = 4096;

const ALL_FILES: CellData =
    CellData::Laid("all files, under the name that the last mode gave them");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
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
    fn repeats(self) -> bool {
        matches!(self, Self::List | Self::Stat | Self::Read)
    }

    fn wants(self) -> Wanted {
        match self {
            Self::Create => Wanted::Empty,
            _ => Wanted::Files,
        }
    }

    /// What a whole pass over files of these names leaves; `None` when it changes nothing.
    fn leaves(self, names: Names) -> Option<Content> {
        match (self, names) {
            (Self::Create, _) | (Self::Rename, Names::Renamed) => Some(Content::Created),
            (Self::Rename, Names::Created) => Some(Content::Renamed),
            (Self::Delete, _) => Some(Content::Empty),
            (Self::List | Self::Stat | Self::Read, _) => None,
        }
    }
}

const MODES: &[ModeInfo] = &[
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
        meaning: "looks each file up: fstatat",
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
        meaning: "gives each file another name in its directory: renameat; a second time, the first name again",
        needs: ALL_FILES,
        leaves: ALL_FILES,
        ops: &[Op::Rename],
    },
    ModeInfo {
        name: "delete",
        meaning: "removes each file: unlinkat; the directories stay until the cell is removed",
        needs: ALL_FILES,
        leaves: CellData::Laid("the directories, empty"),
        ops: &[Op::Delete],
    },
];

const KEYS: &[KeyInfo] = &[
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

/// The workload.
#[derive(Debug)]
pub struct Files;

impl Files {
    fn parse(&self, mode: &str, params: &PlanParams) -> Result<Plan, ParamError> {
        self.mode(mode)?;
        let mode = Mode::ALL
            .into_iter()
            .find(|known| known.as_str() == mode)
            .ok_or_else(|| ParamError::of("modes", format!("no mode `{mode}`")))?;
        let params: FilesParams = params::parse(NAME, KEYS, params)?;
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
        Ok(Plan {
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

/// The parameters, checked and in our own words.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: Mode,
    layout: Layout,
    durable: Durable,
    timing: Timing,
}

impl Plan {
    fn bytes(&self, unit: u64) -> u64 {
        let Layout {
            shape, sizes, seed, ..
        } = self.layout;
        sizes.total(seed, shape.files, unit)
    }
}

impl Workload for Files {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        1
    }

    fn summary(&self) -> &'static str {
        "many files: create, list, stat, read, rename, delete"
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

    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = self.parse(mode, params)?;
        Ok(Footprint {
            workers: plan.layout.shape.workers,
            files: plan.layout.shape.files,
            bytes: plan.bytes(BLOCK_BYTES),
            scratch_bytes: 0,
            moved_bytes: match plan.mode {
                Mode::Create | Mode::Read => plan.bytes(1),
                _ => 0,
            },
            runtime: plan.timing.total(),
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let mut plan = self
            .parse(&spec.mode, &spec.params)
            .map_err(TaskError::Params)?;
        plan.layout.task_index = spec.task_index;
        if spec.cache == Cache::Bypass {
            let why = "small files are not read and written with O_DIRECT; use cache = \"cold\", or workload `io`".into();
            return Err(TaskError::Unfit { why });
        }
        Ok(Box::new(FilesLoad {
            plan,
            warm: spec.cache == Cache::Warm,
            task: spec.dir()?,
            names: Mutex::new(Names::Created),
            whole: Arc::default(),
        }))
    }
}

struct FilesLoad {
    plan: Plan,
    warm: bool,
    task: Dir,
    /// Under which names the files are; known once prepared.
    names: Mutex<Names>,
    whole: Arc<AtomicU32>,
}

impl FilesLoad {
    fn names(&self) -> Names {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directories that a worker may keep open: together at most half of the descriptors that the process may have.
    fn directories_to_keep(&self) -> u64 {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        limit / 2 / u64::from(self.plan.layout.shape.workers)
    }

    fn walk(&self, worker: u32) -> Result<Walk, TaskError> {
        let share = self.plan.layout.shape.share(worker);
        let root = worker_dir(&self.task, worker)?;
        let path = root.path().to_owned();
        let directories =
            Directories::open(root, &share, self.directories_to_keep()).map_err(|errno| {
                TaskError::io(
                    format!("open the directories in `{}`", path.display()),
                    errno,
                )
            })?;
        Ok(Walk {
            directories,
            share,
            names: self.names(),
            sizes: self.plan.layout.sizes,
            seed: self.plan.layout.seed,
            path,
        })
    }
}

impl Load for FilesLoad {
    fn workers(&self) -> u32 {
        self.plan.layout.shape.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let layout = &self.plan.layout;
        let names = layout.bring_about(&self.task, self.plan.mode.wants(), control)?;
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        if self.warm && self.plan.mode != Mode::Create {
            let total = (layout.shape.files, "files");
            side_by_side(layout.shape.workers, total, control, |worker, done| {
                let mut buffer = vec![1; layout.buffer_bytes()];
                self.walk(worker)?.warm(self.plan.mode, &mut buffer, done)
            })?;
        }
        if self.plan.mode.leaves(names).is_some() {
            layout.unsettle(&self.task)?;
        }
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let tools = match self.plan.mode {
            Mode::Create => Tools::Write(self.plan.layout.data(), self.plan.durable),
            Mode::Read => Tools::Read(vec![1; self.plan.layout.buffer_bytes()]),
            Mode::List => Tools::List(listing_buffer()),
            Mode::Stat | Mode::Rename | Mode::Delete => Tools::None,
        };
        Ok(Box::new(FilesWorker {
            mode: self.plan.mode,
            walk: self.walk(index)?,
            tools,
            whole: Arc::clone(&self.whole),
        }))
    }

    fn finish(&self) -> Result<(), TaskError> {
        let Some(content) = self.plan.mode.leaves(self.names()) else {
            return Ok(());
        };
        if self.whole.load(Ordering::Acquire) < self.workers() {
            return Ok(());
        }
        if let Err(error) = self.plan.layout.state(content).write(&self.task) {
            // The result stands; the next mode will look at every file instead of reading the state.
            let path = self.task.path().display();
            tracing::warn!(%error, %path, "the state of the data was not written");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
