//! The registry of issued certificates and tokens. Pure: the caller supplies the time and stores the registry.
//!
//! Tokens are stored as hashes. Entries are valid until they expire and are kept for a grace period after that: a clock
//! that is far ahead at one start must not invalidate certificates.

mod replacement_fields;

use benchmesh_model::text::is_hidden;
use benchmesh_trust::{Fingerprint, Replacement, Role};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Capacity of the registry, which is one file rewritten at each change, with a few hundred bytes per entry. Beyond it,
/// new names are refused.
const MAX_CERTIFICATES: usize = 20_000;
/// Maximum number of certificates per holder. An agent has two while it renews, an operator as many as commands renew
/// at once.
pub(super) const MAX_PER_HOLDER: usize = 32;
/// Maximum number of certificates issued per holder and minute. Each is an event, a log line and a rewrite of the file.
/// An agent repeats a request after a lost answer, and commands of one operator may renew at once.
pub(super) const MAX_PER_MINUTE: u32 = 10;
const MAX_TOKENS: usize = 1000;
/// How long an expired entry is kept, in time that the collector itself has run.
const GRACE_S: u64 = 30 * 24 * 3600;
/// Limit of an agent's name.
const MAX_NAME_BYTES: usize = 128;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Registry {
    certificates: Vec<Certificate>,
    tokens: Vec<Token>,
    /// A lower bound of the current time: never later than the wall clock, and advanced only by the collector's running
    /// time. Decides about expiry.
    #[serde(default)]
    confirmed_s: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Certificate {
    fingerprint: Fingerprint,
    role: Role,
    name: String,
    /// Fingerprint of the public key.
    key: Fingerprint,
    expires_s: u64,
    #[serde(default)]
    revoked: bool,
    /// Hash of the token that it was issued for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Fingerprint>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Token {
    /// Hash of the secret.
    hash: Fingerprint,
    role: Role,
    uses_left: u32,
    expires_s: u64,
    #[serde(flatten, with = "replacement_fields")]
    replacement: Replacement,
}

/// The public facts of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFacts {
    pub hash: Fingerprint,
    pub role: Role,
    pub uses_left: u32,
    pub expires_s: u64,
    pub replacement: Replacement,
}

/// The result of a revocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocation {
    pub certificates: Vec<Fingerprint>,
    /// The tokens that the certificates were issued for, with the remaining uses of each.
    pub tokens: Vec<(Fingerprint, u32)>,
}

/// A withdrawal recorded in the audit trail, possibly missing in a registry from an older copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    Certificate(Fingerprint),
    /// A token, by the first digits of its hash, and its remaining uses.
    Token {
        id: String,
        uses_left: u32,
    },
}

/// The holder of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub role: Role,
    pub name: String,
}

/// The result of looking up a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Good(Holder),
    Revoked(Holder),
    Unknown,
}

/// A request for a certificate.
#[derive(Clone, Copy, Debug)]
pub struct CertificateRequest<'a> {
    pub role: Role,
    pub name: &'a str,
    /// Fingerprint of the public key.
    pub key: Fingerprint,
    /// The hash of the token's secret, if one was given.
    pub token: Option<Fingerprint>,
    /// The name that the agent's uid is bound to, if it is known.
    pub known_as: Option<&'a str>,
    /// The requester's identity, if it has a certificate already.
    pub asker: Option<&'a Holder>,
}

/// A granted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub by: GrantedBy,
    /// The replaced holder's certificates, now revoked.
    pub replaced: Vec<Fingerprint>,
    /// The replaced holder's name.
    pub replaced_name: Option<String>,
    /// The former name of the agent's uid.
    pub former_name: Option<String>,
}

/// The basis of a granted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantedBy {
    /// A certificate of the same holder.
    Renewal,
    /// The collector's own user requested it.
    Owner,
    /// A token, which lost one use.
    Token { hash: Fingerprint, uses_left: u32 },
    /// A token already used by the same key.
    UsedToken { hash: Fingerprint },
}

