//! The mode, keys and parameters of `replay`.

use super::list::List;
use crate::engine::author::*;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) const MODES: &[ModeInfo] = &[ModeInfo {
    name: "replay",
    meaning: "issues the operations of the list, one after the other, each when it is due",
    needs: Data::Nothing,
    leaves: Data::Nothing,
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

declare_keys! {
    #[derive(Debug)]
    pub(super) struct ReplayKeys {
        /// The list itself, one line per operation; docs/replay.md describes the format.
        "operations" operations: Option<String> = none("those of `from`");
        /// A file with such a list on the agents. The agents must allow reading it.
        "from" from: Option<PathBuf> = none("`operations`");
        /// `recorded`: an operation waits for the time in its line; a late one is issued at once. Response time starts
        /// at that time, or at the issue of an operation without a time. `none`: one after the other, without waiting.
        "timing" timing: When = "recorded";
        /// Workers per task; each replays the whole list in its own directory.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Seed of the content.
        "seed" seed: u64 = 1;
        /// Maximum duration.
        "runtime" runtime: Option<Span> = none("until the list is done");
        /// Time before the results count, in addition to `runtime`. The times of the list are relative to the start of
        /// the load.
        "ramp_time" ramp_time: Option<Span> = none("none"),
            only "with `runtime`: otherwise the load may end within the ramp" if |keys, _| keys.runtime.is_some();
        #[doc = data::VERIFY]
        "verify" verify: bool = false, only "if the list reads" if |keys, _| keys.may_read();
        include data: DataKeys;
    }
}

impl ReplayKeys {
    /// Only the agents know the content of a file.
    fn may_read(&self) -> bool {
        let text = self.operations.as_deref();
        let list = text.and_then(|text| List::parse(text).ok());
        list.is_none_or(|list| list.lines.iter().any(|line| line.action.op() == Op::Read))
    }
}

declare_words! {
    /// When operations are due.
    pub(super) enum When {
        Recorded = "recorded",
        None = "none",
    }
}

/// Source of the list.
#[derive(Clone, Debug)]
pub(super) enum Operations {
    Listed(Arc<List>),
    From(PathBuf),
}

/// The parameters of one mode, read and checked.
#[derive(Clone, Debug)]
pub(super) struct ReplayOptions {
    pub operations: Operations,
    /// Whether operations wait until they are due.
    pub timed: bool,
    pub workers: u32,
    pub seed: u64,
    pub data: DataSpec,
    pub timing: Timing,
}

impl ReplayOptions {
    pub(super) fn of(keys: ReplayKeys) -> Result<Self, ParamError> {
        let data = DataSpec::new(&keys.data, keys.verify)?;
        let operations = match (keys.operations, keys.from) {
            (Some(text), None) => {
                let list = List::parse(&text);
                let list = list.map_err(|error| ParamError::of("operations", error.to_string()))?;
                Operations::Listed(Arc::new(list))
            }
            (None, Some(path)) => Operations::From(path),
            (Some(_), Some(_)) => {
                let message =
                    "names a file with a list, but `operations` contains one: drop one of the two";
                return Err(ParamError::of("from", message));
            }
            (None, None) => {
                let message = "is missing: write the list here, or name a file with it as `from`";
                return Err(ParamError::of("operations", message));
            }
        };
        Ok(Self {
            operations,
            timed: keys.timing == When::Recorded,
            workers: keys.numjobs,
            seed: keys.seed,
            data,
            timing: Timing::of(keys.ramp_time, keys.runtime)?,
        })
    }

    /// Refuses a rate beside recorded times.
    pub(super) fn check_rate(&self, params: &Params) -> Result<(), ParamError> {
        let rate = ["rate", "rate_iops"];
        match rate.into_iter().find(|key| params.contains_key(*key)) {
            Some(key) if self.timed => Err(ParamError::of(
                key,
                "operations with recorded times cannot have a rate; set timing = \"none\"",
            )),
            _ => Ok(()),
        }
    }
}
