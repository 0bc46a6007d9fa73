//! The edge: the only module of this crate that names generated types.
//!
//! Every incoming message is checked here, field by field, before it is used: the collector is another program, and may
//! be hostile. Every outgoing message is built here from the crate's own types.

pub mod batch;
pub mod command;
pub mod connection;
#[cfg(test)]
mod hostile;
pub mod reply;

pub use batch::WireError;

use benchmesh_proto::WIRE_VERSION;
use command::Welcome;
use connection::{ConnectionError, RejectCode};

/// Checks that the collector uses the same version of the wire as this agent.
///
/// # Errors
/// When it does not, with both versions and what to do.
pub fn check_version(welcome: &Welcome) -> Result<(), ConnectionError> {
    if welcome.wire_version == WIRE_VERSION {
        return Ok(());
    }
    Err(ConnectionError::Refused {
        code: RejectCode::NotUnderstood,
        message: format!(
            "the collector ({}) speaks version {} of the wire and this agent ({}) version {WIRE_VERSION}: install the \
             same benchmesh on both",
            welcome.collector_version,
            welcome.wire_version,
            env!("CARGO_PKG_VERSION"),
        ),
    })
}