/// Why a certificate is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolRefusal {
    #[error(
        "a join token is required: `benchmesh collector token` on the collector's machine prints one"
    )]
    NoToken,
    #[error(
        "this collector does not know the token, or it has expired: `benchmesh collector token` prints a new one"
    )]
    UnknownToken,
    #[error("the token is used up: `benchmesh collector token --uses N` prints one for N machines")]
    Exhausted,
    #[error(
        "the token is for the role {token}, but the request is for the role {wanted}: `benchmesh collector token \
        --role {wanted}` prints a suitable one"
    )]
    OtherRole { token: Role, wanted: Role },
    #[error("the certificate of the {role} `{name}` can only request its own renewal")]
    OnlyRenewal { role: Role, name: String },
    #[error(
        "the name `{name}` belongs to another {role} with a certificate: choose another name, revoke that one with \
        `benchmesh collector revoke {name}`, or join with a token from `benchmesh collector token --replace`"
    )]
    NameHeld { role: Role, name: String },
    #[error(
        "this agent's uid, in its state directory, belongs to the agent `{known_as}`, but the agent requests the name \
        `{name}`: start it with --name {known_as}, give it a --state-dir of its own, or rename it with a token from \
        `benchmesh collector token --replace {known_as}`"
    )]
    UidOfAnother { known_as: String, name: String },
    #[error(
        "the name is empty, longer than {MAX_NAME_BYTES} bytes, or contains spaces, `/`, `..` or invisible characters"
    )]
    BadName,
    #[error(
        "the limit of {MAX_CERTIFICATES} certificates in use is reached: `benchmesh collector revoke NAME` makes room"
    )]
    Full,
    #[error(
        "the {role} `{name}` has received {MAX_PER_MINUTE} certificates within a minute, which is the limit: try again \
        in a minute"
    )]
    TooOften { role: Role, name: String },
}

/// Why no token is created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {MAX_TOKENS} tokens in use is reached: wait until some have expired")]
pub struct TooManyTokens;

impl Registry {
    pub fn look_up(&self, fingerprint: Fingerprint, now_s: u64) -> Lookup {
        let found = self
            .certificates
            .iter()
            .find(|it| it.fingerprint == fingerprint && !it.has_expired(now_s));
        match found {
            None => Lookup::Unknown,
            Some(it) => {
                let holder = Holder {
                    role: it.role,
                    name: it.name.clone(),
                };
                match it.revoked {
                    false => Lookup::Good(holder),
                    true => Lookup::Revoked(holder),
                }
            }
        }
    }

