//! The measured loop of `io`.

use super::blocks::Blocks;
use super::{Direction, IoLoad, file};
use crate::memory::Pages;
use crate::op::Op;
use crate::random::{Random, stamp};
use crate::recorder::{ErrorFacts, OpError, Recorder};
use crate::task::TaskError;
use crate::workload::Worker;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

pub(super) struct IoWorker {
    file: OwnedFd,
    name: String,
    op: Op,
    block: Pages,
    blocks: Blocks,
    bs: u64,
    next_stamp: u64,
    /// Writes between two fsyncs; `u64::MAX` for none.
    fsync_every: u64,
    unsynced: u64,
    end_fsync: bool,
}

impl IoWorker {
    pub(super) fn open(load: &IoLoad, index: u32) -> Result<IoWorker, TaskError> {
        let job = &load.job;
        let name = file::name_of(index);
        let bs = usize::try_from(job.bs).unwrap_or(usize::MAX);
        let doing = || format!("get a buffer of {bs} bytes");
        let mut block = Pages::new(bs).map_err(|error| TaskError::io(doing(), error))?;
        let numbers = [job.seed, load.task_index.into(), index.into(), 1];
        let mut random = Random::of(&numbers);
        random.fill(&mut block);
        let writes = job.direction != Direction::Read;
        Ok(IoWorker {
            file: file::open(job, &load.dir, &name)?,
            name,
            op: if writes { Op::Write } else { Op::Read },
            block,
            next_stamp: random.next_u64(),
            blocks: Blocks::new(job.order, job.blocks, random),
            bs: job.bs,
            fsync_every: match job.fsync_every {
                0 => u64::MAX,
                every => every,
            },
            unsynced: 0,
            end_fsync: writes && job.end_fsync,
        })
    }

    #[inline]
    fn write(&mut self, offset: u64) -> Result<(), Errno> {
        file::write_block(&self.file, &self.block, offset)?;
        self.unsynced += 1;
        if self.unsynced >= self.fsync_every {
            self.unsynced = 0;
            rustix::fs::fsync(&self.file)?;
        }
        Ok(())
    }
}

impl Worker for IoWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        while !recorder.should_stop() {
            let Some(number) = self.blocks.next_of_pass() else {
                if recorder.is_timed() {
                    continue;
                }
                break;
            };
            let offset = number * self.bs;
            if self.op == Op::Write {
                stamp(&mut self.block, &mut self.next_stamp);
            }
            let Some(began) = recorder.next(self.op, self.bs) else {
                break;
            };
            let outcome = match self.op {
                Op::Write => self.write(offset),
                _ => file::read_block(&self.file, &mut self.block, offset),
            };
            match outcome {
                Ok(()) => recorder.end(self.op, began, self.bs),
                Err(errno) => recorder.error(
                    self.op,
                    began,
                    &ErrorFacts {
                        errno: errno.raw_os_error(),
                        path: &self.name,
                        offset: Some(offset),
                    },
                )?,
            }
        }
        if self.end_fsync {
            let began = recorder.begin();
            match rustix::fs::fsync(&self.file) {
                Ok(()) => recorder.idle(),
                Err(errno) => recorder.error(
                    self.op,
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
