//! `replay`: a list of operations, as a program was seen to do them, done again with its timing or as fast as possible.
//!
//! The list is text of our own, described in `docs/replay.md`; it stands in the plan, or in a file that the agent may
//! read. It is understood whole before anything is done: mistakes have their line. Each worker does all of it, in a
//! directory of its own, in which the files and directories that the list expects are laid out before.

mod checks;
mod expected;
mod keys;
mod list;
mod worker;

use crate::data::Content;
use crate::files::calls::{self, Durable};
use crate::files::data::Data;
use crate::files::{BLOCK_BYTES, one_mib};
use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::{Allowed, Dir, open_canonical};
use crate::side_by_side::side_by_side;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::tree::stack::{Stack, c_string, components, split};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use checks::Checks;
use expected::Expected;
use keys::{EFFECTS, KEYS, MODES, Operations, Plan};
use list::{List, MOST_LIST_BYTES};
use rustix::fs::{Mode as Permissions, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use worker::ReplayWorker;

const NAME: &str = "replay";

/// The workload.
#[derive(Debug)]
pub struct Replay;

impl Workload for Replay {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        4
    }

    fn summary(&self) -> &'static str {
        "a recorded list of operations, with its timing or as fast as possible"
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

    /// What a list expects is laid out anew for each step.
    fn warms(&self) -> bool {
        false
    }

    /// What a file of operations holds is known only on the agent.
    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = Plan::of(self.mode(mode)?, params)?;
        let workers = u64::from(plan.workers);
        let mut footprint = Footprint {
            workers: plan.workers,
            runtime: plan.timing.total(),
            ..Footprint::default()
        };
        if let Operations::Listed(list) = &plan.operations {
            footprint.files = list.names.saturating_mul(workers);
            footprint.bytes = list.space(BLOCK_BYTES).saturating_mul(workers);
            footprint.moved_bytes = list.moved.saturating_mul(workers);
        }
        Ok(footprint)
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let plan = self
            .mode(&spec.mode)
            .and_then(|mode| Plan::of(mode, &spec.params))
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            let why = "operations are replayed through the caches; use cache = \"cold\"".into();
            return Err(TaskError::Unfit { why });
        }
        if spec.cache == Cache::Warm {
            let why = "there is no pass that could warm the caches for a list of operations".into();
            return Err(TaskError::Unfit { why });
        }
        Ok(Box::new(ReplayLoad {
            plan,
            task: spec.dir()?,
            task_index: spec.task_index,
            sources: spec.sources.clone(),
            list: OnceLock::new(),
            expected: OnceLock::new(),
        }))
    }
}

struct ReplayLoad {
    plan: Plan,
    task: Dir,
    task_index: u32,
    sources: Allowed,
    list: OnceLock<Arc<List>>,
    /// What its reads find; known once prepared, where they are to be checked.
    expected: OnceLock<Arc<Expected>>,
}

impl ReplayLoad {
    fn list(&self) -> Result<Arc<List>, TaskError> {
        if let Some(list) = self.list.get() {
            return Ok(Arc::clone(list));
        }
        let list = match &self.plan.operations {
            Operations::Listed(list) => Arc::clone(list),
            Operations::From(path) => {
                let text = read(path, &self.sources)?;
                let list = List::parse(&text).map_err(|error| TaskError::Unfit {
                    why: format!("`{}`: {error}", path.display()),
                })?;
                Arc::new(list)
            }
        };
        Ok(Arc::clone(self.list.get_or_init(|| list)))
    }

    fn root(&self, worker: u32) -> Result<Dir, TaskError> {
        self.task
            .make_dir(&format!("w{worker}"))
            .map_err(TaskError::Sandbox)
    }

    fn data(&self, worker: u32, bytes: usize) -> Data {
        let own = [self.plan.seed, self.task_index.into(), worker.into()];
        Data::of(
            Content::new(self.plan.data, Random::of(&own).next_u64()),
            bytes,
        )
    }

    /// What the list expects to find.
    fn lay_out(&self, worker: u32, list: &List) -> Result<(), TaskError> {
        let root = self.root(worker)?;
        let top = root.path().to_owned();
        let mut stack = Stack::new(root);
        let mut data = self.data(worker, usize::try_from(one_mib().0).unwrap_or(1));
        let expected = list.expected.iter().enumerate();
        for (number, (path, bytes)) in expected {
            let failed = |errno: Errno| {
                let path = top.join(String::from_utf8_lossy(path).as_ref());
                TaskError::io(format!("lay out `{}`", path.display()), errno)
            };
            let (directories, last) = match bytes {
                Some(_) => split(path),
                None => (&path[..], &[][..]),
            };
            let common = stack.back_to_common(directories);
            for part in components(directories).skip(common) {
                let name = c_string(part);
                match calls::make_directory(stack.top(), &name) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                stack.step(name).map_err(failed)?;
            }
            if let Some(bytes) = bytes {
                let number = u64::try_from(number).unwrap_or(u64::MAX);
                let name = c_string(last);
                calls::create(
                    stack.top(),
                    &name,
                    number,
                    *bytes,
                    &mut data,
                    Durable::No,
                    |_| (),
                )
                .map_err(|error| failed(error.errno))?;
            }
        }
        Ok(())
    }
}

/// The text of a list that the agent may read.
fn read(path: &Path, sources: &Allowed) -> Result<String, TaskError> {
    let path = sources.permits(path).map_err(TaskError::Sandbox)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        let why = format!("`{}` is no file", path.display());
        return Err(TaskError::Unfit { why });
    };
    let failed = |error| TaskError::io(format!("read `{}`", path.display()), error);
    let parent = open_canonical(parent).map_err(TaskError::Sandbox)?;
    // A pipe must not hold us up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::openat(parent.fd(), name, flags, Permissions::empty())
        .map_err(|errno| failed(errno.into()))?;
    let mut text = String::new();
    File::from(fd)
        .take(MOST_LIST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

impl Load for ReplayLoad {
    fn workers(&self) -> u32 {
        self.plan.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let list = self.list()?;
        if self.plan.data.verify {
            let expected = Expected::of(&list, one_mib().0)?;
            self.expected.get_or_init(|| Arc::new(expected));
        }
        for name in self.task.names().map_err(TaskError::Sandbox)? {
            if name.starts_with('w') {
                let mut gone = |gone| control.progress(gone, 0, "files removed");
                let removed = self.task.remove_all(&name, &mut gone);
                removed.map_err(TaskError::Sandbox)?;
            }
        }
        let total = (u64::from(self.plan.workers), "workers");
        side_by_side(self.plan.workers, total, control, |worker, done| {
            self.lay_out(worker, &list)?;
            done.add(1)
        })?;
        self.task.sync().map_err(TaskError::Sandbox)
    }

    fn has_instants(&self) -> bool {
        self.plan.timed
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let list = self.list().ok()?;
        let line = list.lines.get(usize::try_from(file).ok()?)?;
        let root = self.task.path().join(format!("w{worker}"));
        let path = root.join(String::from_utf8_lossy(&line.path).as_ref());
        Some(path.display().to_string())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let list = self.list()?;
        let data = self.data(index, list.largest);
        Ok(Box::new(ReplayWorker::new(
            Stack::new(self.root(index)?),
            list,
            self.plan.timed,
            data,
            self.expected.get().cloned().map(Checks::new),
        )))
    }
}

#[cfg(test)]
mod tests;
