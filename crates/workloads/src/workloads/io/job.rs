//! A task of `io` from its parameters, without its target, and the checks that refuse invalid ones.

use super::keys::{Engine, Fallback, FilePer, IoKeys, Ranges, STDIO, STREAMS, SyncKind};
use super::sequence::{BlockOrder, Direction, Pattern};
use super::sizes::Sizes;
use super::stdio_spec::StdioSpec;
use super::zipf::Distribution;
use crate::engine::author::*;

/// Larger than any device or protocol takes at once, and small enough to hold one block per worker in memory.
const MAX_BS: u64 = 1 << 30;
/// Workers of a task; `numjobs` has the same bound.
const MAX_WORKERS: u32 = 4096;
/// Buffers of one worker. A typing error must not use up a host's memory.
const MAX_BUFFERS: u64 = 4 << 30;
/// Smallest alignment that direct I/O needs anywhere.
pub(super) const SECTOR: u64 = 512;
/// The default of bonnie++.
const DEFAULT_SEEKS: u64 = 8000;
/// The default of iozone.
const DEFAULT_STRIDE_BLOCKS: u64 = 17;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct IoJob {
    pub pattern: Pattern,
    pub workers: u32,
    pub file_per: FilePer,
    pub ranges: Ranges,
    /// Reading modes read the data of task `index + reorder_tasks`, modulo the number of tasks.
    pub reorder_tasks: u32,
    /// Operations in flight per worker.
    pub depth: u32,
    pub engine: Engine,
    /// Set in the modes of the engine `stdio`.
    pub stdio: Option<StdioSpec>,
    /// The plan does not name the engine.
    pub engine_by_default: bool,
    pub fallback: Fallback,
    pub direct: bool,
    pub timing: Timing,
    pub sync: SyncKind,
    /// An fsync after this number of writes; 0: never.
    pub fsync_every: u64,
    pub end_fsync: bool,
    pub seed: u64,
    pub data: DataSpec,
}

impl IoJob {
    pub(super) fn of(mode: &str, keys: &IoKeys) -> Result<IoJob, ParamError> {
        let data = DataSpec::new(&keys.data, keys.verify)?;
        let stdio = StdioSpec::of(mode, keys)?;
        let sizes = match &stdio {
            Some(stdio) => Sizes::one(stdio.operation_bytes),
            None => sizes(keys)?,
        };
        let pattern = pattern(mode, keys, sizes)?;
        let job = IoJob {
            pattern,
            workers: keys.numjobs,
            file_per: keys.file_per,
            ranges: keys.ranges,
            reorder_tasks: match direction(mode, keys) {
                Direction::Read => keys.reorder_tasks,
                _ => 0,
            },
            depth: keys.iodepth,
            engine: keys.engine(mode),
            stdio,
            engine_by_default: keys.ioengine.is_none(),
            fallback: keys.fallback,
            direct: keys.direct,
            timing: Timing::of(keys.ramp.ramp_time, keys.runtime)?,
            sync: keys.sync,
            fsync_every: keys.fsync,
            end_fsync: keys.end_fsync,
            seed: keys.randseed,
            data,
        };
        job.check_engine(mode)?;
        job.check_ranges()?;
        job.check_verify()?;
        job.check_depth()?;
        job.check_alignment(SECTOR)?;
        Ok(job)
    }

    /// The engine `stdio` and its modes require each other.
    fn check_engine(&self, mode: &str) -> Result<(), ParamError> {
        let message = match (self.engine == Engine::Stdio, self.stdio.is_some()) {
            (true, false) => format!(
                "mode `{mode}` does not use stdio, which is for {}",
                STDIO.join(", ")
            ),
            (false, true) => format!("mode `{mode}` goes through stdio; leave it out"),
            (true, true) | (false, false) => return Ok(()),
        };
        Err(ParamError::of("ioengine", message))
    }

