//! The wire's side of trust: certificates for a token or a certificate, tokens, revocation.

use super::{
    audit::{self, Requester, TokenId, TrustChange},
    gate::{Gate, Needed},
    peer::{Identity, Peer},
};
use crate::{
    clock::MeshClock,
    error_chain,
    sessions::Fleet,
    store::Store,
    trust::{
        Authority, CertificateRequest, EnrolRefusal, Granted, GrantedBy, Holder, Replacement,
        TrustError, check_name,
    },
};
use benchmesh_proto::{v1, v1::trust_server::Trust};
use benchmesh_trust::{Fingerprint, Role, key_proof};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use std::{sync::Arc, time::Duration};
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};
use tracing::error;

/// An uncompressed point of P-256.
const PUBLIC_KEY_BYTES: usize = 65;
/// A token that is good for longer would be forgotten by those who made it.
const MAX_TTL_S: u64 = 365 * 24 * 3600;

#[derive(Debug)]
pub(super) struct TrustService {
    /// `None`: `--insecure`.
    authority: Option<Arc<Authority>>,
    gate: Arc<Gate>,
    fleet: Fleet,
    store: Store,
    clock: Arc<MeshClock>,
}

impl TrustService {
    pub fn new(
        authority: Option<Arc<Authority>>,
        gate: Arc<Gate>,
        fleet: Fleet,
        store: Store,
        clock: Arc<MeshClock>,
    ) -> Self {
        Self {
            authority,
            gate,
            fleet,
            store,
            clock,
        }
    }

    fn record(&self, changes: &[TrustChange], by: &Requester) {
        audit::trust_changed(&self.store, &self.clock, changes, by);
    }

    fn authority(&self) -> Result<Arc<Authority>, Status> {
        self.authority.clone().ok_or_else(|| {
            Status::failed_precondition(
                "the collector was started with --insecure: there are no certificates and no tokens",
            )
        })
    }
}

fn status(error: &TrustError) -> Status {
    let message = error_chain(error);
    match error {
        TrustError::Enrol(EnrolRefusal::NameHeld { .. }) => Status::already_exists(message),
        TrustError::Enrol(EnrolRefusal::BadName) => Status::invalid_argument(message),
        TrustError::Enrol(EnrolRefusal::Full) | TrustError::Tokens(_) => {
            Status::resource_exhausted(message)
        }
        TrustError::Enrol(_) => Status::permission_denied(message),
        _ => {
            error!(error = %message, "a certificate or token cannot be made or stored");
            Status::internal(message)
        }
    }
}

fn role(word: &str) -> Result<Role, Status> {
    match word.parse() {
        Ok(role @ (Role::Agent | Role::Operator)) => Ok(role),
        _ => Err(Status::invalid_argument(
            "the role is neither agent nor operator",
        )),
    }
}

/// What a certificate that was given changes.
fn changes(holder: &Holder, granted: Granted) -> Vec<TrustChange> {
    let issued = |token| TrustChange::CertificateIssued {
        holder: holder.clone(),
        token,
    };
    let mut changes = Vec::new();
    if !granted.replaced.is_empty() {
        changes.push(TrustChange::CertificatesRevoked {
            name: granted.replaced_name.unwrap_or_else(|| holder.name.clone()),
            certificates: granted.replaced.len(),
        });
    }
    if let Some(former) = granted.former_name {
        changes.push(TrustChange::AgentRenamed {
            former,
            name: holder.name.clone(),
        });
    }
    match granted.by {
        GrantedBy::Renewal => changes.push(TrustChange::CertificateRenewed {
            holder: holder.clone(),
        }),
        GrantedBy::Owner => changes.push(issued(None)),
        GrantedBy::UsedToken { hash } => changes.push(issued(Some(TokenId::of(hash)))),
        GrantedBy::Token { hash, uses_left } => {
            let token = TokenId::of(hash);
            changes.push(TrustChange::TokenUsed {
                token,
                holder: holder.clone(),
                uses_left,
            });
            if uses_left == 0 {
                changes.push(TrustChange::TokenExhausted { token });
            }
            changes.push(issued(Some(token)));
        }
    }
    changes
}

/// Off the runtime: it writes a file.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TrustError> + Send + 'static,
) -> Result<T, Status> {
    spawn_blocking(work)
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(|error| status(&error))
}

