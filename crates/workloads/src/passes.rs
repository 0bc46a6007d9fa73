//! How often a worker goes through its data: the key `loops`, which means the same wherever a mode can be repeated.
//!
//! Invariant: with a runtime and without `loops` there is no last pass; with both it is what comes first.

use crate::params::{KeyInfo, ParamError};
use crate::units::Span;

pub(crate) const LOOPS: KeyInfo = KeyInfo {
    name: "loops",
    kind: "count",
    default: "1, or without end when `runtime` is set",
    meaning: "passes over the data; with `runtime`, until what comes first",
};

/// The passes that a worker has before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passes(Option<u64>);

impl Passes {
    pub(crate) const ONE: Passes = Passes(Some(1));

    /// Of a mode that can be repeated.
    pub(crate) fn of(loops: Option<u64>, runtime: Option<Span>) -> Result<Passes, ParamError> {
        match (loops, runtime) {
            (Some(0), _) => Err(ParamError::of("loops", "must be at least 1")),
            (Some(loops), _) => Ok(Passes(Some(loops))),
            (None, Some(_)) => Ok(Passes(None)),
            (None, None) => Ok(Passes::ONE),
        }
    }

    /// How many there are when no time ends them.
    pub(crate) fn count(self) -> u64 {
        self.0.unwrap_or(1)
    }

    /// One is over: whether another follows.
    pub(crate) fn go_on(&mut self) -> bool {
        let Some(left) = &mut self.0 else {
            return true;
        };
        *left = left.saturating_sub(1);
        *left > 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn passes_end_where_they_are_counted() {
        let second = Some(Span(Duration::from_secs(1)));
        for (loops, runtime, count) in [
            (None, None, 1),
            (Some(3), None, 3),
            (Some(3), second, 3),
            (Some(1), second, 1),
        ] {
            let mut passes = Passes::of(loops, runtime).unwrap();
            assert_eq!(passes.count(), count);
            let further = (0..10).take_while(|_| passes.go_on()).count();
            assert_eq!(u64::try_from(further).unwrap() + 1, count);
        }
        let mut endless = Passes::of(None, second).unwrap();
        assert!((0..1000).all(|_| endless.go_on()));
        let refused = Passes::of(Some(0), second).unwrap_err();
        assert_eq!(refused.key.as_deref(), Some("loops"));
    }
}
