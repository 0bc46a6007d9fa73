//! `fill`: fills the target to a share of its space, or by an amount, keeps it full, and removes what filled it.
//!
//! What was written is read again on request, and checked.
//!
//! Free space is asked for again and again, the more often the less is left, so that all workers of all tasks together
//! stop in time: at the share that is asked for, or at a floor that is left for others. Who meets the floor before the
//! aim says so and fails. Files are of a limited size, one after the other, in each worker's own directory.

mod filled;
mod filling;
mod holding;
mod keys;
mod reading;
mod removing;
mod space;

use crate::clock::MonoNanos;
use crate::data::{DataSpec, Kind};
use crate::files::calls;
use crate::files::data::Data;
use crate::files::state::{Content, State};
use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::Dir;
use crate::side_by_side::side_by_side;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use filled::{Filled, Finished};
use filling::FillWorker;
use holding::HoldWorker;
use keys::{Aim, EFFECTS, KEYS, MODES, Mode, Plan};
use reading::{Expected, ReadWorker};
use removing::RemoveWorker;
use space::Space;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const NAME: &str = "fill";

/// The workload.
#[derive(Debug)]
pub struct Fill;

impl Workload for Fill {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        2
    }

    fn summary(&self) -> &'static str {
        "the target filled to a share of its space or by an amount, kept full, read again, and freed"
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

    /// What a share comes to is known only on the agent.
    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = Plan::of(self.mode(mode)?, params)?;
        let bytes = match plan.aim {
            Aim::Amount(bytes) => bytes,
            Aim::Share(_) => 0,
        };
        Ok(Footprint {
            workers: plan.workers,
            files: bytes.div_ceil(plan.file_bytes).max(u64::from(plan.workers)),
            bytes,
            scratch_bytes: 0,
            moved_bytes: match plan.mode {
                Mode::Fill | Mode::Read => bytes,
                Mode::Hold | Mode::Remove => 0,
            },
            runtime: plan.timing.total(),
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let plan = self
            .mode(&spec.mode)
            .and_then(|mode| Plan::of(mode, &spec.params))
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            let why = "space is not filled with O_DIRECT; leave `cache` out".into();
            return Err(TaskError::Unfit { why });
        }
        Ok(Box::new(FillLoad {
            plan,
            task: spec.dir()?,
            task_index: spec.task_index,
            tasks: spec.tasks,
            warm: spec.cache == Cache::Warm,
            granted: Arc::default(),
            filled: Mutex::default(),
            finished: Finished::default(),
            removed: Arc::default(),
        }))
    }
}

struct FillLoad {
    plan: Plan,
    task: Dir,
    task_index: u32,
    tasks: u32,
    warm: bool,
    granted: Arc<AtomicU64>,
    /// What the target was filled with; known once prepared.
    filled: Mutex<Filled>,
    finished: Finished,
    /// Counts the workers that removed all of their files.
    removed: Arc<AtomicU32>,
}

impl FillLoad {
    /// A writing of the files that differs from all before it, where they know which they are of.
    fn begin(&self) {
        let now = MonoNanos::now().0;
        let generation = match self.plan.data.verify {
            true => Random::of(&[now, self.plan.seed, self.task_index.into()]).next_u64(),
            false => 0,
        };
        *self.filled() = Filled {
            generation,
            parts: Vec::new(),
        };
    }

    fn filled(&self) -> MutexGuard<'_, Filled> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shape(&self) -> String {
        let Plan {
            aim,
            workers,
            file_bytes,
            data,
            ..
        } = &self.plan;
        format!("{aim:?} by {workers} workers in files of {file_bytes}, {data:?}")
    }

    fn unsettle(&self) -> Result<(), TaskError> {
        State::unsettle(self.shape(), &self.task).map_err(TaskError::Sandbox)
    }

    fn root(&self, worker: u32) -> Result<Dir, TaskError> {
        self.task
            .make_dir(&format!("w{worker}"))
            .map_err(TaskError::Sandbox)
    }

    fn space(&self) -> Space {
        Space {
            aim: match self.plan.aim {
                Aim::Amount(_) => None,
                Aim::Share(percent) => Some(percent),
            },
            floor: self.plan.floor,
            writers: u64::from(self.plan.workers) * u64::from(self.tasks.max(1)),
        }
    }

    /// The amount that is this worker's, where there is one.
    fn amount(&self, worker: u32) -> Option<u64> {
        let Aim::Amount(bytes) = self.plan.aim else {
            return None;
        };
        let workers = u64::from(self.plan.workers);
        let extra = u64::from(u64::from(worker) < bytes % workers);
        Some(bytes / workers + extra)
    }

    fn filler(&self, worker: u32) -> Result<FillWorker, TaskError> {
        Ok(FillWorker {
            index: worker,
            root: self.root(worker)?,
            space: self.space(),
            amount: self.amount(worker),
            file_bytes: self.plan.file_bytes,
            data: Data::of(self.content(worker), self.plan.unit),
            granted: Arc::clone(&self.granted),
            generation: self.filled().generation,
            finished: self.finished.clone(),
        })
    }

    fn content(&self, worker: u32) -> crate::data::Content {
        let own = [self.plan.seed, self.task_index.into(), worker.into()];
        let data = DataSpec {
            verify: self.plan.data.verify && self.plan.data.kind != Kind::Zero,
            ..self.plan.data
        };
        crate::data::Content::new(data, Random::of(&own).next_u64())
    }

    fn reader(&self, worker: u32) -> Result<ReadWorker, TaskError> {
        let (filled, index) = (self.filled(), usize::try_from(worker).unwrap_or(usize::MAX));
        let expected = match (self.plan.data.verify, self.plan.data.kind) {
            (false, _) => Expected::Anything,
            (true, Kind::Zero) => Expected::Zeros,
            (true, _) => Expected::Placed(self.content(worker), filled.generation),
        };
        Ok(ReadWorker {
            root: self.root(worker)?,
            bytes: filled.parts.get(index).copied().unwrap_or(0),
            file_bytes: self.plan.file_bytes,
            buffer: vec![1; self.plan.unit],
            expected,
        })
    }

    fn empty(&self, control: &PrepareControl) -> Result<(), TaskError> {
        self.unsettle()?;
        for name in self.task.names().map_err(TaskError::Sandbox)? {
            if name.starts_with('w') {
                let mut gone = |gone| control.progress(gone, 0, "files removed");
                let removed = self.task.remove_all(&name, &mut gone);
                removed.map_err(TaskError::Sandbox)?;
            }
        }
        Ok(())
    }
}

