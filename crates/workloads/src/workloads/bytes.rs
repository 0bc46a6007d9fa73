//! `bytes`: a file through a stdio-sized buffer, a byte or a record at a time, and random seeks, as bonnie++ and
//! iozone's fwrite and fread do it.
//!
//! The buffer and its calls are our own, one function call per byte, and no C library has a part in it. An operation is
//! a buffer's worth of bytes, or as many records as fill one: two clock readings around a single byte would measure
//! the clock. Each worker has a file of its own, but for the seekers, several of which may share one.

mod expected;
mod keys;
mod stream;
mod worker;

use crate::engine::author::*;
use expected::Expected;
use keys::{BytesKeys, BytesMode, BytesOptions, MODES, Writes};
use rustix::fs::{Mode as Permissions, OFlags};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stream::Stream;
use worker::BytesWorker;

const NAME: &str = "bytes";

/// The workload.
pub const BYTES: &dyn Workload = workload::<BytesOptions>();

impl Definition for BytesOptions {
    const ABOUT: About = About {
        name: NAME,
        revision: 5,
        summary: "a file byte by byte or in records through a small buffer, and random seeks",
        modes: MODES,
        bypass: Bypass::Refused("bytes through a buffer do not use O_DIRECT; use cache = \"cold\""),
        ..About::ON_TARGET
    };
    type Keys = BytesKeys;

    fn new(mode: &'static ModeInfo, keys: BytesKeys) -> Result<Self, ParamError> {
        BytesOptions::of(mode, &keys)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.workers,
            timing: self.timing,
        }
    }

    fn footprint(&self) -> Footprint {
        let (workers, files) = (u64::from(self.workers), u64::from(self.files));
        let each = match self.mode {
            // Time alone ends it.
            BytesMode::Seek if self.seeks == u64::MAX => 0,
            BytesMode::Seek => self.seeks.saturating_mul(self.record_bytes()),
            _ => self.size.saturating_mul(self.passes.count()),
        };
        Footprint {
            files,
            bytes: self
                .size
                .next_multiple_of(BLOCK_BYTES)
                .saturating_mul(files),
            moved_bytes: each.saturating_mul(workers),
            ..Footprint::of(self.threads())
        }
    }

    fn buffer_bytes(&self) -> u64 {
        buffers_of(usize::try_from(self.operation_bytes()).unwrap_or(usize::MAX))
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        Ok(Box::new(BytesLoad {
            options: self,
            task: spec.dir()?,
            task_index: spec.task_index,
            whole: WholePasses::default(),
            generations: Mutex::default(),
        }))
    }
}

struct BytesLoad {
    options: BytesOptions,
    task: Dir,
    task_index: u32,
    whole: WholePasses,
    /// What may stand in the files, once the task is prepared.
    generations: Mutex<Generations>,
}

impl BytesLoad {
    fn data(&self, bytes: usize) -> WriteBuffer {
        WriteBuffer::of(self.content(), bytes)
    }

    fn content(&self) -> Content {
        Content::new(self.options.data, self.options.seed)
    }

    /// The number of a worker's file among all of the step's.
    fn file_id(&self, worker: u32) -> u64 {
        u64::from(self.task_index) << 32 | u64::from(worker)
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // A panic elsewhere leaves the pair of numbers valid.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, content: DatasetContent) -> DatasetRecord {
        let BytesOptions {
            files,
            size,
            seed,
            data,
            ..
        } = &self.options;
        DatasetRecord {
            shape: format!("{files} files of {size} bytes, seed {seed}, {data:?}"),
            content,
            extras: Extras {
                generations: *self.generations(),
                ..Extras::default()
            },
            parts: Vec::new(),
        }
    }

    fn unsettle(&self) -> Result<(), TaskError> {
        let shape = self.state(DatasetContent::Unsettled).shape;
        DatasetRecord::unsettle(shape, &self.task).map_err(TaskError::Sandbox)
    }

