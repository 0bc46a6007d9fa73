//! The measured loop of `io` with one operation at a time.

use super::sequence::{Lane, Next, Sequence};
use super::{IoLoad, file};
use crate::memory::Pages;
use crate::op::Op;
use crate::random::{Random, stamp};
use crate::recorder::{ErrorFacts, OpError, Recorder};
use crate::task::TaskError;
use crate::workload::{Load, Worker};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

pub(super) struct IoWorker {
    file: OwnedFd,
    name: String,
    block: Pages,
    sequence: Sequence,
    next_stamp: u64,
    /// Writes between two fsyncs; `u64::MAX` for none.
    fsync_every: u64,
    unsynced: u64,
    end_fsync: bool,
}

impl IoWorker {
    pub(super) fn open(load: &IoLoad, index: u32) -> Result<IoWorker, TaskError> {
        let job = &load.job;
        let lanes = load.lanes();
        let (owner, lane) = (
            index / lanes,
            Lane {
                index: index % lanes,
                of: lanes,
            },
        );
        let name = file::name_of(owner);
        let bs = usize::try_from(job.pattern.sizes.largest()).unwrap_or(usize::MAX);
        let doing = || format!("get a buffer of {bs} bytes");
        let mut block = Pages::new(bs).map_err(|error| TaskError::io(doing(), error))?;
        // Threads that share a file have one sequence, and data of their own.
        let numbers = [job.seed, load.task_index.into(), owner.into(), 1];
        let mut data = Random::of(&[numbers.as_slice(), &[lane.index.into()]].concat());
        data.fill(&mut block);
        Ok(IoWorker {
            file: file::open(job, &load.dir, &name)?,
            name,
            block,
            next_stamp: data.next_u64(),
            sequence: Sequence::new(&job.pattern, lane, Random::of(&numbers)),
            fsync_every: match job.fsync_every {
                0 => u64::MAX,
                every => every,
            },
            unsynced: 0,
            end_fsync: job.pattern.direction.writes() && job.end_fsync,
        })
    }

    #[inline]
    fn act(&mut self, next: Next) -> Result<(), Errno> {
        let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
        let block = self.block.get_mut(..bytes).unwrap_or_default();
        if !next.writes {
            return file::read_block(&self.file, block, next.offset);
        }
        file::write_block(&self.file, block, next.offset)?;
        self.unsynced += 1;
        if self.unsynced >= self.fsync_every {
            self.unsynced = 0;
            rustix::fs::fsync(&self.file)?;
        }
        Ok(())
    }

    #[inline]
    fn stamp(&mut self, next: Next) {
        let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
        let block = self.block.get_mut(..bytes).unwrap_or_default();
        stamp(block, &mut self.next_stamp);
    }
}

impl Worker for IoWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        while let Some(next) = self.sequence.next() {
            let op = match next.writes {
                true => Op::Write,
                false => Op::Read,
            };
            if next.writes {
                self.stamp(next);
            }
            let Some(began) = recorder.next(op, next.bytes) else {
                break;
            };
            match self.act(next) {
                Ok(()) => recorder.end(op, began, next.bytes),
                Err(errno) => recorder.error(
                    op,
                    began,
                    &ErrorFacts {
                        errno: errno.raw_os_error(),
                        path: &self.name,
                        offset: Some(next.offset),
                    },
                )?,
            }
        }
        if self.end_fsync {
            let began = recorder.begin_as(Op::Write);
            match rustix::fs::fsync(&self.file) {
                Ok(()) => recorder.idle(),
                Err(errno) => recorder.error(
                    Op::Write,
                    began,
                    &ErrorFacts {
                        errno: errno.raw_os_error(),
                        path: &self.name,
                        offset: None,
                    },
                )?,
            }
        }
        Ok(())
    }
}
