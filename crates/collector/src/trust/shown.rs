//! The certificates presented by open connections: a connection outlives its certificate, and can be ended even if the
//! registry has forgotten the certificate.

use super::registry::{Holder, Registry};
use benchmesh_trust::Fingerprint;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use tokio_util::sync::CancellationToken;

/// By certificate. Entries without open connections are dropped when the next one is added.
#[derive(Debug, Default)]
pub(super) struct ShownCertificates(HashMap<Fingerprint, ShownCertificate>);

/// The certificate was valid when presented; it may have expired since.
#[derive(Debug)]
struct ShownCertificate {
    holder: Holder,
    /// Kept alive by its connections.
    revoked: Weak<CancellationToken>,
}

impl ShownCertificates {
    /// The token that ends the connections of a certificate; each admitted connection keeps a copy.
    pub fn token(&mut self, certificate: Fingerprint, holder: &Holder) -> Arc<CancellationToken> {
        if let Some(token) = self.0.get(&certificate).and_then(ShownCertificate::token) {
            return token;
        }
        self.0.retain(|_, shown| shown.token().is_some());
        let token = Arc::new(CancellationToken::new());
        let shown = ShownCertificate {
            holder: holder.clone(),
            revoked: Arc::downgrade(&token),
        };
        self.0.insert(certificate, shown);
        token
    }

    /// Certificates of open connections that the registry no longer has because they expired.
    pub fn without_entry(
        &self,
        registry: &Registry,
        is_wanted: impl Fn(&Holder) -> bool,
    ) -> Vec<Fingerprint> {
        let shown = self.0.iter();
        let open = shown.filter(|(_, shown)| is_wanted(&shown.holder) && shown.token().is_some());
        let open = open.map(|(certificate, _)| *certificate);
        open.filter(|it| !registry.has(*it)).collect()
    }

    /// Ends the connections of these certificates.
    pub fn end(&mut self, certificates: &[Fingerprint]) {
        for certificate in certificates {
            let shown = self.0.remove(certificate);
            if let Some(token) = shown.as_ref().and_then(ShownCertificate::token) {
                token.cancel();
            }
        }
    }

    /// Whether a connection that presented it is open.
    pub fn is_open(&self, certificate: Fingerprint) -> bool {
        let shown = self.0.get(&certificate);
        shown.is_some_and(|shown| shown.token().is_some())
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl ShownCertificate {
    /// `None`: its connections have ended.
    fn token(&self) -> Option<Arc<CancellationToken>> {
        self.revoked.upgrade()
    }
}
