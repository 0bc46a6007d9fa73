//! Appointments of samplers beyond one session: loaded at the start, stored with each change, with events.

use super::Fleet;
use crate::sessions::{
    hello::Hello,
    samplers::{Period, SampledPlace},
    state::{FleetState, SamplerChange},
};
use benchmesh_model::events::EventKind;
use benchmesh_store::rows::{NewEvent, NewSampler, SamplerRow};
use tracing::warn;

impl Fleet {
    /// Adds the appointments stored in the database.
    pub fn add_samplers(&self, rows: Vec<SamplerRow>) {
        let mut state = self.state();
        for row in rows {
            // A hello, so that keys are made in one place.
            let hello = Hello {
                boot_id: row.boot_id,
                pid_namespace: row.pid_namespace,
                net_namespace: row.net_namespace.clone().unwrap_or_default(),
                ..Hello::default()
            };
            let place = match row.net_namespace {
                None => SampledPlace::Host(hello.host_key()),
                Some(_) => SampledPlace::Interfaces(hello.net_key()),
            };
            let period = Period {
                agent: row.agent,
                name: row.name,
                from: row.from,
                until: row.until,
            };
            state.samplers.add(place, period);
        }
    }

    /// Stores appointments. A replaced sampler is an event.
    pub(super) fn store_samplers(&self, changes: Vec<SamplerChange>) {
        let mut sampled = None;
        for change in changes {
            // Most agents have both parts; these share one event.
            let is_said = sampled == Some(change.agent);
            sampled = Some(change.agent);
            if let Some(former) = change
                .former
                .as_ref()
                .filter(|former| !is_said && **former != change.name)
            {
                let of = change
                    .net_namespace
                    .as_ref()
                    .map_or("", |_| "the interfaces of ");
                let message = format!(
                    "agent `{}` samples {of}host `{}` from now on, instead of `{former}`",
                    change.name, change.host_name
                );
                self.store_event(NewEvent {
                    agent: Some(change.agent),
                    detail_json: Some(serde_json::json!({ "former": former }).to_string()),
                    ..NewEvent::new(change.at, EventKind::SamplerChanged, message)
                });
            }
            // An agent without a known namespace shares it with no other.
            if change.net_namespace.as_deref() == Some("") {
                continue;
            }
            let store = self.0.store.clone();
            tokio::spawn(async move {
                let sampler = NewSampler {
                    host: change.host,
                    net_namespace: change.net_namespace,
                    agent: change.agent,
                    from: change.at,
                };
                if let Err(error) = store.appoint_sampler(sampler).await {
                    warn!(agent = %change.name, %error, "cannot store the sampler of a host");
                }
            });
        }
    }

    /// Appoints agents that have waited for long enough.
    pub(super) fn appoint_waiting(&self) {
        let at = self.clock().now();
        let changes = {
            let mut state = self.state();
            if !state.is_sampler_awaited {
                return;
            }
            state.appoint(None, at)
        };
        self.store_samplers(changes);
    }
}

impl FleetState {
    /// Whether the agent may describe its host: the host has no description yet, or it is the host's own agent.
    pub(super) fn describes_host(&self, hello: &Hello) -> bool {
        let place = SampledPlace::Host(hello.host_key());
        let Some(own) = self.samplers.own(&place) else {
            return true;
        };
        own.name == hello.name
            || self
                .members
                .get(&own.agent)
                .is_some_and(|member| member.hello.uid == hello.uid)
    }
}
