//! `files`: many files, each created, listed, looked up, read, renamed or deleted as a whole.
//!
//! A task's files are split over its workers; each worker has a tree of its own in the task's directory and goes through
//! it in order. The data outlive the mode: the next mode of the cell finds them, whatever process runs it. What the
//! files are is decided by the parameters alone. Nothing is known here of time or of other tasks.

pub(crate) mod calls;
pub(crate) mod data;
mod layout;
mod plan;
pub(crate) mod side_by_side;
pub(crate) mod size;
pub(crate) mod state;
mod tree;
mod worker;

pub(crate) use plan::{BLOCK_BYTES, check_unit, one_mib};
use side_by_side::{Done, side_by_side};

use crate::params::{KeyInfo, ParamError};
use crate::sandbox::Dir;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use calls::listing_buffer;
use layout::worker_dir;
use plan::{KEYS, MODES, Mode, Plan};
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tree::{Directories, Names};
use worker::{FilesWorker, Tools, Walk};

const NAME: &str = "files";

/// The workload.
#[derive(Debug)]
pub struct Files;

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
        let plan = Plan::of(self.mode(mode)?, params)?;
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
            .mode(&spec.mode)
            .and_then(|mode| Plan::of(mode, &spec.params))
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
