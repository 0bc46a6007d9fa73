//! The keys of `io`, as fio spells them.

use super::sizes::Sizes;
use super::zipf::Distribution;
use crate::engine::author::*;
use serde_json::{Value, json};

declare_keys! {
    #[derive(Debug)]
    pub(super) struct IoKeys {
        /// Block size; bytes of a record in `fwrite`, `frewrite` and `fread`, and of what `seek` reads at each place.
        "bs" bs: Option<Bytes> = none("4k"), min 1, max "1g",
            only "where blocks have a size of their own: not in `putc`, `getc` and `rmw`, which have the `buffer`'s"
            if |_, scope| !["putc", "getc", "rmw"].contains(&scope.mode);
        /// A mix of block sizes instead of `bs`, such as `4k/60:64k/40`. Sizes without a percentage share what is left.
        /// Each is a multiple of the smallest, and random blocks are then drawn independently.
        "bssplit" bssplit: Option<Sizes> = none("one size, `bs`");
        /// What each worker works on: that much of its file, rounded down to whole blocks (not where it goes through
        /// stdio). `2 x ram`: of the memory of the client's host that has the most, for all clients alike.
        "size" size: DataSize = required;
        /// Where that begins. The file is longer by it.
        "offset" offset: Bytes = 0;
        /// Workers per task, each with a file, a range or an RBD image of its own.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Who works on the same file: each worker has its own, the workers of a task share one, or all tasks of the
        /// step do (IOR without -F), on a file system that all of their agents mount. Not on devices, nor on pools.
        "file-per" file_per: FilePer = "worker";
        /// Where the ranges of workers that share a file lie. `segmented`: one after the other, each of `size`.
        /// `strided`: a block of each in turn, as IOR with blocks of one transfer. `whole`: each works on the whole
        /// file, which is of `size`, as bonnie++'s seekers do.
        "ranges" ranges: Ranges = "segmented",
            only "with file-per = \"task\" or \"step\"" if |keys, _| keys.file_per != FilePer::Worker;
        #[doc = others::REORDER_TASKS]
        "reorder-tasks" reorder_tasks: u32 = 0, max 100000, in READ_ONLY;
        /// Operations that each worker keeps in flight.
        "iodepth" iodepth: u32 = 1, min 1, max 1024;
        /// `psync`: pread and pwrite, one after the other. `io_uring`: with registered files and buffers. Without this
        /// key a target on tmpfs has psync at any `iodepth`: memory never waits, and a ring only costs time there; an
        /// event says so. `stdio`: through a buffer as stdio has it; the modes of this engine have it without this key,
        /// and no others do. A pool has none of them: RBD images are reached through librbd at any `iodepth`.
        "ioengine" ioengine: Option<Engine> = none("psync, io_uring when `iodepth` is above 1, stdio in its modes");
        /// `psync`: where the kernel refuses io_uring, `iodepth` threads per file do the same operations with pread and
        /// pwrite, and an event says so. `none`: the step fails and says what to do.
        "ioengine-fallback" fallback: Fallback = "none",
            only "with io_uring, that is with `iodepth` above 1 or ioengine = \"io_uring\""
            if |keys, scope| keys.engine(scope.mode) == Engine::IoUring;
        /// Past the page cache (O_DIRECT). RBD images have none, and librbd's cache is off.
        "direct" direct: bool = false;
        /// Percentage of the operations that read.
        "rwmixread" rwmixread: u32 = 50, min 0, max 100, in MIXED;
        /// From the start of one block to the start of the next: a multiple of `bs`, less than `size`.
        "stride" stride: Option<Bytes> = none("17 blocks"), in ["strideread"];
        /// `random`: even. `zipf:THETA`: independent draws that hit a few blocks, spread over the file, most often; the
        /// larger THETA (0.01 to 10), the fewer.
        "random_distribution" random_distribution: Distribution = "random", in RANDOM;
        /// Random blocks are drawn independently, instead of each once per pass.
        "norandommap" norandommap: bool = false, in RANDOM,
            only "where each block would come once: not with a zipf distribution or a mix of block sizes, whose blocks are drawn independently anyway"
            if |keys, _| keys.random_distribution == Distribution::Even && !keys.bssplit.as_ref().is_some_and(Sizes::is_mix);
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1;
        /// Bytes that each worker moves in all, less than a pass or more, instead of `loops`.
        "io_size" io_size: Option<DataSize> = none("`size` of each pass");
        /// How long it runs, over the file again and again. With `loops` or `io_size`, until whichever comes first.
        "runtime" runtime: Option<Span> = none("one pass over the file");
        /// Each write reaches the storage before it ends (O_SYNC, O_DSYNC).
        "sync" sync: SyncKind = "none", in WRITING,
            only "where something is written: not with rwmixread = 100" if |keys, scope| keys.writes_in(scope.mode);
        /// An fsync after every so many writes, timed as a part of the last of them.
        "fsync" fsync: u64 = 0, in WRITING_BLOCKS,
            only "where something is written: not with rwmixread = 100" if |keys, scope| keys.writes_in(scope.mode);
        /// An fsync after the last write, within the worker's time.
        "end_fsync" end_fsync: bool = false, in WRITING,
            only "where something is written: not with rwmixread = 100" if |keys, scope| keys.writes_in(scope.mode);
        /// Bytes of the buffer, which stands for that of stdio.
        "buffer" buffer: Option<Bytes> = none("4k"), min 1, max "1g", in STREAMS;
        /// What `rmw` changes of each buffer. `each`: every byte is taken, and another one put back, by a call. `one`:
        /// one byte of it is changed in place, as bonnie++ rewrites blocks.
        "change" change: Change = "each", in ["rmw"];
        /// Places per worker. With `runtime`, until whichever comes first. bonnie++ has 8000 for all of its seekers
        /// together.
        "seeks" seeks: Option<u64> = none("8000, or no limit with `runtime`"), min 1, in ["seek"];
        /// Percentage of the places that are written back.
        "rewrite-share" rewrite_share: u32 = 10, min 0, max 100, in ["seek"];
        /// Seed of the random order and of the data.
        "randseed" randseed: u64 = 1;
        #[doc = data::VERIFY]
        "verify" verify: bool = false, in READING,
            only "where something is read: not with rwmixread = 0" if |keys, scope| keys.reads_in(scope.mode),
            because "nothing reads what it checks before the cell's data are removed";
        include ramp: RampKeys;
        include data: DataKeys;
    }
}

