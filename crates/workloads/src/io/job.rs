//! A task of `io` from its parameters: everything about it but where it works, and why it may not be.

use super::NAME;
use super::keys::{Engine, Fallback, IoParams, KEYS, SyncKind};
use super::sequence::{Direction, Order, Pattern};
use super::sizes::Sizes;
use super::zipf::Distribution;
use crate::data::{DataSpec, SECTOR_BYTES};
use crate::params::{self, MAX_WORKERS, ParamError};
use crate::units::Bytes;
use crate::workload::{Params, Timing};

/// More than any device or protocol takes at once, and few enough to hold one per worker in memory.
const MAX_BS: u64 = 1 << 30;
/// As deep as queues of devices are, and as fio's users go.
const MAX_DEPTH: u32 = 1024;
/// Buffers of one worker. A typing error must not take all of a host's memory.
const MAX_BUFFERS: u64 = 4 << 30;
/// The least that direct I/O is aligned to anywhere.
pub(super) const SECTOR: u64 = 512;
/// iozone's.
const DEFAULT_STRIDE_BLOCKS: u64 = 17;
const DEFAULT_RWMIXREAD: u32 = 50;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub pattern: Pattern,
    /// Each with its own file.
    pub workers: u32,
    /// Operations in flight per worker.
    pub depth: u32,
    pub engine: Engine,
    pub fallback: Fallback,
    pub direct: bool,
    pub timing: Timing,
    pub sync: SyncKind,
    /// An fsync after every so many writes; 0: never.
    pub fsync_every: u64,
    pub end_fsync: bool,
    pub seed: u64,
    pub data: DataSpec,
}

impl Job {
    pub(super) fn parse(mode: &str, params: &Params) -> Result<Job, ParamError> {
        let data = DataSpec::of(params)?;
        let params: IoParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        let sizes = sizes(&params)?;
        let pattern = pattern(mode, &params, sizes)?;
        let job = Job {
            pattern,
            workers: params.numjobs,
            depth: params.iodepth,
            engine: engine(&params)?,
            fallback: params.fallback.unwrap_or_default(),
            direct: params.direct,
            timing: Timing::of(params.ramp_time, params.runtime)?,
            sync: params.sync,
            fsync_every: params.fsync,
            end_fsync: params.end_fsync,
            seed: params.randseed,
            data,
        };
        job.check_verify()?;
        job.check_depth()?;
        job.check_alignment(SECTOR)?;
        Ok(job)
    }

    /// How long each worker's file is.
    pub(super) fn file_bytes(&self) -> u64 {
        self.pattern.offset + self.pattern.region
    }

    /// The first `bytes` of a file without a block at their end that is not whole.
    pub(super) fn whole_blocks(&self, bytes: u64) -> u64 {
        let offset = self.pattern.offset;
        match bytes.checked_sub(offset) {
            Some(beyond) => {
                let beyond = beyond.min(self.pattern.region);
                offset + beyond - beyond % self.pattern.sizes.smallest()
            }
            None => bytes - bytes % SECTOR_BYTES as u64,
        }
    }

    /// What one worker moves, when no time ends it before.
    pub(super) fn moved_bytes(&self) -> u64 {
        let passes = self.pattern.passes.unwrap_or(1);
        let passes = self.pattern.region.saturating_mul(passes);
        self.pattern.io_size.unwrap_or(passes)
    }

    /// Writes between two fsyncs; beyond all numbers for none.
    pub(super) fn fsync_every(&self) -> u64 {
        match self.fsync_every {
            0 => u64::MAX,
            every => every,
        }
    }

    /// For a ring's slots.
    pub(super) fn depth_of_ring(&self) -> u16 {
        u16::try_from(self.depth).unwrap_or(u16::MAX)
    }

