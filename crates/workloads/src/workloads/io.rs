//! `io`: reads and writes blocks of one file per worker with pread and pwrite, with many operations in flight through
//! io_uring, or through a stdio-like buffer. In a pool, each worker uses one RBD image through librbd.
//!
//! Each worker owns `w<index>.dat` in its task's directory, a range of a shared file, or an image. An operation is one
//! block, and its bytes are the block's. Parameters that fio also has keep fio's spelling and meaning, including the
//! access pattern advised to the kernel. [`sequence`] decides which operations are issued and the worker decides how
//! they reach the kernel; neither depends on the other.

mod deep;
mod file;
mod generations;
mod images;
mod job;
mod keys;
mod layout;
mod modes;
mod opened;
mod queue;
mod reaped;
mod ring;
mod sequence;
mod shared;
mod sizes;
mod stdio;
mod stdio_spec;
mod store;
mod worker;
mod writing;
mod zipf;

use benchmesh_model::events::EventKind;
pub use ring::probe as probe_io_uring;

use crate::engine::author::*;
use deep::DeepWorker;
use images::Images;
use job::IoJob;
use keys::{Engine, Fallback, FilePer, IoKeys, Ranges};
use modes::MODES;
use ring::{Buffers, Ring};
use sequence::{Direction, Sequence, Shard};
use shared::SharedFile;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stdio::Stdio;
use store::Store;
use worker::{IoWorker, Psync};
use writing::WriteProgress;

/// The workload.
pub const IO: &dyn Workload = workload::<IoJob>();

impl Definition for IoJob {
    const ABOUT: About = About {
        name: "io",
        revision: 6,
        summary: "blocks of a file per worker, of a shared file or of RBD images: sequential or random, one at a time, \
                  many in flight or through stdio's buffer",
        modes: MODES,
        targets: &[&targets::DIRECTORY, &targets::DEVICE, &targets::POOL],
        rejoins: Rejoins::InAnyMode,
        bypass: Bypass::Sets {
            key: "direct",
            value: "true",
            contradiction: "conflicts with cache = \"bypass\": drop one of the two",
        },
        ..About::ON_TARGET
    };
    type Keys = IoKeys;

    fn new(mode: &'static ModeInfo, keys: IoKeys) -> Result<IoJob, ParamError> {
        IoJob::of(mode.name, &keys)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.workers,
            timing: self.timing,
        }
    }

    fn footprint(&self) -> Footprint {
        let (files, bytes) = self.files();
        Footprint {
            files,
            bytes,
            moved_bytes: self.moved_bytes().saturating_mul(self.workers.into()),
            ..Footprint::of(self.threads())
        }
    }

    fn buffer_bytes(&self) -> u64 {
        self.worker_buffers()
    }

    fn check_target(&self, kind: &'static targets::TargetKind) -> Result<(), ParamError> {
        match *kind == targets::POOL {
            true => images::check(self),
            false => Ok(()),
        }
    }

    fn data_shape(&self) -> Option<DataShape> {
        let mut keys = vec![
            ("size", self.pattern.region.to_string()),
            ("offset", self.pattern.offset.to_string()),
            ("numjobs", self.workers.to_string()),
            ("file-per", self.file_per.as_str().to_owned()),
            ("ranges", self.ranges.as_str().to_owned()),
            ("randseed", self.seed.to_string()),
        ];
        keys.extend(self.data.shape());
        if self.data.verify || self.ranges == Ranges::Strided {
            keys.push(("bs", self.pattern.sizes.smallest().to_string()));
        }
        Some(keys)
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let store = store_of(&self, spec)?;
        let way = Submission::of(&self, &store)?;
        store.check_room(self.workers)?;
        let data_task = data_task(spec, self.reorder_tasks);
        Ok(Box::new(IoLoad {
            others: match (data_task == spec.task_index, self.file_per, &store) {
                (true, ..) | (_, FilePer::Step, _) => None,
                (_, _, Store::Images(images)) => Some(Store::Images(images.of_task(data_task))),
                (false, ..) => Some(store_of(
                    &self,
                    &TaskSpec {
                        task_index: data_task,
                        ..spec.clone()
                    },
                )?),
            },
            data_task,
            job: self,
            way,
            store,
            task_index: spec.task_index,
            cell: spec.cell_dir().ok().cloned(),
            warm: spec.cache == Cache::Warm,
            generations: Mutex::default(),
            progress: Arc::default(),
            unpinned: AtomicBool::new(false),
        }))
    }
}

