//! `tree`: a tree of directories, files and links, unpacked, walked and removed, as tar, find and rm -r do it.
//!
//! The tree comes from a tar archive that the agent may read, or is made from a table of file sizes; two trees of the
//! field are built in. Each worker has a copy of the whole tree in the task's directory. Reading and decompressing the
//! archive lies between the operations, never in one, but for files larger than [`archive::READ_AHEAD_BYTES`].
//! Whatever an archive says, nothing outside of the worker's directory is reached: see [`archive`] and [`stack`].

mod archive;
mod climb;
mod compressed;
mod keys;
mod log;
mod made;
mod reading;
mod source;
pub(crate) mod stack;
mod tar;
mod trail;
mod unpack;
mod worker;

use crate::data::Content;
use crate::files::BLOCK_BYTES;
use crate::files::data::Data;
use crate::files::state::{Content as Left, Extras, State};
use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::{Allowed, Dir};
use crate::side_by_side::side_by_side;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use archive::{Archive, Contents};
use climb::Climb;
use keys::{EFFECTS, From, KEYS, MODES, Mode, Plan};
use log::Quiet;
use made::MadeSource;
use reading::Reading;
use source::Source;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use trail::Trail;
use unpack::Unpack;
use worker::{TreeWorker, Work};

const NAME: &str = "tree";

/// The workload.
#[derive(Debug)]
pub struct Tree;

impl Workload for Tree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        4
    }

    fn summary(&self) -> &'static str {
        "a whole tree, from a tar archive or made: unpacked, read, walked, removed"
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

    fn effects(&self) -> &'static [Effect] {
        EFFECTS
    }

    #[cfg(test)]
    fn understood(&self, mode: &str, params: &PlanParams) -> Result<String, ParamError> {
        Ok(format!("{:?}", Plan::of(self.mode(mode)?, params)?))
    }

    /// What an archive holds is known only on the agent; there, space is looked at when the task is prepared.
    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = Plan::of(self.mode(mode)?, params)?;
        let workers = u64::from(plan.workers);
        let mut footprint = Footprint {
            workers: plan.workers,
            runtime: plan.timing.total(),
            ..Footprint::default()
        };
        if let From::Made(made) = &plan.from {
            let bytes = |unit| made.bytes(unit).saturating_mul(workers);
            footprint.files = made.entries().saturating_mul(workers);
            footprint.bytes = bytes(BLOCK_BYTES)
                .saturating_add(made.directories.saturating_mul(BLOCK_BYTES * workers));
            footprint.moved_bytes = match plan.mode {
                Mode::Unpack | Mode::Read => bytes(1),
                Mode::Walk | Mode::Remove => 0,
            };
        }
        Ok(footprint)
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let plan = self
            .mode(&spec.mode)
            .and_then(|mode| Plan::of(mode, &spec.params))
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            let why = "a tree is not unpacked or read with O_DIRECT; use cache = \"cold\"".into();
            return Err(TaskError::Unfit { why });
        }
        let trails = (0..plan.workers).map(|_| Arc::new(Trail::new()));
        Ok(Box::new(TreeLoad {
            trails: trails.collect(),
            plan,
            warm: spec.cache == Cache::Warm,
            task: spec.dir()?,
            task_index: spec.task_index,
            sources: spec.sources.clone(),
            contents: Mutex::default(),
            whole: Arc::default(),
        }))
    }
}

struct TreeLoad {
    plan: Plan,
    warm: bool,
    task: Dir,
    task_index: u32,
    sources: Allowed,
    /// What the archive holds; known once prepared.
    contents: Mutex<Option<Contents>>,
    whole: Arc<AtomicU32>,
    /// Where each worker is.
    trails: Box<[Arc<Trail>]>,
}

impl TreeLoad {
    fn trail(&self, worker: u32) -> Arc<Trail> {
        let index = usize::try_from(worker).unwrap_or(usize::MAX);
        self.trails
            .get(index)
            .cloned()
            .unwrap_or_else(|| Arc::new(Trail::new()))
    }

    fn root(&self, worker: u32) -> Result<Dir, TaskError> {
        self.task
            .make_dir(&format!("w{worker}"))
            .map_err(TaskError::Sandbox)
    }

    fn reading(&self, worker: u32, verify: bool) -> Result<Reading, TaskError> {
        Ok(Reading::new(
            self.root(worker)?,
            self.plan.unit,
            verify,
            self.trail(worker),
        ))
    }

    /// The tree from its beginning.
    fn source(&self, worker: u32) -> Result<Box<dyn Source>, TaskError> {
        let plan = &self.plan;
        match &plan.from {
            From::Archive(path) => {
                let archive = Archive::open(path, &self.sources)?;
                Ok(Box::new(archive.entries(plan.unit)?))
            }
            From::Made(made) => {
                let own = [made.seed, u64::from(self.task_index), u64::from(worker)];
                let bytes = usize::try_from(made.sizes.largest()).unwrap_or(usize::MAX);
                let content = Content::new(made.data, Random::of(&own).next_u64());
                let data = Data::of(content, plan.unit.min(bytes));
                Ok(Box::new(MadeSource::new(made.clone(), data)))
            }
        }
    }

