//! What the common keys mean for one task of a step.

use super::TaskSpec;
use crate::common::Common;
use crate::pacing::{Pace, Per, Schedule, Share};
use crate::params::ParamError;
use crate::workload::ModeInfo;

/// The common keys, and which of a step's tasks they are for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Conduct {
    pub common: Common,
    pub task_index: u32,
    pub tasks: u32,
}

impl Conduct {
    pub(super) fn of(spec: &TaskSpec, mode: &ModeInfo) -> Result<Conduct, ParamError> {
        let common = Common::of(&spec.params)?;
        common.check(mode)?;
        Ok(Conduct {
            common,
            task_index: spec.task_index,
            tasks: spec.tasks,
        })
    }

    /// When one worker's operations are due, where `lanes` of the workers share the rate of one; `None` when the load is
    /// not paced.
    pub(super) fn schedule(&self, worker: u32, workers: u32, lanes: u32) -> Option<Schedule> {
        let pace = self.common.pace?;
        if lanes > 1 && pace.per == Per::Worker {
            let of_one = Pace {
                per: Per::Task,
                ..pace
            };
            let share = Share {
                worker: worker % lanes,
                workers: lanes,
                task: worker / lanes,
                tasks: workers / lanes,
            };
            return Some(Schedule::new(&of_one, share));
        }
        self.common.schedule(Share {
            worker,
            workers,
            task: self.task_index,
            tasks: self.tasks,
        })
    }
}
