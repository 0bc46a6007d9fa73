//! The agent's certificate: loaded, requested, renewed.
//!
//! It is stored in the state directory and is valid for one name. If there is no suitable certificate, the agent
//! obtains one with a join token, or with the credentials that a collector of the same user left on this machine.

use benchmesh_trust::{
    Credentials, CredentialsError, DialError, EnrolError, Evidence, JoinToken, NewKey, Role,
    Security, TcpConnection, credentials, enrol, renew,
};
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tonic::transport::Channel;

/// File name in the state directory.
pub const FILE: &str = "credentials.json";

/// How often a certificate's age is checked, and the delay before a failed renewal is retried.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(600);

/// Sources of the agent's certificate.
#[derive(Debug)]
pub struct Identity {
    pub collector: String,
    pub name: String,
    /// The uid from the state directory; a name always belongs to the same uid.
    pub uid: String,
    /// The agent's own credentials.
    pub file: PathBuf,
    /// Directory of this user's credentials; `None`: do not look.
    pub user_directory: Option<PathBuf>,
    pub join: Option<JoinToken>,
    pub insecure: bool,
    /// A key that was sent but not certified yet. A retry reuses it, so a token remains valid after a lost answer.
    pub new_key: Mutex<Option<Arc<NewKey>>>,
}

/// Why the agent cannot authenticate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "this agent has no certificate for the collector at {collector}: run `benchmesh collector token` on the \
         collector's machine, and start the agent once with --join-file FILE (a collector of the same user on the same \
         machine needs no token)"
    )]
    NoCertificate { collector: String },
    #[error(
        "the certificate in {} is for the agent `{certified}`, but this agent's name is `{name}`: start it with --name \
         {certified}, with another --state-dir, or with --join-file FILE",
        file.display()
    )]
    OtherName {
        file: PathBuf,
        certified: String,
        name: String,
    },
    #[error(
        "the certificate in {} has expired: start the agent once with --join-file FILE, from `benchmesh collector token`",
        file.display()
    )]
    Expired { file: PathBuf },
    #[error(transparent)]
    Credentials(CredentialsError),
    #[error(transparent)]
    Dial(DialError),
    #[error(transparent)]
    Enrol(EnrolError),
}

impl IdentityError {
    /// Whether the error needs an operator; other errors are transient.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::Dial(error) => error.is_distrust(),
            Self::Enrol(EnrolError::Broken { .. }) => false,
            _ => true,
        }
    }

    /// Whether a collector that is still starting may be the cause: it listens before its credentials and certificates
    /// exist.
    pub fn may_be_starting(&self) -> bool {
        matches!(
            self,
            Self::NoCertificate { .. }
                | Self::Credentials(_)
                | Self::Dial(DialError::Refused { .. })
                | Self::Enrol(EnrolError::Refused { .. } | EnrolError::Answer { .. })
        )
    }

    /// Whether an agent that was never attached gives up: only a change of the command line or the certificate helps.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Dial(DialError::Refused { .. }) => true,
            // A different process may have taken the port, and the collector may come back.
            Self::Dial(_) | Self::Enrol(EnrolError::Broken { .. }) => false,
            // A collector on this machine may be about to write its user's credentials.
            Self::NoCertificate { collector } => !is_loopback(collector),
            _ => true,
        }
    }
}

