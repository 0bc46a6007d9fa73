//! Authorisation: the collector's CA, the certificates that it has issued, and join tokens.
//!
//! A certificate is valid if the CA signed it, it has not expired, and [`registry`] has it as neither revoked nor
//! forgotten. All files are in one private directory. This module does not know about the wire, runs or sessions.

mod authority;
mod ca;
mod recent;
mod registry;
mod shown;

pub use authority::TrustError;
pub(crate) use authority::{Authority, CertificateStatus};
pub(crate) use registry::{
    CertificateRequest, EnrolRefusal, Granted, GrantedBy, Holder, TokenFacts, Withdrawal,
    check_name,
};

use std::{path::PathBuf, time::Duration};

/// Lifetime of the certificates of agents, operators and the owner.
pub const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);

/// How the collector authenticates its clients.
#[derive(Clone, Debug)]
pub enum Security {
    /// No authorisation: `--insecure`.
    Insecure,
    /// By certificates.
    Tls {
        /// The CA and its certificates; `None` means `<db>.tls` next to the database.
        directory: Option<PathBuf>,
        /// Directory of the credentials for the collector's own user; `None` if none are written.
        credentials: Option<PathBuf>,
        /// [`CERTIFICATE_LIFETIME`] except in tests of renewal.
        lifetime: Duration,
    },
}
