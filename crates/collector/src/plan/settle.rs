//! The rest before a step: a time, or until the storage is idle.

use super::{
    read::{Section, in_words, to_json},
    source::{Mistakes, Spot},
};
use benchmesh_workloads::units::Span;
use std::time::Duration;
use toml::de::DeValue;

/// What counts as idle when the plan does not say: below what a daemon's own housekeeping takes.
const DEFAULT_PERCENT: f64 = 5.0;
/// Nobody waits longer for idle storage unless the plan says so.
const DEFAULT_LIMIT: Duration = Duration::from_secs(120);
/// How long storage has to be idle before it counts as such; samples come once a second.
pub(crate) const IDLE_FOR: Duration = Duration::from_secs(3);
const REMEDY: &str = "write a duration (\"5s\"), \"idle\", or { idle = \"5%\", limit = \"2m\" }";

/// How a step rests between the layout of its data and its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Settle {
    For(Duration),
    /// Until the storage's daemons and disks are all below a share of the time, at most for `limit`.
    Idle {
        /// Of one CPU for the daemons of a host together, of the time for each disk.
        percent: f64,
        limit: Duration,
    },
}

impl Settle {
    pub const NONE: Self = Self::For(Duration::ZERO);

    /// It takes at least so long.
    pub fn least(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Idle { limit, .. } => IDLE_FOR.min(limit),
        }
    }
}

pub(super) fn settle(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Settle {
    let Some((value, spot)) = section.take("settle") else {
        return Settle::NONE;
    };
    match value {
        DeValue::String(word) if word == "idle" => Settle::Idle {
            percent: DEFAULT_PERCENT,
            limit: DEFAULT_LIMIT,
        },
        DeValue::Table(table) => {
            let mut section = Section::new(table, spot.clone());
            let percent = percent(&mut section, mistakes);
            let limit = section.duration("limit", mistakes);
            section.refuse_rest(&["idle", "limit"], mistakes);
            Settle::Idle {
                percent: percent.unwrap_or(DEFAULT_PERCENT),
                limit: limit.map_or(DEFAULT_LIMIT, |(limit, _)| limit),
            }
        }
        other => {
            let Some(json) = to_json(other, &spot, mistakes) else {
                return Settle::NONE;
            };
            match serde_json::from_value(json) {
                Ok(Span(time)) => Settle::For(time),
                Err(error) => {
                    mistakes.at(&spot, in_words(&error.to_string()), REMEDY);
                    Settle::NONE
                }
            }
        }
    }
}

fn percent(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Option<f64> {
    let (text, spot): (String, Spot) = section.text("idle", mistakes)?;
    let number = text.trim().strip_suffix('%').map(str::trim);
    let percent = number
        .and_then(|number| number.parse::<f64>().ok())
        .filter(|percent| *percent > 0.0 && *percent <= 100.0);
    if percent.is_none() {
        mistakes.at(
            &spot,
            format!("no share `{text}`"),
            "write a share above 0 and up to 100: \"5%\"",
        );
    }
    percent
}
