//! When operations are due: a rate as a plan gives it, and each worker's share of it.
//!
//! A [`Pace`] is the rate of a worker, a task or a step; a [`Schedule`] is what one worker does of it. Invariants: the
//! schedule is fixed in advance and never asks how long an operation took, so one that is late delays no instant after
//! it (no coordinated omission); the shares of a rate add up to it exactly, because worker `i` of `n` does every `n`th
//! operation of one common row of instants. Nothing is known here of what an operation is.

mod change;
mod schedule;
mod wait;

pub use change::{Change, Changes};
pub(crate) use schedule::Changed;
pub use schedule::{Schedule, Share};
pub(crate) use wait::{Until, Waiting};

use crate::params::ParamError;
use crate::units::Bytes;
use serde::Deserialize;

/// Instants closer to one another than a nanosecond cannot be told apart.
const MOST_PER_SECOND: u64 = 1_000_000_000;
/// 1 PiB/s: more than any path carries, and little enough for exact arithmetic.
const MOST_BYTES_PER_SECOND: u64 = 1 << 50;

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Operations,
    Bytes,
}

/// Whose rate it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    #[default]
    Worker,
    Task,
    Step,
}

/// How operations arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Process {
    /// At even distances.
    #[default]
    Linear,
    /// As independent users' do: at exponentially distributed distances.
    Poisson,
}

/// The keys of a rate, as they stand in a plan.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PaceParams {
    rate: Option<Bytes>,
    rate_iops: Option<u64>,
    #[serde(rename = "rate-per")]
    per: Option<Per>,
    rate_process: Option<Process>,
}

/// The rate of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub unit: Unit,
    pub per_second: u64,
    pub per: Per,
    pub process: Process,
}

impl Pace {
    /// `None` when the load is not paced.
    pub(crate) fn of(params: &PaceParams) -> Result<Option<Pace>, ParamError> {
        let (key, unit, per_second, most) = match (params.rate, params.rate_iops) {
            (None, None) => return unpaced(params),
            (Some(_), Some(_)) => {
                let message = "a load has one rate: keep this (operations per second) or `rate` (bytes per second)";
                return Err(ParamError::of("rate_iops", message));
            }
            (Some(rate), None) => ("rate", Unit::Bytes, rate.0, MOST_BYTES_PER_SECOND),
            (None, Some(rate)) => ("rate_iops", Unit::Operations, rate, MOST_PER_SECOND),
        };
        if per_second == 0 {
            let message =
                "must be at least 1 per second; leave it out for a load that is not paced";
            return Err(ParamError::of(key, message));
        }
        if per_second > most {
            let message =
                format!("{per_second} per second is more than the {most} that can be kept apart");
            return Err(ParamError::of(key, message));
        }
        Ok(Some(Pace {
            unit,
            per_second,
            per: params.per.unwrap_or_default(),
            process: params.rate_process.unwrap_or_default(),
        }))
    }

    /// The key that a person wrote.
    pub fn key(&self) -> &'static str {
        match self.unit {
            Unit::Operations => "rate_iops",
            Unit::Bytes => "rate",
        }
    }
}

/// Without a rate, what only shapes one is a mistake.
fn unpaced(params: &PaceParams) -> Result<Option<Pace>, ParamError> {
    let idle = [
        ("rate-per", params.per.is_some()),
        ("rate_process", params.rate_process.is_some()),
    ];
    match idle.into_iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(ParamError::of(
            key,
            "means nothing without `rate` or `rate_iops`",
        )),
        None => Ok(None),
    }
}
