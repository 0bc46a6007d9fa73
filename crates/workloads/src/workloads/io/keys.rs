//! The keys of `io`, as fio spells them.

use super::sizes::Sizes;
use super::zipf::Distribution;
use crate::engine::author::*;
use serde_json::{Value, json};

declare_keys! {
    #[derive(Debug)]
    pub(super) struct IoKeys {
        /// Block size; the record size of `fwrite`, `frewrite` and `fread`, and the size of each read of `seek`.
        "bs" bs: Option<Bytes> = none("4k"), min 1, max "1g",
            only "in modes with a block size: not in `putc`, `getc` and `rmw`, which use `buffer`"
            if |_, scope| !["putc", "getc", "rmw"].contains(&scope.mode);
        /// A mix of block sizes instead of `bs`, such as `4k/60:64k/40`. Sizes without a percentage share the rest.
        /// Each must be a multiple of the smallest. Random blocks are then drawn independently.
        "bssplit" bssplit: Option<Sizes> = none("one size, `bs`");
        /// Bytes of its file that each worker uses, rounded down to whole blocks (not in modes of stdio). `2 x ram`: a
        /// multiple of the largest memory among the clients' hosts, the same size for all clients.
        "size" size: DataSize = required;
        /// Offset of this range. The file is longer by it.
        "offset" offset: Bytes = 0;
        /// Workers per task, each with its own file, range or RBD image.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Scope of a file: one per worker, one shared by the workers of a task, or one shared by all tasks of the step
        /// (IOR without -F), on a file system that all of their agents mount. Not on devices or pools.
        "file-per" file_per: FilePer = "worker";
        /// Layout of the ranges of workers that share a file. `segmented`: one after the other, each of `size`.
        /// `strided`: one block of each in turn, as IOR with blocks of one transfer. `whole`: each uses the whole file
        /// of `size`, as bonnie++'s seekers do.
        "ranges" ranges: Ranges = "segmented",
            only "with file-per = \"task\" or \"step\"" if |keys, _| keys.file_per != FilePer::Worker;
        #[doc = others::REORDER_TASKS]
        "reorder-tasks" reorder_tasks: u32 = 0, max 100000, in READ_ONLY;
        /// Operations that each worker keeps in flight.
        "iodepth" iodepth: u32 = 1, min 1, max 1024;
        /// `psync`: pread and pwrite, one at a time. `io_uring`: with registered files and buffers. Without this key, a
        /// target on tmpfs uses psync at any `iodepth`, because memory never blocks and a ring would only add cost; an
        /// event records this. `stdio`: through a buffer like that of stdio, only in its modes, which use it by
        /// default. Pools have no engine and refuse this key: RBD images use librbd at any `iodepth`.
        "ioengine" ioengine: Option<Engine> = none("psync; io_uring if `iodepth` is above 1; stdio in its modes");
        /// `psync`: if the kernel refuses io_uring, `iodepth` threads per file issue the same operations with pread and
        /// pwrite; an event records this. `none`: the step fails with a remedy.
        "ioengine-fallback" fallback: Fallback = "none",
            only "with io_uring: `iodepth` above 1 or ioengine = \"io_uring\""
            if |keys, scope| keys.engine(scope.mode) == Engine::IoUring;
        /// Bypasses the page cache (O_DIRECT). RBD images do not use it, and librbd's cache is off.
        "direct" direct: bool = false;
        /// Percentage of reads.
        "rwmixread" rwmixread: u32 = 50, min 0, max 100, in MIXED;
        /// Distance between the starts of consecutive blocks: a multiple of `bs`, less than `size`.
        "stride" stride: Option<Bytes> = none("17 blocks"), in ["strideread"];
        /// `random`: uniform. `zipf:THETA`: independent draws that prefer a few blocks, scattered over the file; a
        /// larger THETA (0.01 to 10) prefers fewer blocks.
        "random_distribution" random_distribution: Distribution = "random", in RANDOM;
        /// Draws random blocks independently, instead of each block once per pass.
        "norandommap" norandommap: bool = false, in RANDOM,
            only "if each block is otherwise used once: not with a zipf distribution or a mix of block sizes, which \
                  draw blocks independently anyway"
            if |keys, _| keys.random_distribution == Distribution::Even && !keys.bssplit.as_ref().is_some_and(Sizes::is_mix);
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1;
        /// Total bytes to transfer per worker, less or more than one pass, instead of `loops`.
        "io_size" io_size: Option<DataSize> = none("`size` of each pass");
        /// Repeats passes over the file for this time. With `loops` or `io_size`, until whichever comes first.
        "runtime" runtime: Option<Span> = none("one pass over the file");
        /// Each write is on stable storage before it completes (O_SYNC, O_DSYNC).
        "sync" sync: SyncKind = "none", in WRITING,
            only "if the mode writes: not with rwmixread = 100" if |keys, scope| keys.writes_in(scope.mode);
        /// An fsync after this number of writes, timed as part of the last of them; 0: none.
        "fsync" fsync: u64 = 0, in WRITING_BLOCKS,
            only "if the mode writes: not with rwmixread = 100" if |keys, scope| keys.writes_in(scope.mode);
        /// An fsync after the last write, within the worker's time.
        "end_fsync" end_fsync: bool = false, in WRITING,
            only "if the mode writes: not with rwmixread = 100" if |keys, scope| keys.writes_in(scope.mode);
        /// Bytes of the buffer of stdio.
        "buffer" buffer: Option<Bytes> = none("4k"), min 1, max "1g", in STREAMS;
        /// Bytes that `rmw` changes in each buffer. `each`: every byte, taken and put back changed by a function call.
        /// `one`: one byte in place, as bonnie++ rewrites blocks.
        "change" change: RmwChange = "each", in ["rmw"];
        /// Seeks per worker. With `runtime`, until whichever comes first. bonnie++ does 8000 in total for all of its
        /// seekers.
        "seeks" seeks: Option<u64> = none("8000, or no limit with `runtime`"), min 1, in ["seek"];
        /// Percentage of the seeks that write the record back.
        "rewrite-share" rewrite_share: u32 = 10, min 0, max 100, in ["seek"];
        /// Seed of the random order and of the data.
        "randseed" randseed: u64 = 1;
        #[doc = data::VERIFY]
        "verify" verify: bool = false, in READING,
            only "if the mode reads: not with rwmixread = 0" if |keys, scope| keys.reads_in(scope.mode),
            because "no mode reads the data before they are removed with the cell";
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
    pub(super) enum RmwChange {
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
