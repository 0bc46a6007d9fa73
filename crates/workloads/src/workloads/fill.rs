//! `fill`: fills the target to a share of its space or by an amount, keeps it full, and removes the files.
//!
//! On request the files are read again and verified.
//!
//! The workers query the free space repeatedly, and more often the less is left, so that all workers of all tasks stop
//! in time: at the requested share, or at a floor that is left for others. A worker that reaches the floor before the
//! aim fails with an error. Files have a limited size and are written one after the other, in each worker's own
//! directory.

mod filled;
mod filling;
mod holding;
mod keys;
mod reading;
mod removing;
mod space;

use crate::engine::author::*;
use filled::{FilledFiles, Finished};
use filling::FillWorker;
use holding::HoldWorker;
use keys::{Aim, FillKeys, FillMode, FillOptions, MODES};
use reading::{Expected, ReadWorker};
use removing::RemoveWorker;
use space::Space;
use std::ffi::CString;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const NAME: &str = "fill";

/// The workload.
pub const FILL: &dyn Workload = workload::<FillOptions>();

impl Definition for FillOptions {
    const ABOUT: About = About {
        name: NAME,
        revision: 3,
        summary: "the target: fill it to a share of its space or by an amount, keep it full, read the data, and free \
                  it",
        modes: MODES,
        bypass: Bypass::Refused("space is not filled with O_DIRECT; leave `cache` out"),
        ..About::ON_TARGET
    };
    type Keys = FillKeys;

    fn new(mode: &'static ModeInfo, keys: FillKeys) -> Result<Self, ParamError> {
        FillOptions::of(mode, &keys)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.workers,
            timing: self.timing,
        }
    }

    /// Only the agent knows how many bytes a share is.
    fn footprint(&self) -> Footprint {
        let bytes = match self.aim {
            Aim::Amount(bytes) => bytes,
            Aim::Share(_) => 0,
        };
        Footprint {
            files: bytes.div_ceil(self.file_bytes).max(u64::from(self.workers)),
            bytes,
            moved_bytes: match self.mode {
                FillMode::Fill | FillMode::Read => bytes,
                FillMode::Hold | FillMode::Remove => 0,
            },
            fill: Some(FillAim {
                percent: self.share(),
                floor_bytes: self.floor,
            }),
            ..Footprint::of(self.threads())
        }
    }

    fn buffer_bytes(&self) -> u64 {
        buffers_of(self.unit)
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        Ok(Box::new(FillLoad {
            options: self,
            dirs: WorkerDirs::of(spec)?,
            task_index: spec.task_index,
            tasks: spec.tasks,
            granted: Arc::default(),
            filled: Mutex::default(),
            finished: Finished::default(),
            removed: WholePasses::default(),
        }))
    }
}

struct FillLoad {
    options: FillOptions,
    dirs: WorkerDirs,
    task_index: u32,
    tasks: u32,
    granted: Arc<AtomicU64>,
    /// Bytes and generation of the fill; known once prepared.
    filled: Mutex<FilledFiles>,
    finished: Finished,
    removed: WholePasses,
}

impl FillLoad {
    /// Starts a new generation of the files; random under `verify`, else 0.
    fn begin(&self) {
        let now = MonoNanos::now().0;
        let generation = match self.options.data.verify {
            true => Random::of(&[now, self.options.seed, self.task_index.into()]).next_u64(),
            false => 0,
        };
        *self.filled() = FilledFiles {
            generation,
            parts: Vec::new(),
        };
    }

