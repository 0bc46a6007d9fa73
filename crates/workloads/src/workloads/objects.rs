//! `objects`: writes, reads, stats and removes objects of a RADOS pool through librados, with many operations in
//! flight.
//!
//! An operation is one asynchronous call on one object; no thread waits for it. Each worker has its own objects,
//! numbered from 0. [`sequence`] chooses the next one. The task's state object ([`state`]) records what a mode has
//! left, so that the next modes find it.

mod action;
mod keys;
mod layout;
mod sequence;
mod state;
mod worker;

use crate::engine::author::*;
use action::ObjectAction;
use keys::{MODES, ObjectsKeys};
use sequence::{ObjectOrder, Sequence};
use state::ObjectsState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use worker::ObjectsWorker;

/// The workload.
pub const OBJECTS: &dyn Workload = workload::<ObjectsJob>();

/// Kind of operations of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeKind {
    Write,
    ReadInOrder,
    ReadAtRandom,
    Stat,
    Omap,
    Mix,
    Delete,
}

/// The parameters of one mode, read and checked.
#[derive(Debug, Clone)]
struct ObjectsJob {
    /// The mode's name.
    mode: &'static str,
    kind: ModeKind,
    /// Weights of its operations.
    mix: Weighted<ObjectAction>,
    object_bytes: u64,
    block: usize,
    /// Objects of each worker.
    objects: Option<u64>,
    passes: Passes,
    workers: u32,
    depth: u16,
    omap: OmapShape,
    op_timeout: Duration,
    /// The objects of task `index + reorder_tasks` are read, modulo the number of tasks.
    reorder_tasks: u32,
    seed: u64,
    data: DataSpec,
    threads: Threads,
}

impl ObjectsJob {
    /// Blocks per object; one if operations use whole objects.
    fn blocks(&self) -> u64 {
        match self.kind {
            ModeKind::Write | ModeKind::ReadInOrder | ModeKind::ReadAtRandom | ModeKind::Mix => {
                self.object_bytes / (self.block as u64).max(1)
            }
            ModeKind::Stat | ModeKind::Omap | ModeKind::Delete => 1,
        }
    }

    fn reads(&self) -> bool {
        self.mix.has(ObjectAction::Read)
    }

    fn content(&self) -> Content {
        Content::new(self.data, self.seed)
    }

    fn limits(&self) -> Limits {
        let ops = u64::from(self.depth) * u64::from(self.workers) * 2;
        Limits {
            op_timeout: self.op_timeout,
            ops,
            bytes: ops.saturating_mul(self.block as u64),
        }
    }
}

impl Definition for ObjectsJob {
    const ABOUT: About = About {
        name: "objects",
        revision: 3,
        summary: "objects of a RADOS pool through librados, with many operations in flight: write, read, stat, omap, a \
                  mix of them, delete",
        modes: MODES,
        targets: &[&targets::POOL],
        warms: false,
        rejoins: Rejoins::In(&["seq", "rand", "stat", "omap", "mix"]),
        bypass: Bypass::Refused("librados caches nothing on the client"),
        ..About::ON_TARGET
    };
    type Keys = ObjectsKeys;

    fn new(mode: &'static ModeInfo, keys: ObjectsKeys) -> Result<ObjectsJob, ParamError> {
        keys::read(mode, &keys)
    }

    fn threads(&self) -> Threads {
        self.threads
    }

    fn footprint(&self) -> Footprint {
        let objects = self
            .objects
            .unwrap_or(0)
            .saturating_mul(self.workers.into());
        let bytes = objects.saturating_mul(self.object_bytes);
        let moves = self.reads() || self.mix.has(ObjectAction::Write);
        Footprint {
            bytes,
            moved_bytes: if moves {
                bytes.saturating_mul(self.passes.count())
            } else {
                0
            },
            ..Footprint::of(self.threads)
        }
    }

    /// A buffer per operation in flight, the library's copy of it, and the source of written blocks.
    fn buffer_bytes(&self) -> u64 {
        let block = self.block as u64;
        let in_flight = block.saturating_mul(u64::from(self.depth) * 2);
        in_flight.saturating_add(buffers_of(self.block))
    }

