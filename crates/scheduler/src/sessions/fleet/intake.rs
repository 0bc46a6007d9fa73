//! Limits of the accepted batches: an agent's bytes per hour, and rows of a host from its sampler only.

use super::Fleet;
use crate::sessions::{
    hello::Hello,
    hourly_bytes::{Flood, FloodRefusal},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::AgentId;
use benchmesh_store::{
    ingest::{Batch, appointed::Appointed},
    rows::NewEvent,
};
use benchmesh_workloads::figures::plural;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::warn;

impl Fleet {
    /// Takes bytes to be stored from the agent's hour. Exceeding the limit ends its session, with an event.
    pub fn spend(&self, agent: AgentId, name: &str, bytes: u64) -> Result<(), Flood> {
        let flood = {
            let mut state = self.state();
            match state.hourly_bytes.spend(name, bytes, Instant::now()) {
                Ok(()) => return Ok(()),
                Err(FloodRefusal::GoesOn(flood)) => return Err(flood),
                Err(FloodRefusal::Begins(flood)) => {
                    let member = state.members.get(&agent);
                    if let Some(session) = member.and_then(|member| member.session.as_ref()) {
                        session.cancel.cancel();
                    }
                    flood
                }
            }
        };
        warn!("{flood}; its session ends");
        let message = format!("{flood}; its session was ended");
        let detail =
            serde_json::json!({ "limit_bytes": flood.limit_bytes, "minutes": flood.minutes });
        self.store_event(NewEvent {
            agent: Some(agent),
            detail_json: Some(detail.to_string()),
            ..NewEvent::new(self.clock().now(), EventKind::AgentFlood, message)
        });
        Err(flood)
    }

    /// Removes rows of hosts and interfaces that the agent must not describe from a batch: at most one event a minute.
    pub fn take_out_of_others(&self, agent: AgentId, batch: &mut Batch) {
        let Some((hello, host, interfaces)) = self.appointed(agent) else {
            return;
        };
        let rows = batch.take_out_of_others(&host, &interfaces);
        let name = &hello.name;
        if rows == 0 || !self.state().recent.is_first_of_others(name, Instant::now()) {
            return;
        }
        let why = match host.is_own {
            true => "from before this agent became the host's sampler",
            false => "which another agent sampled at that time",
        };
        let message = format!(
            "agent `{name}` sent rows about host `{}`, {why}: the collector drops {}, and further rows of that \
             time",
            hello.host_name,
            plural(rows, "row")
        );
        warn!("{message}");
        self.store_event(NewEvent {
            agent: Some(agent),
            detail_json: Some(serde_json::json!({ "rows": rows }).to_string()),
            ..NewEvent::new(self.clock().now(), EventKind::HostOfAnother, message)
        });
    }

    /// An agent's hello, and when its rows about its host and about interfaces count.
    fn appointed(&self, agent: AgentId) -> Option<(Arc<Hello>, Appointed, Appointed)> {
        let state = self.state();
        let member = state.members.get(&agent)?;
        let of = |place| state.samplers.appointed(&place, agent, &member.hello.name);
        let (host, interfaces) = (of(member.host_place()), of(member.net_place()));
        Some((Arc::clone(&member.hello), host, interfaces))
    }

    /// Checks the free space of the database's disk: low space is an event, and so is its recovery, even after a short
    /// time. Returns whether it is low now.
    pub(super) fn note_room(&self, was_low: bool) -> bool {
        let store = &self.0.store;
        let is_low = store.is_low_on_space();
        let was_found_low = store.take_was_low_on_space();
        if was_found_low && !was_low {
            self.store_room(
                EventKind::DatabaseLow,
                "the database's disk is almost full: the collector drops samples and accepts no new run, because it \
                 reserves the remaining space for results; free space on that disk",
            );
        }
        if (was_low || was_found_low) && !is_low {
            self.store_room(
                EventKind::DatabaseRoom,
                "the database's disk has room again: the collector stores samples and accepts new runs",
            );
        }
        is_low
    }

    fn store_room(&self, kind: EventKind, message: &str) {
        warn!("{message}");
        self.store_event(NewEvent::new(self.clock().now(), kind, message.to_owned()));
    }
}
