//! Rate limit for a collector's requests: a maximum number within any minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The times of use within the last minute.
#[derive(Debug)]
pub struct PerMinute {
    most: usize,
    done: Mutex<VecDeque<Instant>>,
}

impl PerMinute {
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            done: Mutex::default(),
        }
    }

    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Whether another use is allowed at `now`. An allowed use is counted.
    pub fn permit(&self, now: Instant) -> bool {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done
            .front()
            .is_some_and(|at| now.saturating_duration_since(*at) >= MINUTE)
        {
            done.pop_front();
        }
        let permitted = done.len() < self.most;
        if permitted {
            done.push_back(now);
        }
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_within_each_minute() {
        let (recent, start) = (PerMinute::new(120), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for ms in 0..120 {
            assert!(recent.permit(at(ms)), "{ms}");
        }
        assert!(!recent.permit(at(120)) && !recent.permit(at(59_999)));
        // The first one is a minute ago, the second one is not.
        assert!(recent.permit(at(60_000)) && !recent.permit(at(60_000)));
        assert!(recent.permit(at(200_000)));
    }
}
