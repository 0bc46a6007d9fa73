//! The audit trail: starts, resumptions and stops of runs, pruned rows, tokens, certificates, each with its requester
//! and address. Each entry is a log line and an event.
//!
//! The events of trust are also a second copy of the registry's withdrawals: at the collector's start, a registry
//! restored from an older copy learns them from the events.
//!
//! No event contains a secret: a token is identified by the first digits of its hash. An event that cannot be stored
//! delays no request, because the log has it.

use super::{
    INSECURE,
    peer::{Peer, PeerIdentity},
};
use crate::trust::{Authority, Holder, TrustError, Withdrawal};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::RunId;
use benchmesh_store::{Store, StoreError, clock::MeshClock, rows::NewEvent};
use benchmesh_trust::{Fingerprint, Replacement, Role};
use benchmesh_workloads::figures;
use serde_json::{Value, json};
use std::{fmt, net::IpAddr, sync::Arc};
use tonic::Request;
use tracing::{info, warn};

/// The requester of an action.
#[derive(Debug)]
pub(super) struct Requester {
    identity: PeerIdentity,
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

    fn detail(&self) -> Value {
        let holder = match &self.identity {
            PeerIdentity::Known { holder, .. } | PeerIdentity::Revoked(holder) => Some(holder),
            PeerIdentity::Plain | PeerIdentity::Stranger | PeerIdentity::Forgotten => None,
        };
        json!({
            "role": holder.map(|holder| holder.role.word()),
            "name": holder.map(|holder| holder.name.as_str()),
            "address": self.address.map(|address| address.to_string()),
        })
    }
}

/// A run was started. An unknown requester is stored as such.
pub(super) async fn run_started(store: &Store, clock: &MeshClock, run: RunId, by: &Requester) {
    info!(%run, %by, "a run was started");
    let message = format!("started by {by}");
    keep(store, clock, run, EventKind::StartRequested, message, by).await;
    if !matches!(by.identity, PeerIdentity::Plain) {
        return;
    }
    let message = INSECURE.to_owned();
    let event = event(clock, Some(run), EventKind::Insecure, message, None);
    if let Err(error) = store.add_event(event).await {
        warn!(%error, "cannot store that a run has no TLS");
    }
}

/// A run that had ended was queued again.
pub(super) async fn run_resumed(store: &Store, clock: &MeshClock, run: RunId, by: &Requester) {
    info!(%run, %by, "a run was resumed");
    let message = format!("resumed by {by}");
    keep(store, clock, run, EventKind::ResumeRequested, message, by).await;
}

/// A run that had not ended received a stop request.
pub(super) async fn run_stopped(store: &Store, clock: &MeshClock, run: RunId, by: &Requester) {
    info!(%run, %by, "a run was stopped");
    let message = format!("stopped by {by}");
    keep(store, clock, run, EventKind::StopRequested, message, by).await;
}

/// A run is to begin no further loop. The run's scheduler stores this event, from which it continues after a restart.
pub(super) fn last_loop_requested(
    clock: &MeshClock,
    run: RunId,
    reason: &str,
    by: &Requester,
) -> NewEvent {
    info!(%run, %by, reason, "a run ends after its loop");
    let message = match reason {
        "" => format!("no further loop begins, requested by {by}"),
        reason => format!("no further loop begins: {reason}, requested by {by}"),
    };
    event(
        clock,
        Some(run),
        EventKind::LastLoopRequested,
        message,
        Some(by.detail()),
    )
}

/// Rows will be merged or deleted on request.
pub(super) async fn prune_requested(store: &Store, clock: &MeshClock, what: &str, by: &Requester) {
    let message = format!("{what}, requested by {by}");
    info!("{message}");
    let event = event(
        clock,
        None,
        EventKind::PruneRequested,
        message,
        Some(by.detail()),
    );
    if let Err(error) = store.add_event(event).await {
        warn!(%error, %by, "cannot store who asked for pruning");
    }
}

/// What became of the parts of kept data that were to be removed.
#[derive(Debug, Default)]
pub(super) struct RemovalOutcome {
    pub removed: usize,
    /// Agent, path and reason of each part with a problem.
    pub problems: Vec<String>,
}

/// The removal of kept data that an operator requested has ended. `parts`: the number of parts that were to be removed.
pub(super) async fn data_removed(
    store: &Store,
    clock: &MeshClock,
    name: &str,
    parts: usize,
    outcome: &RemovalOutcome,
    by: &Requester,
) {
    let mut message = format!(
        "{} of {} of the data kept as `{name}` removed, requested by {by}",
        outcome.removed,
        figures::plural(parts, "part")
    );
    if let Some(problem) = outcome.problems.first() {
        message += &format!("; {problem}");
    }
    if outcome.problems.len() > 1 {
        message += &format!("; and {} more", outcome.problems.len() - 1);
    }
    info!("{message}");
    let event = event(
        clock,
        None,
        EventKind::DataRemoved,
        message,
        Some(by.detail()),
    );
    if let Err(error) = store.add_event(event).await {
        warn!(%error, %by, "cannot store who asked for the removal of data");
    }
}

