//! Schedules time probes and matches their answers.
//!
//! A session starts with a burst and then sends one probe a second. Only the newest few are remembered: a later answer
//! would have too large an error.

use crate::clock::{BURST, BURST_INTERVAL, PROBE_INTERVAL};
use benchmesh_workloads::clock::MonoNanos;
use std::collections::VecDeque;
use tokio::time::Instant;

const MAX_OUTSTANDING: usize = 16;

/// The outstanding probes of one session.
#[derive(Debug)]
pub struct Probes {
    burst_left: u32,
    next: Instant,
    outstanding: VecDeque<MonoNanos>,
}

impl Probes {
    /// The first probe is due at once.
    pub fn new() -> Self {
        Self {
            burst_left: BURST,
            next: Instant::now(),
            outstanding: VecDeque::new(),
        }
    }

    /// Waits until the next probe is due. Cancel-safe.
    pub async fn due(&self) {
        tokio::time::sleep_until(self.next).await;
    }

    /// Records a probe that is sent now. Returns its stamp.
    pub fn send(&mut self) -> MonoNanos {
        self.burst_left = self.burst_left.saturating_sub(1);
        let pause = if self.burst_left > 0 {
            BURST_INTERVAL
        } else {
            PROBE_INTERVAL
        };
        self.next = Instant::now() + pause;
        if self.outstanding.len() >= MAX_OUTSTANDING {
            self.outstanding.pop_front();
        }
        let now = MonoNanos::now();
        self.outstanding.push_back(now);
        now
    }

    /// Whether that probe is outstanding; removes it.
    pub fn answered(&mut self, sent: MonoNanos) -> bool {
        let before = self.outstanding.len();
        self.outstanding.retain(|it| *it != sent);
        self.outstanding.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_one_a_second() {
        let mut probes = Probes::new();
        let began = Instant::now();
        let mut at = Vec::new();
        for _ in 0..11 {
            probes.due().await;
            probes.send();
            at.push(began.elapsed().as_millis());
        }
        assert_eq!(at, [0, 20, 40, 60, 80, 100, 120, 140, 1140, 2140, 3140]);
    }

    #[tokio::test]
    async fn only_what_was_asked_is_answered_and_once() {
        let mut probes = Probes::new();
        let sent = probes.send();
        assert!(!probes.answered(MonoNanos(1)));
        assert!(probes.answered(sent));
        assert!(!probes.answered(sent));
        let first = probes.send();
        for _ in 0..MAX_OUTSTANDING {
            probes.send();
        }
        assert!(!probes.answered(first), "too old");
    }
}