    /// Every file whole, or every file empty.
    fn lay_out(&self, size: u64, control: &PrepareControl) -> Result<(), TaskError> {
        self.unsettle()?;
        for name in self.task.names().map_err(TaskError::Sandbox)? {
            if name.starts_with('w') {
                self.task.remove_file(&name).map_err(TaskError::Sandbox)?;
            }
        }
        let unit = usize::try_from(one_mib().0).unwrap_or(1);
        let total = (size.saturating_mul(self.options.files.into()), "bytes");
        in_parallel(self.options.files, total, control, |worker, done| {
            let mut data = self.data(unit);
            let name = name_of(worker);
            let failed = |errno| {
                let path = self.task.path().join(&*name.to_string_lossy());
                TaskError::io(format!("lay out `{}`", path.display()), errno)
            };
            calls::create(
                self.task.fd(),
                &name,
                self.file_id(worker),
                size,
                &mut data,
                Durable::No,
                |_| (),
            )
            .map_err(|error| failed(error.errno))?;
            done.add(size)
        })?;
        self.task.sync().map_err(TaskError::Sandbox)
    }
}

fn name_of(worker: u32) -> CString {
    CString::new(format!("w{worker}")).unwrap_or_default()
}

impl Load for BytesLoad {
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let found = DatasetRecord::read(&self.task).map_err(TaskError::Sandbox)?;
        let known = found.as_ref().map(|found| found.extras.generations);
        if self.options.mode.makes_file() {
            *self.generations() = known.unwrap_or_default().and_one_more().newest_only();
            return self.lay_out(0, control);
        }
        let wanted = self.state(DatasetContent::Created);
        let is_there = found.is_some_and(|found| {
            (found.content, found.shape) == (wanted.content, wanted.shape.clone())
        });
        match known.filter(|_| is_there) {
            Some(known) => *self.generations() = known,
            None => {
                self.lay_out(self.options.size, control)?;
                wanted.write(&self.task).map_err(TaskError::Sandbox)?;
            }
        }
        if matches!(self.options.writes(), Writes::Some | Writes::AllAgain) {
            let known = self.generations().and_one_more();
            *self.generations() = known;
            let announced = self.state(DatasetContent::Created).write(&self.task);
            announced.map_err(TaskError::Sandbox)?;
        }
        Ok(())
    }

    fn warm(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.options.mode.makes_file() {
            return Ok(());
        }
        let total = (u64::from(self.options.files), "files");
        in_parallel(self.options.files, total, control, |worker, done| {
            let mut buffer = vec![1; usize::try_from(one_mib().0).unwrap_or(1)];
            let read = calls::read(
                self.task.fd(),
                &name_of(worker),
                self.options.size,
                &mut buffer,
                |_| (),
            );
            read.map_err(|error| TaskError::io("warm the caches", error.errno))?;
            done.add(1)
        })
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let owner = index % self.options.files.max(1);
        let name = format!("w{owner}");
        let flags = OFlags::RDWR | OFlags::NOFOLLOW;
        let file = self
            .task
            .open(&name, flags, Permissions::empty())
            .map_err(TaskError::Sandbox)?;
        let own = [self.options.seed, self.task_index.into(), index.into(), 7];
        let bytes = usize::try_from(self.options.operation_bytes()).unwrap_or(usize::MAX);
        let expected = self.options.data.verify.then(|| Expected {
            content: self.content(),
            file: self.file_id(owner),
            generations: *self.generations(),
            fresh: self.data(match self.options.writes() {
                Writes::Some | Writes::AllAgain => bytes,
                Writes::Nothing | Writes::All => 0,
            }),
        });
        Ok(Box::new(BytesWorker {
            options: self.options.clone(),
            stream: Stream::new(file, self.options.buffer),
            data: self.data(bytes),
            file: self.file_id(owner),
            unchecked: match self.options.mode {
                BytesMode::Frewrite => MonoNanos::now().0,
                _ => 0,
            },
            expected,
            random: Random::of(&own),
            path: self.task.path().join(name),
            whole: self.whole.clone(),
        }))
    }

    fn path_of(&self, worker: u32, _file: u64) -> Option<String> {
        let path = self
            .task
            .path()
            .join(&*name_of(worker % self.options.files.max(1)).to_string_lossy());
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let writes_all = matches!(self.options.writes(), Writes::All | Writes::AllAgain);
        if !writes_all || !self.whole.all(self.options.workers) {
            return Ok(());
        }
        let newest = self.generations().newest_only();
        *self.generations() = newest;
        self.state(DatasetContent::Created)
            .write_or_warn(&self.task);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
