//! Obtains a certificate: with a token, with the owner's credentials, or with a certificate about to expire.
//!
//! The key is generated here and never leaves this machine.

use crate::credentials::{Credentials, CredentialsError, Role};
use crate::fingerprint::Fingerprint;
use crate::token::JoinToken;
use crate::{key_proof, now_s};
use async_recursion::async_recursion as boxed;
use benchmesh_proto::v1;
use benchmesh_proto::v1::trust_client::TrustClient;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey};
use std::fmt;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Request};

const TIMEOUT: Duration = Duration::from_secs(15);

/// A key without a certificate. The same key may request again after a lost answer, without using up its token twice.
pub struct NewKey(KeyPair);

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey(..)")
    }
}

/// Why no certificate was obtained.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    #[error("cannot make a key: {problem}")]
    Key { problem: String },
    #[error("the collector refuses to issue a certificate: {message}")]
    Refused { message: String },
    #[error("the collector could not issue a certificate: {message}")]
    Broken { message: String },
    #[error("cannot use the certificate that is due for renewal")]
    Own {
        #[source]
        source: CredentialsError,
    },
    #[error("the collector answered with an invalid certificate: {problem}")]
    Answer { problem: String },
}

impl NewKey {
    /// Generates an ECDSA key on P-256.
    ///
    /// # Errors
    ///
    /// When the kernel has no randomness.
    pub fn make() -> Result<Self, EnrolError> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(|error| EnrolError::Key {
                problem: error.to_string(),
            })
    }

    /// An uncompressed point.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// The private key.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }
}

/// Requests a successor of a valid certificate, over a connection that presents it. The new one has a new key.
///
/// # Errors
///
/// As for [`enrol`].
#[boxed]
#[inline(never)]
pub async fn renew(channel: Channel, own: &Credentials) -> Result<Credentials, EnrolError> {
    let ca = own
        .ca_fingerprint()
        .map_err(|source| EnrolError::Own { source })?;
    let key = NewKey::make()?;
    enrol(channel, &key, own.role, &own.name, ca, Evidence::default()).await
}

/// Evidence for a request in addition to the connection's certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    pub token: Option<&'a JoinToken>,
    /// Lets the collector recognise an agent known under another name; empty: none.
    pub agent_uid: &'a str,
}

/// Requests a certificate for `name` over `channel`; its CA must have the given fingerprint.
///
/// # Errors
///
/// When the collector refuses, is gone or too busy, or sends an invalid answer.
pub async fn enrol(
    channel: Channel,
    key: &NewKey,
    role: Role,
    name: &str,
    ca: Fingerprint,
    evidence: Evidence<'_>,
) -> Result<Credentials, EnrolError> {
    let public_key = key.public_key().to_vec();
    let signature = key
        .0
        .sign(&key_proof(role, name, &public_key))
        .map_err(|error| EnrolError::Key {
            problem: error.to_string(),
        })?;
    let mut request = Request::new(v1::EnrolRequest {
        token_secret: evidence
            .token
            .map_or_else(Vec::new, |token| token.secret().to_vec()),
        role: role.word().to_owned(),
        name: name.to_owned(),
        public_key,
        signature,
        agent_uid: evidence.agent_uid.to_owned(),
    });
    request.set_timeout(TIMEOUT);
    let reply = TrustClient::new(channel)
        .enrol(request)
        .await
        .map_err(|status| {
            let message = status.message().to_owned();
            match status.code() {
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded => {
                    EnrolError::Broken { message }
                }
                _ => EnrolError::Refused { message },
            }
        })?
        .into_inner();
    let credentials = Credentials {
        role,
        name: name.to_owned(),
        issued_s: now_s(),
        expires_s: reply.expires_s,
        ca: reply.ca_pem,
        certificate: reply.certificate_pem,
        key: key.pem(),
    };
    let wrong = |problem: String| EnrolError::Answer { problem };
    let found = credentials
        .ca_fingerprint()
        .map_err(|error| wrong(error.to_string()))?;
    if found != ca {
        return Err(wrong(format!(
            "its CA has the fingerprint {found}, not {ca}"
        )));
    }
    // Checks that key and certificate match.
    credentials
        .client_config()
        .map_err(|error| wrong(error.to_string()))?;
    Ok(credentials)
}
