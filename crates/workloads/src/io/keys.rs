//! The keys of `io`, as fio spells them.

use crate::common;
use crate::params::{self, KeyInfo};
use crate::units::{self, Bytes, Span};
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

pub(super) const KEYS: &[KeyInfo] =
    &params::join::<{ OWN_KEYS.len() + common::KEYS.len() }>(&[OWN_KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
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

/// The parameters as they stand in a plan.
#[derive(Debug, serde::Deserialize)]
pub(super) struct IoParams {
    #[serde(default = "default_bs")]
    pub bs: Bytes,
    pub size: Bytes,
    #[serde(default = "one")]
    pub numjobs: u32,
    #[serde(default, deserialize_with = "units::flag")]
    pub direct: bool,
    pub runtime: Option<Span>,
    pub ramp_time: Option<Span>,
    #[serde(default)]
    pub sync: SyncKind,
    #[serde(default)]
    pub fsync: u64,
    #[serde(default, deserialize_with = "units::flag")]
    pub end_fsync: bool,
    #[serde(default, deserialize_with = "units::flag")]
    pub norandommap: bool,
    #[serde(default = "one_seed")]
    pub randseed: u64,
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