fn store_of(job: &IoJob, spec: &TaskSpec) -> Result<Store, TaskError> {
    if let Some(Place::Device(device)) = &spec.place {
        if job.file_per != FilePer::Worker || job.reorder_tasks > 0 {
            let why = "a device has no files: leave out `file-per` and `reorder-tasks`".to_owned();
            return Err(TaskError::Unsupported { why });
        }
        return Ok(Store::Device(Arc::clone(device), job.file_bytes()));
    }
    if let Some(Place::Pool(place)) = &spec.place {
        return Ok(Store::Images(Images::new(job, place)?));
    }
    let task = spec.dir()?;
    if job.file_per == FilePer::Worker {
        return Ok(Store::Files(task));
    }
    let of_task = match job.file_per {
        FilePer::Step => 0,
        FilePer::Task | FilePer::Worker => spec.task_index,
    };
    let dir = TaskSpec {
        task_index: of_task,
        ..spec.clone()
    };
    Ok(Store::Shared(SharedFile {
        dir: dir.dir()?,
        task,
        per: job.file_per,
        ranges: job.ranges,
        task_index: spec.task_index,
        tasks: spec.tasks,
        workers: job.workers,
        part: job.file_bytes(),
        block: job.pattern.sizes.smallest(),
    }))
}

/// How this load submits its operations.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Submission {
    OneByOne,
    /// One at a time although the plan asks for several in flight: a file system in host memory never waits.
    Memory,
    Ring,
    /// Through librbd, any number in flight.
    Image,
    /// This number of threads per file, because the kernel refuses a ring for this reason.
    Threads(u32, String),
}

impl Submission {
    fn of(job: &IoJob, store: &Store) -> Result<Submission, TaskError> {
        if let Store::Images(_) = store {
            return Ok(Submission::Image);
        }
        if job.engine != Engine::IoUring {
            return Ok(Submission::OneByOne);
        }
        if job.engine_by_default && store.is_memory() {
            return Ok(Submission::Memory);
        }
        match (ring::probe(), job.fallback) {
            (Ok(()), _) => Ok(Submission::Ring),
            (Err(why), Fallback::Psync) => Ok(Submission::Threads(job.depth, why)),
            (Err(why), Fallback::None) => Err(TaskError::Unsupported { why }),
        }
    }
}

struct IoLoad {
    job: IoJob,
    way: Submission,
    /// The data that the task lays out.
    store: Store,
    /// The data that the workers use, if another task lays it out.
    others: Option<Store>,
    task_index: u32,
    /// Index of the task whose data is used.
    data_task: u32,
    cell: Option<CellDir>,
    /// Make one unmeasured pass before the start.
    warm: bool,
    /// Set if the buffers could not be registered with io_uring.
    unpinned: AtomicBool,
    /// Generations that the blocks may hold; valid once the task is prepared.
    generations: Mutex<Generations>,
    progress: Arc<WriteProgress>,
}

