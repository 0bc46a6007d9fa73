//! How long rows of samples and intervals wait for more rows before they are committed. Pure.
//!
//! Samples are stored by daemon and time, disk and time, interface and time. A commit writes a page of 4 KiB for each
//! of these, with one new row or a hundred. Agents keep unacknowledged rows, so waiting loses nothing.

use benchmesh_model::mesh::AgentId;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of rows of one transaction: two minutes of twelve agents with ten daemons each. It then takes tens
/// of milliseconds.
pub const GROUP_ROWS: usize = 24_576;
/// Maximum wait.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(120);
/// Rows do not wait for this long after a request for rows.
const PROMPT: Duration = Duration::from_secs(5);
/// Waiting rows of one agent, of a few hundred bytes each; it sends no more than 4 MiB ahead.
const MAX_AGENT_ROWS: usize = 8192;

/// The instant of the last request for rows, or start or end of a run.
#[derive(Debug)]
pub(crate) struct LastRequest(Instant);

impl Default for LastRequest {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl LastRequest {
    /// Call it at a request for rows, or at the start or end of a run.
    pub(super) fn record(&mut self, now: Instant) {
        self.0 = now;
    }

    /// How long a row that arrives now may wait. It grows with the time since the last request, so that rows
    /// are stored at once at the start and end of a run, and while a viewer polls.
    pub(super) fn max_wait(&self, now: Instant) -> Duration {
        let quiet = now.saturating_duration_since(self.0);
        quiet.saturating_sub(PROMPT).min(MAX_WAIT)
    }

    /// As if there had been no request for a long time.
    #[cfg(test)]
    pub(crate) fn long_ago() -> Option<Self> {
        Instant::now().checked_sub(PROMPT + MAX_WAIT).map(Self)
    }
}

/// The waiting rows. They are bounded, and per agent fewer than the window at which it stops sending.
#[derive(Debug, Default)]
pub(super) struct Load {
    rows: usize,
    agents: HashMap<AgentId, AgentLoad>,
    is_agent_full: bool,
}

#[derive(Debug, Default)]
struct AgentLoad {
    batches: usize,
    rows: usize,
}

impl Load {
    /// `window`: the number of batches that the agent sends before they are acknowledged.
    pub(super) fn add(&mut self, agent: AgentId, rows: usize, window: usize) {
        let rows = rows.max(1);
        self.rows += rows;
        let of_agent = self.agents.entry(agent).or_default();
        of_agent.batches += 1;
        of_agent.rows += rows;
        self.is_agent_full |= of_agent.batches >= window * 3 / 4 || of_agent.rows >= MAX_AGENT_ROWS;
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows >= GROUP_ROWS || self.is_agent_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calmer_it_is_the_longer_rows_wait() {
        let start = Instant::now();
        let mut last_request = LastRequest::default();
        last_request.record(start);
        for (after_s, wait_s) in [(0, 0), (5, 0), (9, 4), (65, 60), (125, 120), (3600, 120)] {
            let wait = last_request.max_wait(start + Duration::from_secs(after_s));
            assert_eq!(wait.as_secs(), wait_s, "after {after_s} s");
        }
        last_request.record(start + Duration::from_secs(3600));
        let after = start + Duration::from_secs(3607);
        assert_eq!(last_request.max_wait(after), Duration::from_secs(2));
    }

    #[test]
    fn a_group_is_full_by_rows_and_before_an_agent_has_to_stop_sending() {
        let full_after = |agents: i64, rows: usize, window: usize| {
            let mut load = Load::default();
            let mut batches = 0;
            while !load.is_full() {
                load.add(AgentId(batches % agents), rows, window);
                batches += 1;
            }
            batches
        };
        assert_eq!(full_after(1, 1, 32), 24);
        assert_eq!(full_after(1, 1, 256), 192);
        assert_eq!(full_after(10, 0, 32), 231);
        assert_eq!(full_after(1, 1024, 256), 8);
        assert_eq!(full_after(1000, 1024, 256), 24);
    }
}
