//! The wire: the types generated from `proto/`, and the wire's version and limits.
//!
//! Only the edge module of a receiving crate uses the generated types.

pub mod bounded;

/// The messages and services of `benchmesh.v1`.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::indexing_slicing,
    missing_docs,
    missing_debug_implementations
)]
pub mod v1 {
    tonic::include_proto!("benchmesh.v1");
}

impl From<Vec<i64>> for v1::FigureColumn {
    fn from(values: Vec<i64>) -> Self {
        Self { values }
    }
}

/// An agent and its collector must use the same version; it changes whenever a message changes its meaning.
pub const WIRE_VERSION: u32 = 3;

/// A command and its collector must use the same version; it changes whenever a message of `Control` changes its meaning.
pub const CONTROL_VERSION: u32 = 3;

/// The largest message that either side accepts, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Maximum size of a sender's batch in bytes, so that no batch is refused for its size.
pub const MAX_BATCH_BYTES: usize = 1 << 20;

/// The metadata key that links a Publish stream to its Attach session.
pub const SESSION_KEY: &str = "benchmesh-session";

/// HTTP/2 keep-alive: interval of pings to a silent peer, in seconds.
pub const KEEPALIVE_INTERVAL_S: u64 = 10;

/// HTTP/2 keep-alive: timeout of a ping, in seconds.
pub const KEEPALIVE_TIMEOUT_S: u64 = 5;
