//! The pause before a step: a fixed time, or until the storage is idle.

use super::{
    keys::{IdleKeys, names},
    read::{Section, kind, to_json},
    source::Mistakes,
};
use benchmesh_workloads::params::{KeyValue, Keys};
use benchmesh_workloads::units::Span;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// How long storage must be idle; samples come once a second.
pub const IDLE_FOR: Duration = Duration::from_secs(3);
const REMEDY: &str = "write a duration (\"5s\"), \"idle\", or { idle = \"5%\", limit = \"2m\" }";

/// The pause of a step between the layout of its data and its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Settle {
    For(Duration),
    /// Until the storage's daemons and disks are all below this share of the time, for at most `limit`.
    Idle {
        /// Relative to one CPU for all daemons of a host together, and to the time for each disk.
        percent: f64,
        limit: Duration,
    },
}

impl Settle {
    pub const NONE: Self = Self::For(Duration::ZERO);

    /// Minimum duration of the pause.
    pub fn least(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Idle { limit, .. } => IDLE_FOR.min(limit),
        }
    }
}

pub(super) fn settle(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Settle {
    let Some((value, position)) = section.take("settle") else {
        return Settle::NONE;
    };
    let empty = DeTable::new();
    let table = match value {
        DeValue::String(word) if word == "idle" => &empty,
        DeValue::Table(table) => table,
        other => {
            let Some(json) = to_json(other, &position, mistakes) else {
                return Settle::NONE;
            };
            return match Span::read(&json) {
                Ok(Span(time)) => Settle::For(time),
                Err(problem) => {
                    let reason = match problem.as_str() {
                        "" => format!("expected a duration or \"idle\", found {}", kind(other)),
                        problem => problem.to_owned(),
                    };
                    mistakes.at(&position, reason, REMEDY);
                    Settle::NONE
                }
            };
        }
    };
    let mut section = Section::new(table, position);
    let keys = section.keys::<IdleKeys>(mistakes);
    section.refuse_rest(&names(&[IdleKeys::all()]), mistakes);
    keys.map_or(Settle::NONE, |keys| Settle::Idle {
        percent: keys.idle.0,
        limit: keys.limit.0,
    })
}
