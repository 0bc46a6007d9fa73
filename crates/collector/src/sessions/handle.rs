//! What a stream holds of its session, and what it does with what it hears.

use super::{
    command::Progress,
    fleet::Fleet,
    member::{Live, Outgoing, Reply},
};
use crate::model::AgentId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a stream holds of its session; dropping it ends the session.
#[derive(Debug)]
pub struct SessionHandle {
    pub(super) fleet: Fleet,
    pub(super) agent: AgentId,
    pub(super) number: u64,
    pub cancel: CancellationToken,
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.fleet.detach(self.agent, self.number);
    }
}

impl SessionHandle {
    fn with_live<T>(&self, act: impl FnOnce(&mut Live) -> T) -> Option<T> {
        let mut state = self.fleet.state();
        let at = self.fleet.clock().now();
        let member = state.members.get_mut(&self.agent)?;
        let live = member
            .live
            .as_mut()
            .filter(|live| live.number == self.number)?;
        member.last_contact = Instant::now();
        member.last_seen = at;
        Some(act(live))
    }

    pub fn agent(&self) -> AgentId {
        self.agent
    }

    /// Answers a clock probe; dropped when the stream is behind.
    pub fn probed(&self, agent_sent_ns: i64) {
        let received_ns = self.fleet.clock().now_ns();
        self.with_live(|live| {
            let _ = live.outgoing.try_send(Outgoing::Clock {
                agent_sent_ns,
                received_ns,
            });
        });
    }

    /// Hands a reply to whoever waits for it.
    pub fn replied(&self, id: u64, reply: Reply) {
        let waiting = self.with_live(|live| live.waiting.remove(&id)).flatten();
        if let Some(waiting) = waiting {
            let _ = waiting.reply.send(reply);
        }
    }

    pub fn progressed(&self, id: u64, progress: Progress) {
        self.with_live(|live| {
            if let Some(sender) = live
                .waiting
                .get(&id)
                .and_then(|waiting| waiting.progress.as_ref())
            {
                sender.send_replace(progress);
            }
        });
    }
}
