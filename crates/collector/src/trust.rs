//! Who may call what: the collector's CA, the certificates that it has issued, and join tokens.
//!
//! A certificate is good if the CA signed it, it has not expired, and [`registry`] knows it as neither revoked nor forgotten.
//! Everything is in one private directory. It knows
//! nothing of the wire, of runs or of sessions.

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

/// How long a certificate of an agent, an operator or the owner is good for.
pub const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);

/// How the collector knows its clients.
#[derive(Clone, Debug)]
pub enum Security {
    /// Not at all: `--insecure`.
    Insecure,
    /// By certificates.
    Tls {
        /// The CA and what it has issued; `None`: beside the database, `<db>.tls`.
        directory: Option<PathBuf>,
        /// Where the collector's own user finds its credentials; `None`: none are written.
        credentials: Option<PathBuf>,
        /// [`CERTIFICATE_LIFETIME`] but for tests of renewal.
        lifetime: Duration,
    },
}
