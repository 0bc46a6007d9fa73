//! Tests whose assertions depend on measured time, rates or shares.
//!
//! Another user of a shared machine can stop any thread for tens of milliseconds. That is rare and does not repeat, while
//! a wrong figure comes out wrong each time. So such a test may fail twice; it is never hidden: each failure is written to
//! the real standard error and counted for the totals.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::record::{Event, record};

/// One, and two more where it fails.
const ATTEMPTS: u32 = 3;

/// What stopped a thread may stop it again shortly after.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the body of a test that measures; if it panics, again after a pause, at most two more times. Each attempt must
/// begin clean: what the body makes goes when it unwinds.
///
/// Only for what depends on the machine's time. A race or a wrong count is a failure at the first attempt.
///
/// # Panics
/// As the last attempt did.
#[expect(
    clippy::disallowed_methods,
    reason = "no condition says that the disturbance is over"
)]
pub fn measured<T>(body: impl FnMut() -> T) -> T {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    repeated(body, |message| {
        crate::say(&format!("MEASURED AGAIN {test}: {message}"));
        record(&Event::MeasuredAgain { test });
        std::thread::sleep(PAUSE);
    })
}

/// The first attempt that does not panic, or the panic of the last. `before_next` gets the message of each other panic.
fn repeated<T>(mut body: impl FnMut() -> T, mut before_next: impl FnMut(&str)) -> T {
    for _ in 1..ATTEMPTS {
        // What an unwound attempt leaves half done is its own: the next one makes everything anew.
        match catch_unwind(AssertUnwindSafe(&mut body)) {
            Ok(value) => return value,
            Err(panic) => before_next(message(&*panic)),
        }
    }
    body()
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    let literal = panic.downcast_ref::<&str>().copied();
    formatted.or(literal).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails `failures` times, then succeeds: its result or the last message, and the messages of those made again.
    fn check(failures: u32) -> (Result<u32, String>, Vec<String>) {
        let mut attempts = 0;
        let mut again = Vec::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            repeated(
                || {
                    attempts += 1;
                    assert!(attempts > failures, "attempt {attempts} was disturbed");
                    attempts
                },
                |message| again.push(message.to_owned()),
            )
        }));
        (outcome.map_err(|panic| message(&*panic).to_owned()), again)
    }

    fn disturbed(attempts: std::ops::RangeInclusive<u32>) -> Vec<String> {
        attempts
            .map(|attempt| format!("attempt {attempt} was disturbed"))
            .collect()
    }

    #[test]
    fn what_succeeds_runs_once() {
        assert_eq!(check(0), (Ok(1), Vec::new()));
    }

    #[test]
    fn what_fails_twice_is_measured_twice_more() {
        assert_eq!(check(1), (Ok(2), disturbed(1..=1)));
        assert_eq!(check(2), (Ok(3), disturbed(1..=2)));
    }

    #[test]
    fn what_fails_three_times_fails_with_its_last_message() {
        let last = Err("attempt 3 was disturbed".to_owned());
        assert_eq!(check(3), (last.clone(), disturbed(1..=2)));
        assert_eq!(check(u32::MAX), (last, disturbed(1..=2)));
    }

    /// Its own process, in which the measurement is disturbed once: the repetition is counted there and not in the totals.
    #[test]
    fn a_repetition_is_said_with_test_and_message_also_where_the_test_passes() {
        const IS_DISTURBED: &str = "BENCHMESH_TESTING_DISTURBED";
        const NAME: &str = "measured::tests::a_repetition_is_said_with_test_and_message_also_where_the_test_passes";
        if std::env::var_os(IS_DISTURBED).is_some() {
            let mut attempts = 0;
            measured(|| {
                attempts += 1;
                assert!(attempts > 1, "too slow");
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
            output.contains(&format!("MEASURED AGAIN {NAME}: too slow\n")),
            "{output}"
        );
    }

    #[test]
    fn every_kind_of_panic_has_a_message() {
        let caught = |body: fn()| catch_unwind(body).expect_err("the body panics");
        let formatted = caught(|| panic!("{} of {}", 1, 2));
        let literal = caught(|| panic!("plain"));
        let other = caught(|| std::panic::panic_any(7_u32));
        assert_eq!(message(&*formatted), "1 of 2");
        assert_eq!(message(&*literal), "plain");
        assert_eq!(message(&*other), "a panic without a message");
    }

    #[test]
    fn an_attempt_begins_when_what_the_last_one_made_is_gone() {
        let made = std::cell::Cell::new(0);
        struct Made<'a>(&'a std::cell::Cell<u32>);
        impl Drop for Made<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let mut attempts = 0;
        let alone = repeated(
            || {
                attempts += 1;
                made.set(made.get() + 1);
                let _made = Made(&made);
                assert!(attempts == 3, "not yet");
                made.get()
            },
            |_| assert_eq!(made.get(), 0),
        );
        assert_eq!(alone, 1);
    }
}
