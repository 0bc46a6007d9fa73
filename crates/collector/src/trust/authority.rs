//! The CA with its registry and their directory: a certificate is stored before it is handed out.
//!
//! Calls that change something write a small file and wait for the disk; they belong on a thread that may block.
//! Lookups never wait for them.

use super::{
    ca::{Ca, Issued},
    recent::RecentCertificates,
    registry::{
        CertificateRequest, EnrolRefusal, Granted, GrantedBy, Holder, Lookup, Registry, Revocation,
        TokenFacts, TooManyTokens, Withdrawal,
    },
    shown::ShownCertificates,
};
use benchmesh_trust::{
    ALPN, Credentials, Fingerprint, JoinToken, NewKey, Replacement, Role, credentials, now_s,
    private_file, provider,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::CertificateDer,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// Age at which the collector's own certificate is renewed. It is created at each start and never stored.
const OWN_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
const OWN_RENEWAL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The owner's name in its certificate.
const OWNER: &str = "owner";

/// Why trust cannot be established or stored.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("other users can read {}; run chmod 700 {}", path.display(), path.display())]
    OpenDirectory { path: PathBuf },
    #[error("cannot create a certificate")]
    Certificate {
        #[source]
        source: io::Error,
    },
    #[error("cannot configure TLS")]
    Tls {
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot write the credentials of this user; set BENCHMESH_CREDENTIALS to choose another directory"
    )]
    Credentials {
        #[source]
        source: benchmesh_trust::CredentialsError,
    },
    #[error(transparent)]
    Enrol(EnrolRefusal),
    #[error(transparent)]
    Tokens(TooManyTokens),
    #[error("cannot read random numbers from the system")]
    Randomness,
}

/// The validity of a certificate signed by the CA.
#[derive(Clone, Debug)]
pub enum CertificateStatus {
    /// Valid until the token is cancelled. A connection keeps the token while it is open.
    Good {
        holder: Holder,
        revoked: Arc<CancellationToken>,
    },
    Revoked(Holder),
    /// Expired, or issued by a registry that was lost.
    Unknown,
}

#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    ca: Ca,
    lifetime: Duration,
    /// Held while a change is made and stored, which includes a disk sync.
    changing: Mutex<RecentCertificates>,
    /// Held briefly.
    state: Mutex<AuthorityState>,
}

#[derive(Debug)]
struct AuthorityState {
    /// The registry as stored on disk.
    registry: Arc<Registry>,
    shown: ShownCertificates,
    /// The instant up to which the registry has counted elapsed time.
    counted_until: Instant,
}

