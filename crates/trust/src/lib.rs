//! Identity in a mesh: credentials, join tokens, and connections to a collector.
//!
//! Shared by agents and commands. The collector's own side (its CA, issued certificates, permissions) is in the
//! collector. TLS 1.3 only, by rustls with ring. A collector authenticates by its CA, which a token or the credentials
//! pin, and by one fixed name: addresses and host names are not checked, so that tunnels, aliases and new addresses
//! work.
//!
//! This crate does not know about runs, agents' sessions or the database.

pub mod credentials;
pub mod dial;
pub mod enrol;
pub mod fingerprint;
pub mod private_file;
pub mod token;
mod verify;

pub use credentials::{Credentials, CredentialsError, Role};
pub use dial::{DialError, Security, TcpConnection};
pub use enrol::{EnrolError, Evidence, NewKey, enrol, renew};
pub use fingerprint::Fingerprint;
pub use token::{JoinToken, Replacement};

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name in a collector's certificate, independent of its address.
pub const COLLECTOR_NAME: &str = "collector.benchmesh";

/// The protocol inside TLS.
pub const ALPN: &[u8] = b"h2";

/// The message that a client signs to prove possession of its key.
#[must_use]
pub fn key_proof(role: Role, name: &str, public_key: &[u8]) -> Vec<u8> {
    let mut message = format!("benchmesh enrol 1\0{role}\0{name}\0").into_bytes();
    message.extend_from_slice(public_key);
    message
}

/// The crypto provider of every TLS configuration.
#[must_use]
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The wall clock, in seconds since 1970, as certificates use it.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "certificates are good from date to date, and no date of theirs gets into the database"
)]
pub fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
