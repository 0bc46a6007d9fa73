//! The user's identity towards a collector: credentials, tokens, revocation.

use super::{CallError, short};
use crate::{failure, output};
use benchmesh_proto::v1;
use benchmesh_proto::v1::trust_client::TrustClient;
use benchmesh_trust::{
    Credentials, CredentialsError, DialError, EnrolError, Evidence, JoinToken, NewKey, Replacement,
    Role, Security, TcpConnection, credentials, enrol, renew,
};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;

/// Whether the command line has `--insecure`. Set before any connection, and the same for all of them.
static INSECURE: OnceLock<bool> = OnceLock::new();

/// Timeout for the renewal of a command's certificate.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets the flag; call it once.
pub fn set_insecure(insecure: bool) {
    let _ = INSECURE.set(insecure);
}

/// The warning about a collector that is reached without TLS.
pub fn insecure_warning() -> Option<&'static str> {
    let is_insecure = INSECURE.get() == Some(&true);
    is_insecure.then_some(benchmesh_collector::INSECURE)
}

/// A connection with this user's credentials.
pub async fn channel(address: &str) -> Result<Channel, CallError> {
    let connection = connect(address).await?;
    let mut shown = None;
    let security = match (INSECURE.get(), own(address).await) {
        (Some(true), _) => Security::Plain,
        (_, Ok(own)) => {
            let security = Security::of(&own).map_err(|error| distrust(&error))?;
            shown = Some(own);
            security
        }
        (_, Err(_)) if connection.is_plain().await => {
            return Err(distrust(&connection.plain_error()));
        }
        (_, Err(error)) => return Err(error),
    };
    let channel = connection
        .dial(security)
        .await
        .map_err(|error| dial_error(address, &error))?;
    if let Some(own) = shown {
        keep_renewed(address, channel.clone(), &own).await;
    }
    Ok(channel)
}

/// Renews an operator's certificate during a command once two thirds of its lifetime are over. The collector renews the
/// owner's itself. Failures are ignored: the certificate is still valid.
async fn keep_renewed(address: &str, channel: Channel, own: &Credentials) {
    /// A command that reconnects repeatedly tries only once.
    static TRIED: AtomicBool = AtomicBool::new(false);
    if own.role != Role::Operator || !own.is_due() || TRIED.swap(true, Ordering::Relaxed) {
        return;
    }
    let renewed = match timeout(RENEWAL_TIMEOUT, renew(channel, own)).await {
        Ok(Ok(new)) => file(address).await.and_then(|file| {
            new.save(&file)
                .map_err(|error: CredentialsError| distrust(&error))
        }),
        Ok(Err(error)) => Err(distrust(&error)),
        Err(_) => Err(CallError::Distrust {
            message: format!("no answer within {} s", RENEWAL_TIMEOUT.as_secs()),
        }),
    };
    if let Err(error) = renewed {
        output::print_notice(&format!(
            "warning: the certificate of `{}` expires soon and could not be renewed: {}",
            own.name,
            failure::causes(&error)
        ));
    }
}

async fn connect(address: &str) -> Result<TcpConnection, CallError> {
    TcpConnection::at(address)
        .await
        .map_err(|error| dial_error(address, &error))
}

fn dial_error(address: &str, error: &DialError) -> CallError {
    if error.is_distrust() {
        return distrust(error);
    }
    let reason = match std::error::Error::source(error) {
        Some(cause) => failure::causes(cause),
        None => error.to_string(),
    };
    CallError::Away {
        address: address.to_owned(),
        reason,
    }
}

fn distrust(error: &dyn std::error::Error) -> CallError {
    CallError::Distrust {
        message: failure::causes(error),
    }
}