fn is_loopback(collector: &str) -> bool {
    let host = collector
        .rsplit_once(':')
        .map_or(collector, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

impl Identity {
    /// Connects to the collector as this agent.
    pub async fn dial(&self) -> Result<Channel, IdentityError> {
        // First check that a process listens: a starting collector writes its user's credentials before it serves.
        let connection = TcpConnection::at(&self.collector)
            .await
            .map_err(IdentityError::Dial)?;
        let security = match self.insecure {
            true => Security::Plain,
            false => {
                let own = match self.certificate().await {
                    Err(IdentityError::NoCertificate { .. }) if connection.is_plain().await => {
                        return Err(IdentityError::Dial(connection.plain_error()));
                    }
                    own => own?,
                };
                Security::of(&own).map_err(IdentityError::Credentials)?
            }
        };
        connection.dial(security).await.map_err(IdentityError::Dial)
    }

    /// Returns the certificate in the state directory, or a new one.
    async fn certificate(&self) -> Result<Credentials, IdentityError> {
        let own = Credentials::load(&self.file).map_err(IdentityError::Credentials)?;
        let user = self.of_user().await?;
        let problem = match &own {
            None => IdentityError::NoCertificate {
                collector: self.collector.clone(),
            },
            Some(own) if own.name != self.name => IdentityError::OtherName {
                file: self.file.clone(),
                certified: own.name.clone(),
                name: self.name.clone(),
            },
            Some(own) if own.is_expired() => IdentityError::Expired {
                file: self.file.clone(),
            },
            Some(own) => {
                let ca = own.ca_fingerprint().map_err(IdentityError::Credentials)?;
                let differs = |credentials: &Credentials| {
                    credentials.ca_fingerprint().is_ok_and(|other| other != ca)
                };
                let is_of_other_collector = match (&self.join, &user) {
                    (Some(token), _) => token.ca() != ca,
                    // The user's collector at this address has a new CA.
                    (None, Some(user)) => differs(user),
                    (None, None) => false,
                };
                if !is_of_other_collector {
                    return Ok(own.clone());
                }
                IdentityError::NoCertificate {
                    collector: self.collector.clone(),
                }
            }
        };
        let (security, ca) = match (&self.join, &user) {
            (Some(token), _) => (Security::pinned(token.ca()), token.ca()),
            (None, Some(user)) => (
                Security::of(user),
                user.ca_fingerprint().map_err(IdentityError::Credentials)?,
            ),
            (None, None) => return Err(problem),
        };
        let channel = self
            .channel(security.map_err(IdentityError::Credentials)?)
            .await?;
        let key = self.key()?;
        let evidence = Evidence {
            token: self.join.as_ref(),
            agent_uid: &self.uid,
        };
        let new = enrol(channel, &key, Role::Agent, &self.name, ca, evidence)
            .await
            .map_err(IdentityError::Enrol)?;
        new.save(&self.file).map_err(IdentityError::Credentials)?;
        self.forget_key();
        tracing::info!(name = %self.name, collector = %self.collector, "got a certificate");
        Ok(new)
    }

    /// Credentials that a collector of this user has left for this address.
    async fn of_user(&self) -> Result<Option<Credentials>, IdentityError> {
        let Some(directory) = &self.user_directory else {
            return Ok(None);
        };
        let file = credentials::find_for(directory, &self.collector).await;
        let found = Credentials::load(&file).map_err(IdentityError::Credentials)?;
        Ok(found.filter(|found| found.role == Role::Owner))
    }

    async fn channel(&self, security: Security) -> Result<Channel, IdentityError> {
        let connection = TcpConnection::at(&self.collector).await;
        let connection = connection.map_err(IdentityError::Dial)?;
        connection.dial(security).await.map_err(IdentityError::Dial)
    }

    fn key(&self) -> Result<Arc<NewKey>, IdentityError> {
        let mut kept = self.new_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = &*kept {
            return Ok(Arc::clone(key));
        }
        let key = Arc::new(NewKey::make().map_err(IdentityError::Enrol)?);
        *kept = Some(Arc::clone(&key));
        Ok(key)
    }

    fn forget_key(&self) {
        *self.new_key.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Renews the certificate after two thirds of each lifetime.
    pub async fn keep_renewed(&self) -> Infallible {
        let mut warned = false;
        loop {
            let own = Credentials::load(&self.file).ok().flatten();
            // If there is no certificate yet, one is about to arrive. A short lifetime needs more frequent checks.
            let pause = own.map_or(Duration::from_secs(1), |own| {
                let life = own.expires_s.saturating_sub(own.issued_s);
                RENEWAL_INTERVAL.min(Duration::from_millis(life.saturating_mul(1000) / 12))
            });
            tokio::time::sleep(pause.max(Duration::from_millis(200))).await;
            let due = Credentials::load(&self.file)
                .ok()
                .flatten()
                .filter(|own| own.is_due() && !own.is_expired());
            let Some(own) = due else { continue };
            match self.renew(&own).await {
                Ok(()) => {
                    warned = false;
                    tracing::info!(name = %self.name, "renewed the certificate");
                }
                Err(error) if !warned => {
                    warned = true;
                    tracing::warn!(
                        error = %benchmesh_workloads::error_chain(&error),
                        "the certificate expires soon and could not be renewed; trying again"
                    );
                }
                Err(_) => {}
            }
        }
    }

    async fn renew(&self, own: &Credentials) -> Result<(), IdentityError> {
        let security = Security::of(own).map_err(IdentityError::Credentials)?;
        let channel = self.channel(security).await?;
        let new = renew(channel, own).await.map_err(IdentityError::Enrol)?;
        new.save(&self.file).map_err(IdentityError::Credentials)
    }
}
