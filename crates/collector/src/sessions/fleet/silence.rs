//! Looks after sessions: one whose agent says nothing is ended, and who was seen when is written down.
//!
//! A connection that stays open proves nothing: the process may be stopped, or the way to its host cut.

use super::Fleet;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// An attached agent probes the clock every second; one that says nothing for so long has a dead session.
const SILENCE: Duration = Duration::from_secs(15);
/// However little patience a run has: a few probes may be late or lost.
const LEAST_SILENCE: Duration = Duration::from_secs(3);
/// How often sessions are looked at, and members' last contact is written down.
const LOOK: Duration = Duration::from_secs(1);
const SEEN_EVERY_LOOKS: u32 = 15;

impl Fleet {
    /// A run under way takes an agent for lost after so long without contact; `None`: there is no run.
    pub fn set_patience(&self, patience: Option<Duration>) {
        self.state().patience = patience;
    }

    /// Looks after sessions until `cancel`: ends the silent ones and writes down who was seen when.
    pub async fn watch(&self, cancel: CancellationToken) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0_u32;
        let mut looked = Instant::now();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = looks.tick() => {}
            }
            // After a standstill of the collector itself, what agents said meanwhile is heard first.
            if looked.elapsed() < LOOK * 2 {
                self.end_silent();
            }
            looked = Instant::now();
            count = count.wrapping_add(1);
            if count.is_multiple_of(SEEN_EVERY_LOOKS) {
                self.write_seen().await;
            }
        }
    }

    fn end_silent(&self) {
        let state = self.state();
        let limit = state
            .patience
            .map_or(SILENCE, |patience| patience.clamp(LEAST_SILENCE, SILENCE));
        for member in state.members.values() {
            let silent = member.last_contact.elapsed();
            if let Some(live) = &member.live
                && silent > limit
                && !live.cancel.is_cancelled()
            {
                warn!(agent = %member.hello.name, "nothing heard for {} s, its session ends", silent.as_secs());
                live.cancel.cancel();
            }
        }
    }

    async fn write_seen(&self) {
        let seen: Vec<_> = self
            .state()
            .members
            .values()
            .filter(|member| member.live.is_some())
            .map(|member| (member.id, member.last_seen))
            .collect();
        for (agent, at) in seen {
            if let Err(error) = self.0.store.agent_seen(agent, at).await {
                warn!(%agent, %error, "cannot store when the agent was seen");
            }
        }
    }
}