const DEFAULT_BS: Bytes = Bytes(4096);

const MIXED: &[&str] = &["rw", "randrw"];
const RANDOM: &[&str] = &["randwrite", "randread", "randrw"];
/// The modes of the engine `stdio`.
pub(super) const STDIO: &[&str] = &["putc", "getc", "fwrite", "frewrite", "fread", "rmw", "seek"];
/// The modes that go through the file from its beginning to its end.
pub(super) const STREAMS: &[&str] = &["putc", "getc", "fwrite", "frewrite", "fread", "rmw"];
const WRITING_BLOCKS: &[&str] = &[
    "write",
    "rewrite",
    "randwrite",
    "rw",
    "randrw",
    "recrewrite",
];
const WRITING: &[&str] = &[
    "write",
    "rewrite",
    "randwrite",
    "rw",
    "randrw",
    "recrewrite",
    "putc",
    "fwrite",
    "frewrite",
    "rmw",
    "seek",
];
const READ_ONLY: &[&str] = &[
    "read",
    "reread",
    "randread",
    "backread",
    "strideread",
    "getc",
    "fread",
];
const READING: &[&str] = &[
    "read",
    "reread",
    "randread",
    "rw",
    "randrw",
    "backread",
    "strideread",
    "getc",
    "fread",
    "rmw",
    "seek",
];

impl IoKeys {
    pub(super) fn engine(&self, mode: &str) -> Engine {
        self.ioengine.unwrap_or(match self.iodepth {
            _ if STDIO.contains(&mode) => Engine::Stdio,
            1 => Engine::Psync,
            _ => Engine::IoUring,
        })
    }

    pub(super) fn block(&self) -> Bytes {
        self.bs.unwrap_or(DEFAULT_BS)
    }

    fn writes_in(&self, mode: &str) -> bool {
        !MIXED.contains(&mode) || self.rwmixread < 100
    }

    fn reads_in(&self, mode: &str) -> bool {
        !MIXED.contains(&mode) || self.rwmixread > 0
    }
}

declare_words! {
    /// Who works on the same file.
    #[derive(PartialOrd, Ord)]
    pub(super) enum FilePer {
        Worker = "worker",
        Task = "task",
        Step = "step",
    }
}

declare_words! {
    /// Where the ranges of workers that share a file lie.
    pub(super) enum Ranges {
        Segmented = "segmented",
        Strided = "strided",
        Whole = "whole",
    }
}

declare_words! {
    /// How operations reach the kernel.
    pub(super) enum Engine {
        Psync = "psync",
        IoUring = "io_uring",
        Stdio = "stdio",
    }
}

declare_words! {
    /// What `rmw` changes of a buffer.
    pub(super) enum Change {
        Each = "each",
        One = "one",
    }
}

declare_words! {
    /// What takes the place of io_uring where the kernel refuses it.
    pub(super) enum Fallback {
        None = "none",
        Psync = "psync",
    }
}

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncKind {
    None,
    /// O_SYNC: data and all metadata.
    Sync,
    /// O_DSYNC: data and the metadata needed to find it.
    Dsync,
}

impl KeyValue for SyncKind {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "\"none\", \"sync\" or \"dsync\"",
            schema: || json!({"enum": ["none", "sync", "dsync", true, false, 1, 0]}),
        }
    }

    fn read(value: &Value) -> Result<SyncKind, String> {
        match (value.as_str(), bool::read(value)) {
            (Some("none"), _) | (None, Ok(false)) => Ok(SyncKind::None),
            (Some("sync"), _) | (None, Ok(true)) => Ok(SyncKind::Sync),
            (Some("dsync"), _) => Ok(SyncKind::Dsync),
            _ => Err(String::new()),
        }
    }
}
