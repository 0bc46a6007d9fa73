//! `replay`: repeats a recorded list of operations with its timing or as fast as possible.
//!
//! The list is text in our own format (`docs/replay.md`), in the plan or in a file that the agent may read. It is
//! parsed completely before the start, and mistakes are reported with their line. Each worker executes the whole list,
//! in a directory of its own, in which the files and directories that the list expects are laid out first.

mod checks;
mod expected;
mod keys;
mod list;
mod worker;

use crate::engine::author::*;
use checks::Checks;
use expected::Expected;
use keys::{MODES, Operations, ReplayKeys, ReplayOptions};
use list::{List, MAX_LIST_BYTES};
use rustix::fs::{Mode as Permissions, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use worker::ReplayWorker;

const NAME: &str = "replay";

/// The workload.
pub const REPLAY: &dyn Workload = workload::<ReplayOptions>();

impl Definition for ReplayOptions {
    const ABOUT: About = About {
        name: NAME,
        revision: 4,
        summary: "a recorded list of operations, with its timing or as fast as possible",
        modes: MODES,
        // The files that a list expects are laid out anew for each step.
        warms: false,
        bypass: Bypass::Refused("operations are replayed through the caches; use cache = \"cold\""),
        ..About::ON_TARGET
    };
    type Keys = ReplayKeys;

    fn new(_mode: &'static ModeInfo, keys: ReplayKeys) -> Result<Self, ParamError> {
        ReplayOptions::of(keys)
    }

    fn check_common(&self, params: &Params) -> Result<(), ParamError> {
        self.check_rate(params)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.workers,
            timing: self.timing,
        }
    }

    /// Only the agent knows the content of a list in a file.
    fn footprint(&self) -> Footprint {
        let workers = u64::from(self.workers);
        let mut footprint = Footprint::of(self.threads());
        if let Operations::Listed(list) = &self.operations {
            footprint.files = list.names.saturating_mul(workers);
            footprint.bytes = list.space(BLOCK_BYTES).saturating_mul(workers);
            footprint.moved_bytes = list.moved.saturating_mul(workers);
        }
        footprint
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        Ok(Box::new(ReplayLoad {
            options: self,
            dirs: WorkerDirs::of(spec)?,
            task_index: spec.task_index,
            sources: spec.sources.clone(),
            list: OnceLock::new(),
            expected: OnceLock::new(),
        }))
    }
}

struct ReplayLoad {
    options: ReplayOptions,
    dirs: WorkerDirs,
    task_index: u32,
    sources: Allowed,
    list: OnceLock<Arc<List>>,
    /// Expected data of its reads; known once prepared, if they are verified.
    expected: OnceLock<Arc<Expected>>,
}

impl ReplayLoad {
    fn list(&self) -> Result<Arc<List>, TaskError> {
        if let Some(list) = self.list.get() {
            return Ok(Arc::clone(list));
        }
        let list = match &self.options.operations {
            Operations::Listed(list) => Arc::clone(list),
            Operations::From(path) => {
                let text = read(path, &self.sources)?;
                let list = List::parse(&text).map_err(|error| TaskError::Unsupported {
                    why: format!("`{}`: {error}", path.display()),
                })?;
                Arc::new(list)
            }
        };
        Ok(Arc::clone(self.list.get_or_init(|| list)))
    }

    fn data(&self, worker: u32, bytes: usize) -> WriteBuffer {
        let own = [self.options.seed, self.task_index.into(), worker.into()];
        WriteBuffer::of(
            Content::new(self.options.data, Random::of(&own).next_u64()),
            bytes,
        )
    }

    /// Lays out the files and directories that the list expects.
    fn lay_out(&self, worker: u32, list: &List, done: &Done<'_>) -> Result<(), TaskError> {
        let root = self.dirs.open(worker)?;
        let top = root.path().to_owned();
        let mut cursor = Cursor::new(root);
        let mut data = self.data(worker, usize::try_from(one_mib().0).unwrap_or(1));
        let expected = list.expected.iter().enumerate();
        for (number, (path, bytes)) in expected {
            let failed = |errno: Errno| {
                let path = top.join(String::from_utf8_lossy(path).as_ref());
                TaskError::io(format!("lay out `{}`", path.display()), errno)
            };
            let (directories, last) = match bytes {
                Some(_) => cursor::split(path),
                None => (&path[..], &[][..]),
            };
            let entered = cursor.go(directories, |cursor, name| {
                match calls::make_directory(cursor.dir(), &name) {
                    Ok(()) | Err(Errno::EXIST) => cursor.down(name),
                    Err(errno) => Err(errno),
                }
            });
            entered.map_err(failed)?;
            if let Some(bytes) = bytes {
                let number = u64::try_from(number).unwrap_or(u64::MAX);
                let name = cursor::c_string(last);
                calls::create(
                    cursor.dir(),
                    &name,
                    number,
                    *bytes,
                    &mut data,
                    Durable::No,
                    |_, wanted| done.next_chunk(u64::MAX, wanted),
                )
                .map_err(|error| failed(error.errno))?;
            }
        }
        Ok(())
    }
}

/// Reads a list that the agent is allowed to read.
fn read(path: &Path, sources: &Allowed) -> Result<String, TaskError> {
    let path = sources.permits(path).map_err(TaskError::Sandbox)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        let why = format!("`{}` is no file", path.display());
        return Err(TaskError::Unsupported { why });
    };
    let failed = |error| TaskError::io(format!("read `{}`", path.display()), error);
    let parent = open_canonical(parent).map_err(TaskError::Sandbox)?;
    // Opening a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::openat(parent.fd(), name, flags, Permissions::empty())
        .map_err(|errno| failed(errno.into()))?;
    let mut text = String::new();
    File::from(fd)
        .take(MAX_LIST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

impl Load for ReplayLoad {
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let list = self.list()?;
        if self.options.data.verify {
            let expected = Expected::of(&list, one_mib().0)?;
            self.expected.get_or_init(|| Arc::new(expected));
        }
        WorkerDirs::remove_from(&self.dirs.task, control)?;
        let total = (u64::from(self.options.workers), "workers");
        in_parallel(self.options.workers, total, control, |worker, done| {
            self.lay_out(worker, &list, done)?;
            done.add(1)
        })?;
        self.dirs.sync()
    }

    fn issue(&self) -> Issue {
        Issue {
            own_instants: self.options.timed,
            ..Issue::default()
        }
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let list = self.list().ok()?;
        let line = list.lines.get(usize::try_from(file).ok()?)?;
        let root = self.dirs.path(worker);
        let path = root.join(String::from_utf8_lossy(&line.path).as_ref());
        Some(path.display().to_string())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let list = self.list()?;
        let data = self.data(index, list.largest);
        Ok(Box::new(ReplayWorker::new(
            Cursor::new(self.dirs.open(index)?),
            list,
            self.options.timed,
            data,
            self.expected.get().cloned().map(Checks::new),
        )))
    }
}

#[cfg(test)]
mod tests;