impl Authority {
    /// Opens the directory; the first use creates the CA.
    pub fn open(directory: PathBuf, lifetime: Duration) -> Result<Self, TrustError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| TrustError::File { path, source }
        };
        private_file::make_directory(&directory).map_err(failed(&directory))?;
        let found = fs::metadata(&directory).map_err(failed(&directory))?;
        if std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 != 0 {
            return Err(TrustError::OpenDirectory { path: directory });
        }
        private_file::remove_drafts(&directory).map_err(failed(&directory))?;
        let ca_file = directory.join("ca.json");
        let ca = Ca::kept_in(&ca_file).map_err(failed(&ca_file))?;
        let registry_file = directory.join("registry.json");
        let registry: Registry = match private_file::read(&registry_file) {
            Ok(None) => Registry::default(),
            Ok(Some(text)) => serde_json::from_str(&text)
                .map_err(io::Error::other)
                .map_err(failed(&registry_file))?,
            Err(source) => return Err(failed(&registry_file)(source)),
        };
        Ok(Self {
            directory,
            ca,
            lifetime,
            changing: Mutex::default(),
            state: Mutex::new(AuthorityState {
                registry: Arc::new(registry),
                shown: ShownCertificates::default(),
                counted_until: Instant::now(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, AuthorityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, RecentCertificates> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy for modification.
    fn registry(&self) -> Registry {
        let current = Arc::clone(&self.state().registry);
        Registry::clone(&current)
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca.pem
    }

    /// TLS 1.3 only. A client certificate is optional; without one, a client can only request one.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, TrustError> {
        let tls = |source| TrustError::Tls { source };
        let mut roots = RootCertStore::empty();
        roots
            .add(self.ca.certificate.clone())
            .map_err(|error| tls(io::Error::other(error)))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| tls(io::Error::other(error)))?;
        let own = OwnCertificate {
            authority: Arc::clone(self),
            current: Mutex::new(None),
        };
        own.current().map_err(tls)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| tls(io::Error::other(error)))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(own));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Sessions are not resumed, so that each connection presents its certificate and is checked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    pub fn status(&self, certificate: &CertificateDer<'_>) -> CertificateStatus {
        let fingerprint = Fingerprint::of(certificate);
        let mut state = self.state();
        match state.registry.look_up(fingerprint, now_s()) {
            Lookup::Good(holder) => CertificateStatus::Good {
                revoked: state.shown.token(fingerprint, &holder),
                holder,
            },
            Lookup::Revoked(holder) => CertificateStatus::Revoked(holder),
            Lookup::Unknown => CertificateStatus::Unknown,
        }
    }

    /// Whether a request without a certificate names a token that exists.
    pub fn check_token(&self, token: Option<Fingerprint>) -> Result<(), EnrolRefusal> {
        self.state().registry.check_token(token, now_s())
    }

    /// Issues a certificate for a public key, which must be a point of P-256.
    pub fn enrol(
        &self,
        request: &CertificateRequest<'_>,
        public_key: &[u8],
    ) -> Result<(Issued, Granted), TrustError> {
        let mut recent = self.changing();
        let holder = Holder {
            role: request.role,
            name: request.name.to_owned(),
        };
        // The collector's own user has all permissions.
        let is_owner = request.asker.is_some_and(|it| it.role == Role::Owner);
        if !is_owner && !recent.has_room(&holder, Instant::now()) {
            let Holder { role, name } = holder;
            return Err(TrustError::Enrol(EnrolRefusal::TooOften { role, name }));
        }
        let mut registry = self.registry();
        let mut granted = registry
            .grant(request, now_s())
            .map_err(TrustError::Enrol)?;
        recent.count(holder.clone(), Instant::now());
        if let Some(name) = &granted.replaced_name {
            let expired = self
                .state()
                .shown
                .without_entry(&registry, |it| it.role == request.role && it.name == *name);
            granted.replaced.extend(expired);
        }
        let token = match granted.by {
            GrantedBy::Token { hash, .. } | GrantedBy::UsedToken { hash } => Some(hash),
            GrantedBy::Renewal | GrantedBy::Owner => None,
        };
        let (issued, forgotten) = self.issue(&mut registry, holder, public_key, token)?;
        self.store(registry, &[&granted.replaced[..], &forgotten].concat())?;
        Ok((issued, granted))
    }

    /// Issues the certificate; also returns those that the registry drops to make room.
    fn issue(
        &self,
        registry: &mut Registry,
        holder: Holder,
        public_key: &[u8],
        token: Option<Fingerprint>,
    ) -> Result<(Issued, Vec<Fingerprint>), TrustError> {
        let issued = self
            .ca
            .issue(holder.role, &holder.name, public_key, self.lifetime)
            .map_err(|source| TrustError::Certificate { source })?;
        let forgotten = registry.add_certificate(
            Fingerprint::of(&issued.certificate),
            holder,
            (Fingerprint::of(public_key), token),
            issued.expires_s,
            |certificate| self.state().shown.is_open(certificate),
        );
        Ok((issued, forgotten))
    }

    /// Creates a token; returns it and its expiry.
    pub fn create_token(
        &self,
        role: Role,
        uses: u32,
        ttl: Duration,
        replacement: Replacement,
    ) -> Result<(JoinToken, u64), TrustError> {
        let token = JoinToken::new(self.ca.fingerprint()).ok_or(TrustError::Randomness)?;
        let now = now_s();
        let expires_s = now.saturating_add(ttl.as_secs());
        let _changing = self.changing();
        let mut registry = self.registry();
        registry
            .add_token(
                Fingerprint::of(token.secret()),
                role,
                uses,
                expires_s,
                replacement,
                now,
            )
            .map_err(TrustError::Tokens)?;
        self.store(registry, &[])?;
        Ok((token, expires_s))
    }

    /// Tokens with uses left.
    pub fn tokens(&self) -> Vec<TokenFacts> {
        self.state().registry.tokens(now_s())
    }

    /// Removes all uses of the token that begins with these digits; `None` if no token or several match.
    pub fn cancel_token(&self, id: &str) -> Result<Option<TokenFacts>, TrustError> {
        let _changing = self.changing();
        let mut registry = self.registry();
        let mut found = registry.tokens(now_s());
        found.retain(|it| it.hash.to_string().starts_with(id));
        let (Some(token), true) = (found.pop(), found.is_empty()) else {
            return Ok(None);
        };
        registry.cancel_token(token.hash);
        self.store(registry, &[])?;
        Ok(Some(token))
    }

    /// Ends the connections of this name's certificates, including expired ones, and revokes the certificates and the
    /// tokens that they were issued for.
    pub fn revoke(&self, name: &str) -> Result<Revocation, TrustError> {
        let _changing = self.changing();
        let mut registry = self.registry();
        let mut revocation = registry.revoke(name);
        let expired = self
            .state()
            .shown
            .without_entry(&registry, |it| it.role != Role::Owner && it.name == name);
        revocation.certificates.extend(expired);
        if !revocation.certificates.is_empty() {
            self.store(registry, &revocation.certificates)?;
        }
        Ok(revocation)
    }

    /// Revoked certificates by name.
    pub fn revoked(&self) -> BTreeMap<String, Vec<Fingerprint>> {
        self.state().registry.revoked()
    }

    /// Repeats the withdrawals of the audit trail, which a registry restored from an older copy lacks.
    pub fn withdraw(&self, withdrawals: &[Withdrawal]) -> Result<bool, TrustError> {
        let _changing = self.changing();
        let mut registry = self.registry();
        let changed = registry.withdraw(withdrawals);
        if changed {
            self.store(registry, &[])?;
        }
        Ok(changed)
    }

    /// Writes credentials for the collector's own user, which finds them by the collector's address. Valid existing
    /// ones are kept.
    pub fn write_owner(&self, directory: &Path, listen: SocketAddr) -> Result<PathBuf, TrustError> {
        let file = credentials::file_for(directory, &listen.to_string());
        let known = self.known_owner(&file);
        if known.as_ref().is_some_and(|own| !own.is_due()) {
            return Ok(file);
        }
        let key = NewKey::make().map_err(|error| TrustError::Certificate {
            source: io::Error::other(error),
        })?;
        let _changing = self.changing();
        let mut registry = self.registry();
        // A command that has read the file just before it is renewed is still admitted.
        if known.is_none() {
            registry.forget_owners();
        }
        let owner = Holder {
            role: Role::Owner,
            name: OWNER.to_owned(),
        };
        let (issued, _) = self.issue(&mut registry, owner, key.public_key(), None)?;
        let credentials = Credentials {
            role: Role::Owner,
            name: OWNER.to_owned(),
            issued_s: now_s(),
            expires_s: issued.expires_s,
            ca: self.ca.pem.clone(),
            certificate: issued.pem,
            key: key.pem(),
        };
        self.store(registry, &[])?;
        credentials
            .save(&file)
            .map_err(|source| TrustError::Credentials { source })?;
        Ok(file)
    }

    /// The credentials in the file, if they are valid and the owner's.
    fn known_owner(&self, file: &Path) -> Option<Credentials> {
        let found = Credentials::load(file).ok()??;
        let known = self
            .state()
            .registry
            .look_up(found.fingerprint().ok()?, now_s());
        matches!(known, Lookup::Good(holder) if holder.role == Role::Owner).then_some(found)
    }

    /// Stores the registry on disk first, so that issued certificates are known after a crash. Then ends the
    /// connections of the `ended` certificates.
    fn store(&self, mut registry: Registry, ended: &[Fingerprint]) -> Result<(), TrustError> {
        let now = Instant::now();
        let ran = now.saturating_duration_since(self.state().counted_until);
        registry.pass_time(now_s(), ran.as_secs());
        let path = self.directory.join("registry.json");
        serde_json::to_vec_pretty(&registry)
            .map_err(io::Error::other)
            .and_then(|text| private_file::write(&path, &text))
            .map_err(|source| TrustError::File { path, source })?;
        // A connection that arrives meanwhile is either admitted before this lock and ended here, or refused by the new
        // registry.
        let mut state = self.state();
        state.registry = Arc::new(registry);
        state.counted_until = now;
        state.shown.end(ended);
        Ok(())
    }
}

/// The collector's own certificate, renewed before it expires.
struct OwnCertificate {
    authority: Arc<Authority>,
    /// With the wall-clock second of its creation.
    current: Mutex<Option<(u64, Arc<CertifiedKey>)>>,
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificate")
    }
}

impl OwnCertificate {
    fn current(&self) -> io::Result<Arc<CertifiedKey>> {
        let now = now_s();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_s, key)) = &*current
            && (*made_s..made_s + OWN_RENEWAL.as_secs()).contains(&now)
        {
            return Ok(Arc::clone(key));
        }
        let ca = &self.authority.ca;
        let (certificate, key) = ca.issue_own(OWN_LIFETIME)?;
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&key).map_err(io::Error::other)?;
        // The CA is sent along: the bearer of a token knows only its fingerprint.
        let chain = vec![certificate, ca.certificate.clone()];
        let key = Arc::new(CertifiedKey::new(chain, key));
        *current = Some((now, Arc::clone(&key)));
        Ok(key)
    }
}

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
            .inspect_err(|error| tracing::error!(%error, "cannot make the collector's certificate"))
            .ok()
    }
}

#[cfg(test)]
mod tests;
