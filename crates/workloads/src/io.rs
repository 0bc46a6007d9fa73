//! `io`: blocks of one file per worker, read and written with pread and pwrite.
//!
//! Each worker owns `w<index>.dat` in its task's directory. An operation is one block; bytes are the block's. What fio
//! also has is spelled and meant as fio does it, down to the access pattern advised to the kernel.

mod blocks;
mod file;
mod layout;
mod worker;

use crate::op::Op;
use crate::params::{self, KeyInfo, ParamError};
use crate::sandbox::Dir;
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::units::{self, Bytes, Span};
use crate::workload::{Data, Footprint, Load, ModeInfo, Needs, Params, Timing, Worker, Workload};
use blocks::Order;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

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

const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> KeyInfo {
    KeyInfo {
        name,
        kind,
        default,
        meaning,
    }
}

const KEYS: &[KeyInfo] = &[
    key("bs", "size", "4k", "block size"),
    key(
        "size",
        "size",
        "has to be given",
        "size of each worker's file, rounded down to whole blocks",
    ),
    key(
        "numjobs",
        "count",
        "1",
        "workers per task, each with its own file",
    ),
    key(
        "direct",
        "true or false",
        "false",
        "past the page cache (O_DIRECT)",
    ),
    key(
        "runtime",
        "duration",
        "one pass over the file",
        "how long it runs, over the file again and again",
    ),
    key(
        "ramp_time",
        "duration",
        "none",
        "how long it runs before the results count, on top of `runtime`",
    ),
    key(
        "sync",
        "none, sync or dsync",
        "none",
        "each write reaches the storage before it ends (O_SYNC, O_DSYNC)",
    ),
    key(
        "fsync",
        "count",
        "0",
        "an fsync after every so many writes, timed as a part of the last of them",
    ),
    key(
        "end_fsync",
        "true or false",
        "false",
        "an fsync after the last write, within the worker's time",
    ),
    key(
        "norandommap",
        "true or false",
        "false",
        "random blocks are drawn uniformly, instead of each once per pass",
    ),
    key(
        "randseed",
        "number",
        "1",
        "seed of the random order and of the data",
    ),
];

#[derive(Debug, serde::Deserialize)]
struct IoParams {
    #[serde(default = "default_bs")]
    bs: Bytes,
    size: Bytes,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default, deserialize_with = "units::flag")]
    direct: bool,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
    #[serde(default)]
    sync: SyncKind,
    #[serde(default)]
    fsync: u64,
    #[serde(default, deserialize_with = "units::flag")]
    end_fsync: bool,
    #[serde(default, deserialize_with = "units::flag")]
    norandommap: bool,
    #[serde(default = "one_seed")]
    randseed: u64,
}

fn default_bs() -> Bytes {
    Bytes(4096)
}

fn one() -> u32 {
    1
}

fn one_seed() -> u64 {
    1
}

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SyncKind {
    #[default]
    None,
    /// O_SYNC: data and all metadata.
    Sync,
    /// O_DSYNC: data and what is needed to find them.
    Dsync,
}

impl<'de> Deserialize<'de> for SyncKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SyncKind, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(false) => Ok(SyncKind::None),
            Value::Bool(true) => Ok(SyncKind::Sync),
            Value::Number(number) if number.as_u64() == Some(0) => Ok(SyncKind::None),
            Value::Number(number) if number.as_u64() == Some(1) => Ok(SyncKind::Sync),
            Value::String(text) if text == "none" => Ok(SyncKind::None),
            Value::String(text) if text == "sync" => Ok(SyncKind::Sync),
            Value::String(text) if text == "dsync" => Ok(SyncKind::Dsync),
            other => Err(D::Error::custom(format!(
                "{other} is not one of \"none\", \"sync\", \"dsync\""
            ))),
        }
    }
}

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
