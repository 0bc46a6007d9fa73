//! `copy`: whole files into the target and out of it again, as cp does it: one large or many small.
//!
//! The other side is a directory of the task's own in the agent's scratch, or, with `from`, files beneath a path that
//! the agent's configuration allows to be read. A tree is copied as a tree; its directories are there before the start.
//! Nothing is known here of time or of other tasks.

mod engine;
mod keys;
mod prepared;
mod scratch;
mod tree;
mod verify;
mod worker;

pub use scratch::remove_abandoned;

use crate::data::Content as DataContent;
use crate::files::BLOCK_BYTES;
use crate::files::state::Content;
use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::random::Random;
use crate::sandbox::{Allowed, Dir};
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use engine::{Engine, TargetSide};
use keys::{EFFECTS, KEYS, MODES, Mode, Plan, Source};
use prepared::LAY_OUT_BYTES;
use prepared::Prepared;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use verify::Verifier;
use worker::{CopyWorker, OF_COPY};

const NAME: &str = "copy";
/// The workload.
#[derive(Debug)]
pub struct Copy;

impl Copy {
    fn parse(&self, mode: &str, params: &PlanParams) -> Result<Plan, ParamError> {
        Plan::of(self.mode(mode)?, params)
    }
}

impl Workload for Copy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        4
    }

    fn summary(&self) -> &'static str {
        "whole files into the target and out of it, as cp does it"
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
        Ok(format!("{:?}", self.parse(mode, params)?))
    }

    fn bypassing(&self, params: &PlanParams) -> Result<PlanParams, ParamError> {
        let mut params = params.clone();
        let given = params.insert("way".to_owned(), "direct".into());
        if given.is_some_and(|given| given != "direct") {
            let message = "is another way than that of cache = \"bypass\", which is way = \"direct\": drop one of the two";
            return Err(ParamError::of("way", message));
        }
        Ok(params)
    }

    /// What `from` holds is known only on the agent; there, space is looked at when the task is prepared.
    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = self.parse(mode, params)?;
        let workers = plan.workers;
        Ok(match plan.source {
            Source::Generated {
                files, sizes, seed, ..
            } => Footprint {
                workers,
                files,
                bytes: sizes.total(seed, files, BLOCK_BYTES),
                scratch_bytes: sizes.total(seed, files, BLOCK_BYTES),
                moved_bytes: sizes.total(seed, files, 1),
                // A copy that was begun is made to its end, and nobody knows how long one takes.
                runtime: None,
            },
            Source::From(_) => Footprint {
                workers,
                ..Footprint::default()
            },
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let params = match spec.cache {
            Cache::Bypass => self.bypassing(&spec.params),
            _ => Ok(spec.params.clone()),
        };
        let plan = params.and_then(|params| self.parse(&spec.mode, &params));
        let plan = plan.map_err(TaskError::Params)?;
        Ok(Box::new(CopyLoad {
            plan,
            warm: spec.cache == Cache::Warm,
            task: spec.dir()?,
            task_index: spec.task_index,
            scratch: spec.scratch.clone(),
            sources: spec.sources.clone(),
            prepared: Mutex::default(),
            whole: Arc::default(),
        }))
    }
}

struct CopyLoad {
    plan: Plan,
    warm: bool,
    task: Dir,
    task_index: u32,
    scratch: Option<PathBuf>,
    sources: Allowed,
    prepared: Mutex<Option<Arc<Prepared>>>,
    whole: Arc<AtomicU32>,
}

impl CopyLoad {
    fn engine(&self) -> Result<Engine, TaskError> {
        let target = match self.plan.mode {
            Mode::In => TargetSide::To,
            Mode::Out => TargetSide::From,
        };
        Engine::new(self.plan.way, target, self.plan.unit)
            .map_err(|error| TaskError::io("get memory for a worker's buffer", error))
    }

    /// What stands in the files that are made here; `None` where they come from elsewhere.
    fn content(&self) -> Option<DataContent> {
        match &self.plan.source {
            Source::Generated { seed, data, .. } => {
                let own = [*seed, u64::from(self.task_index)];
                Some(DataContent::new(*data, Random::of(&own).next_u64()))
            }
            Source::From(_) => None,
        }
    }

    fn prepared(&self) -> Result<Arc<Prepared>, TaskError> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.clone().ok_or_else(|| TaskError::Unfit {
            why: "nothing was prepared to be copied".into(),
        })
    }
}

impl Load for CopyLoad {
    fn workers(&self) -> u32 {
        self.plan.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let prepared = Prepared::make(self, control)?;
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(prepared));
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let prepared = self.prepared()?;
        let engine = self.engine()?;
        let verifier = self
            .plan
            .verify
            .then(|| Verifier::new(self.content(), LAY_OUT_BYTES));
        Ok(Box::new(CopyWorker {
            prepared,
            index,
            engine,
            durable: self.plan.durable,
            verifier,
            whole: Arc::clone(&self.whole),
            entered: None,
        }))
    }

    fn path_of(&self, _worker: u32, file: u64) -> Option<String> {
        let prepared = self.prepared().ok()?;
        let index = usize::try_from(file & !OF_COPY).ok()?;
        let entry = prepared.tree.files.get(index)?;
        let side = match (self.plan.mode, file & OF_COPY) {
            (Mode::Out, 0) => &prepared.from,
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
        let is_whole = self.whole.load(Ordering::Acquire) >= self.plan.workers;
        if self.plan.mode == Mode::In
            && is_whole
            && let Err(error) = prepared.state(Content::Created).write(&self.task)
        {
            // The result stands; the next mode will lay the data out again.
            tracing::warn!(%error, path = %self.task.path().display(), "the state of the data was not written");
        }
        prepared.remove_scratch()
    }
}

#[cfg(test)]
mod tests;
