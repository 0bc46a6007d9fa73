//! Once a second: ends the sessions of silent agents, stores when each agent was last seen, appoints waiting samplers,
//! and checks the free space on the database's disk.
//!
//! An open connection proves nothing: the process may be stopped, or the link to its host cut.

use super::Fleet;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// An attached agent probes the clock every second; a session without a message for this long is dead.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// Lower bound for any `loss-after`: a few probes may be late or lost.
const MIN_SILENCE: Duration = Duration::from_secs(3);
/// How often sessions are checked and the members' last contact is stored.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const CHECKS_PER_LAST_SEEN: u32 = 15;

impl Fleet {
    /// Sets the current run's `loss-after`; `None` without a run.
    pub fn set_loss_after(&self, loss_after: Option<Duration>) {
        self.state().loss_after = loss_after;
    }

    /// Runs until `cancel`: ends silent sessions, and stores when each agent was last seen.
    pub async fn watch(&self, cancel: CancellationToken) {
        let mut looks = tokio::time::interval(CHECK_INTERVAL);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0_u32;
        let mut looked = Instant::now();
        let mut storing = tokio::spawn(async {});
        let mut is_low = false;
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                _ = looks.tick() => {}
            }
            // After a pause of the collector itself, queued messages of agents are read first.
            if looked.elapsed() < CHECK_INTERVAL * 2 {
                self.end_silent();
            }
            looked = Instant::now();
            self.appoint_waiting();
            is_low = self.note_room(is_low);
            count = count.wrapping_add(1);
            if count.is_multiple_of(CHECKS_PER_LAST_SEEN) && storing.is_finished() {
                // Concurrently with the checks, because the database may block for a long time.
                let fleet = self.clone();
                storing = tokio::spawn(async move { fleet.store_last_seen().await });
            }
        }
        storing.abort();
    }

    fn end_silent(&self) {
        let state = self.state();
        let limit = state.loss_after.map_or(MAX_SILENCE, |loss_after| {
            loss_after.clamp(MIN_SILENCE, MAX_SILENCE)
        });
        for member in state.members.values() {
            let silent = member.last_contact.elapsed();
            if let Some(session) = &member.session
                && silent > limit
                && !session.cancel.is_cancelled()
            {
                warn!(agent = %member.hello.name, "no message for {} s, its session ends", silent.as_secs());
                session.cancel.cancel();
            }
        }
    }

    async fn store_last_seen(&self) {
        let seen: Vec<_> = self
            .state()
            .members
            .values()
            .filter(|member| member.session.is_some())
            .map(|member| (member.id, member.last_seen))
            .collect();
        if seen.is_empty() {
            return;
        }
        if let Err(error) = self.0.store.agents_seen(seen).await {
            warn!(%error, "cannot store when agents were seen");
        }
    }
}
