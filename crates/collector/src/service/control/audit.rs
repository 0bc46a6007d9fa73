//! Who started and stopped a run, and from where: a line of the log, and an event of the run.
//!
//! An event that cannot be stored holds nobody up: the log has it.

use super::super::{INSECURE, connection::Peer, gate::Identity};
use crate::{
    clock::MeshClock,
    model::{RunId, Severity},
    store::{Store, rows::NewEvent},
};
use serde_json::json;
use std::{fmt, net::IpAddr};
use tonic::Request;
use tracing::{info, warn};

/// Whoever asked.
#[derive(Debug)]
pub(super) struct Requester {
    identity: Identity,
    address: Option<IpAddr>,
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.identity)?;
        match self.address {
            Some(address) => write!(f, " from {address}"),
            None => Ok(()),
        }
    }
}

impl Requester {
    pub fn of<T>(request: &Request<T>) -> Self {
        Self {
            identity: Peer::identity(request),
            address: Peer::address(request),
        }
    }

    fn detail(&self) -> String {
        let holder = match &self.identity {
            Identity::Known { holder, .. } | Identity::Revoked(holder) => Some(holder),
            Identity::Plain | Identity::Stranger | Identity::Forgotten => None,
        };
        json!({
            "role": holder.map(|holder| holder.role.word()),
            "name": holder.map(|holder| holder.name.as_str()),
            "address": self.address.map(|address| address.to_string()),
        })
        .to_string()
    }
}

/// A run was started; that nobody can tell by whom is stored with it.
pub(super) async fn started(store: &Store, clock: &MeshClock, run: RunId, by: &Requester) {
    info!(%run, %by, "a run was started");
    let message = format!("started by {by}");
    keep(store, clock, run, "start-requested", message, by).await;
    if !matches!(by.identity, Identity::Plain) {
        return;
    }
    let event = NewEvent {
        severity: Severity::Warning,
        ..event(clock, run, "insecure", INSECURE.to_owned(), None)
    };
    if let Err(error) = store.add_event(event).await {
        warn!(%error, "cannot store that a run has no TLS");
    }
}

/// A run that had not ended was asked to stop.
pub(super) async fn stopped(store: &Store, clock: &MeshClock, run: RunId, by: &Requester) {
    info!(%run, %by, "a run was stopped");
    let message = format!("stopped by {by}");
    keep(store, clock, run, "stop-requested", message, by).await;
}

async fn keep(
    store: &Store,
    clock: &MeshClock,
    run: RunId,
    kind: &str,
    message: String,
    by: &Requester,
) {
    let event = event(clock, run, kind, message, Some(by.detail()));
    if let Err(error) = store.add_event(event).await {
        warn!(%error, %run, %by, kind, "cannot store who asked");
    }
}

fn event(
    clock: &MeshClock,
    run: RunId,
    kind: &str,
    message: String,
    detail_json: Option<String>,
) -> NewEvent {
    NewEvent {
        at: clock.now(),
        run: Some(run),
        step: None,
        agent: None,
        severity: Severity::Info,
        kind: kind.to_owned(),
        message,
        detail_json,
    }
}
