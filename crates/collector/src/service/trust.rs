//! The wire side of trust: certificates for a token or a certificate, tokens, revocation.

use super::{
    audit::{self, Requester, TokenId, TrustChange},
    gate::{Gate, Needed},
    peer::{Peer, PeerIdentity},
};
use crate::{
    error_chain,
    trust::{
        Authority, CertificateRequest, EnrolRefusal, Granted, GrantedBy, Holder, TokenFacts,
        TrustError, check_name,
    },
};
use benchmesh_proto::{v1, v1::trust_server::Trust};
use benchmesh_scheduler::sessions::Fleet;
use benchmesh_store::{Store, clock::MeshClock};
use benchmesh_trust::{Fingerprint, Replacement, Role, key_proof};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use std::{sync::Arc, time::Duration};
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};
use tracing::error;

/// An uncompressed point of P-256.
const PUBLIC_KEY_BYTES: usize = 65;
/// Maximum lifetime: a token valid for longer would be forgotten by its creator.
const MAX_TTL_S: u64 = 365 * 24 * 3600;

#[derive(Debug)]
pub(super) struct TrustService {
    /// `None` with `--insecure`.
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

    /// Changes the registry, off the runtime because it writes a file. The change is recorded even if the client has
    /// disconnected by then.
    async fn change<T: Send + 'static>(
        &self,
        by: Requester,
        change: impl FnOnce() -> Result<(T, Vec<TrustChange>), TrustError> + Send + 'static,
    ) -> Result<T, Status> {
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let changed = spawn_blocking(move || {
            let (result, changes) = change()?;
            audit::trust_changed(&store, &clock, &changes, &by);
            Ok(result)
        });
        changed
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error: TrustError| status(&error))
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
        // Clients treat this code as a temporary failure and ask again.
        TrustError::Enrol(EnrolRefusal::TooOften { .. }) => Status::unavailable(message),
        TrustError::Enrol(_) => Status::permission_denied(message),
        _ => {
            error!(error = %message, "cannot create or store a certificate or token");
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

/// The holder that the users of a token may replace.
fn replacement(wanted: &v1::CreateTokenRequest) -> Result<Replacement, Status> {
    let name = &wanted.replaces;
    if name.is_empty() {
        return Ok(match wanted.replace {
            true => Replacement::HolderOfName,
            false => Replacement::Nobody,
        });
    }
    check_name(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
    if wanted.uses != 1 || !wanted.replace {
        return Err(Status::invalid_argument(
            "a token that replaces a name must have exactly one use",
        ));
    }
    Ok(Replacement::Named(name.clone()))
}

/// Changes of the registry by an issued certificate.
fn changes(holder: &Holder, granted: &Granted) -> Vec<TrustChange> {
    let issued = |token| TrustChange::CertificateIssued {
        holder: holder.clone(),
        token,
    };
    let mut changes = Vec::new();
    if let Some(name) = &granted.replaced_name
        && !granted.replaced.is_empty()
    {
        changes.push(TrustChange::CertificatesRevoked {
            name: name.clone(),
            certificates: granted.replaced.clone(),
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

#[tonic::async_trait]
impl Trust for TrustService {
    async fn enrol(
        &self,
        request: Request<v1::EnrolRequest>,
    ) -> Result<Response<v1::EnrolReply>, Status> {
        let authority = self.authority()?;
        let asker = match Peer::identity(&request) {
            PeerIdentity::Known { holder, revoked } if !revoked.is_cancelled() => Some(holder),
            _ => None,
        };
        let wanted = request.get_ref();
        let log_refusal = |status: &Status| {
            let address = Peer::address(&request);
            self.gate.log_refusal(address, status.message());
        };
        let role = role(&wanted.role).inspect_err(log_refusal)?;
        let secret = Some(&wanted.token_secret).filter(|secret| !secret.is_empty());
        let token = secret.map(|secret| Fingerprint::of(secret));
        if asker.is_none() {
            // The cheapest check comes first, because strangers may call this.
            authority
                .check_token(token)
                .map_err(|refusal| status(&TrustError::Enrol(refusal)))
                .inspect_err(log_refusal)?;
        }
        let proof = key_proof(role, &wanted.name, &wanted.public_key);
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &wanted.public_key);
        if wanted.public_key.len() != PUBLIC_KEY_BYTES
            || key.verify(&proof, &wanted.signature).is_err()
        {
            let status = Status::invalid_argument(
                "the public key is not a P-256 key, or its signature is wrong",
            );
            log_refusal(&status);
            return Err(status);
        }
        let unavailable = |error| Status::unavailable(error_chain(&error));
        let known_as = match role {
            Role::Agent => self.store.agent_known_as(&wanted.agent_uid).await,
            _ => Ok(None),
        }
        .map_err(unavailable)?;
        let asked = wanted.clone();
        let (issued, former_name) = self
            .change(Requester::of(&request), {
                let authority = Arc::clone(&authority);
                move || {
                    let certificate = CertificateRequest {
                        role,
                        name: &asked.name,
                        key: Fingerprint::of(&asked.public_key),
                        token,
                        known_as: known_as.as_deref(),
                        asker: asker.as_ref(),
                    };
                    let (issued, granted) = authority.enrol(&certificate, &asked.public_key)?;
                    let name = asked.name;
                    let changes = changes(&Holder { role, name }, &granted);
                    Ok(((issued, granted.former_name), changes))
                }
            })
            .await
            .inspect_err(log_refusal)?;
        if let Some(former) = former_name {
            // If this fails, the agent asks again with the same key.
            self.fleet
                .rename(&wanted.agent_uid, &former, &wanted.name)
                .await
                .map_err(unavailable)?;
            let name = wanted.name.clone();
            let renamed = TrustChange::AgentRenamed { former, name };
            let by = Requester::of(&request);
            audit::trust_changed(&self.store, &self.clock, &[renamed], &by);
        }
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
                "a token must have at least one use, and be valid for 1 s to 365 days",
            ));
        }
        let replacement = replacement(&wanted)?;
        let ttl = Duration::from_secs(wanted.ttl_s);
        let (token, expires_s) = self
            .change(by, move || {
                let made = authority.create_token(role, wanted.uses, ttl, replacement.clone())?;
                let change = TrustChange::TokenMade {
                    token: TokenId::of(Fingerprint::of(made.0.secret())),
                    role,
                    uses: wanted.uses,
                    ttl_s: wanted.ttl_s,
                    replacement,
                };
                Ok((made, vec![change]))
            })
            .await?;
        Ok(Response::new(v1::CreateTokenReply {
            token: token.text(),
            expires_s,
        }))
    }

    async fn list_tokens(
        &self,
        request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensReply>, Status> {
        let authority = self.authority()?;
        self.gate.check(&request, Needed::Owner)?;
        let tokens = authority.tokens().iter().map(token_facts).collect();
        Ok(Response::new(v1::ListTokensReply { tokens }))
    }

    async fn cancel_token(
        &self,
        request: Request<v1::CancelTokenRequest>,
    ) -> Result<Response<v1::CancelTokenReply>, Status> {
        let authority = self.authority()?;
        self.gate.check(&request, Needed::Owner)?;
        let by = Requester::of(&request);
        let id = request.into_inner().id.to_ascii_lowercase();
        if id.len() < TokenId::DIGITS || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Status::invalid_argument(
                "give at least eight hexadecimal digits of the token: `benchmesh collector token list` shows them",
            ));
        }
        let wanted = id.clone();
        let cancelled = self
            .change(by, move || {
                let cancelled = authority.cancel_token(&wanted)?;
                let changes = cancelled.iter().map(|it| TrustChange::TokenCancelled {
                    token: TokenId::of(it.hash),
                    uses: it.uses_left,
                });
                let changes = changes.collect();
                Ok((cancelled, changes))
            })
            .await?;
        let cancelled = cancelled.ok_or_else(|| {
            Status::not_found(format!(
                "`{id}` is not the start of exactly one usable token: `benchmesh collector token list` lists them"
            ))
        })?;
        Ok(Response::new(v1::CancelTokenReply {
            token: Some(token_facts(&cancelled)),
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
        let revocation = self
            .change(by, move || {
                let revocation = authority.revoke(&wanted)?;
                let mut changes = Vec::new();
                if !revocation.certificates.is_empty() {
                    changes.push(TrustChange::CertificatesRevoked {
                        name: wanted,
                        certificates: revocation.certificates.clone(),
                    });
                }
                let cancelled = revocation.tokens.iter();
                changes.extend(cancelled.map(|(hash, uses)| TrustChange::TokenCancelled {
                    token: TokenId::of(*hash),
                    uses: *uses,
                }));
                Ok((revocation, changes))
            })
            .await?;
        if revocation.certificates.is_empty() {
            return Err(Status::not_found(format!(
                "no agent or operator called `{}` has a certificate that could be revoked",
                name.escape_debug()
            )));
        }
        let tokens = revocation.tokens.iter();
        let tokens = tokens.map(|(hash, uses_left)| v1::JoinToken {
            id: TokenId::of(*hash).to_string(),
            uses_left: *uses_left,
            ..v1::JoinToken::default()
        });
        Ok(Response::new(v1::RevokeReply {
            revoked: u32::try_from(revocation.certificates.len()).unwrap_or(u32::MAX),
            tokens: tokens.collect(),
        }))
    }
}

fn token_facts(token: &TokenFacts) -> v1::JoinToken {
    v1::JoinToken {
        id: TokenId::of(token.hash).to_string(),
        role: token.role.word().to_owned(),
        uses_left: token.uses_left,
        expires_s: token.expires_s,
        replace: token.replacement != Replacement::Nobody,
        replaces: token.replacement.named().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
