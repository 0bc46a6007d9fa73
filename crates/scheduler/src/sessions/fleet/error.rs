//! Errors of refusing and of forgetting an agent.

use super::MAX_SESSIONS;
use crate::sessions::{hello::BadField, hourly_bytes::Flood, recent::MAX_CHANGES};
use benchmesh_store::StoreError;

/// Why an agent is refused.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(
        "this agent speaks wire version {agent} (benchmesh {agent_version}), but this collector speaks version \
         {collector} (benchmesh {}): update benchmesh on the {}",
        env!("CARGO_PKG_VERSION"),
        if agent < collector { "agent's host" } else { "collector's host" }
    )]
    WireVersion {
        agent: u32,
        collector: u32,
        agent_version: String,
    },
    #[error(transparent)]
    BadField(BadField),
    #[error(
        "another attached agent (host {host}) already uses the name `{name}`; start this one with another --name"
    )]
    NameInUse { name: String, host: String },
    #[error(
        "an agent with the same identity is attached and answers (`{name}`, host {host}): one state directory is a \
         copy of the other; give this agent an empty --state-dir, in which it makes a new identity"
    )]
    IdentityInUse { name: String, host: String },
    #[error(
        "an earlier process of the agent `{name}` is still alive: the collector accepts this one when that one has \
         ended"
    )]
    EarlierStart { name: String },
    #[error(
        "another agent with the name `{name}` has gone silent: the collector accepts this one when that session is \
         over"
    )]
    NameHeld { name: String },
    #[error(
        "the uid in this agent's state directory belongs to the agent `{known_as}`, but this agent is called `{name}`: \
         start it with --name {known_as}, or give it an empty --state-dir; to rename it, remove credentials.json there \
         and start it with --name {name} and --join-file FILE, with a token of \
         `benchmesh collector token --replace {known_as}`"
    )]
    UidBound { name: String, known_as: String },
    #[error("{MAX_SESSIONS} agents are attached, and this collector accepts no more")]
    Full,
    #[error(
        "the agent `{name}` has attached too often within a minute: the collector accepts it again after that minute"
    )]
    TooOften { name: String },
    #[error(
        "the agent `{name}` has attached with a new identity or another description (host, labels, version) \
         {MAX_CHANGES} times within an hour: give it a --state-dir that survives its restarts; the collector accepts \
         it again after that hour"
    )]
    ChangesTooOften { name: String },
    #[error(transparent)]
    Flood(Flood),
    #[error("the collector could not store the agent")]
    Store { source: StoreError },
}

/// Why an agent cannot be forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    #[error("no agent is called `{name}`: `benchmesh agents` lists them")]
    Unknown { name: String },
    #[error("agent `{name}` is attached: stop it first")]
    Attached { name: String },
    #[error("an unfinished run needs agent `{name}`: stop the run first, or wait for its end")]
    InRun { name: String },
    #[error("the collector could not store that the agent is forgotten")]
    Store { source: StoreError },
}