    /// Length of each worker's file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.pattern.offset + self.pattern.region
    }

    /// The first `bytes` of a file, rounded down to whole blocks.
    pub(super) fn whole_blocks(&self, bytes: u64) -> u64 {
        let offset = self.pattern.offset;
        match bytes.checked_sub(offset) {
            Some(beyond) if beyond >= self.pattern.region => offset + self.pattern.region,
            Some(beyond) => offset + beyond - beyond % self.pattern.sizes.smallest(),
            None => bytes - bytes % SECTOR_BYTES as u64,
        }
    }

    /// Bytes that one worker moves unless the runtime ends it first.
    pub(super) fn moved_bytes(&self) -> u64 {
        let passes = self.pattern.passes.unwrap_or(1);
        let passes = self.pattern.region.saturating_mul(passes);
        self.pattern.io_size.unwrap_or(passes)
    }

    /// Bytes of the blocks in flight and of the buffers that written blocks are taken from.
    pub(super) fn worker_buffers(&self) -> u64 {
        let blocks = self
            .pattern
            .sizes
            .largest()
            .saturating_mul(self.depth.into());
        let stdio = self.stdio.map_or(0, |stdio| stdio.buffer_bytes());
        let largest = usize::try_from(blocks.saturating_add(stdio)).unwrap_or(usize::MAX);
        match blocks >= HUGE_FROM as u64 {
            true => buffers_of(largest).saturating_add(2 * HUGE_PAGE as u64),
            false => buffers_of(largest),
        }
    }

    /// Writes between two fsyncs; `u64::MAX` for none.
    pub(super) fn fsync_every(&self) -> u64 {
        match self.fsync_every {
            0 => u64::MAX,
            every => every,
        }
    }

    pub(super) fn syncs_at_end(&self) -> bool {
        self.end_fsync && self.pattern.direction.writes()
    }

    /// Slots of a queue.
    pub(super) fn queue_depth(&self) -> u16 {
        u16::try_from(self.depth).unwrap_or(u16::MAX)
    }

    /// With strided ranges, all blocks must have the same size and be contiguous.
    fn check_ranges(&self) -> Result<(), ParamError> {
        if self.file_per == FilePer::Worker || self.ranges != Ranges::Strided {
            return Ok(());
        }
        let sizes = &self.pattern.sizes;
        if self.stdio.is_some() {
            let message =
                "a stream goes through one range; use ranges = \"segmented\" or \"whole\"";
            return Err(ParamError::of("ranges", message));
        }
        let message = match (sizes.is_mix(), self.pattern.offset % sizes.smallest()) {
            (true, _) => "strided ranges take blocks of one size; use `bs` instead of `bssplit`",
            (false, 1..) => "strided ranges need an `offset` of whole blocks",
            (false, 0) => return Ok(()),
        };
        Err(ParamError::of("ranges", message))
    }

    /// Number of the task's files, and their total size in bytes.
    pub(super) fn files(&self) -> (u64, u64) {
        let workers = u64::from(self.workers);
        match (self.file_per, self.ranges) {
            (FilePer::Worker, _) => (workers, self.file_bytes().saturating_mul(workers)),
            (_, Ranges::Whole) => (1, self.file_bytes()),
            (_, _) => (1, self.file_bytes().saturating_mul(workers)),
        }
    }

    /// Blocks can be verified only if they are whole sectors, and read whole only if no other worker writes them at
    /// that moment.
    fn check_verify(&self) -> Result<(), ParamError> {
        if !self.data.verify {
            return Ok(());
        }
        let smallest = self.pattern.sizes.smallest();
        if !smallest.is_multiple_of(4096) {
            let message = format!(
                "every 4 KiB contain their position, and blocks of {} are not a multiple of 4 KiB",
                Bytes(smallest)
            );
            return Err(ParamError::of("verify", message));
        }
        if !self.pattern.offset.is_multiple_of(4096) {
            let message =
                "every 4 KiB contain their position, and `offset` is not a multiple of 4 KiB";
            return Err(ParamError::of("verify", message));
        }
        if !self.pattern.region.is_multiple_of(4096) {
            let message =
                "every 4 KiB contain their position, and `size` is not a multiple of 4 KiB";
            return Err(ParamError::of("verify", message));
        }
        let is_shared = self.file_per != FilePer::Worker && self.ranges == Ranges::Whole;
        if let (Direction::Mixed(_), true) = (self.pattern.direction, is_shared) {
            let message = "a read may overlap another worker's write of the same block; use other `ranges`, or a mode \
                           that only reads";
            return Err(ParamError::of("verify", message));
        }
        if let (Direction::Mixed(_), 2..) = (self.pattern.direction, self.depth) {
            return Err(ParamError::of(
                "verify",
                "with several operations in flight, a read may overlap a write of the same block; use iodepth = 1 for \
                 rw and randrw",
            ));
        }
        Ok(())
    }

    fn check_depth(&self) -> Result<(), ParamError> {
        if self.engine != Engine::IoUring && self.depth > 1 {
            let message = format!(
                "{} has one operation in flight per worker; use ioengine = \"io_uring\", or more numjobs",
                self.engine.as_str()
            );
            return Err(ParamError::of("iodepth", message));
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

    /// Checks that direct blocks fit a target whose offsets must be multiples of `alignment`.
    pub(super) fn check_alignment(&self, alignment: u64) -> Result<(), ParamError> {
        if !self.direct {
            return Ok(());
        }
        let unaligned = |key, bytes| {
            let message = format!(
                "direct I/O needs a multiple of {alignment} bytes, and {} is not one",
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

fn sizes(keys: &IoKeys) -> Result<Sizes, ParamError> {
    let sizes = match (&keys.bssplit, keys.bs) {
        (Some(_), Some(_)) => {
            return Err(ParamError::of("bssplit", "replaces `bs`; leave one out"));
        }
        (Some(mix), None) => mix.clone(),
        (None, _) => Sizes::one(keys.block().0),
    };
    let key = if keys.bssplit.is_some() {
        "bssplit"
    } else {
        "bs"
    };
    if let Some(bytes) = sizes.each().find(|bytes| !(1..=MAX_BS).contains(bytes)) {
        let message = format!("{} is not between 1 and {}", Bytes(bytes), Bytes(MAX_BS));
        return Err(ParamError::of(key, message));
    }
    let (size, largest) = (keys.size.0, Bytes(sizes.largest()));
    if size < largest {
        return Err(ParamError::of(
            "size",
            format!("{size} is less than one block of {largest}"),
        ));
    }
    Ok(sizes)
}

fn pattern(mode: &str, keys: &IoKeys, sizes: Sizes) -> Result<Pattern, ParamError> {
    let unit = sizes.smallest();
    let size = keys.size.0.0;
    let end = size.checked_add(keys.offset.0);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(ParamError::of("size", "no file can be that large"));
    }
    let region = match STREAMS.contains(&mode) {
        // The last operation moves the remaining bytes.
        true => size,
        false => size / unit * unit,
    };
    let order = order(mode, keys, &sizes, region)?;
    if let (Some(_), Some(_)) = (keys.loops, keys.io_size) {
        return Err(ParamError::of("io_size", "replaces `loops`; leave one out"));
    }
    let given = keys.io_size.map(|DataSize(io_size)| io_size);
    if let Some(io_size) = given.filter(|io_size| io_size.0 < unit) {
        return Err(ParamError::of(
            "io_size",
            format!("{io_size} is less than one block of {}", Bytes(unit)),
        ));
    }
    let is_limited = keys.runtime.is_some() || keys.loops.is_some() || keys.io_size.is_some();
    let io_size = match (mode, keys.seeks) {
        ("seek", Some(seeks)) => Some(Bytes(seeks.saturating_mul(unit))),
        ("seek", None) if !is_limited => Some(Bytes(DEFAULT_SEEKS * unit)),
        _ => given,
    };
    let ends_by_itself = keys.runtime.is_none() && io_size.is_none();
    Ok(Pattern {
        direction: direction(mode, keys),
        order,
        sizes,
        offset: keys.offset.0,
        region,
        passes: keys.loops.or(ends_by_itself.then_some(1)),
        io_size: io_size.map(|io_size| io_size.0 / unit * unit),
    })
}

fn direction(mode: &str, keys: &IoKeys) -> Direction {
    match mode {
        "write" | "putc" | "fwrite" => Direction::WriteNew,
        "rewrite" | "randwrite" | "recrewrite" | "frewrite" => Direction::WriteOver,
        "rw" | "randrw" => Direction::Mixed(keys.rwmixread),
        // `rmw` reads every block before it writes it.
        "rmw" => Direction::Mixed(0),
        "seek" if keys.rewrite_share > 0 => Direction::Mixed(100 - keys.rewrite_share),
        _ => Direction::Read,
    }
}

fn order(mode: &str, keys: &IoKeys, sizes: &Sizes, region: u64) -> Result<BlockOrder, ParamError> {
    if let ("strideread" | "recrewrite", true) = (mode, sizes.is_mix()) {
        let message = format!("mode `{mode}` has blocks of one size; use `bs`");
        return Err(ParamError::of("bssplit", message));
    }
    Ok(match mode {
        "backread" => BlockOrder::Backward,
        "strideread" => BlockOrder::Strided(stride_blocks(keys, sizes.smallest(), region)?),
        "recrewrite" => BlockOrder::Same,
        "seek" => BlockOrder::Drawn(Distribution::Even),
        _ if !is_random(mode) => BlockOrder::Forward,
        // With a mix of sizes, it would take a table to know which blocks have been used.
        _ => match keys.random_distribution {
            Distribution::Even if !keys.norandommap && !sizes.is_mix() => BlockOrder::EachOnce,
            drawn => BlockOrder::Drawn(drawn),
        },
    })
}

fn stride_blocks(keys: &IoKeys, bs: u64, region: u64) -> Result<u64, ParamError> {
    let Some(stride) = keys.stride else {
        if DEFAULT_STRIDE_BLOCKS >= region / bs {
            return Err(ParamError::of(
                "stride",
                format!(
                    "its default of {DEFAULT_STRIDE_BLOCKS} blocks of {} is not less than the range of {}; set a shorter one",
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
            format!("{stride} is not less than the range of {}", Bytes(region)),
        ));
    }
    Ok(stride.0 / bs)
}

pub(super) fn is_random(mode: &str) -> bool {
    matches!(mode, "randread" | "randwrite" | "randrw")
}
