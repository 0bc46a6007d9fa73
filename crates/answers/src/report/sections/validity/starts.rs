//! The time differences between the starts of the clients, and their error.

use super::flagged::raised;
use super::{check, micros};
use crate::report::{Check, CheckVerdict, StepReport};

/// A later start makes results of short steps with several clients unreliable.
const LATE_START_US: i64 = 10_000;

pub(super) fn check_starts(steps: &[StepReport]) -> Check {
    let skews = steps.iter().filter_map(|step| Some((step.skew_us?, step)));
    let Some((skew, latest)) = skews.max_by_key(|(skew, _)| skew.unsigned_abs()) else {
        return check("starts", CheckVerdict::NotChecked, "no start was reported");
    };
    let late = skew.unsigned_abs() > LATE_START_US.unsigned_abs();
    let mut text = format!("within {} of the common instant", micros(skew));
    if late {
        text.push_str(&format!(" (step {})", latest.ordinal));
    }
    // The maximum over all starts, not the error of the latest: any start may be wrong because of an inexact clock.
    let errors = steps
        .iter()
        .filter_map(|step| Some((step.skew_error_us?, step)));
    let worst = errors.max_by_key(|(error, _)| *error);
    let unsure = raised(steps, "starts");
    if let Some((error, step)) = worst {
        text.push_str(&format!(", known to {}", micros(error)));
        if unsure.is_some() {
            text.push_str(&format!(" (step {})", step.ordinal));
        }
    }
    match unsure {
        Some(unsure) => check("starts", unsure.verdict, format!("{text}; {}", unsure.text)),
        None if late => check("starts", CheckVerdict::Note, text),
        None if worst.is_none() => check(
            "starts",
            CheckVerdict::NotChecked,
            format!("{text} by the agents' own clocks, whose error is unknown"),
        ),
        None => check("starts", CheckVerdict::Ok, text),
    }
}
