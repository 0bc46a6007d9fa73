//! The wire: the types generated from `proto/`, the wire's version and its limits.
//!
//! The generated types go no deeper than the edge module of the crate that receives them.

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

/// Both ends must have the same; it changes whenever a message changes its meaning.
pub const WIRE_VERSION: u32 = 2;

/// The largest message that either side accepts, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Maximum size of a sender's batch in bytes, so that no batch is refused for its size.
pub const MAX_BATCH_BYTES: usize = 1 << 20;

/// The metadata key that ties a Publish stream to its Attach session.
pub const SESSION_KEY: &str = "benchmesh-session";

/// HTTP/2 keep-alive: how often a silent peer is asked, in seconds.
pub const KEEPALIVE_INTERVAL_S: u64 = 10;

/// HTTP/2 keep-alive: how long its answer may take, in seconds.
pub const KEEPALIVE_TIMEOUT_S: u64 = 5;