    /// Data of one text are the same data.
    fn shape(&self) -> Result<String, TaskError> {
        let workers = self.plan.workers;
        Ok(match &self.plan.from {
            From::Made(made) => format!("tree of {made} by {workers} workers"),
            From::Archive(path) => {
                let archive = Archive::open(path, &self.sources)?;
                format!("tree of {} by {workers} workers", archive.identity()?)
            }
        })
    }

    fn state(&self, content: Left) -> Result<State, TaskError> {
        Ok(State {
            shape: self.shape()?,
            content,
            extras: Extras::default(),
            parts: Vec::new(),
        })
    }

    /// Reads an archive to its end before anything is made of it.
    fn look_into_archive(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let From::Archive(path) = &self.plan.from else {
            return Ok(());
        };
        let mut known = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return Ok(());
        }
        let free = self.task.free_bytes().map_err(TaskError::Sandbox)?;
        let room = free / u64::from(self.plan.workers);
        let archive = Archive::open(path, &self.sources)?;
        *known = Some(Contents::of(
            archive.entries(self.plan.unit)?,
            room,
            control,
        )?);
        Ok(())
    }

    fn empty(&self, control: &PrepareControl) -> Result<(), TaskError> {
        State::unsettle(self.shape()?, &self.task).map_err(TaskError::Sandbox)?;
        for name in self.task.names().map_err(TaskError::Sandbox)? {
            control.check()?;
            if name.starts_with('w') {
                let mut gone = |gone| control.progress(gone, 0, "files removed");
                self.task
                    .remove_all(&name, &mut gone)
                    .map_err(TaskError::Sandbox)?;
            }
        }
        for worker in 0..self.plan.workers {
            control.check()?;
            self.root(worker)?;
        }
        Ok(())
    }

    fn unpack(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let entries = match &self.plan.from {
            From::Made(made) => made.entries(),
            From::Archive(_) => {
                let known = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
                known.as_ref().map_or(0, |contents| contents.entries)
            }
        };
        let total = entries.saturating_mul(u64::from(self.plan.workers));
        side_by_side(
            self.plan.workers,
            (total, "files"),
            control,
            |worker, done| {
                let mut unpack =
                    Unpack::new(self.root(worker)?, self.plan.durable, self.trail(worker));
                let mut source = self.source(worker)?;
                unpack.all(source.as_mut(), &mut Quiet { done }).map(drop)
            },
        )?;
        self.task.sync().map_err(TaskError::Sandbox)
    }

    fn is_there(&self) -> Result<bool, TaskError> {
        let found = State::read(&self.task).map_err(TaskError::Sandbox)?;
        Ok(found == Some(self.state(Left::Created)?))
    }
}

impl Load for TreeLoad {
    fn workers(&self) -> u32 {
        self.plan.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.plan.mode == Mode::Unpack {
            self.look_into_archive(control)?;
            return self.empty(control);
        }
        if !self.is_there()? {
            self.look_into_archive(control)?;
            self.empty(control)?;
            self.unpack(control)?;
            let state = self.state(Left::Created)?;
            state.write(&self.task).map_err(TaskError::Sandbox)?;
        }
        if self.warm {
            side_by_side(self.plan.workers, (0, "files"), control, |worker, done| {
                if self.plan.mode == Mode::Read {
                    let mut source = self.source(worker)?;
                    // What is found wrong is counted in the step; here it would end it.
                    let mut reading = self.reading(worker, false)?;
                    return reading.all(source.as_mut(), &mut Quiet { done }).map(drop);
                }
                let mut climb = Climb::new(self.root(worker)?, self.trail(worker));
                climb.walk(&mut Quiet { done }).map(drop)
            })?;
        }
        if self.plan.mode == Mode::Remove {
            State::unsettle(self.shape()?, &self.task).map_err(TaskError::Sandbox)?;
        }
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let (root, trail) = (self.root(index)?, self.trail(index));
        let work = match self.plan.mode {
            Mode::Unpack => {
                let unpack = Unpack::new(root, self.plan.durable, trail);
                Work::Unpack(unpack, self.source(index)?)
            }
            Mode::Read => Work::Read(self.reading(index, self.plan.verify)?, self.source(index)?),
            Mode::Walk => Work::Walk(Climb::new(root, trail), self.plan.passes),
            Mode::Remove => Work::Remove(Climb::new(root, trail)),
        };
        Ok(Box::new(TreeWorker {
            work,
            whole: Arc::clone(&self.whole),
        }))
    }

    fn path_of(&self, worker: u32, _file: u64) -> Option<String> {
        let path = self.trail(worker).path()?;
        let root = self.task.path().join(format!("w{worker}"));
        let path = match path.is_empty() {
            true => root,
            false => root.join(OsString::from_vec(path)),
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let content = match self.plan.mode {
            Mode::Unpack => Left::Created,
            Mode::Remove => Left::Empty,
            Mode::Read | Mode::Walk => return Ok(()),
        };
        if self.whole.load(Ordering::Acquire) < self.workers() {
            return Ok(());
        }
        if let Err(error) = self.state(content)?.write(&self.task) {
            // The result stands; the next mode will lay the data out again.
            tracing::warn!(%error, path = %self.task.path().display(), "the state of the data was not written");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
