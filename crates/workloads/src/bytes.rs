//! `bytes`: a file through a stdio-sized buffer, a byte or a record at a time, and random seeks, as bonnie++ and
//! iozone's fwrite and fread do it.
//!
//! The buffer and its calls are our own, one function call per byte, and no C library has a part in it. An operation is
//! a buffer's worth of bytes, or as many records as fill one: two clock readings around a single byte would measure
//! the clock. Each worker has a file of its own.

mod expected;
mod keys;
mod stream;
mod worker;

use crate::data::Generations;
use crate::files::calls::{self, Durable};
use crate::files::data::Data;
use crate::files::state::{Content, Extras, State};
use crate::files::{BLOCK_BYTES, one_mib};
use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::Dir;
use crate::side_by_side::side_by_side;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use expected::Expected;
use keys::{EFFECTS, KEYS, MODES, Mode, Plan, Writes};
use rustix::fs::{Mode as Permissions, OFlags};
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stream::Stream;
use worker::BytesWorker;

const NAME: &str = "bytes";

/// The workload.
#[derive(Debug)]
pub struct ByteStreams;

impl Workload for ByteStreams {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        4
    }

    fn summary(&self) -> &'static str {
        "a file byte by byte or in records through a small buffer, and random seeks"
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

    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = Plan::of(self.mode(mode)?, params)?;
        let workers = u64::from(plan.workers);
        let each = match plan.mode {
            // Time alone ends it.
            Mode::Seek if plan.seeks == u64::MAX => 0,
            Mode::Seek => plan.seeks.saturating_mul(plan.record_bytes()),
            _ => plan.size.saturating_mul(plan.passes.count()),
        };
        Ok(Footprint {
            workers: plan.workers,
            files: workers,
            bytes: plan
                .size
                .next_multiple_of(BLOCK_BYTES)
                .saturating_mul(workers),
            scratch_bytes: 0,
            moved_bytes: each.saturating_mul(workers),
            runtime: plan.timing.total(),
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let plan = self
            .mode(&spec.mode)
            .and_then(|mode| Plan::of(mode, &spec.params))
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            let why = "bytes through a buffer do not use O_DIRECT; use cache = \"cold\"".into();
            return Err(TaskError::Unfit { why });
        }
        Ok(Box::new(BytesLoad {
            plan,
            warm: spec.cache == Cache::Warm,
            task: spec.dir()?,
            task_index: spec.task_index,
            whole: Arc::default(),
            generations: Mutex::default(),
        }))
    }
}

struct BytesLoad {
    plan: Plan,
    warm: bool,
    task: Dir,
    task_index: u32,
    whole: Arc<AtomicU32>,
    /// What may stand in the files, once the task is prepared.
    generations: Mutex<Generations>,
}

impl BytesLoad {
    fn data(&self, bytes: usize) -> Data {
        Data::of(self.content(), bytes)
    }

    fn content(&self) -> crate::data::Content {
        crate::data::Content::new(self.plan.data, self.plan.seed)
    }

    /// The number of a worker's file among all of the step's.
    fn file_id(&self, worker: u32) -> u64 {
        u64::from(self.task_index) << 32 | u64::from(worker)
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // A pair of numbers is whole whoever panicked.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, content: Content) -> State {
        let Plan {
            workers,
            size,
            seed,
            data,
            ..
        } = &self.plan;
        State {
            shape: format!("{workers} files of {size} bytes, seed {seed}, {data:?}"),
            content,
            extras: Extras {
                generations: *self.generations(),
                ..Extras::default()
            },
            parts: Vec::new(),
        }
    }

    fn unsettle(&self) -> Result<(), TaskError> {
        let shape = self.state(Content::Unsettled).shape;
        State::unsettle(shape, &self.task).map_err(TaskError::Sandbox)
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
        let total = (size.saturating_mul(self.plan.workers.into()), "bytes");
        side_by_side(self.plan.workers, total, control, |worker, done| {
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
    fn workers(&self) -> u32 {
        self.plan.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let found = State::read(&self.task).map_err(TaskError::Sandbox)?;
        let known = found.as_ref().map(|found| found.extras.generations);
        if self.plan.mode.makes_file() {
            *self.generations() = known.unwrap_or_default().and_one_more().newest_only();
            return self.lay_out(0, control);
        }
        let wanted = self.state(Content::Created);
        let is_there = found.is_some_and(|found| {
            (found.content, found.shape) == (wanted.content, wanted.shape.clone())
        });
        match known.filter(|_| is_there) {
            Some(known) => *self.generations() = known,
            None => {
                self.lay_out(self.plan.size, control)?;
                wanted.write(&self.task).map_err(TaskError::Sandbox)?;
            }
        }
        if matches!(self.plan.writes(), Writes::Some | Writes::AllAgain) {
            let known = self.generations().and_one_more();
            *self.generations() = known;
            let announced = self.state(Content::Created).write(&self.task);
            announced.map_err(TaskError::Sandbox)?;
        }
        if self.warm {
            let total = (u64::from(self.plan.workers), "files");
            side_by_side(self.plan.workers, total, control, |worker, done| {
                let mut buffer = vec![1; usize::try_from(one_mib().0).unwrap_or(1)];
                let read = calls::read(
                    self.task.fd(),
                    &name_of(worker),
                    self.plan.size,
                    &mut buffer,
                    |_| (),
                );
                read.map_err(|error| TaskError::io("warm the caches", error.errno))?;
                done.add(1)
            })?;
        }
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let name = format!("w{index}");
        let flags = OFlags::RDWR | OFlags::NOFOLLOW;
        let file = self
            .task
            .open(&name, flags, Permissions::empty())
            .map_err(TaskError::Sandbox)?;
        let own = [self.plan.seed, self.task_index.into(), index.into(), 7];
        let bytes = usize::try_from(self.plan.operation_bytes()).unwrap_or(usize::MAX);
        let expected = self.plan.data.verify.then(|| Expected {
            content: self.content(),
            file: self.file_id(index),
            generations: *self.generations(),
            fresh: self.data(match self.plan.writes() {
                Writes::Some | Writes::AllAgain => bytes,
                Writes::Nothing | Writes::All => 0,
            }),
        });
        Ok(Box::new(BytesWorker {
            plan: self.plan.clone(),
            stream: Stream::new(file, self.plan.buffer),
            data: self.data(bytes),
            file: self.file_id(index),
            expected,
            random: Random::of(&own),
            path: self.task.path().join(name),
            is_whole: false,
            whole: Arc::clone(&self.whole),
        }))
    }

    fn path_of(&self, worker: u32, _file: u64) -> Option<String> {
        let path = self.task.path().join(&*name_of(worker).to_string_lossy());
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let is_whole = self.whole.load(Ordering::Acquire) >= self.workers();
        let writes_all = matches!(self.plan.writes(), Writes::All | Writes::AllAgain);
        if !writes_all || !is_whole {
            return Ok(());
        }
        let newest = self.generations().newest_only();
        *self.generations() = newest;
        if let Err(error) = self.state(Content::Created).write(&self.task) {
            // The result stands; the next mode will lay the data out again.
            tracing::warn!(%error, path = %self.task.path().display(), "the state of the data was not written");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