impl IoLoad {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        // A panic elsewhere leaves the pair of numbers valid.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the known generations of the blocks and records the one that this mode will write.
    fn open_generations(&self) -> Result<(), TaskError> {
        if !self.job.data.verify {
            return Ok(());
        }
        let mut known = self.known_generations()?;
        if self.job.pattern.direction == Direction::WriteNew {
            // Blocks that this mode does not reach are laid out later.
            (known.oldest, known.torn) = (0, false);
        }
        if self.job.pattern.direction.writes() {
            known = known.and_one_more();
            // Assume torn writes, however writing ends, until `finish` shows otherwise.
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

    /// Operations of one of the threads that share a file.
    fn sequence(&self, file: u32, shard: Shard) -> Sequence {
        let numbers = [self.job.seed, self.task_index.into(), file.into(), 1];
        let sequence = Sequence::new(&self.job.pattern, shard, Random::of(&numbers));
        sequence.placed(self.store.placement(self.data_task, file))
    }

    fn workers(&self) -> u32 {
        self.job.workers * self.shards()
    }

    /// Threads per file.
    fn shards(&self) -> u32 {
        match self.way {
            Submission::Threads(shards, _) => shards,
            Submission::OneByOne | Submission::Memory | Submission::Ring | Submission::Image => 1,
        }
    }

    /// The store that the workers open.
    fn data(&self) -> &Store {
        self.others.as_ref().unwrap_or(&self.store)
    }

    /// Step-wide number of the file that a worker uses.
    fn file_id(&self, file: u32) -> u64 {
        self.file_id_of(self.data_task, file)
    }

    /// Step-wide number of the file that a worker lays out.
    fn own_file_id(&self, file: u32) -> u64 {
        self.file_id_of(self.task_index, file)
    }

    fn file_id_of(&self, task: u32, file: u32) -> u64 {
        match &self.store {
            Store::Shared(shared) => shared.id(task),
            Store::Files(_) | Store::Device(..) | Store::Images(_) => {
                u64::from(task) << 32 | u64::from(file)
            }
        }
    }

    /// Waits until other tasks have laid out the data that this task uses.
    fn await_others(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if let Store::Shared(shared) = &self.store {
            shared.await_all(control)?;
        }
        let Some(others) = &self.others else {
            return Ok(());
        };
        for worker in 0..self.job.workers {
            let is_there = || {
                let whole = others.laid_bytes(worker)? >= self.job.file_bytes();
                Ok((whole && !others.has_holes()?).then_some(()))
            };
            await_other(self.data_task, control, is_there)?;
        }
        Ok(())
    }

    /// Generations that the blocks used by this task may hold.
    fn known_generations(&self) -> Result<Generations, TaskError> {
        if self.data_task == self.task_index {
            return self.store.generations();
        }
        match (&self.others, &self.cell) {
            (Some(others), _) => others.generations(),
            (None, Some(cell)) => {
                let dir = cell.task_dir(self.data_task).map_err(TaskError::Sandbox)?;
                generations::read(&dir)
            }
            (None, None) => self.store.generations(),
        }
    }

    fn image_worker(
        &self,
        images: &Images,
        index: u32,
    ) -> Result<DeepWorker<ImageQueue>, TaskError> {
        let access = match self.job.pattern.direction.writes() {
            true => ImageAccess::Write,
            false => ImageAccess::Read,
        };
        DeepWorker::open(self, index, |depth, bs, pool| {
            let image = images.open(index, access)?;
            let queue = ImageQueue::new(image, depth, bs, pool);
            queue.map_err(|error| TaskError::io("allocate buffers", error))
        })
    }

    fn note_buffers(&self, buffers: Buffers) {
        if buffers == Buffers::Plain {
            self.unpinned.store(true, Ordering::Relaxed);
        }
    }
}

impl Load for IoLoad {
    fn issue(&self) -> Issue {
        Issue {
            depth: match self.way {
                Submission::Ring | Submission::Image => self.job.queue_depth(),
                Submission::OneByOne | Submission::Memory | Submission::Threads(..) => 0,
            },
            shards: self.shards(),
            rings: self.way == Submission::Ring,
            ..Issue::default()
        }
    }

    fn library_cpu(&self) -> Option<CpuTime> {
        self.data().library_cpu()
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        match &self.way {
            Submission::Threads(shards, why) => notes.push(Note {
                kind: EventKind::EngineFallback,
                message: format!("io_uring is replaced by {shards} threads per file: {why}"),
            }),
            Submission::Memory => notes.push(Note {
                kind: EventKind::EnginePsync,
                message: format!(
                    "the target is in the host's memory and never waits: one pread or pwrite at a time instead of {} in \
                     flight; ioengine = \"io_uring\" keeps them",
                    self.job.depth
                ),
            }),
            Submission::OneByOne | Submission::Ring | Submission::Image => {}
        }
        if self.unpinned.load(Ordering::Relaxed) {
            notes.push(Note {
                kind: EventKind::BuffersUnregistered,
                message: "io_uring runs without registered buffers, each operation pins its own: more memory may have \
                          to be locked (`ulimit -l`)"
                    .to_owned(),
            });
        }
        notes
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        layout::prepare(self, control)?;
        self.open_generations()
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let job = &self.job;
        if let Store::Images(images) = self.data() {
            return Ok(Box::new(self.image_worker(images, index)?));
        }
        Ok(match (&self.way, job.stdio) {
            (Submission::Ring, _) => Box::new(DeepWorker::open(self, index, |depth, bs, pool| {
                let file = file::open(job, self.data(), index)?;
                let ring = Ring::open(file, depth, bs, pool)?;
                self.note_buffers(ring.buffers());
                Ok(ring)
            })?),
            (_, Some(spec)) => Box::new(IoWorker::open(self, index, |file| {
                Stdio::new(spec, job, file)
            })?),
            (_, None) => Box::new(IoWorker::open(self, index, |file| Psync::new(job, file))?),
        })
    }

    fn path_of(&self, worker: u32, _file: u64) -> Option<String> {
        let owner = worker / self.shards().max(1);
        Some(self.data().path(owner).display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let direction = self.job.pattern.direction;
        let is_through = self.progress.through() >= self.workers();
        if direction == Direction::WriteNew {
            if is_through {
                // If this fails, the data is laid out again, which is harmless.
                let _ = self.store.all_laid();
            }
            if self.progress.gapless() >= self.workers() {
                // If the marker stays, more is laid out than necessary, which is harmless.
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
        // The engine `stdio` writes blocks of another size than other modes read.
        match self.progress.sound() >= self.workers() && self.job.stdio.is_none() {
            true => self.store.set_generations(known),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
