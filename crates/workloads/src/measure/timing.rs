//! When a load starts to count, and when it ends.

use crate::declare_keys;
use crate::measure::clock::MonoNanos;
use crate::params::ParamError;
use crate::params::units::Span;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

declare_keys! {
    /// `ramp_time`, which is the same in most workloads. What `runtime` means each says itself.
    #[derive(Debug)]
    pub(crate) struct RampKeys {
        /// Time before the results count, in addition to `runtime`.
        "ramp_time" ramp_time: Option<Span> = none("none"),
            only "with `runtime`, or with repeated work (`loops`, `io_size`, `ops`, `seeks`): otherwise the load may \
                  end within the ramp"
            if |_, scope| scope.has_any(&["runtime", "loops", "io_size", "ops", "seeks"]);
    }
}

/// When a load starts to count and when it ends. As in fio, the ramp comes before the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    pub ramp: Option<Duration>,
    /// `None`: one pass over its data.
    pub runtime: Option<Duration>,
}

impl Timing {
    /// Builds it from `ramp_time` and `runtime`, which have the same names in every workload.
    pub fn of(ramp_time: Option<Span>, runtime: Option<Span>) -> Result<Timing, ParamError> {
        if runtime.is_some_and(|span| span.0.is_zero()) {
            return Err(ParamError::of("runtime", "must be longer than 0"));
        }
        Ok(Timing {
            ramp: ramp_time.map(|span| span.0).filter(|span| !span.is_zero()),
            runtime: runtime.map(|span| span.0),
        })
    }

    /// Ramp plus runtime, if the load is timed.
    pub fn total(&self) -> Option<Duration> {
        self.runtime
            .map(|runtime| runtime.saturating_add(self.ramp.unwrap_or_default()))
    }
}

/// A request to end a load, with its instant. Workers read it between two operations.
#[derive(Debug, Default)]
pub struct StopRequest(AtomicU64);

impl StopRequest {
    /// Ends the load now. Later requests change nothing.
    pub fn set(&self) {
        let now = MonoNanos::now().0.max(1);
        let _ = self
            .0
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// When it came.
    pub fn at(&self) -> Option<MonoNanos> {
        Some(MonoNanos(self.0.load(Ordering::Relaxed))).filter(|at| at.0 != 0)
    }
}
