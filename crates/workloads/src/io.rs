//! `io`: blocks of one file per worker, read and written with pread and pwrite, or many at once through io_uring.
//!
//! Each worker owns `w<index>.dat` in its task's directory. An operation is one block; bytes are the block's. What fio
//! also has is spelled and meant as fio does it, down to the access pattern advised to the kernel. Which operations come
//! is decided by [`sequence`], how they reach the kernel by the worker; neither knows of the other.

mod deep;
mod file;
mod job;
mod keys;
mod layout;
mod modes;
mod ring;
mod sequence;
mod sizes;
mod worker;
mod zipf;

use crate::params::{KeyInfo, ParamError};
use crate::sandbox::Dir;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{Footprint, Load, ModeInfo, Needs, Note, Params, Timing, Worker, Workload};
use job::{Job, SECTOR};
use keys::{Engine, Fallback, KEYS};
use modes::MODES;
use ring::Buffers;
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = "io";

/// The workload.
#[derive(Debug)]
pub struct Io;

impl Io {
    fn parse(&self, mode: &str, params: &Params) -> Result<Job, ParamError> {
        Job::parse(self.mode(mode)?.name, params)
    }
}

impl Workload for Io {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        2
    }

    fn summary(&self) -> &'static str {
        "blocks of one file per worker, sequential or random, one after the other or many at once"
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

    fn check(&self, mode: &str, params: &Params) -> Result<Footprint, ParamError> {
        let job = self.parse(mode, params)?;
        let workers = u64::from(job.workers);
        Ok(Footprint {
            workers: job.workers,
            files: workers,
            bytes: job.file_bytes().saturating_mul(workers),
            scratch_bytes: 0,
            moved_bytes: job.moved_bytes().saturating_mul(workers),
            runtime: job.timing.total(),
        })
    }

    fn check_together(&self, modes: &[&str], params: &Params) -> Result<(), ParamError> {
        job::check_idle_keys(modes, params)
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let mut job = self
            .parse(&spec.mode, &spec.params)
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            job.direct = true;
            job.check_alignment(SECTOR).map_err(TaskError::Params)?;
        }
        let way = Way::of(&job)?;
        Ok(Box::new(IoLoad {
            job,
            way,
            dir: spec.dir()?,
            task_index: spec.task_index,
            warm: spec.cache == Cache::Warm,
            unpinned: AtomicBool::new(false),
        }))
    }
}

/// How the operations reach the kernel here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    OneByOne,
    Ring,
    /// So many threads per file, because the kernel refuses a ring for this reason.
    Threads(u32, String),
}

impl Way {
    fn of(job: &Job) -> Result<Way, TaskError> {
        if job.engine == Engine::Psync {
            return Ok(Way::OneByOne);
        }
        match (ring::probe(), job.fallback) {
            (Ok(()), _) => Ok(Way::Ring),
            (Err(why), Fallback::Psync) => Ok(Way::Threads(job.depth, why)),
            (Err(why), Fallback::None) => Err(TaskError::Unfit { why }),
        }
    }
}

struct IoLoad {
    job: Job,
    way: Way,
    dir: Dir,
    task_index: u32,
    /// One unmeasured pass before the start.
    warm: bool,
    /// Buffers could not be registered with io_uring.
    unpinned: AtomicBool,
}

impl IoLoad {
    fn note_buffers(&self, buffers: Buffers) {
        if buffers == Buffers::Plain {
            self.unpinned.store(true, Ordering::Relaxed);
        }
    }
}

impl Load for IoLoad {
    fn workers(&self) -> u32 {
        self.job.workers * self.lanes()
    }

    fn lanes(&self) -> u32 {
        match self.way {
            Way::Threads(lanes, _) => lanes,
            Way::OneByOne | Way::Ring => 1,
        }
    }

    fn depth(&self) -> u16 {
        match self.way {
            Way::Ring => self.job.depth_of_ring(),
            Way::OneByOne | Way::Threads(..) => 0,
        }
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        if let Way::Threads(lanes, why) = &self.way {
            notes.push(Note {
                kind: "engine-fallback",
                message: format!("io_uring is replaced by {lanes} threads per file: {why}"),
            });
        }
        if self.unpinned.load(Ordering::Relaxed) {
            notes.push(Note {
                kind: "buffers-unregistered",
                message: "io_uring runs without registered buffers, each operation pins its own: more memory may have \
                          to be locked (`ulimit -l`)"
                    .to_owned(),
            });
        }
        notes
    }

    fn timing(&self) -> Timing {
        self.job.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        layout::prepare(self, control)
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(match self.way {
            Way::Ring => Box::new(deep::DeepWorker::open(self, index)?),
            Way::OneByOne | Way::Threads(..) => Box::new(worker::IoWorker::open(self, index)?),
        })
    }
}

#[cfg(test)]
mod tests;
