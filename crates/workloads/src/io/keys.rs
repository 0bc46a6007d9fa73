//! The keys of `io`, as fio spells them.

use super::sizes::Sizes;
use super::zipf::Distribution;
use crate::common;
use crate::data;
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo};
use crate::passes;
use crate::units::{self, Bytes, Span};
use crate::workload::Params;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

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

pub(super) const KEYS: &[KeyInfo] = &params::join::<
    { OWN_KEYS.len() + data::KEYS.len() + common::KEYS.len() },
>(&[OWN_KEYS, data::KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    key("bs", "size", "4k", "block size"),
    key(
        "bssplit",
        "sizes with percentages",
        "one size, `bs`",
        "a mix of block sizes instead of `bs`, such as `4k/60:64k/40`; sizes without a percentage share what is left; \
         each is a multiple of the smallest, and random blocks are then drawn independently",
    ),
    key(
        "size",
        "size",
        "has to be given",
        "what each worker works on: that much of its file, rounded down to whole blocks",
    ),
    key(
        "offset",
        "size",
        "0",
        "where that begins; the file is as much longer",
    ),
    key(
        "numjobs",
        "count",
        "1",
        "workers per task, each with its own file",
    ),
    key(
        "iodepth",
        "count",
        "1",
        "operations that each worker keeps in flight, 1 to 1024",
    ),
    key(
        "ioengine",
        "psync or io_uring",
        "psync, and io_uring when `iodepth` is above 1",
        "pread and pwrite, one after the other; or io_uring, with registered files and buffers",
    ),
    key(
        "ioengine-fallback",
        "none or psync",
        "none",
        "psync: where the kernel refuses io_uring, `iodepth` threads per file do the same operations with pread and \
         pwrite, and an event says so; none: the step fails and says what to do",
    ),
    key(
        "direct",
        "true or false",
        "false",
        "past the page cache (O_DIRECT)",
    ),
    key(
        "rwmixread",
        "percent",
        "50",
        "the share of operations that read",
    ),
    key(
        "stride",
        "size",
        "17 blocks",
        "from the start of one block to the start of the next, a multiple of `bs` and less than `size`",
    ),
    key(
        "random_distribution",
        "random or zipf:THETA",
        "random",
        "even, or independent draws of which few blocks get most, spread over the file; the larger THETA \
         (0.01 to 10), the fewer",
    ),
    key(
        "norandommap",
        "true or false",
        "false",
        "random blocks are drawn independently, instead of each once per pass",
    ),
    passes::LOOPS,
    key(
        "io_size",
        "size",
        "`size` of each pass",
        "bytes that each worker moves in all, less than a pass or more, instead of `loops`",
    ),
    key(
        "runtime",
        "duration",
        "one pass over the file",
        "how long it runs, over the file again and again; with `loops` or `io_size`, until what comes first",
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
        "randseed",
        "number",
        "1",
        "seed of the random order and of the data",
    ),
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::only(
        "ioengine-fallback",
        "with io_uring, that is with `iodepth` above 1 or ioengine = \"io_uring\"",
        |_, params| {
            let given = params.get("ioengine").and_then(Value::as_str);
            let depth = params.get("iodepth").and_then(Value::as_u64);
            given.map_or(depth > Some(1), |engine| engine == "io_uring")
        },
    ),
    Effect::in_modes("rwmixread", MIXED),
    Effect::in_modes("stride", &["strideread"]),
    Effect::in_modes("random_distribution", RANDOM),
    Effect::in_modes("norandommap", RANDOM).and_only(
        "where each block would come once: not with a zipf distribution or a mix of block sizes, whose blocks are drawn \
         independently anyway",
        |_, params| {
            let text = |key| params.get(key).and_then(Value::as_str);
            let is_even = text("random_distribution").is_none_or(|given| given == "random");
            is_even && text("bssplit").is_none_or(|mix| !mix.contains(':'))
        },
    ),
    Effect::in_modes("sync", WRITING).and_only(SOME_WRITES, writes_some),
    Effect::in_modes("fsync", WRITING).and_only(SOME_WRITES, writes_some),
    Effect::in_modes("end_fsync", WRITING).and_only(SOME_WRITES, writes_some),
    Effect::verify(&[
        "read",
        "reread",
        "randread",
        "rw",
        "randrw",
        "backread",
        "strideread",
    ])
    .and_only("where something is read: not with rwmixread = 0", |mode, params| {
        !MIXED.contains(&mode) || read_percent(params) != Some(0)
    }),
    effect::RAMP,
];

const MIXED: &[&str] = &["rw", "randrw"];
const RANDOM: &[&str] = &["randwrite", "randread", "randrw"];
const WRITING: &[&str] = &[
    "write",
    "rewrite",
    "randwrite",
    "rw",
    "randrw",
    "recrewrite",
];
const SOME_WRITES: &str = "where something is written: not with rwmixread = 100";

fn writes_some(mode: &str, params: &Params) -> bool {
    !MIXED.contains(&mode) || read_percent(params) != Some(100)
}

fn read_percent(params: &Params) -> Option<u64> {
    params.get("rwmixread").and_then(Value::as_u64)
}

/// The parameters as they stand in a plan.
#[derive(Debug, serde::Deserialize)]
pub(super) struct IoParams {
    pub bs: Option<Bytes>,
    pub bssplit: Option<Sizes>,
    pub size: Bytes,
    #[serde(default = "no_bytes")]
    pub offset: Bytes,
    #[serde(default = "one")]
    pub numjobs: u32,
    #[serde(default = "one")]
    pub iodepth: u32,
    pub ioengine: Option<Engine>,
    #[serde(rename = "ioengine-fallback")]
    pub fallback: Option<Fallback>,
    #[serde(default, deserialize_with = "units::flag")]
    pub direct: bool,
    pub rwmixread: Option<u32>,
    pub stride: Option<Bytes>,
    #[serde(default)]
    pub random_distribution: Distribution,
    #[serde(default, deserialize_with = "units::flag")]
    pub norandommap: bool,
    pub loops: Option<u64>,
    pub io_size: Option<Bytes>,
    pub runtime: Option<Span>,
    pub ramp_time: Option<Span>,
    #[serde(default)]
    pub sync: SyncKind,
    #[serde(default)]
    pub fsync: u64,
    #[serde(default, deserialize_with = "units::flag")]
    pub end_fsync: bool,
    #[serde(default = "one_seed")]
    pub randseed: u64,
}

fn no_bytes() -> Bytes {
    Bytes(0)
}

fn one() -> u32 {
    1
}

fn one_seed() -> u64 {
    1
}

/// How operations reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Engine {
    Psync,
    IoUring,
}

/// What takes the place of io_uring where the kernel refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fallback {
    #[default]
    None,
    Psync,
}

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SyncKind {
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