    /// Whether the certificate is in the registry, valid or not.
    pub fn has(&self, fingerprint: Fingerprint) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|it| it.fingerprint == fingerprint)
    }

    /// Whether a request without a certificate names an existing token. Cheap, because unauthenticated clients may ask.
    pub fn check_token(&self, token: Option<Fingerprint>, now_s: u64) -> Result<(), EnrolRefusal> {
        let hash = token.ok_or(EnrolRefusal::NoToken)?;
        let mut tokens = self.tokens.iter();
        tokens
            .any(|token| token.hash == hash && token.expires_s > now_s)
            .then_some(())
            .ok_or(EnrolRefusal::UnknownToken)
    }

    /// Decides on a request, and uses up one use of its token.
    pub fn grant(
        &mut self,
        request: &CertificateRequest<'_>,
        now_s: u64,
    ) -> Result<Granted, EnrolRefusal> {
        check_name(request.name)?;
        self.make_room(request, now_s)?;
        match (request.token, request.asker) {
            (Some(hash), _) => self.grant_for_token(request, hash, now_s),
            (None, Some(asker)) => grant_to_holder(request, asker),
            (None, None) => Err(EnrolRefusal::NoToken),
        }
    }

    /// A full registry still renews certificates. For a new name it drops the oldest revoked or expired certificate,
    /// which is then refused as unknown.
    fn make_room(
        &mut self,
        request: &CertificateRequest<'_>,
        now_s: u64,
    ) -> Result<(), EnrolRefusal> {
        let is_renewal = |it: &Certificate| it.is_of(request.role, request.name);
        if self.certificates.len() < MAX_CERTIFICATES || self.certificates.iter().any(is_renewal) {
            return Ok(());
        }
        let useless = |it: &Certificate| it.revoked || it.has_expired(now_s);
        let useless = self.certificates.iter().position(useless);
        self.certificates.remove(useless.ok_or(EnrolRefusal::Full)?);
        Ok(())
    }

    fn grant_for_token(
        &mut self,
        request: &CertificateRequest<'_>,
        hash: Fingerprint,
        now_s: u64,
    ) -> Result<Granted, EnrolRefusal> {
        let is_asked = |token: &Token| token.hash == hash && token.expires_s > now_s;
        let found = self.tokens.iter().position(is_asked);
        let token = found.and_then(|index| self.tokens.get(index));
        let token = token.ok_or(EnrolRefusal::UnknownToken)?.clone();
        if token.role != request.role {
            return Err(EnrolRefusal::OtherRole {
                token: token.role,
                wanted: request.role,
            });
        }
        // The answer to an earlier request may have been lost: the same key does not use up the token again.
        let is_repeated = self.certificates.iter().any(|it| {
            it.is_good(now_s) && it.is_of(request.role, request.name) && it.key == request.key
        });
        if let Some(former) = request.former_name() {
            let gives_its_place = token.replacement == Replacement::Named(former.to_owned());
            // The first use of the token replaced the holder; a later holder of that name keeps it.
            let was_taken_since = is_repeated && self.is_held_by_another(former, request, now_s);
            if !gives_its_place || was_taken_since {
                return Err(request.uid_of_another(former));
            }
        }
        if is_repeated {
            return Ok(request.granted(GrantedBy::UsedToken { hash }));
        }
        let uses_left = token
            .uses_left
            .checked_sub(1)
            .ok_or(EnrolRefusal::Exhausted)?;
        let replaced_name = match token.replacement {
            Replacement::Nobody => None,
            Replacement::HolderOfName => Some(request.name.to_owned()),
            Replacement::Named(name) => Some(name),
        };
        let may_replace = replaced_name.as_deref() == Some(request.name);
        if !may_replace && self.is_held_by_another(request.name, request, now_s) {
            return Err(EnrolRefusal::NameHeld {
                role: request.role,
                name: request.name.to_owned(),
            });
        }
        for token in self.tokens.iter_mut().filter(|token| token.hash == hash) {
            token.uses_left = uses_left;
        }
        let replaced = match &replaced_name {
            None => Vec::new(),
            // Including expired ones: their connections may still be open.
            Some(name) => self.revoke_where(|it| {
                !it.revoked && it.is_of(request.role, name) && it.key != request.key
            }),
        };
        Ok(Granted {
            replaced,
            replaced_name,
            ..request.granted(GrantedBy::Token { hash, uses_left })
        })
    }

    fn is_held_by_another(&self, name: &str, request: &CertificateRequest<'_>, now_s: u64) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|it| it.is_held_by_another(name, request, now_s))
    }

    /// Adds a certificate. Returns those dropped to keep the holder's limit: the holder's oldest ones, preferably
    /// without an open connection. A holder that cannot store its new certificate keeps using the old one.
    #[must_use]
    pub fn add_certificate(
        &mut self,
        fingerprint: Fingerprint,
        holder: Holder,
        (key, token): (Fingerprint, Option<Fingerprint>),
        expires_s: u64,
        is_in_use: impl Fn(Fingerprint) -> bool,
    ) -> Vec<Fingerprint> {
        let own = self.certificates.iter();
        let own = own.filter(|it| it.is_of(holder.role, &holder.name));
        let mut forgotten: Vec<Fingerprint> = own.map(|it| it.fingerprint).collect();
        let surplus = (forgotten.len() + 1).saturating_sub(MAX_PER_HOLDER);
        if surplus > 0 {
            forgotten.sort_by_key(|certificate| is_in_use(*certificate));
        }
        forgotten.truncate(surplus);
        // A renewed certificate refers to the token of the first one.
        let mut own = self.certificates.iter().rev();
        let token = token.or_else(|| own.find(|it| it.is_of(holder.role, &holder.name))?.token);
        self.certificates
            .retain(|it| !forgotten.contains(&it.fingerprint));
        self.certificates.push(Certificate {
            fingerprint,
            role: holder.role,
            name: holder.name,
            key,
            expires_s,
            revoked: false,
            token,
        });
        forgotten
    }

    /// Forgets the owner's certificates when lost credentials are replaced.
    pub fn forget_owners(&mut self) {
        self.certificates.retain(|it| it.role != Role::Owner);
    }

    pub fn add_token(
        &mut self,
        hash: Fingerprint,
        role: Role,
        uses: u32,
        expires_s: u64,
        replacement: Replacement,
        now_s: u64,
    ) -> Result<(), TooManyTokens> {
        if self.tokens.len() >= MAX_TOKENS {
            self.tokens.retain(|it| it.is_usable(now_s));
        }
        if self.tokens.len() >= MAX_TOKENS {
            return Err(TooManyTokens);
        }
        self.tokens.push(Token {
            hash,
            role,
            uses_left: uses,
            expires_s,
            replacement,
        });
        Ok(())
    }

    /// Tokens with uses left.
    pub fn tokens(&self, now_s: u64) -> Vec<TokenFacts> {
        let usable = self.tokens.iter().filter(|it| it.is_usable(now_s));
        let facts = usable.map(|it| TokenFacts {
            hash: it.hash,
            role: it.role,
            uses_left: it.uses_left,
            expires_s: it.expires_s,
            replacement: it.replacement.clone(),
        });
        facts.collect()
    }

    /// Removes all uses of a token; returns how many it had.
    pub fn cancel_token(&mut self, hash: Fingerprint) -> u32 {
        let mut had = 0;
        for token in self.tokens.iter_mut().filter(|it| it.hash == hash) {
            had = std::mem::take(&mut token.uses_left);
        }
        had
    }

    /// Revokes every certificate of an agent or operator of this name, and the tokens that they were issued for.
    pub fn revoke(&mut self, name: &str) -> Revocation {
        let is_meant = |it: &Certificate| !it.revoked && it.role != Role::Owner && it.name == name;
        let meant = self.certificates.iter().filter(|it| is_meant(it));
        let used: BTreeSet<Fingerprint> = meant.filter_map(|it| it.token).collect();
        let tokens = used.into_iter().map(|hash| (hash, self.cancel_token(hash)));
        Revocation {
            tokens: tokens.filter(|(_, uses)| *uses > 0).collect(),
            certificates: self.revoke_where(is_meant),
        }
    }

    /// Revoked certificates by name.
    pub fn revoked(&self) -> BTreeMap<String, Vec<Fingerprint>> {
        let mut names: BTreeMap<String, Vec<Fingerprint>> = BTreeMap::new();
        for it in self.certificates.iter().filter(|it| it.revoked) {
            names
                .entry(it.name.clone())
                .or_default()
                .push(it.fingerprint);
        }
        names
    }

    /// Repeats the withdrawals of the audit trail; returns whether anything changed.
    pub fn withdraw(&mut self, withdrawals: &[Withdrawal]) -> bool {
        let mut changed = false;
        for withdrawal in withdrawals {
            match withdrawal {
                Withdrawal::Certificate(fingerprint) => {
                    let found =
                        self.revoke_where(|it| !it.revoked && it.fingerprint == *fingerprint);
                    changed |= !found.is_empty();
                }
                Withdrawal::Token { id, uses_left } => {
                    let is_meant = |it: &&mut Token| it.hash.to_string().starts_with(id.as_str());
                    for token in self.tokens.iter_mut().filter(is_meant) {
                        changed |= token.uses_left > *uses_left;
                        token.uses_left = token.uses_left.min(*uses_left);
                    }
                }
            }
        }
        changed
    }

    fn revoke_where(&mut self, condition: impl Fn(&Certificate) -> bool) -> Vec<Fingerprint> {
        let chosen = self.certificates.iter_mut().filter(|it| condition(it));
        chosen
            .map(|it| {
                it.revoked = true;
                it.fingerprint
            })
            .collect()
    }

    /// Advances the confirmed time: the collector has run for `ran_s` since the last call, or since its start, and its
    /// wall clock reads `now_s`. Drops entries whose grace period has passed.
    pub fn pass_time(&mut self, now_s: u64, ran_s: u64) {
        self.confirmed_s = match self.confirmed_s {
            0 => now_s,
            confirmed_s => confirmed_s.saturating_add(ran_s).min(now_s),
        };
        let confirmed_s = self.confirmed_s;
        let is_kept = |expires_s: u64| expires_s.saturating_add(GRACE_S) > confirmed_s;
        self.certificates.retain(|it| is_kept(it.expires_s));
        self.tokens.retain(|it| is_kept(it.expires_s));
    }
}

