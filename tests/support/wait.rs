//! Waits for conditions with a deadline: the only place in the tests where a thread sleeps.

use std::time::{Duration, Instant};

/// Interval of checks: it grows with the time waited, because a check may open a database.
const MIN_POLL: Duration = Duration::from_millis(20);
const MAX_POLL: Duration = Duration::from_millis(100);

/// Polls until `found` returns a value; panics with `what` after `limit`.
pub fn until<T>(what: &str, limit: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    try_until(limit, &mut found)
        .unwrap_or_else(|| panic!("waited {} s in vain: {what}", limit.as_secs_f64()))
}

/// Polls until `holds` is true; panics with `what` after `limit`.
pub fn until_true(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    until(what, limit, || holds().then_some(()));
}

/// Polls until `found` returns a value; returns `None` after `limit`.
pub fn try_until<T>(limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(value) = found() {
            return Some(value);
        }
        if began.elapsed() >= limit {
            return None;
        }
        pause((began.elapsed() / 20).clamp(MIN_POLL, MAX_POLL));
    }
}

/// Lets time pass.
pub fn pass(time: Duration) {
    try_until::<()>(time, || None);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one pause between two looks at a condition"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
