//! A stream's handle on its session: it delivers the agent's messages to the session and ends it when dropped.

use super::Fleet;
use crate::sessions::{
    command::CommandProgress,
    member::{Outgoing, Reply, Session},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros};
use benchmesh_store::rows::NewEvent;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Counts as so many stored bytes of the agent.
const SPOOL_EVENT_BYTES: u64 = 1024;

/// A stream's handle on its session; dropping it ends the session.
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
    fn with_session<T>(&self, act: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut state = self.fleet.state();
        let at = self.fleet.clock().now();
        let member = state.members.get_mut(&self.agent)?;
        let session = member
            .session
            .as_mut()
            .filter(|session| session.number == self.number)?;
        member.last_contact = Instant::now();
        member.last_seen = at;
        Some(act(session))
    }

    pub fn agent(&self) -> AgentId {
        self.agent
    }

    /// Answers a clock probe; the answer is dropped when the stream is behind.
    pub fn answer_probe(&self, agent_sent_ns: i64) {
        let received_ns = self.fleet.clock().now_ns();
        self.with_session(|session| {
            let _ = session.outgoing.try_send(Outgoing::Clock {
                agent_sent_ns,
                received_ns,
            });
        });
    }

    /// Passes a reply to the call that waits for it.
    pub fn deliver_reply(&self, id: u64, reply: Reply) {
        let waiting = self
            .with_session(|session| session.waiting.remove(&id))
            .flatten();
        if let Some(waiting) = waiting {
            let _ = waiting.reply.send(reply);
        }
    }

    /// Records that the agent's disk refuses writes, once per outage, for a number of outages per minute.
    pub fn note_spool_blocked(&self, since_ns: i64, for_ns: i64) {
        if self.with_session(|_| ()).is_none() {
            return;
        }
        let now = self.fleet.clock().now();
        let name = {
            let mut state = self.fleet.state();
            let Some(member) = state.members.get_mut(&self.agent) else {
                return;
            };
            if member.spool_blocked_ns.replace(since_ns) == Some(since_ns) {
                return;
            }
            let name = member.hello.name.clone();
            if !state.recent.spool_outage(&name, Instant::now()) {
                return;
            }
            name
        };
        if self
            .fleet
            .spend(self.agent, &name, SPOOL_EVENT_BYTES)
            .is_err()
        {
            return;
        }
        let since = MeshMicros(now.0.saturating_sub(for_ns / 1000));
        let message = format!(
            "the disk of agent `{name}`'s state directory refuses writes: the agent keeps its measurements in memory, \
             and loses samples when that is full; free space on that disk"
        );
        warn!("{message}");
        self.fleet.store_event(NewEvent {
            agent: Some(self.agent),
            ..NewEvent::new(since, EventKind::SpoolBlocked, message)
        });
    }

    pub fn deliver_progress(&self, id: u64, progress: CommandProgress) {
        self.with_session(|session| {
            if let Some(sender) = session
                .waiting
                .get(&id)
                .and_then(|waiting| waiting.progress.as_ref())
            {
                sender.send_replace(progress);
            }
        });
    }
}