/// This user's credentials for the collector.
async fn own(address: &str) -> Result<Credentials, CallError> {
    let file = file(address).await?;
    let found = Credentials::load(&file).map_err(|error| distrust(&error))?;
    let problem = match found {
        Some(found) if !found.is_expired() => return Ok(found),
        Some(_) => format!("the credentials in {} have expired", file.display()),
        None => format!(
            "this user has no credentials for the collector at {address} (looked for {})",
            file.display()
        ),
    };
    Err(CallError::Distrust {
        message: format!(
            "{problem}\n  `benchmesh collector` creates them for the user who starts it, on its machine; for others, \
             run `benchmesh collector token --role operator` on the collector's machine, and here \
             `benchmesh join --token-file FILE --collector {address}`"
        ),
    })
}

/// The file of this user's credentials for the collector.
async fn file(address: &str) -> Result<PathBuf, CallError> {
    Ok(credentials::find_for(&directory()?, address).await)
}

fn directory() -> Result<PathBuf, CallError> {
    credentials::directory().ok_or_else(|| CallError::Distrust {
        message:
            "no directory for credentials: none of BENCHMESH_CREDENTIALS, XDG_CONFIG_HOME and HOME is set"
                .to_owned(),
    })
}

/// Obtains and stores an operator's credentials; returns where they are stored.
pub async fn join(address: &str, name: &str, token: &JoinToken) -> Result<PathBuf, CallError> {
    let file = credentials::file_for(&directory()?, address);
    let connection = connect(address).await?;
    let security = Security::pinned(token.ca()).map_err(|error| distrust(&error))?;
    let channel = connection
        .dial(security)
        .await
        .map_err(|error| dial_error(address, &error))?;
    let key = NewKey::make().map_err(|error| distrust(&error))?;
    let evidence = Evidence {
        token: Some(token),
        ..Evidence::default()
    };
    let new = enrol(channel, &key, Role::Operator, name, token.ca(), evidence)
        .await
        .map_err(|error: EnrolError| distrust(&error))?;
    new.save(&file)
        .map_err(|error: CredentialsError| distrust(&error))?;
    Ok(file)
}

/// The parameters of a new token.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    pub role: Role,
    pub uses: u32,
    pub ttl: Duration,
    pub replacement: Replacement,
}

/// Requests a token from the collector.
pub async fn create_token(address: &str, wanted: TokenRequest) -> Result<String, CallError> {
    let request = v1::CreateTokenRequest {
        role: wanted.role.word().to_owned(),
        uses: wanted.uses,
        ttl_s: wanted.ttl.as_secs(),
        replace: wanted.replacement != Replacement::Nobody,
        replaces: wanted.replacement.named().unwrap_or_default().to_owned(),
    };
    let mut client = TrustClient::new(channel(address).await?);
    let reply = client.create_token(short(request)).await;
    reply
        .map(|reply| reply.into_inner().token)
        .map_err(|status| refused(&status))
}

/// Tokens that can still be used to join.
pub async fn list_tokens(address: &str) -> Result<Vec<v1::JoinToken>, CallError> {
    let mut client = TrustClient::new(channel(address).await?);
    let reply = client.list_tokens(short(v1::ListTokensRequest {})).await;
    reply
        .map(|reply| reply.into_inner().tokens)
        .map_err(|status| refused(&status))
}

/// Removes all remaining uses of a token.
pub async fn cancel_token(address: &str, id: &str) -> Result<v1::JoinToken, CallError> {
    let request = v1::CancelTokenRequest { id: id.to_owned() };
    let mut client = TrustClient::new(channel(address).await?);
    let reply = client.cancel_token(short(request)).await;
    reply
        .map(|reply| reply.into_inner().token.unwrap_or_default())
        .map_err(|status| refused(&status))
}

/// Makes the collector refuse every certificate of a name, and the tokens that they were issued for.
pub async fn revoke(address: &str, name: &str) -> Result<v1::RevokeReply, CallError> {
    let request = v1::RevokeRequest {
        name: name.to_owned(),
    };
    let mut client = TrustClient::new(channel(address).await?);
    let reply = client.revoke(short(request)).await;
    reply
        .map(tonic::Response::into_inner)
        .map_err(|status| refused(&status))
}

fn refused(status: &Status) -> CallError {
    CallError::Refused {
        code: status.code(),
        message: status.message().to_owned(),
    }
}
