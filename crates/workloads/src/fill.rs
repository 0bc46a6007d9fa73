//! `fill`: fills the target to a share of its space, or by an amount, keeps it full, and removes what filled it.
//!
//! Free space is asked for again and again, the more often the less is left, so that all workers of all tasks together
//! stop in time: at the share that is asked for, or at a floor that is left for others. Who meets the floor before the
//! aim says so and fails. Files are of a limited size, one after the other, in each worker's own directory.

mod keys;
mod space;
mod worker;

use crate::files::calls;
use crate::files::data::Data;
use crate::files::state::{Content, Extras, State};
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::Dir;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use keys::{Aim, KEYS, MODES, Mode, Plan};
use space::Space;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use worker::{FillWorker, HoldWorker, RemoveWorker};

const NAME: &str = "fill";

/// The workload.
#[derive(Debug)]
pub struct Fill;

impl Workload for Fill {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        1
    }

    fn summary(&self) -> &'static str {
        "the target filled to a share of its space or by an amount, kept full, and freed again"
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
                Mode::Fill => bytes,
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
            granted: Arc::default(),
            whole: Arc::default(),
        }))
    }
}

struct FillLoad {
    plan: Plan,
    task: Dir,
    task_index: u32,
    tasks: u32,
    granted: Arc<AtomicU64>,
    whole: Arc<AtomicU32>,
}

impl FillLoad {
    fn state(&self, content: Content) -> State {
        let Plan {
            aim,
            workers,
            file_bytes,
            data,
            ..
        } = &self.plan;
        State {
            shape: format!("{aim:?} by {workers} workers in files of {file_bytes}, {data:?}"),
            content,
            extras: Extras::default(),
        }
    }

    fn unsettle(&self) -> Result<(), TaskError> {
        let shape = self.state(Content::Unsettled).shape;
        State::unsettle(shape, &self.task).map_err(TaskError::Sandbox)
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
        let own = [self.plan.seed, self.task_index.into(), worker.into()];
        let content = crate::data::Content::new(self.plan.data, Random::of(&own).next_u64());
        Ok(FillWorker {
            root: self.root(worker)?,
            space: self.space(),
            amount: self.amount(worker),
            file_bytes: self.plan.file_bytes,
            data: Data::of(content, self.plan.unit),
            granted: Arc::clone(&self.granted),
            whole: Arc::clone(&self.whole),
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
            for worker in 0..self.plan.workers {
                self.root(worker)?;
            }
            return Ok(());
        }
        let wanted = self.state(Content::Created);
        if State::read(&self.task).map_err(TaskError::Sandbox)? != Some(wanted.clone()) {
            self.empty(control)?;
            for worker in 0..self.plan.workers {
                self.filler(worker)?.lay_out(control)?;
            }
            wanted.write(&self.task).map_err(TaskError::Sandbox)?;
        }
        match self.plan.mode {
            Mode::Remove => self.unsettle(),
            Mode::Fill | Mode::Hold => Ok(()),
        }
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(match self.plan.mode {
            Mode::Fill => Box::new(self.filler(index)?),
            Mode::Hold => Box::new(HoldWorker {
                root: self.root(index)?,
            }),
            Mode::Remove => {
                let root = self.root(index)?;
                let names = root.names().map_err(TaskError::Sandbox)?;
                let mut names: Vec<_> = names.into_iter().filter_map(numbered).collect();
                names.sort();
                Box::new(RemoveWorker {
                    names,
                    root,
                    whole: Arc::clone(&self.whole),
                })
            }
        })
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let root = self.task.path().join(format!("w{worker}"));
        let path = match self.plan.mode {
            Mode::Hold => root,
            Mode::Fill | Mode::Remove => root.join(&*name_of(file).to_string_lossy()),
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let content = match self.plan.mode {
            Mode::Fill => Content::Created,
            Mode::Remove => Content::Empty,
            Mode::Hold => return Ok(()),
        };
        if self.whole.load(Ordering::Acquire) < self.workers() {
            return Ok(());
        }
        if let Err(error) = self.state(content).write(&self.task) {
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
