//! When operations are due: the rate in a plan, and each worker's share of it.
//!
//! A [`Pace`] is the rate of a worker, a task or a step; a [`Schedule`] is one worker's part of it. Invariants: the
//! schedule is fixed in advance and does not depend on how long operations take, so a late operation delays no later
//! instant (no coordinated omission). The shares add up to the rate exactly, because worker `i` of `n` does every `n`th
//! operation of one common sequence. This module does not know what an operation does.

mod change;
mod limit;
mod schedule;
mod wait;

pub use change::{Changes, ShareChange};
pub use limit::RateLimit;
pub(crate) use limit::chunk_bytes;
pub(crate) use schedule::Changed;
pub use schedule::{Schedule, WorkerShare};
pub(crate) use wait::{WaitEnd, WaitMethod};

use crate::declare_words;
use crate::params::ParamError;
use crate::params::units::Bytes;

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateUnit {
    Operations,
    Bytes,
}

declare_words! {
    /// Whose rate it is.
    #[derive(Default)]
    pub enum Per {
        #[default]
        Worker = "worker",
        Task = "task",
        Step = "step",
    }
}

declare_words! {
    /// How operations arrive.
    #[derive(Default)]
    pub enum ArrivalProcess {
        /// At even intervals.
        #[default]
        Linear = "linear",
        /// As from independent users: at exponentially distributed intervals.
        Poisson = "poisson",
    }
}

/// The rate of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub unit: RateUnit,
    pub per_second: u64,
    pub per: Per,
    pub process: ArrivalProcess,
}

impl Pace {
    /// Builds a pace from the keys of a rate; `None` if the load is not paced.
    pub(crate) fn of(
        rate: Option<Bytes>,
        rate_iops: Option<u64>,
        per: Per,
        process: ArrivalProcess,
    ) -> Result<Option<Pace>, ParamError> {
        let (unit, per_second) = match (rate, rate_iops) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let message = "a load has one rate: keep this (operations per second) or `rate` (bytes per second)";
                return Err(ParamError::of("rate_iops", message));
            }
            (Some(rate), None) => (RateUnit::Bytes, rate.0),
            (None, Some(rate)) => (RateUnit::Operations, rate),
        };
        Ok(Some(Pace {
            unit,
            per_second,
            per,
            process,
        }))
    }

    /// The key in the plan.
    pub fn key(&self) -> &'static str {
        match self.unit {
            RateUnit::Operations => "rate_iops",
            RateUnit::Bytes => "rate",
        }
    }
}
