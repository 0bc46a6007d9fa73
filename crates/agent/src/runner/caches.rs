//! Dropping the kernel's caches of this host, and saying what was dropped.
//!
//! How often is bounded: a collector cannot keep a host's caches cold.

use crate::command::CacheDrop;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CONTROL: &str = "/proc/sys/vm/drop_caches";

/// What is dropped, and what the kernel is told for it.
const CACHES: [(&str, &str); 2] = [("page-cache", "1"), ("dentries-inodes", "2")];

/// The shortest steps drop them at each start; no plan does so twice a second.
const MOST_PER_MINUTE: usize = 120;
const MINUTE: Duration = Duration::from_secs(60);

/// When caches were dropped within the last minute.
#[derive(Debug, Default)]
pub struct RecentDrops(Mutex<VecDeque<Instant>>);

impl RecentDrops {
    /// Whether they may be dropped at `now`, which then counts.
    fn permit(&self, now: Instant) -> bool {
        let mut drops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while drops
            .front()
            .is_some_and(|at| now.saturating_duration_since(*at) >= MINUTE)
        {
            drops.pop_front();
        }
        let permitted = drops.len() < MOST_PER_MINUTE;
        if permitted {
            drops.push_back(now);
        }
        permitted
    }
}

/// The answer of an agent that was not started with `--allow-drop-caches`.
#[must_use]
pub fn not_allowed() -> Vec<CacheDrop> {
    not_dropped("this agent does not drop caches: start it with --allow-drop-caches to let it")
}

fn not_dropped(error: &str) -> Vec<CacheDrop> {
    let drop = |(what, _)| CacheDrop {
        what,
        error: error.to_owned(),
    };
    CACHES.into_iter().map(drop).collect()
}

/// Writes back everything, then drops the page cache, then dentries and inodes. Blocks for as long as that takes. Drops
/// nothing when it was done [`MOST_PER_MINUTE`] times within the last minute.
#[must_use]
pub fn drop_caches(recent: &RecentDrops) -> Vec<CacheDrop> {
    if !recent.permit(Instant::now()) {
        return not_dropped(&format!(
            "this agent drops caches at most {MOST_PER_MINUTE} times a minute"
        ));
    }
    // What is dirty cannot be dropped.
    rustix::fs::sync();
    CACHES
        .into_iter()
        .map(|(what, order)| CacheDrop {
            what,
            error: write(Path::new(CONTROL), order),
        })
        .collect()
}

/// Empty when it worked.
fn write(control: &Path, order: &str) -> String {
    let written = OpenOptions::new()
        .write(true)
        .open(control)
        .and_then(|mut file| file.write_all(order.as_bytes()));
    match written {
        Ok(()) => String::new(),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => format!(
            "the agent may not write {}: run it as root to drop caches",
            control.display()
        ),
        Err(error) => format!("write {}: {error}", control.display()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn drops_are_bounded_within_each_minute() {
        let (recent, start) = (RecentDrops::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for ms in 0..120 {
            assert!(recent.permit(at(ms)), "{ms}");
        }
        assert!(!recent.permit(at(120)) && !recent.permit(at(59_999)));
        // The first one is a minute ago, the second one is not.
        assert!(recent.permit(at(60_000)) && !recent.permit(at(60_000)));
        assert!(recent.permit(at(200_000)));
    }

    #[test]
    fn what_cannot_be_dropped_is_said() {
        let home = tempfile::tempdir().unwrap();
        let control = home.path().join("drop_caches");
        assert!(write(&control, "1").contains("No such file"));
        std::fs::write(&control, "").unwrap();
        assert_eq!(write(&control, "2"), "");
        assert_eq!(std::fs::read_to_string(&control).unwrap(), "2");
    }
}
