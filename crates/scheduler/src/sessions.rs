//! The fleet: the attached agents, and calls to them.
//!
//! An agent is a member until the collector ends; its session lasts as long as its stream. A call outlives sessions: it
//! waits for the agent to attach again and repeats the command, until the agent counts as lost. This module does not
//! know about runs. Memory is bounded: one queue of `OUTGOING` messages per session, and as many open calls as the
//! scheduler makes.

pub mod appoint;
mod call;
pub mod command;
mod fleet;
pub mod hello;
mod hourly_bytes;
mod member;
mod presence;
mod recent;
mod samplers;
mod state;
pub mod wire;

pub use call::Call;
pub use fleet::PublishSession;
pub use fleet::{AttachError, Attached, Fleet, ForgetError, NameProof, SessionHandle, Welcome};
pub use hello::Hello;
pub use member::{MemberFacts, Outgoing};
pub use presence::Presence;
