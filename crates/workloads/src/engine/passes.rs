//! A worker's passes through its data: the key `loops` has the same meaning in every mode that can be repeated.
//!
//! Invariant: with a runtime and without `loops` the number is unlimited; with both, whichever comes first ends it.

use crate::measure::recorder::OpError;
use crate::params::units::Span;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the key `loops` means.
pub(crate) const LOOPS: &str = "Passes over the data. With `runtime`, until whichever comes first.";

/// A worker's remaining passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passes(Option<u64>);

impl Passes {
    pub(crate) const ONE: Passes = Passes(Some(1));

    /// For a mode that can be repeated.
    pub(crate) fn of(loops: Option<u64>, runtime: Option<Span>) -> Passes {
        match (loops, runtime) {
            (Some(loops), _) => Passes(Some(loops)),
            (None, Some(_)) => Passes(None),
            (None, None) => Passes::ONE,
        }
    }

    /// How many there are if no runtime ends them.
    pub(crate) fn count(self) -> u64 {
        self.0.unwrap_or(1)
    }

    /// Whether only the runtime ends them.
    pub(crate) fn is_endless(self) -> bool {
        self.0.is_none()
    }

    /// Runs passes until the last one or until the load has to end. The first complete pass is counted.
    pub(crate) fn repeat(
        &mut self,
        whole: &WholePasses,
        mut pass: impl FnMut() -> Result<Pass, OpError>,
    ) -> Result<(), OpError> {
        let mut is_counted = false;
        loop {
            let pass = pass()?;
            if pass == Pass::Whole && !is_counted {
                is_counted = true;
                whole.add();
            }
            if pass == Pass::Stopped || !self.has_next() {
                return Ok(());
            }
        }
    }

    /// Counts a finished pass; returns whether another follows.
    fn has_next(&mut self) -> bool {
        let Some(left) = &mut self.0 else {
            return true;
        };
        *left = left.saturating_sub(1);
        *left > 0
    }
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    Whole,
    WithErrors,
    Stopped,
}

impl Pass {
    /// Combines two parts of one pass.
    pub(crate) fn and(self, later: Pass) -> Pass {
        match (self, later) {
            (Pass::Stopped, _) | (_, Pass::Stopped) => Pass::Stopped,
            (Pass::Whole, Pass::Whole) => Pass::Whole,
            _ => Pass::WithErrors,
        }
    }
}

/// Counts the workers of a task that completed a pass without an error. Once all have, the state of the task's data is
/// known.
#[derive(Debug, Clone, Default)]
pub(crate) struct WholePasses(Arc<AtomicU32>);

impl WholePasses {
    /// Once per worker.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Whether `workers` had one.
    pub(crate) fn all(&self, workers: u32) -> bool {
        self.0.load(Ordering::Acquire) >= workers
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn loops_and_runtime_limit_passes() {
        let second = Some(Span(Duration::from_secs(1)));
        for (loops, runtime, count) in [
            (None, None, 1),
            (Some(3), None, 3),
            (Some(3), second, 3),
            (Some(1), second, 1),
        ] {
            let mut passes = Passes::of(loops, runtime);
            assert_eq!(passes.count(), count);
            let further = (0..10).take_while(|_| passes.has_next()).count();
            assert_eq!(u64::try_from(further).unwrap() + 1, count);
        }
        let mut endless = Passes::of(None, second);
        assert!((0..1000).all(|_| endless.has_next()));
    }

    #[test]
    fn a_worker_counts_once_and_a_stop_ends_its_passes() {
        let ends = |passes: &[Pass]| {
            let (whole, mut left) = (WholePasses::default(), passes.iter());
            let mut repeated = Passes::of(Some(3), None);
            repeated
                .repeat(&whole, || Ok(*left.next().unwrap()))
                .unwrap();
            (left.len(), whole.all(1), whole.all(2))
        };
        use Pass::{Stopped, Whole, WithErrors};
        assert_eq!(ends(&[Whole, Whole, Whole, Whole]), (1, true, false));
        assert_eq!(ends(&[WithErrors, Whole, WithErrors]), (0, true, false));
        assert_eq!(ends(&[Stopped, Whole, Whole]), (2, false, false));
        assert_eq!(ends(&[WithErrors; 3]), (0, false, false));
    }
}
