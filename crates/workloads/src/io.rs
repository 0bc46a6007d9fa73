//! `io`: blocks of one file per worker, read and written with pread and pwrite.
//!
//! Each worker owns `w<index>.dat` in its task's directory. An operation is one block; bytes are the block's. What fio
//! also has is spelled and meant as fio does it, down to the access pattern advised to the kernel.

mod blocks;
mod file;
mod keys;
mod layout;
mod worker;

use crate::op::Op;
use crate::params::{self, KeyInfo, ParamError};
use crate::sandbox::Dir;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::units::Bytes;
use crate::workload::{Data, Footprint, Load, ModeInfo, Needs, Params, Timing, Worker, Workload};
use blocks::Order;
use keys::{IoParams, KEYS, SyncKind};

const NAME: &str = "io";
/// More than any device or protocol takes at once, and few enough to hold one per worker in memory.
const MAX_BS: u64 = 1 << 30;
/// The least that direct I/O is aligned to anywhere.
const SECTOR: u64 = 512;

const FILES: Data = Data::Laid("one file of `size` bytes per worker");

const fn mode(
    name: &'static str,
    meaning: &'static str,
    needs: Data,
    ops: &'static [Op],
) -> ModeInfo {
    ModeInfo {
        name,
        meaning,
        needs,
        leaves: FILES,
        ops,
    }
}

const MODES: &[ModeInfo] = &[
    mode(
        "write",
        "a new file, block after block",
        Data::Nothing,
        &[Op::Write],
    ),
    mode(
        "rewrite",
        "the existing file, block after block",
        FILES,
        &[Op::Write],
    ),
    mode("read", "block after block", FILES, &[Op::Read]),
    mode(
        "reread",
        "block after block, of what `read` has just read",
        FILES,
        &[Op::Read],
    ),
    mode(
        "randwrite",
        "the existing file, blocks in random order",
        FILES,
        &[Op::Write],
    ),
    mode("randread", "blocks in random order", FILES, &[Op::Read]),
];

/// What a worker does to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Into a file that was not there.
    WriteNew,
    WriteOver,
    Read,
}

/// Everything about a task of `io` but where it works.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    direction: Direction,
    order: Order,
    bs: u64,
    blocks: u64,
    workers: u32,
    direct: bool,
    timing: Timing,
    sync: SyncKind,
    /// An fsync after every so many writes; 0: never.
    fsync_every: u64,
    end_fsync: bool,
    seed: u64,
}

impl Job {
    fn file_bytes(&self) -> u64 {
        self.bs * self.blocks
    }
}

/// The workload.
#[derive(Debug)]
pub struct Io;

impl Io {
    fn parse(&self, mode: &str, params: &Params) -> Result<Job, ParamError> {
        self.mode(mode)?;
        let params: IoParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        let (bs, size) = (params.bs, params.size);
        if bs.0 == 0 || bs.0 > MAX_BS {
            let most = Bytes(MAX_BS);
            return Err(ParamError::of(
                "bs",
                format!("{bs} is not between 1 and {most}"),
            ));
        }
        if size < bs {
            return Err(ParamError::of(
                "size",
                format!("{size} is less than one block of {bs}"),
            ));
        }
        if i64::try_from(size.0).is_err() {
            return Err(ParamError::of("size", "no file can be that large"));
        }
        let (direction, random) = match mode {
            "write" => (Direction::WriteNew, false),
            "rewrite" => (Direction::WriteOver, false),
            "randwrite" => (Direction::WriteOver, true),
            "randread" => (Direction::Read, true),
            _ => (Direction::Read, false),
        };
        let job = Job {
            direction,
            order: match (random, params.norandommap) {
                (false, _) => Order::Sequential,
                (true, false) => Order::EachOnce,
                (true, true) => Order::Uniform,
            },
            bs: bs.0,
            blocks: size.0 / bs.0,
            workers: params.numjobs,
            direct: params.direct,
            timing: Timing::of(params.ramp_time, params.runtime)?,
            sync: params.sync,
            fsync_every: params.fsync,
            end_fsync: params.end_fsync,
            seed: params.randseed,
        };
        job.check_alignment(SECTOR)?;
        Ok(job)
    }
}

impl Job {
    /// Whether blocks can be direct where offsets have to be multiples of `alignment`.
    fn check_alignment(&self, alignment: u64) -> Result<(), ParamError> {
        if self.direct && !self.bs.is_multiple_of(alignment) {
            let message = format!(
                "direct I/O needs a multiple of {alignment} bytes, and {} is none",
                Bytes(self.bs)
            );
            return Err(ParamError::of("bs", message));
        }
        Ok(())
    }
}

impl Workload for Io {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        1
    }

    fn summary(&self) -> &'static str {
        "blocks of one file per worker, sequential or random, with pread and pwrite"
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

    fn check(&self, mode: &str, params: &Params) -> Result<Footprint, ParamError> {
        let job = self.parse(mode, params)?;
        let bytes = job.file_bytes().saturating_mul(job.workers.into());
        Ok(Footprint {
            workers: job.workers,
            files: job.workers.into(),
            bytes,
            scratch_bytes: 0,
            moved_bytes: bytes,
            runtime: job.timing.total(),
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let mut job = self
            .parse(&spec.mode, &spec.params)
            .map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            job.direct = true;
            job.check_alignment(SECTOR).map_err(TaskError::Params)?;
        }
        Ok(Box::new(IoLoad {
            job,
            dir: spec.dir()?,
            task_index: spec.task_index,
            warm: spec.cache == Cache::Warm,
        }))
    }
}

struct IoLoad {
    job: Job,
    dir: Dir,
    task_index: u32,
    /// One unmeasured pass before the start.
    warm: bool,
}

impl Load for IoLoad {
    fn workers(&self) -> u32 {
        self.job.workers
    }

    fn timing(&self) -> Timing {
        self.job.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        layout::prepare(self, control)
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(Box::new(worker::IoWorker::open(self, index)?))
    }
}

#[cfg(test)]
mod tests;