#[tonic::async_trait]
impl Trust for TrustService {
    async fn enrol(
        &self,
        request: Request<v1::EnrolRequest>,
    ) -> Result<Response<v1::EnrolReply>, Status> {
        let authority = self.authority()?;
        let asker = match Peer::identity(&request) {
            Identity::Known { holder, revoked } if !revoked.is_cancelled() => Some(holder),
            _ => None,
        };
        let wanted = request.get_ref();
        let role = role(&wanted.role)?;
        let proof = key_proof(role, &wanted.name, &wanted.public_key);
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &wanted.public_key);
        if wanted.public_key.len() != PUBLIC_KEY_BYTES
            || key.verify(&proof, &wanted.signature).is_err()
        {
            return Err(Status::invalid_argument(
                "the public key is not one of P-256, or its signature is wrong",
            ));
        }
        let unavailable = |error| Status::unavailable(error_chain(&error));
        let known_as = match role {
            Role::Agent => self.store.agent_known_as(&wanted.agent_uid).await,
            _ => Ok(None),
        }
        .map_err(unavailable)?;
        let asked = wanted.clone();
        let (issued, granted) = blocking({
            let authority = Arc::clone(&authority);
            move || {
                let token = Some(&asked.token_secret).filter(|secret| !secret.is_empty());
                let certificate = CertificateRequest {
                    role,
                    name: &asked.name,
                    key: Fingerprint::of(&asked.public_key),
                    token: token.map(|secret| Fingerprint::of(secret)),
                    known_as: known_as.as_deref(),
                    asker: asker.as_ref(),
                };
                authority.enrol(&certificate, &asked.public_key)
            }
        })
        .await
        .inspect_err(|status| {
            self.gate
                .log_refusal(Peer::address(&request), status.message())
        })?;
        let holder = Holder {
            role,
            name: wanted.name.clone(),
        };
        if let Some(former) = &granted.former_name {
            // If it fails, the agent asks again, with the same key.
            self.fleet
                .rename(&wanted.agent_uid, former, &wanted.name)
                .await
                .map_err(unavailable)?;
        }
        self.record(&changes(&holder, granted), &Requester::of(&request));
        Ok(Response::new(v1::EnrolReply {
            ca_pem: authority.ca_pem().to_owned(),
            certificate_pem: issued.pem,
            expires_s: issued.expires_s,
        }))
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenReply>, Status> {
        let authority = self.authority()?;
        self.gate.check(&request, Needed::Owner)?;
        let by = Requester::of(&request);
        let wanted = request.into_inner();
        let role = role(&wanted.role)?;
        if wanted.uses == 0 || !(1..=MAX_TTL_S).contains(&wanted.ttl_s) {
            return Err(Status::invalid_argument(
                "a token has at least one use, and is good for 1 s to 365 days",
            ));
        }
        let of = Some(wanted.replaces).filter(|name| !name.is_empty());
        if let Some(name) = &of {
            check_name(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
            if wanted.uses != 1 || !wanted.replace {
                return Err(Status::invalid_argument(
                    "one takes the place of one: a token that replaces a name has one use",
                ));
            }
        }
        let ttl = Duration::from_secs(wanted.ttl_s);
        let replacement = Replacement {
            replace: wanted.replace,
            of: of.clone(),
        };
        let (token, expires_s) =
            blocking(move || authority.create_token(role, wanted.uses, ttl, replacement)).await?;
        let made = TrustChange::TokenMade {
            token: TokenId::of(Fingerprint::of(token.secret())),
            role,
            uses: wanted.uses,
            ttl_s: wanted.ttl_s,
            replace: wanted.replace,
            replaces: of,
        };
        self.record(&[made], &by);
        Ok(Response::new(v1::CreateTokenReply {
            token: token.text(),
            expires_s,
        }))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeReply>, Status> {
        let authority = self.authority()?;
        self.gate.check(&request, Needed::Owner)?;
        let by = Requester::of(&request);
        let name = request.into_inner().name;
        let wanted = name.clone();
        let revoked = blocking(move || authority.revoke(&wanted)).await?;
        if revoked == 0 {
            return Err(Status::not_found(format!(
                "nobody called `{}` has a certificate that is good",
                name.escape_debug()
            )));
        }
        let change = TrustChange::CertificatesRevoked {
            name,
            certificates: revoked,
        };
        self.record(&[change], &by);
        Ok(Response::new(v1::RevokeReply {
            revoked: u32::try_from(revoked).unwrap_or(u32::MAX),
        }))
    }
}