    fn filled(&self) -> MutexGuard<'_, FilledFiles> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shape(&self) -> String {
        let FillOptions {
            aim,
            workers,
            file_bytes,
            data,
            ..
        } = &self.options;
        format!("{aim:?} by {workers} workers in files of {file_bytes}, {data:?}")
    }

    fn unsettle(&self) -> Result<(), TaskError> {
        DatasetRecord::unsettle(self.shape(), &self.dirs.task).map_err(TaskError::Sandbox)
    }

    fn space(&self) -> Space {
        Space {
            aim: self.options.share(),
            floor: self.options.floor,
            writers: u64::from(self.options.workers) * u64::from(self.tasks.max(1)),
        }
    }

    /// This worker's part of `amount`, if that is the aim.
    fn amount(&self, worker: u32) -> Option<u64> {
        let Aim::Amount(bytes) = self.options.aim else {
            return None;
        };
        let workers = u64::from(self.options.workers);
        let extra = u64::from(u64::from(worker) < bytes % workers);
        Some(bytes / workers + extra)
    }

    fn filler(&self, worker: u32) -> Result<FillWorker, TaskError> {
        Ok(FillWorker {
            index: worker,
            root: self.dirs.open(worker)?,
            space: self.space(),
            amount: self.amount(worker),
            file_bytes: self.options.file_bytes,
            data: WriteBuffer::of(self.content(worker), self.options.unit),
            granted: Arc::clone(&self.granted),
            generation: self.filled().generation,
            finished: self.finished.clone(),
            is_removed_next: self.options.mode == FillMode::Remove,
        })
    }

    fn content(&self, worker: u32) -> Content {
        let own = [self.options.seed, self.task_index.into(), worker.into()];
        let data = DataSpec {
            verify: self.options.data.verify && self.options.data.kind.repeated().is_none(),
            ..self.options.data
        };
        Content::new(data, Random::of(&own).next_u64())
    }

    fn reader(&self, worker: u32) -> Result<ReadWorker, TaskError> {
        let (filled, index) = (self.filled(), usize::try_from(worker).unwrap_or(usize::MAX));
        let expected = match (self.options.data.verify, self.options.data.kind.repeated()) {
            (false, _) => Expected::Anything,
            (true, Some(bytes)) => Expected::Repeated(bytes),
            (true, None) => Expected::Placed(self.content(worker), filled.generation),
        };
        Ok(ReadWorker {
            root: self.dirs.open(worker)?,
            bytes: filled.parts.get(index).copied().unwrap_or(0),
            file_bytes: self.options.file_bytes,
            buffer: AlignedBytes::new(1, self.options.unit),
            expected,
        })
    }

    fn empty(&self, control: &PrepareControl) -> Result<(), TaskError> {
        self.unsettle()?;
        WorkerDirs::remove_from(&self.dirs.task, control)
    }

    /// Whether an incomplete fill has left files.
    fn has_files(&self) -> Result<bool, TaskError> {
        for worker in 0..self.options.workers {
            let names = self.dirs.open(worker)?.names();
            if !names.map_err(TaskError::Sandbox)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the files unmeasured.
    fn lay_out(&self, control: &PrepareControl) -> Result<(), TaskError> {
        self.empty(control)?;
        self.begin();
        for worker in 0..self.options.workers {
            self.filler(worker)?.lay_out(control)?;
        }
        let mut filled = self.filled();
        filled.parts = self.finished.all(self.options.workers).unwrap_or_default();
        if self.options.mode == FillMode::Remove && filled.parts.iter().all(|bytes| *bytes == 0) {
            return Err(TaskError::Unsupported {
                why: format!(
                    "there is nothing to remove on `{}`, and no room to lay out a file of a block; free some space, or \
                     run `fill` before",
                    self.dirs.task.path().display()
                ),
            });
        }
        let written = filled.record(self.shape(), DatasetContent::Created);
        written.write(&self.dirs.task).map_err(TaskError::Sandbox)
    }
}

fn name_of(number: u64) -> CString {
    CString::new(format!("f{number:09}")).unwrap_or_default()
}

/// A name with its number; `u64::MAX` for a foreign name.
fn numbered(name: String) -> Option<(u64, CString)> {
    let number = name
        .strip_prefix('f')
        .and_then(|digits| digits.parse().ok());
    Some((number.unwrap_or(u64::MAX), CString::new(name).ok()?))
}

impl Load for FillLoad {
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.options.mode == FillMode::Fill {
            self.empty(control)?;
            self.begin();
            return self.dirs.make(self.options.workers, control);
        }
        match FilledFiles::find(&self.dirs.task, &self.shape(), self.options.workers)? {
            Some(filled) => *self.filled() = filled,
            // Remove the files as they are: there may be no room to write them again.
            None if self.options.mode == FillMode::Remove && self.has_files()? => {}
            None => self.lay_out(control)?,
        }
        match self.options.mode {
            FillMode::Remove => self.unsettle(),
            FillMode::Fill | FillMode::Hold | FillMode::Read => Ok(()),
        }
    }

    fn warm(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.options.mode != FillMode::Read {
            return Ok(());
        }
        let total = (self.filled().parts.iter().sum(), "bytes");
        in_parallel(self.options.workers, total, control, |worker, done| {
            self.reader(worker)?.warm(done)
        })
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(match self.options.mode {
            FillMode::Fill => Box::new(self.filler(index)?),
            FillMode::Hold => Box::new(HoldWorker {
                root: self.dirs.open(index)?,
            }),
            FillMode::Read => Box::new(self.reader(index)?),
            FillMode::Remove => {
                let root = self.dirs.open(index)?;
                let names = root.names().map_err(TaskError::Sandbox)?;
                let mut names: Vec<_> = names.into_iter().filter_map(numbered).collect();
                names.sort();
                Box::new(RemoveWorker {
                    names,
                    root,
                    whole: self.removed.clone(),
                })
            }
        })
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let root = self.dirs.path(worker);
        let path = match self.options.mode {
            FillMode::Hold => root,
            FillMode::Fill | FillMode::Read | FillMode::Remove => {
                root.join(&*name_of(file).to_string_lossy())
            }
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let (content, parts) = match self.options.mode {
            FillMode::Fill => (
                DatasetContent::Created,
                self.finished.all(self.options.workers),
            ),
            FillMode::Remove => (
                DatasetContent::Empty,
                self.removed.all(self.options.workers).then(Vec::new),
            ),
            FillMode::Hold | FillMode::Read => return Ok(()),
        };
        let Some(parts) = parts else {
            return Ok(());
        };
        let generation = self.filled().generation;
        FilledFiles { generation, parts }
            .record(self.shape(), content)
            .write_or_warn(&self.dirs.task);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
