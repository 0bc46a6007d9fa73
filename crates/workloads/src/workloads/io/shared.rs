//! One file shared by several workers: the range of each, and the check that every task of the step reaches the file.
//!
//! The terms are IOR's. A rank is a worker's number among all that share the file. Invariant: ranges of different ranks
//! never overlap, unless each is the whole file.

use super::keys::{FilePer, Ranges};
use crate::engine::author::*;
use rustix::fs::{Mode, OFlags};

pub(super) const NAME: &str = "shared.dat";
/// Marker in a task's own directory: its part of the shared file is laid out.
const LAID: &str = "state.laid";

/// Location of a worker's blocks: its block `at` is at `base + at * factor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub base: u64,
    pub factor: u64,
}

impl Placement {
    pub(super) const OWN_FILE: Placement = Placement { base: 0, factor: 1 };
}

/// A file that several workers share.
#[derive(Debug)]
pub(super) struct SharedFile {
    /// Directory of the file.
    pub dir: Dir,
    /// The task's own directory.
    pub task: Dir,
    pub per: FilePer,
    pub ranges: Ranges,
    /// Index of the task.
    pub task_index: u32,
    pub tasks: u32,
    pub workers: u32,
    /// Bytes of one rank.
    pub part: u64,
    pub block: u64,
}

impl SharedFile {
    fn rank(&self, task: u32, worker: u32) -> u64 {
        match self.per {
            FilePer::Step => u64::from(task) * u64::from(self.workers) + u64::from(worker),
            FilePer::Task | FilePer::Worker => worker.into(),
        }
    }

    fn ranks(&self) -> u64 {
        match self.per {
            FilePer::Step => u64::from(self.tasks.max(1)) * u64::from(self.workers),
            FilePer::Task | FilePer::Worker => self.workers.into(),
        }
    }

    /// Location of the blocks of a worker of `task`.
    pub(super) fn placement(&self, task: u32, worker: u32) -> Placement {
        let rank = self.rank(task, worker);
        match self.ranges {
            Ranges::Segmented => Placement {
                base: rank.saturating_mul(self.part),
                factor: 1,
            },
            Ranges::Strided => Placement {
                base: rank.saturating_mul(self.block),
                factor: self.ranks(),
            },
            Ranges::Whole => Placement::OWN_FILE,
        }
    }

    /// Start of the part that a worker lays out. The parts together cover the file; which worker lays out which one
    /// does not matter.
    pub(super) fn laid_from(&self, worker: u32) -> Option<u64> {
        let rank = self.rank(self.task_index, worker);
        match (self.ranges, rank) {
            (Ranges::Whole, 1..) => None,
            _ => Some(rank.saturating_mul(self.part)),
        }
    }

    /// Step-wide number of the file.
    pub(super) fn id(&self, task: u32) -> u64 {
        match self.per {
            FilePer::Step => u64::MAX,
            FilePer::Task | FilePer::Worker => u64::from(task) << 32 | u64::from(u32::MAX),
        }
    }

    pub(super) fn is_laid(&self) -> Result<bool, TaskError> {
        let noted = self.task.file_bytes(LAID).map_err(TaskError::Sandbox)?;
        Ok(noted.is_some())
    }

    pub(super) fn note_laid(&self) -> Result<(), TaskError> {
        touch(&self.task, LAID)
    }

    /// Truncates the file. One of the sharing workers does so before any of them writes.
    pub(super) fn empty(&self, worker: u32) -> Result<(), TaskError> {
        self.task.remove_file(LAID).map_err(TaskError::Sandbox)?;
        if self.rank(self.task_index, worker) > 0 {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let opened = self.dir.open(NAME, flags, Mode::RUSR | Mode::WUSR);
        opened.map(drop).map_err(TaskError::Sandbox)
    }

    /// Waits until every task of the step has been seen beside the file, which shows that all of them reach the same
    /// one.
    pub(super) fn await_all(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.per != FilePer::Step || self.tasks <= 1 {
            return Ok(());
        }
        let name = |task: u32| format!("here.t{task}");
        touch(&self.dir, &name(self.task_index))?;
        for task in 0..self.tasks {
            let is_there = || {
                let noted = self.dir.file_bytes(&name(task));
                Ok(noted.map_err(TaskError::Sandbox)?.map(drop))
            };
            await_other(task, control, is_there)?;
        }
        Ok(())
    }
}

fn touch(dir: &Dir, name: &str) -> Result<(), TaskError> {
    let made = dir.open(
        name,
        OFlags::WRONLY | OFlags::CREATE,
        Mode::RUSR | Mode::WUSR,
    );
    made.map(drop).map_err(TaskError::Sandbox)
}