    fn data_shape(&self) -> Option<DataShape> {
        let objects = self.objects.map(|objects| objects.to_string());
        let mut keys = vec![
            ("size", self.object_bytes.to_string()),
            (
                "objects",
                objects.unwrap_or_else(|| String::from("as written")),
            ),
            ("numjobs", self.workers.to_string()),
            ("randseed", self.seed.to_string()),
        ];
        keys.extend(self.data.shape());
        if self.data.verify {
            keys.push(("bs", self.block.to_string()));
        }
        Some(keys)
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let Some(Place::Pool(place)) = &spec.place else {
            return Err(TaskError::NoPlace {
                workload: spec.workload.clone(),
            });
        };
        let data_task = data_task(spec, self.reorder_tasks);
        let session = place.run.open(self.limits()).map_err(TaskError::Pool)?;
        Ok(Box::new(ObjectsLoad {
            whole: (0..self.workers).map(|_| AtomicU64::new(0)).collect(),
            there: (0..self.workers).map(|_| AtomicU64::new(0)).collect(),
            job: self,
            data_task,
            data_place: match data_task == spec.task_index {
                true => Arc::clone(place),
                false => Arc::new(place.of_task(data_task)),
            },
            place: Arc::clone(place),
            session,
            task_index: spec.task_index,
        }))
    }
}

struct ObjectsLoad {
    job: ObjectsJob,
    place: Arc<PoolTask>,
    session: Arc<Session>,
    task_index: u32,
    /// The task whose objects the load uses, its own or another one, and their location.
    data_task: u32,
    data_place: Arc<PoolTask>,
    /// Existing objects of each worker before the load.
    there: Arc<[AtomicU64]>,
    /// Objects that each worker has written or removed without a gap, from number 0.
    whole: Arc<[AtomicU64]>,
}

impl ObjectsLoad {
    /// Distinguishes the objects of all workers of all tasks.
    fn content_id(task: u32, worker: u32, object: u64) -> u64 {
        (u64::from(task) << 52) ^ (u64::from(worker) << 40) ^ object
    }

    /// Sequence of a worker's operations.
    fn sequence(&self, worker: u32) -> Sequence {
        let job = &self.job;
        let there = self.there.get(worker as usize);
        let there = there.map_or(0, |count| count.load(Ordering::Relaxed));
        let objects = match job.kind {
            ModeKind::Write => job.objects,
            _ => Some(job.objects.map_or(there, |wanted| wanted.min(there))),
        };
        let order = match job.kind {
            ModeKind::ReadAtRandom | ModeKind::Mix => {
                let numbers = [job.seed, self.task_index.into(), worker.into()];
                ObjectOrder::Random(Random::of(&numbers))
            }
            _ => ObjectOrder::Ascending,
        };
        let passes = match job.kind {
            // A removed object cannot be removed again.
            ModeKind::Delete => Passes::ONE,
            _ => job.passes,
        };
        Sequence::new(order, objects, job.blocks(), passes)
    }

    /// Plain values of [`ObjectsLoad::whole`] or [`ObjectsLoad::there`].
    fn counts(of: &[AtomicU64]) -> Vec<u64> {
        of.iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    fn write_state(&self, objects: Vec<u64>) -> Result<(), RadosError> {
        let state = ObjectsState {
            size: self.job.object_bytes,
            objects,
        };
        self.session
            .write(&self.place.state_name(), &state.to_bytes())
    }
}

impl Load for ObjectsLoad {
    fn issue(&self) -> Issue {
        Issue {
            depth: self.job.depth,
            ..Issue::default()
        }
    }

    fn library_cpu(&self) -> Option<CpuTime> {
        self.session.library_cpu()
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        layout::prepare(self, control)
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(Box::new(ObjectsWorker::open(self, index)?))
    }

    fn path_of(&self, worker: u32, object: u64) -> Option<String> {
        Some(format!("{}{object}", self.data_place.worker_prefix(worker)))
    }

    /// If no state is left, the next mode lays everything out again, which is harmless.
    fn finish(&self) -> Result<(), TaskError> {
        let whole = Self::counts(&self.whole);
        let _ = match self.job.kind {
            ModeKind::Write => self.write_state(whole),
            ModeKind::Delete if whole == Self::counts(&self.there) => {
                self.session.remove(&self.place.state_name())
            }
            _ => Ok(()),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
