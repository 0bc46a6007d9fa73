//! `io`: blocks of one file per worker, read and written with pread and pwrite, or many at once through io_uring.
//!
//! Each worker owns `w<index>.dat` in its task's directory. An operation is one block; bytes are the block's. What fio
//! also has is spelled and meant as fio does it, down to the access pattern advised to the kernel. Which operations come
//! is decided by [`sequence`], how they reach the kernel by the worker; neither knows of the other.

mod deep;
mod file;
mod generations;
mod job;
mod keys;
mod layout;
mod modes;
mod ring;
mod sequence;
mod sizes;
mod store;
mod worker;
mod writing;
mod zipf;

use crate::data::{Content, Generations};
use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{Footprint, Load, ModeInfo, Needs, Note, Params, Timing, Worker, Workload};
use job::Job;
use keys::{EFFECTS, Engine, Fallback, KEYS};
use modes::MODES;
use ring::Buffers;
use sequence::{Direction, Lane, Sequence};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Store;
use writing::Progress;

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
        3
    }

    fn summary(&self) -> &'static str {
        "blocks of one file per worker, sequential or random, one after the other or many at once"
    }

    fn needs(&self) -> Needs {
        Needs::Target
    }

    fn takes_devices(&self) -> bool {
        true
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
    fn understood(&self, mode: &str, params: &Params) -> Result<String, ParamError> {
        Ok(format!("{:?}", self.parse(mode, params)?))
    }

    fn bypassing(&self, params: &Params) -> Result<Params, ParamError> {
        let mut params = params.clone();
        let given = params.insert("direct".to_owned(), true.into());
        if given.is_some_and(|given| given == false || given == 0) {
            let message = "says that the caches are used, and cache = \"bypass\" that they are not: drop one of the two";
            return Err(ParamError::of("direct", message));
        }
        Ok(params)
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

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let params = match spec.cache {
            Cache::Bypass => self.bypassing(&spec.params),
            _ => Ok(spec.params.clone()),
        };
        let job = params.and_then(|params| self.parse(&spec.mode, &params));
        let job = job.map_err(TaskError::Params)?;
        let way = Way::of(&job)?;
        let store = match &spec.device {
            Some(device) => Store::Device(Arc::clone(device), job.file_bytes()),
            None => Store::Files(spec.dir()?),
        };
        store.check_room(job.workers)?;
        Ok(Box::new(IoLoad {
            job,
            way,
            store,
            task_index: spec.task_index,
            warm: spec.cache == Cache::Warm,
            generations: Mutex::default(),
            progress: Arc::default(),
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
    store: Store,
    task_index: u32,
    /// One unmeasured pass before the start.
    warm: bool,
    /// Buffers could not be registered with io_uring.
    unpinned: AtomicBool,
    /// What may stand in the blocks, once the task is prepared.
    generations: Mutex<Generations>,
    progress: Arc<Progress>,
}

impl IoLoad {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        // A pair of numbers is whole whoever panicked.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what stands in the blocks, and announces what this mode will write.
    fn open_generations(&self) -> Result<(), TaskError> {
        if !self.job.data.verify {
            return Ok(());
        }
        let mut known = self.store.generations()?;
        if self.job.pattern.direction == Direction::WriteNew {
            // What is not reached is laid out later.
            (known.oldest, known.torn) = (0, false);
        }
        if self.job.pattern.direction.writes() {
            known = known.and_one_more();
            // Until it is known not to be so, whatever ends the writing before.
            self.store.set_generations(Generations {
                torn: true,
                ..known
            })?;
        }
        *self.generations() = known;
        Ok(())
    }

    fn content(&self) -> Content {
        Content::new(self.job.data, self.job.seed)
    }

    /// What a thread of those that share a file does to it.
    fn sequence(&self, file: u32, lane: Lane) -> Sequence {
        let numbers = [self.job.seed, self.task_index.into(), file.into(), 1];
        let mut pattern = self.job.pattern.clone();
        pattern.offset += self.store.base(file);
        Sequence::new(&pattern, lane, Random::of(&numbers))
    }

    /// The number of a file among all of the step's.
    fn file_id(&self, file: u32) -> u64 {
        u64::from(self.task_index) << 32 | u64::from(file)
    }

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
        layout::prepare(self, control)?;
        self.open_generations()
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(match self.way {
            Way::Ring => Box::new(deep::DeepWorker::open(self, index)?),
            Way::OneByOne | Way::Threads(..) => Box::new(worker::IoWorker::open(self, index)?),
        })
    }

    fn path_of(&self, worker: u32, _file: u64) -> Option<String> {
        let owner = worker / self.lanes().max(1);
        Some(self.store.path(owner).display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let direction = self.job.pattern.direction;
        let is_through = self.progress.through() >= self.workers();
        if direction == Direction::WriteNew {
            if is_through {
                self.store.all_laid();
            }
            if self.progress.gapless() >= self.workers() {
                // Where the note stays, more is laid out than would have to be, and nothing is wrong.
                let _ = self.store.is_filled();
            }
        }
        if !self.job.data.verify || !direction.writes() {
            return Ok(());
        }
        let known = *self.generations();
        if is_through {
            return self.store.set_generations(known.newest_only());
        }
        match self.progress.sound() >= self.workers() {
            true => self.store.set_generations(known),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
