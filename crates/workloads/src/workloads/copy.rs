//! `copy`: copies whole files into the target, over earlier copies, and out of it again, like cp: one large file or
//! many small ones. The mode `list` lists them.
//!
//! The other side is a directory of the task's own in the agent's scratch or, with `from`, files beneath a path that
//! the agent's configuration allows to be read. A tree is copied as a tree; its directories are created before the
//! start. This module does not depend on time or on other tasks.

mod engine;
mod keys;
mod list;
mod prepared;
mod scratch;
mod tree;
mod verify;
mod worker;

pub use scratch::remove_abandoned;

use crate::engine::author::*;
use engine::{Destination, Engine, TargetSide};
use keys::{CopyKeys, CopyMode, CopyParams, CopySource, MODES};
use list::ListWorker;
use prepared::LAY_OUT_BYTES;
use prepared::Prepared;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use verify::Verifier;
use worker::{CopyWorker, OF_COPY};

const NAME: &str = "copy";

/// The workload.
pub const COPY: &dyn Workload = workload::<CopyParams>();

impl Definition for CopyParams {
    const ABOUT: About = About {
        name: NAME,
        revision: 6,
        summary: "copies of whole files into the target, over existing copies and out of it, as cp does, and listings \
                  of them",
        modes: MODES,
        bypass: Bypass::Sets {
            key: "way",
            value: "\"direct\"",
            contradiction: "conflicts with cache = \"bypass\", which sets way = \"direct\": drop one of the two",
        },
        ..About::ON_TARGET
    };
    type Keys = CopyKeys;

    fn new(mode: &'static ModeInfo, keys: CopyKeys) -> Result<Self, ParamError> {
        CopyParams::of(mode, keys)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.workers,
            timing: self.timing,
        }
    }

    /// Only the agent knows the content of `from`; it checks the space when the task is prepared.
    fn footprint(&self) -> Footprint {
        let workers = self.workers;
        match &self.source {
            CopySource::Generated {
                files, sizes, seed, ..
            } => Footprint {
                workers,
                files: *files,
                bytes: sizes.total(*seed, *files, BLOCK_BYTES),
                scratch_bytes: match self.mode {
                    CopyMode::List => 0,
                    CopyMode::In | CopyMode::Overwrite | CopyMode::Out => {
                        sizes.total(*seed, *files, BLOCK_BYTES)
                    }
                },
                moved_bytes: match self.mode {
                    CopyMode::List => 0,
                    CopyMode::In | CopyMode::Overwrite | CopyMode::Out => {
                        sizes.total(*seed, *files, 1)
                    }
                },
                // A copy that has begun is completed, which takes an unknown time.
                runtime: None,
                ..Footprint::default()
            },
            CopySource::From(_) => Footprint {
                workers,
                ..Footprint::default()
            },
        }
    }

    fn buffer_bytes(&self) -> u64 {
        buffers_of(self.unit)
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        Ok(Box::new(CopyLoad {
            others: other_task(spec, self.reorder_tasks)?,
            params: self,
            warm: spec.cache == Cache::Warm,
            task: spec.dir()?,
            task_index: spec.task_index,
            scratch: spec.scratch.clone(),
            sources: spec.sources.clone(),
            prepared: Mutex::default(),
            whole: WholePasses::default(),
        }))
    }
}

struct CopyLoad {
    params: CopyParams,
    warm: bool,
    task: Dir,
    task_index: u32,
    /// Index and directory of the task whose data are read, if it is another one.
    others: Option<(u32, Dir)>,
    scratch: Option<PathBuf>,
    sources: Allowed,
    prepared: Mutex<Option<Arc<Prepared>>>,
    whole: WholePasses,
}

impl CopyLoad {
    fn engine(&self) -> Result<Engine, TaskError> {
        let target = match self.params.mode {
            CopyMode::In | CopyMode::Overwrite => TargetSide::To,
            CopyMode::Out | CopyMode::List => TargetSide::From,
        };
        let onto = match self.params.mode {
            CopyMode::Overwrite => Destination::Existing,
            CopyMode::In | CopyMode::Out | CopyMode::List => Destination::New,
        };
        let engine = Engine::new(self.params.method, target, self.params.unit);
        let engine =
            engine.map_err(|error| TaskError::io("get memory for a worker's buffer", error))?;
        Ok(engine.onto(onto))
    }

    /// Content of the files that a task generates; `None` if the files come from `from`.
    fn content(&self, task_index: u32) -> Option<Content> {
        match &self.params.source {
            CopySource::Generated { seed, data, .. } => {
                let own = [*seed, u64::from(task_index)];
                Some(Content::new(*data, Random::of(&own).next_u64()))
            }
            CopySource::From(_) => None,
        }
    }

    fn prepared(&self) -> Result<Arc<Prepared>, TaskError> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.clone().ok_or_else(|| TaskError::Unsupported {
            why: "nothing was prepared to be copied".into(),
        })
    }
}

impl Load for CopyLoad {
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let prepared = Prepared::make(self, control)?;
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(prepared));
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let prepared = self.prepared()?;
        if self.params.mode == CopyMode::List {
            return Ok(Box::new(ListWorker::new(
                prepared,
                index,
                self.params.workers,
            )));
        }
        let engine = self.engine()?;
        let others = self.others.as_ref();
        let data_task = others.map_or(self.task_index, |(task, _)| *task);
        let verifier = self
            .params
            .verify
            .then(|| Verifier::new(self.content(data_task), LAY_OUT_BYTES));
        Ok(Box::new(CopyWorker {
            prepared,
            index,
            engine,
            durable: self.params.durable,
            verifier,
            whole: self.whole.clone(),
            from: tree::OpenDirectory::default(),
            to: tree::OpenDirectory::default(),
        }))
    }

    fn path_of(&self, _worker: u32, file: u64) -> Option<String> {
        let prepared = self.prepared().ok()?;
        let index = usize::try_from(file & !OF_COPY).ok()?;
        let entry = prepared.tree.files.get(index)?;
        let side = match (self.params.mode, file & OF_COPY) {
            (CopyMode::Out, 0) => &prepared.from,
            _ => &prepared.to,
        };
        let path = side.path().join(prepared.tree.path_of_file(entry));
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(prepared) = prepared.take() else {
            return Ok(());
        };
        let makes_all = matches!(self.params.mode, CopyMode::In | CopyMode::Overwrite);
        if makes_all && self.whole.all(self.params.workers) {
            prepared
                .state(DatasetContent::Created)
                .write_or_warn(&self.task);
        }
        prepared.remove_scratch()
    }
}

#[cfg(test)]
mod tests;