    /// Blocks can be told apart by what stands in them only where they are whole sectors, and only one that nobody writes
    /// at that moment can be read whole.
    fn check_verify(&self) -> Result<(), ParamError> {
        if !self.data.verify {
            return Ok(());
        }
        let smallest = self.pattern.sizes.smallest();
        if !smallest.is_multiple_of(4096) {
            let message = format!(
                "every 4 KiB know their place, and blocks of {} are no multiple of that",
                Bytes(smallest)
            );
            return Err(ParamError::of("verify", message));
        }
        if !self.pattern.offset.is_multiple_of(4096) {
            let message = "every 4 KiB know their place, and `offset` is no multiple of that";
            return Err(ParamError::of("verify", message));
        }
        if let (Direction::Mixed(_), 2..) = (self.pattern.direction, self.depth) {
            return Err(ParamError::of(
                "verify",
                "with several in flight a read may meet a write of the same block; use iodepth = 1 for rw and randrw",
            ));
        }
        Ok(())
    }

    fn check_depth(&self) -> Result<(), ParamError> {
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            let message = format!("{} is not between 1 and {MAX_DEPTH}", self.depth);
            return Err(ParamError::of("iodepth", message));
        }
        if self.engine == Engine::Psync && self.depth > 1 {
            return Err(ParamError::of(
                "iodepth",
                "psync has one operation in flight per worker; use ioengine = \"io_uring\", or more numjobs",
            ));
        }
        let buffers = self
            .pattern
            .sizes
            .largest()
            .saturating_mul(self.depth.into());
        if self.depth > 1 && buffers > MAX_BUFFERS {
            return Err(ParamError::of(
                "iodepth",
                format!(
                    "{} blocks of {} are {} of buffers per worker; at most {}",
                    self.depth,
                    Bytes(self.pattern.sizes.largest()),
                    Bytes(buffers),
                    Bytes(MAX_BUFFERS)
                ),
            ));
        }
        let threads = self.workers.saturating_mul(self.depth);
        if self.fallback == Fallback::Psync && threads > MAX_WORKERS {
            return Err(ParamError::of(
                "ioengine-fallback",
                format!(
                    "{} workers with {} threads each are more than the {MAX_WORKERS} that a task can have",
                    self.workers, self.depth
                ),
            ));
        }
        Ok(())
    }

    /// Whether blocks can be direct where offsets have to be multiples of `alignment`.
    pub(super) fn check_alignment(&self, alignment: u64) -> Result<(), ParamError> {
        if !self.direct {
            return Ok(());
        }
        let unaligned = |key, bytes| {
            let message = format!(
                "direct I/O needs a multiple of {alignment} bytes, and {} is none",
                Bytes(bytes)
            );
            Err(ParamError::of(key, message))
        };
        let smallest = self.pattern.sizes.smallest();
        if !smallest.is_multiple_of(alignment) {
            let key = match self.pattern.sizes.is_mix() {
                true => "bssplit",
                false => "bs",
            };
            return unaligned(key, smallest);
        }
        if !self.pattern.offset.is_multiple_of(alignment) {
            return unaligned("offset", self.pattern.offset);
        }
        Ok(())
    }
}

fn sizes(params: &IoParams) -> Result<Sizes, ParamError> {
    let sizes = match (&params.bssplit, params.bs) {
        (Some(_), Some(_)) => {
            return Err(ParamError::of(
                "bssplit",
                "takes the place of `bs`; leave one out",
            ));
        }
        (Some(mix), None) => mix.clone(),
        (None, bs) => Sizes::one(bs.unwrap_or(Bytes(4096)).0),
    };
    let key = if params.bssplit.is_some() {
        "bssplit"
    } else {
        "bs"
    };
    if let Some(bytes) = sizes.each().find(|bytes| !(1..=MAX_BS).contains(bytes)) {
        let message = format!("{} is not between 1 and {}", Bytes(bytes), Bytes(MAX_BS));
        return Err(ParamError::of(key, message));
    }
    let (size, largest) = (params.size, Bytes(sizes.largest()));
    if size < largest {
        return Err(ParamError::of(
            "size",
            format!("{size} is less than one block of {largest}"),
        ));
    }
    Ok(sizes)
}

