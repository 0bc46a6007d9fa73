//! When operations are due: a rate as a plan gives it, and each worker's share of it.
//!
//! A [`Pace`] is the rate of a worker, a task or a step; a [`Schedule`] is what one worker does of it. Invariants: the
//! schedule is fixed in advance and never asks how long an operation took, so one that is late delays no instant after
//! it (no coordinated omission); the shares of a rate add up to it exactly, because worker `i` of `n` does every `n`th
//! operation of one common row of instants. Nothing is known here of what an operation is.

mod change;
mod limit;
mod schedule;
mod wait;

pub use change::{Change, Changes};
pub use limit::RateLimit;
pub(crate) use schedule::Changed;
pub use schedule::{Schedule, Share};
pub(crate) use wait::{Until, Waiting};

use crate::declare_words;
use crate::params::ParamError;
use crate::params::units::Bytes;

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
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
    pub enum Process {
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
    pub unit: Unit,
    pub per_second: u64,
    pub per: Per,
    pub process: Process,
}

impl Pace {
    /// From the keys of a rate; `None` when the load is not paced.
    pub(crate) fn of(
        rate: Option<Bytes>,
        rate_iops: Option<u64>,
        per: Per,
        process: Process,
    ) -> Result<Option<Pace>, ParamError> {
        let (unit, per_second) = match (rate, rate_iops) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let message = "a load has one rate: keep this (operations per second) or `rate` (bytes per second)";
                return Err(ParamError::of("rate_iops", message));
            }
            (Some(rate), None) => (Unit::Bytes, rate.0),
            (None, Some(rate)) => (Unit::Operations, rate),
        };
        Ok(Some(Pace {
            unit,
            per_second,
            per,
            process,
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
