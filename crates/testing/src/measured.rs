//! Assertions on measured time, rates and shares, and how often they may fail.
//!
//! Other load on a shared machine can stop any thread for tens of milliseconds. That is rare and does not repeat, while
//! a wrong figure is wrong each time. So an assertion on time ([`timing!`](crate::timing)) may fail twice; it is never
//! hidden: each failure is written to the real standard error and counted in the totals. Every other assertion panics,
//! which fails the test at its first attempt: a count, a state, a loss, a refusal, and a lower bound that no
//! disturbance can violate.

#[cfg(test)]
mod bodies;
#[cfg(test)]
mod tokens;

use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::panic::Location;
use std::time::Duration;

use crate::record::{Event, record};

/// One attempt, and up to two repetitions.
const ATTEMPTS: u32 = 3;

/// Pause before a repetition, because a disturbance may last a while.
const PAUSE: Duration = Duration::from_millis(500);

/// A measured time, rate or share is out of bounds: the only failure that is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimingError(String);

impl TimingError {
    /// Created by [`timing!`](crate::timing), with its caller's location.
    #[must_use]
    #[track_caller]
    pub fn new(message: &str) -> Self {
        Self(format!("{message} ({})", Location::caller()))
    }
}

impl Display for TimingError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// As `assert!`, for assertions that depend on the machine's time: returns a [`TimingError`] from the enclosing
/// function or closure, which [`measured`] repeats.
#[macro_export]
macro_rules! timing {
    ($holds:expr $(,)?) => {
        $crate::timing!($holds, "timing: {}", stringify!($holds))
    };
    ($holds:expr, $($message:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            return Err($crate::TimingError::new(&format!($($message)+)));
        }
    }};
}

/// Checks the count of a paced load against its schedule: `expected` ends at the number due within the runtime.
///
/// No disturbance adds an operation, so more than were due fail at once. Fewer are measured again: a worker without a
/// processor at the end of the runtime omits operations that became due meanwhile.
///
/// # Errors
///
/// If fewer were `done` than expected.
///
/// # Panics
///
/// If more were `done` than expected.
#[track_caller]
pub fn scheduled(done: u64, expected: RangeInclusive<u64>) -> Result<(), TimingError> {
    let due = *expected.end();
    assert!(done <= due, "{done} operations, and {due} were due");
    match expected.contains(&done) {
        true => Ok(()),
        false => Err(TimingError::new(&format!(
            "{done} operations of {due} that were due"
        ))),
    }
}

/// Runs the body of a test that measures; if it returns a [`TimingError`], repeats it after a pause, at most twice.
/// Each attempt must begin clean: the body's resources are dropped when it returns. A panic is a failure at once.
///
/// A test of this crate (`measured/bodies.rs`) fails if a body has no `timing!`, in itself or in the functions that it
/// calls.
///
/// # Panics
///
/// If the last attempt returns a [`TimingError`], with its message.
#[expect(
    clippy::disallowed_methods,
    reason = "no condition says that the disturbance is over"
)]
pub fn measured<T>(body: impl FnMut() -> Result<T, TimingError>) -> T {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let outcome = repeated(body, |error| {
        crate::say(&format!("MEASURED AGAIN {test}: {error}"));
        record(&Event::MeasuredAgain { test });
        std::thread::sleep(PAUSE);
    });
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("measured {ATTEMPTS} times: {error}"),
    }
}

/// The first successful result, or the error of the last attempt. `before_next` gets each other error.
fn repeated<T>(
    mut body: impl FnMut() -> Result<T, TimingError>,
    mut before_next: impl FnMut(&TimingError),
) -> Result<T, TimingError> {
    for _ in 1..ATTEMPTS {
        match body() {
            Ok(value) => return Ok(value),
            Err(error) => before_next(&error),
        }
    }
    body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Fails `failures` times, then succeeds: its result, and the number of repetitions.
    fn check(failures: u32) -> (Result<u32, TimingError>, u32) {
        let mut attempts = 0;
        let mut again = 0;
        let outcome = repeated(
            || {
                attempts += 1;
                timing!(attempts > failures, "attempt {attempts} was disturbed");
                Ok(attempts)
            },
            |_| again += 1,
        );
        (outcome, again)
    }

    #[test]
    fn what_succeeds_runs_once() {
        assert_eq!(check(0), (Ok(1), 0));
    }

    #[test]
    fn what_fails_twice_is_measured_twice_more() {
        assert_eq!(check(1), (Ok(2), 1));
        assert_eq!(check(2), (Ok(3), 2));
    }

    #[test]
    fn what_fails_three_times_fails_with_its_last_message() {
        for failures in [3, u32::MAX] {
            let (outcome, again) = check(failures);
            let message = outcome.expect_err("it fails").to_string();
            assert!(
                message.starts_with("attempt 3 was disturbed ("),
                "{message}"
            );
            assert!(message.contains("measured.rs:"), "{message}");
            assert_eq!(again, 2);
        }
    }

    #[test]
    fn a_panic_fails_at_the_first_attempt() {
        let mut attempts = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            measured(|| {
                attempts += 1;
                assert_eq!(attempts, 2, "a wrong count");
                timing!(attempts > 1);
                Ok(())
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(attempts, 1);
    }

    #[test]
    fn a_schedule_is_missed_by_time_and_exceeded_by_nothing() {
        assert_eq!(scheduled(99, 99..=100), Ok(()));
        assert_eq!(scheduled(100, 99..=100), Ok(()));
        let missed = scheduled(98, 99..=100).expect_err("it is too few");
        let here = format!("98 operations of 100 that were due ({}:", file!());
        assert!(missed.to_string().starts_with(&here), "{missed}");
        let exceeded = catch_unwind(|| scheduled(101, 99..=100));
        assert!(exceeded.is_err());
    }

    /// Runs in a process of its own, in which the measurement is disturbed once, so that the repetition is not counted
    /// in the totals.
    #[test]
    fn a_repetition_is_said_with_test_and_message_also_where_the_test_passes() {
        const IS_DISTURBED: &str = "BENCHMESH_TESTING_DISTURBED";
        const NAME: &str = "measured::tests::a_repetition_is_said_with_test_and_message_also_where_the_test_passes";
        if std::env::var_os(IS_DISTURBED).is_some() {
            let mut attempts = 0;
            measured(|| {
                attempts += 1;
                timing!(attempts > 1, "too slow");
                Ok(())
            });
            return;
        }
        let program = std::env::current_exe().expect("the program of the tests");
        let child = std::process::Command::new(program)
            .args(["--exact", NAME, "--test-threads", "2"])
            .env(IS_DISTURBED, "1")
            .output()
            .expect("run one test");
        let output = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{output}");
        assert!(
            output.contains(&format!("MEASURED AGAIN {NAME}: too slow (")),
            "{output}"
        );
    }
}