impl Token {
    fn is_usable(&self, now_s: u64) -> bool {
        self.uses_left > 0 && self.expires_s > now_s
    }
}

impl Certificate {
    fn is_of(&self, role: Role, name: &str) -> bool {
        self.role == role && self.name == name
    }

    fn is_good(&self, now_s: u64) -> bool {
        !self.revoked && !self.has_expired(now_s)
    }

    /// A certificate is valid to the end of its last second, as in TLS.
    fn has_expired(&self, now_s: u64) -> bool {
        self.expires_s < now_s
    }

    /// Whether this certificate holds the name with a key other than the request's.
    fn is_held_by_another(&self, name: &str, request: &CertificateRequest<'_>, now_s: u64) -> bool {
        self.is_good(now_s) && self.is_of(request.role, name) && self.key != request.key
    }
}

impl<'a> CertificateRequest<'a> {
    /// The name that the agent's uid is bound to, if it differs from the requested one.
    fn former_name(&self) -> Option<&'a str> {
        self.known_as.filter(|known_as| *known_as != self.name)
    }

    fn uid_of_another(&self, known_as: &str) -> EnrolRefusal {
        EnrolRefusal::UidOfAnother {
            known_as: known_as.to_owned(),
            name: self.name.to_owned(),
        }
    }

    /// A grant that replaces no certificate.
    fn granted(&self, by: GrantedBy) -> Granted {
        Granted {
            by,
            replaced: Vec::new(),
            replaced_name: None,
            former_name: self.former_name().map(str::to_owned),
        }
    }
}

/// Decides on a request without a token.
fn grant_to_holder(
    request: &CertificateRequest<'_>,
    asker: &Holder,
) -> Result<Granted, EnrolRefusal> {
    // Agents of the owner's user, who can read all their files anyway. Two of one name cannot be attached at once.
    if asker.role == Role::Owner && request.role == Role::Agent {
        return Ok(request.granted(GrantedBy::Owner));
    }
    if asker.role != request.role || asker.name != request.name {
        return Err(EnrolRefusal::OnlyRenewal {
            role: asker.role,
            name: asker.name.clone(),
        });
    }
    match request.former_name() {
        None => Ok(request.granted(GrantedBy::Renewal)),
        Some(known_as) => Err(request.uid_of_another(known_as)),
    }
}

/// Checks that the name is valid.
pub fn check_name(name: &str) -> Result<(), EnrolRefusal> {
    let is_good = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name
            .chars()
            .any(|c| is_hidden(c) || c.is_whitespace() || c == '/')
        && !name.contains("..");
    is_good.then_some(()).ok_or(EnrolRefusal::BadName)
}

#[cfg(test)]
mod tests;
