//! Values of the common keys for one task of a step.

use super::{Cache, TaskSpec};
use crate::engine::common::Common;
use crate::engine::workload::ModeInfo;
use crate::measure::pacing::{Pace, Per, RateLimit, Schedule, WorkerShare};
use crate::params::ParamError;
use std::sync::Arc;

/// The common keys, and the task's position in its step.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskOptions {
    pub common: Common,
    pub task_index: u32,
    pub tasks: u32,
    /// One unmeasured pass comes before the start.
    pub warm: bool,
    /// Limits the bytes per second of all loads that share it.
    pub limit: Option<Arc<RateLimit>>,
}

impl TaskOptions {
    pub(super) fn of(spec: &TaskSpec, mode: &ModeInfo) -> Result<TaskOptions, ParamError> {
        let common = Common::of(&spec.params)?;
        common.check(mode)?;
        Ok(TaskOptions {
            common,
            task_index: spec.task_index,
            tasks: spec.tasks,
            warm: spec.cache == Cache::Warm,
            limit: spec.limit.clone(),
        })
    }

    /// The schedule of one worker, where `shards` workers share the rate of one; `None` if the load is not paced.
    pub(super) fn schedule(&self, worker: u32, workers: u32, shards: u32) -> Option<Schedule> {
        let pace = self.common.pace?;
        if shards > 1 && pace.per == Per::Worker {
            let of_one = Pace {
                per: Per::Task,
                ..pace
            };
            let share = WorkerShare {
                worker: worker % shards,
                workers: shards,
                task: worker / shards,
                tasks: workers / shards,
            };
            return Some(Schedule::new(&of_one, share));
        }
        self.common.schedule(WorkerShare {
            worker,
            workers,
            task: self.task_index,
            tasks: self.tasks,
        })
    }
}