fn pattern(mode: &str, params: &IoParams, sizes: Sizes) -> Result<Pattern, ParamError> {
    let unit = sizes.smallest();
    let end = params.size.0.checked_add(params.offset.0);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(ParamError::of("size", "no file can be that large"));
    }
    let region = params.size.0 / unit * unit;
    let order = order(mode, params, &sizes, region)?;
    if params.loops == Some(0) {
        return Err(ParamError::of("loops", "must be at least 1"));
    }
    if let (Some(_), Some(_)) = (params.loops, params.io_size) {
        return Err(ParamError::of(
            "io_size",
            "takes the place of `loops`; leave one out",
        ));
    }
    if let Some(io_size) = params.io_size.filter(|io_size| io_size.0 < unit) {
        return Err(ParamError::of(
            "io_size",
            format!("{io_size} is less than one block of {}", Bytes(unit)),
        ));
    }
    let ends_by_itself = params.runtime.is_none() && params.io_size.is_none();
    Ok(Pattern {
        direction: direction(mode, params)?,
        order,
        sizes,
        offset: params.offset.0,
        region,
        passes: params.loops.or(ends_by_itself.then_some(1)),
        io_size: params.io_size.map(|io_size| io_size.0 / unit * unit),
    })
}

fn direction(mode: &str, params: &IoParams) -> Result<Direction, ParamError> {
    let percent = params.rwmixread.unwrap_or(DEFAULT_RWMIXREAD);
    if percent > 100 {
        let message = format!("{percent} is not between 0 and 100");
        return Err(ParamError::of("rwmixread", message));
    }
    Ok(match mode {
        "write" => Direction::WriteNew,
        "rewrite" | "randwrite" | "recrewrite" => Direction::WriteOver,
        "rw" | "randrw" => Direction::Mixed(percent),
        _ => Direction::Read,
    })
}

fn order(mode: &str, params: &IoParams, sizes: &Sizes, region: u64) -> Result<Order, ParamError> {
    if let ("strideread" | "recrewrite", true) = (mode, sizes.is_mix()) {
        let message = format!("mode `{mode}` has blocks of one size; use `bs`");
        return Err(ParamError::of("bssplit", message));
    }
    Ok(match mode {
        "backread" => Order::Backward,
        "strideread" => Order::Strided(stride_blocks(params, sizes.smallest(), region)?),
        "recrewrite" => Order::Same,
        _ if !is_random(mode) => Order::Forward,
        // Which blocks of a mix have come already would take a table to know.
        _ => match params.random_distribution {
            Distribution::Even if !params.norandommap && !sizes.is_mix() => Order::EachOnce,
            drawn => Order::Drawn(drawn),
        },
    })
}

fn stride_blocks(params: &IoParams, bs: u64, region: u64) -> Result<u64, ParamError> {
    let Some(stride) = params.stride else {
        if DEFAULT_STRIDE_BLOCKS >= region / bs {
            return Err(ParamError::of(
                "stride",
                format!(
                    "its default of {DEFAULT_STRIDE_BLOCKS} blocks of {} leads past the end of {} at once; set a shorter one",
                    Bytes(bs),
                    Bytes(region)
                ),
            ));
        }
        return Ok(DEFAULT_STRIDE_BLOCKS);
    };
    if stride.0 < 2 * bs || !stride.0.is_multiple_of(bs) {
        return Err(ParamError::of(
            "stride",
            format!("{stride} is not two or more whole blocks of {}", Bytes(bs)),
        ));
    }
    if stride.0 >= region {
        return Err(ParamError::of(
            "stride",
            format!("{stride} leads past the end of {} at once", Bytes(region)),
        ));
    }
    Ok(stride.0 / bs)
}

fn engine(params: &IoParams) -> Result<Engine, ParamError> {
    let engine = params.ioengine.unwrap_or(match params.iodepth {
        1 => Engine::Psync,
        _ => Engine::IoUring,
    });
    if params.fallback.is_some() && params.ioengine == Some(Engine::Psync) {
        let message = "means nothing with ioengine = \"psync\"";
        return Err(ParamError::of("ioengine-fallback", message));
    }
    Ok(engine)
}

pub(super) fn is_random(mode: &str) -> bool {
    matches!(mode, "randread" | "randwrite" | "randrw")
}
