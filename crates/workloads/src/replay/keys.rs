//! The mode, keys and parameters of `replay`.

use super::NAME;
use super::list::List;
use crate::common;
use crate::data::{self, DataSpec, Kind};
use crate::op::Op;
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo, ParamError};
use crate::units::{self, Span};
use crate::workload::{Data as CellData, ModeInfo, Params as PlanParams, Timing};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) const MODES: &[ModeInfo] = &[ModeInfo {
    name: "replay",
    meaning: "does the operations of the list, one after the other, each when it is due",
    needs: CellData::Nothing,
    leaves: CellData::Nothing,
    ops: &[
        Op::Write,
        Op::Read,
        Op::Open,
        Op::Close,
        Op::Fsync,
        Op::Truncate,
        Op::Stat,
        Op::List,
        Op::Rename,
        Op::Symlink,
        Op::Delete,
        Op::Mkdir,
        Op::Rmdir,
    ],
}];

pub(super) const KEYS: &[KeyInfo] = &params::join::<
    { OWN_KEYS.len() + data::KEYS.len() + common::KEYS.len() },
>(&[OWN_KEYS, data::KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "operations",
        kind: "text",
        default: "those of `from`",
        meaning: "the list itself, a line for each operation, as docs/replay.md has it",
    },
    KeyInfo {
        name: "from",
        kind: "path",
        default: "`operations`",
        meaning: "a file with such a list on the agents, that they allow to be read",
    },
    KeyInfo {
        name: "timing",
        kind: "recorded or none",
        default: "recorded",
        meaning: "recorded: an operation waits until the time that its line says, and one that is late is done at once; \
                  response time runs from that time, and of an operation without one from its issue; none: one after \
                  the other",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task; each does the whole list in a directory of its own",
    },
    KeyInfo {
        name: "seed",
        kind: "count",
        default: "1",
        meaning: "of the content",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "until the list is done",
        meaning: "it ends then, if not before",
    },
    KeyInfo {
        name: "ramp_time",
        kind: "duration",
        default: "none",
        meaning: "how long it runs before the results count, on top of `runtime`; the times of the list run from the start",
    },
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::only("verify", "where the list reads", |_, params| {
        let text = params.get("operations").and_then(Value::as_str);
        // What stands in a file on the agents is known there only.
        let list = text.and_then(|text| List::parse(text).ok());
        list.is_none_or(|list| list.lines.iter().any(|line| line.action.op() == Op::Read))
    }),
    effect::RAMP,
];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum When {
    #[default]
    Recorded,
    None,
}

#[derive(Debug, Deserialize)]
struct ReplayParams {
    operations: Option<String>,
    from: Option<PathBuf>,
    #[serde(default)]
    timing: When,
    #[serde(default = "one")]
    numjobs: u32,
    #[serde(default = "first")]
    seed: u64,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
    #[serde(rename = "data")]
    _data: Option<Kind>,
    #[serde(rename = "verify", default, deserialize_with = "units::flag")]
    _verify: bool,
}

fn one() -> u32 {
    1
}

fn first() -> u64 {
    1
}

/// Where the list comes from.
#[derive(Clone, Debug)]
pub(super) enum Operations {
    Listed(Arc<List>),
    From(PathBuf),
}

/// The parameters, checked and in our own words.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub operations: Operations,
    /// Whether operations wait for their time.
    pub timed: bool,
    pub workers: u32,
    pub seed: u64,
    pub data: DataSpec,
    pub timing: Timing,
}

impl Plan {
    pub(super) fn of(_mode: &ModeInfo, params: &PlanParams) -> Result<Self, ParamError> {
        let paced = ["rate", "rate_iops"];
        let paced = paced.into_iter().find(|key| params.contains_key(*key));
        let data = DataSpec::of(params)?;
        let params: ReplayParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        let operations = match (params.operations, params.from) {
            (Some(text), None) => {
                let list = List::parse(&text);
                let list = list.map_err(|error| ParamError::of("operations", error.to_string()))?;
                Operations::Listed(Arc::new(list))
            }
            (None, Some(path)) if path.is_absolute() => Operations::From(path),
            (None, Some(_)) => {
                let message = "must be an absolute path on the agents";
                return Err(ParamError::of("from", message));
            }
            (Some(_), Some(_)) => {
                let message =
                    "says where the list is, but `operations` is one: drop one of the two";
                return Err(ParamError::of("from", message));
            }
            (None, None) => {
                let message = "workload `replay` needs it, or a file of operations as `from`";
                return Err(ParamError::of("operations", message));
            }
        };
        let timed = params.timing == When::Recorded;
        if let Some(key) = paced.filter(|_| timed) {
            let message =
                "operations that wait for their recorded time have no rate; set timing = \"none\"";
            return Err(ParamError::of(key, message));
        }
        Ok(Self {
            operations,
            timed,
            workers: params.numjobs,
            seed: params.seed,
            data,
            timing: Timing::of(params.ramp_time, params.runtime)?,
        })
    }
}