fn name_of(number: u64) -> CString {
    CString::new(format!("f{number:09}")).unwrap_or_default()
}

/// A name with its number; one that is not ours has none of its own.
fn numbered(name: String) -> Option<(u64, CString)> {
    let number = name
        .strip_prefix('f')
        .and_then(|digits| digits.parse().ok());
    Some((number.unwrap_or(u64::MAX), CString::new(name).ok()?))
}

impl Load for FillLoad {
    fn workers(&self) -> u32 {
        self.plan.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.plan.mode == Mode::Fill {
            self.empty(control)?;
            self.begin();
            for worker in 0..self.plan.workers {
                self.root(worker)?;
            }
            return Ok(());
        }
        match Filled::find(&self.task, &self.shape(), self.plan.workers)? {
            Some(filled) => *self.filled() = filled,
            None => {
                self.empty(control)?;
                self.begin();
                for worker in 0..self.plan.workers {
                    self.filler(worker)?.lay_out(control)?;
                }
                let mut filled = self.filled();
                filled.parts = self.finished.all(self.plan.workers).unwrap_or_default();
                let written = filled.write(&self.task, self.shape(), Content::Created);
                written.map_err(TaskError::Sandbox)?;
            }
        }
        match self.plan.mode {
            Mode::Remove => self.unsettle(),
            Mode::Read if self.warm => {
                let total = (self.filled().parts.iter().sum(), "bytes");
                side_by_side(self.plan.workers, total, control, |worker, done| {
                    self.reader(worker)?.warm(done)
                })
            }
            Mode::Fill | Mode::Hold | Mode::Read => Ok(()),
        }
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(match self.plan.mode {
            Mode::Fill => Box::new(self.filler(index)?),
            Mode::Hold => Box::new(HoldWorker {
                root: self.root(index)?,
            }),
            Mode::Read => Box::new(self.reader(index)?),
            Mode::Remove => {
                let root = self.root(index)?;
                let names = root.names().map_err(TaskError::Sandbox)?;
                let mut names: Vec<_> = names.into_iter().filter_map(numbered).collect();
                names.sort();
                Box::new(RemoveWorker {
                    names,
                    root,
                    whole: Arc::clone(&self.removed),
                })
            }
        })
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let root = self.task.path().join(format!("w{worker}"));
        let path = match self.plan.mode {
            Mode::Hold => root,
            Mode::Fill | Mode::Read | Mode::Remove => root.join(&*name_of(file).to_string_lossy()),
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let (content, parts) = match self.plan.mode {
            Mode::Fill => (Content::Created, self.finished.all(self.plan.workers)),
            Mode::Remove => {
                let is_whole = self.removed.load(Ordering::Acquire) >= self.workers();
                (Content::Empty, is_whole.then(Vec::new))
            }
            Mode::Hold | Mode::Read => return Ok(()),
        };
        let Some(parts) = parts else {
            return Ok(());
        };
        let generation = self.filled().generation;
        let filled = Filled { generation, parts };
        if let Err(error) = filled.write(&self.task, self.shape(), content) {
            // The result stands; the next mode will lay the data out again.
            tracing::warn!(%error, path = %self.task.path().display(), "the state of the data was not written");
        }
        Ok(())
    }
}

/// A new file of the fill, for both the measured load and the laying out.
fn open_new(root: &Dir, number: u64) -> Result<rustix::fd::OwnedFd, rustix::io::Errno> {
    calls::open_new(root.fd(), &name_of(number))
}

#[cfg(test)]
mod tests;
