//! How often a plan's phases run: a number of times, or for a time.
//!
//! Only the steps of the current loop exist; the rows of the next one are created when it begins.

use benchmesh_workloads::params::units::Span;
use std::time::Duration;

/// The end condition of a plan's loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    Times(u32),
    /// Measured from the start of the run; no loop begins afterwards.
    For(Duration),
}

impl Loops {
    /// A plan without loops.
    pub const ONE: Self = Self::Times(1);

    /// Whether another loop begins after `ended` loops, at this time since the start of the run.
    pub fn continues(self, ended: u32, elapsed: Duration) -> bool {
        match self {
            Self::Times(times) => ended < times,
            Self::For(time) => elapsed < time,
        }
    }

    /// `loop 3 of 10`, `loop 3, 41h of 72h`; `None` if the plan has no loops.
    pub fn in_words(self, number: u32, elapsed: Duration) -> Option<String> {
        match self {
            Self::ONE => None,
            Self::Times(times) => Some(format!("loop {number} of {times}")),
            Self::For(time) => Some(format!(
                "loop {number}, {} of {}",
                Span(whole_units(elapsed.min(time))),
                Span(time)
            )),
        }
    }

    /// For users, how often the phases run: `3 loops`, `loops for 72h`; `None` if the plan has no loops.
    pub fn as_planned(self) -> Option<String> {
        match self {
            Self::ONE => None,
            Self::Times(times) => Some(format!("{times} loops")),
            Self::For(time) => Some(format!("loops for {}", Span(time))),
        }
    }
}

/// Rounded down to hours; below one hour to minutes; below one minute to seconds.
fn whole_units(time: Duration) -> Duration {
    let seconds = time.as_secs();
    let unit = match seconds {
        3600.. => 3600,
        60.. => 60,
        _ => 1,
    };
    Duration::from_secs(seconds - seconds % unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_end_by_number_or_time() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let three = Loops::Times(3);
        assert!(three.continues(2, hours(900)) && !three.continues(3, hours(0)));
        let days = Loops::For(hours(72));
        assert!(days.continues(9000, hours(71)) && !days.continues(1, hours(72)));
        assert_eq!(Loops::ONE.in_words(1, hours(1)), None);
        assert_eq!(three.in_words(2, hours(1)).as_deref(), Some("loop 2 of 3"));
        assert_eq!(
            days.in_words(3, hours(41) + Duration::from_secs(1234))
                .as_deref(),
            Some("loop 3, 41h of 72h")
        );
    }
}
