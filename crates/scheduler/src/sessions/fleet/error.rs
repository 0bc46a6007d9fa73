//! Errors of refusing and of forgetting an agent.

use super::MAX_SESSIONS;
use crate::sessions::{hello::BadField, recent::MAX_CHANGES};
use benchmesh_store::{StoreError, ingest::budget::Flood};

/// Why an agent is refused.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(
        "this agent speaks version {agent} of the wire (benchmesh {agent_version}), this collector version {collector} (benchmesh {}): update benchmesh on the {}",
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
        "the name `{name}` is used by another agent that is attached now (host {host}); start this one with another --name"
    )]
    NameInUse { name: String, host: String },
    #[error(
        "an agent with the same identity is attached and answers (`{name}`, host {host}): the state directory of one was copied from the other; give this one an empty --state-dir, and it makes an identity of its own"
    )]
    IdentityInUse { name: String, host: String },
    #[error(
        "an earlier start of the agent `{name}` is still alive: this one is accepted once that has ended"
    )]
    EarlierStart { name: String },
    #[error(
        "another agent with the name `{name}` has gone silent: this one is taken when its session is over"
    )]
    NameHeld { name: String },
    #[error(
        "the uid in this agent's state directory belongs to the agent `{known_as}`, and this one is called `{name}`: start it with --name {known_as}, or give it an empty --state-dir; to rename it, remove credentials.json there and start it with --name {name} and --join-file FILE, with a token of `benchmesh collector token --replace {known_as}`"
    )]
    UidBound { name: String, known_as: String },
    #[error("{MAX_SESSIONS} agents are attached, which is as many as this collector takes")]
    Full,
    #[error(
        "the agent `{name}` has attached too often within a minute: it is taken again when the minute is over"
    )]
    TooOften { name: String },
    #[error(
        "the agent `{name}` has attached with a new identity or another description (host, labels, version) {MAX_CHANGES} times within an hour: give it a --state-dir that is kept when it restarts; it is taken again when the hour is over"
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
    #[error("the collector could not store it")]
    Store { source: StoreError },
}