/// The printable part of a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenId(Fingerprint);

impl TokenId {
    /// Number of digits shown.
    pub const DIGITS: usize = 8;

    /// From the hash stored in the registry.
    pub fn of(hash: Fingerprint) -> Self {
        Self(hash)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0.bytes();
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// At the start, exchanges withdrawals: the registry learns from the events those that are newer than its copy, and the
/// events learn from the registry the revocations that are newer than the database.
pub(super) async fn reconcile(
    store: &Store,
    clock: &MeshClock,
    authority: Arc<Authority>,
) -> Result<(), ReconcileError> {
    let known = withdrawals(store).await.map_err(ReconcileError::Store)?;
    let own = Arc::clone(&authority);
    let recorded = known.clone();
    let withdrawn = tokio::task::spawn_blocking(move || own.withdraw(&recorded)).await;
    // Nothing in the call can panic.
    if withdrawn
        .unwrap_or(Ok(false))
        .map_err(ReconcileError::Trust)?
    {
        warn!(
            "the registry of certificates is older than the database: the collector repeats the later revocations"
        );
    }
    for (name, mut certificates) in authority.revoked() {
        certificates.retain(|it| !known.contains(&Withdrawal::Certificate(*it)));
        if certificates.is_empty() {
            continue;
        }
        let message = format!(
            "{} certificates of {name} are revoked according to the registry",
            certificates.len()
        );
        let change = TrustChange::CertificatesRevoked { name, certificates };
        let event = event(clock, None, change.kind(), message, Some(change.facts()));
        store
            .add_event(event)
            .await
            .map_err(ReconcileError::Store)?;
    }
    Ok(())
}

/// Why registry and events cannot be compared.
#[derive(Debug)]
pub(super) enum ReconcileError {
    Store(StoreError),
    Trust(TrustError),
}

/// The withdrawals in the collector's own events, in their order.
async fn withdrawals(store: &Store) -> Result<Vec<Withdrawal>, StoreError> {
    let kinds = [
        EventKind::TokenUsed,
        EventKind::TokenCancelled,
        EventKind::CertificateRevoked,
    ];
    let mut withdrawals = Vec::new();
    for (kind, detail) in store.trust_events(kinds).await? {
        let detail: Value = serde_json::from_str(&detail).unwrap_or_default();
        if kind == EventKind::CertificateRevoked.as_str() {
            let fingerprints = detail.get("fingerprints").cloned().unwrap_or_default();
            let fingerprints: Vec<Fingerprint> =
                serde_json::from_value(fingerprints).unwrap_or_default();
            withdrawals.extend(fingerprints.into_iter().map(Withdrawal::Certificate));
            continue;
        }
        let id = detail.get("token").and_then(Value::as_str);
        let uses_left = detail.get("uses_left").and_then(Value::as_u64);
        if let (Some(id), Some(uses_left)) = (id, uses_left) {
            withdrawals.push(Withdrawal::Token {
                id: id.to_owned(),
                uses_left: u32::try_from(uses_left).unwrap_or(u32::MAX),
            });
        }
    }
    Ok(withdrawals)
}

/// A change of trust.
#[derive(Clone, Debug)]
pub(super) enum TrustChange {
    TokenMade {
        token: TokenId,
        role: Role,
        uses: u32,
        ttl_s: u64,
        replacement: Replacement,
    },
    TokenUsed {
        token: TokenId,
        holder: Holder,
        uses_left: u32,
    },
    TokenExhausted {
        token: TokenId,
    },
    /// It can no longer be used to join.
    TokenCancelled {
        token: TokenId,
        uses: u32,
    },
    CertificateIssued {
        holder: Holder,
        /// `None`: requested by the owner.
        token: Option<TokenId>,
    },
    CertificateRenewed {
        holder: Holder,
    },
    /// All certificates of a name.
    CertificatesRevoked {
        name: String,
        certificates: Vec<Fingerprint>,
    },
    /// An agent's uid is bound to another name.
    AgentRenamed {
        former: String,
        name: String,
    },
}

impl TrustChange {
    fn kind(&self) -> EventKind {
        match self {
            Self::TokenMade { .. } => EventKind::TokenMade,
            Self::TokenUsed { .. } => EventKind::TokenUsed,
            Self::TokenExhausted { .. } => EventKind::TokenExhausted,
            Self::TokenCancelled { .. } => EventKind::TokenCancelled,
            Self::CertificateIssued { .. } => EventKind::CertificateIssued,
            Self::CertificateRenewed { .. } => EventKind::CertificateRenewed,
            Self::CertificatesRevoked { .. } => EventKind::CertificateRevoked,
            Self::AgentRenamed { .. } => EventKind::AgentRenamed,
        }
    }

    fn message(&self, by: &Requester) -> String {
        let from = by
            .address
            .map_or_else(String::new, |address| format!(" from {address}"));
        match self {
            Self::TokenMade {
                token, role, uses, ..
            } => format!("join token {token} for {uses} of the role {role} made by {by}"),
            Self::TokenUsed {
                token,
                holder,
                uses_left,
            } => format!(
                "join token {token} used for {} {}{from}; uses left: {uses_left}",
                holder.role, holder.name
            ),
            Self::TokenExhausted { token } => format!("join token {token} is used up"),
            Self::TokenCancelled { token, uses } => {
                format!("join token {token} cancelled by {by}; uses that were left: {uses}")
            }
            Self::CertificateIssued {
                holder,
                token: Some(token),
            } => format!(
                "certificate for {} {} given for join token {token}{from}",
                holder.role, holder.name
            ),
            Self::CertificateIssued {
                holder,
                token: None,
            } => format!(
                "certificate for {} {} given to {by}",
                holder.role, holder.name
            ),
            Self::CertificateRenewed { holder } => format!(
                "certificate of {} {} renewed{from}",
                holder.role, holder.name
            ),
            Self::CertificatesRevoked { name, certificates } => {
                format!(
                    "{} certificates of {name} revoked by {by}",
                    certificates.len()
                )
            }
            Self::AgentRenamed { former, name } => {
                format!("agent {former} has the new name {name}{from}")
            }
        }
    }

    /// The facts of the event, besides the requester.
    fn facts(&self) -> Value {
        match self {
            Self::TokenMade {
                token,
                role,
                uses,
                ttl_s,
                replacement,
            } => json!({
                "token": token.to_string(),
                "of_role": role.word(),
                "uses": uses,
                "ttl_s": ttl_s,
                "replace": *replacement != Replacement::Nobody,
                "replaces": replacement.named(),
            }),
            Self::TokenUsed {
                token,
                holder,
                uses_left,
            } => json!({
                "token": token.to_string(),
                "of_role": holder.role.word(),
                "of_name": holder.name,
                "uses_left": uses_left,
            }),
            Self::TokenExhausted { token } => json!({ "token": token.to_string() }),
            Self::TokenCancelled { token, uses } => json!({
                "token": token.to_string(),
                "uses": uses,
                "uses_left": 0,
            }),
            Self::CertificateIssued { holder, token } => json!({
                "of_role": holder.role.word(),
                "of_name": holder.name,
                "token": token.map(|token| token.to_string()),
            }),
            Self::CertificateRenewed { holder } => json!({
                "of_role": holder.role.word(),
                "of_name": holder.name,
            }),
            Self::CertificatesRevoked { name, certificates } => json!({
                "of_name": name,
                "certificates": certificates.len(),
                "fingerprints": certificates,
            }),
            Self::AgentRenamed { former, name } => json!({
                "of_name": name,
                "former_name": former,
            }),
        }
    }
}

/// Stores changes of trust, in their order, without delaying the requester.
pub(super) fn trust_changed(
    store: &Store,
    clock: &MeshClock,
    changes: &[TrustChange],
    by: &Requester,
) {
    let events: Vec<NewEvent> = changes
        .iter()
        .map(|change| {
            let message = change.message(by);
            info!(kind = %change.kind(), "{message}");
            let mut detail = by.detail();
            if let (Value::Object(detail), Value::Object(facts)) = (&mut detail, change.facts()) {
                detail.extend(facts);
            }
            event(clock, None, change.kind(), message, Some(detail))
        })
        .collect();
    let store = store.clone();
    tokio::spawn(async move {
        for event in events {
            let kind = event.kind;
            if let Err(error) = store.add_event(event).await {
                warn!(%error, %kind, "cannot store a change of trust");
            }
        }
    });
}

async fn keep(
    store: &Store,
    clock: &MeshClock,
    run: RunId,
    kind: EventKind,
    message: String,
    by: &Requester,
) {
    let event = event(clock, Some(run), kind, message, Some(by.detail()));
    if let Err(error) = store.add_event(event).await {
        warn!(%error, %run, %by, %kind, "cannot store the requester");
    }
}

fn event(
    clock: &MeshClock,
    run: Option<RunId>,
    kind: EventKind,
    message: String,
    detail: Option<Value>,
) -> NewEvent {
    NewEvent {
        run,
        detail_json: detail.map(|detail| detail.to_string()),
        ..NewEvent::new(clock.now(), kind, message)
    }
}
