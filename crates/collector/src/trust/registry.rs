//! What has been issued: certificates and tokens. Pure: the time is given, and whoever holds it stores it.
//!
//! Tokens are known by their hash. Entries are forgotten when they have expired.

mod replacement_fields;

use benchmesh_trust::{Fingerprint, Replacement, Role};
use serde::{Deserialize, Serialize};

/// Each is a few hundred bytes in one file that is written at each change. Beyond it no new name gets one.
const MAX_CERTIFICATES: usize = 20_000;
/// Certificates of one holder. An agent has two while it renews, an operator as many as commands renew at the same time.
pub(super) const MAX_PER_HOLDER: usize = 32;
/// Certificates that one holder is given. Each is an event, a line of the log and a file that is written anew. An agent asks
/// again when an answer was lost, and commands of one operator may renew at the same time.
pub(super) const MAX_PER_MINUTE: u32 = 10;
const MAX_TOKENS: usize = 1000;
/// As long as an agent's name may be.
const MAX_NAME_BYTES: usize = 128;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Registry {
    certificates: Vec<Certificate>,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Certificate {
    fingerprint: Fingerprint,
    role: Role,
    name: String,
    /// Of the public key.
    key: Fingerprint,
    expires_s: u64,
    #[serde(default)]
    revoked: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Token {
    /// Of the secret.
    hash: Fingerprint,
    role: Role,
    uses_left: u32,
    expires_s: u64,
    #[serde(flatten, with = "replacement_fields")]
    replacement: Replacement,
}

/// Whose certificate it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub role: Role,
    pub name: String,
}

/// What the registry knows of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Good(Holder),
    Revoked(Holder),
    Unknown,
}

/// A certificate that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct CertificateRequest<'a> {
    pub role: Role,
    pub name: &'a str,
    /// Of the public key.
    pub key: Fingerprint,
    /// The hash of the token's secret, if one was given.
    pub token: Option<Fingerprint>,
    /// The name that the agent's uid is bound to, if it has been here before.
    pub known_as: Option<&'a str>,
    /// Who asks, if it has a certificate already.
    pub asker: Option<&'a Holder>,
}

/// A request that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub by: GrantedBy,
    /// The certificates that lose their name, revoked now.
    pub replaced: Vec<Fingerprint>,
    /// Whose place is taken.
    pub replaced_name: Option<String>,
    /// The name that the agent's uid is no longer bound to.
    pub former_name: Option<String>,
}

/// What a certificate is given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantedBy {
    /// The same holder's certificate.
    Renewal,
    /// The collector's own user asked for it.
    Owner,
    /// A token that lost one of its uses.
    Token { hash: Fingerprint, uses_left: u32 },
    /// A token that the same key has used before.
    UsedToken { hash: Fingerprint },
}

/// Why no certificate is given.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolRefusal {
    #[error(
        "a certificate is given for a join token: `benchmesh collector token` prints one on the collector's machine"
    )]
    NoToken,
    #[error(
        "this collector does not know the token, or it has expired: `benchmesh collector token` prints a new one"
    )]
    UnknownToken,
    #[error("the token is used up: `benchmesh collector token --uses N` prints one for N machines")]
    Exhausted,
    #[error(
        "the token is for the role {token}, and the role {wanted} was asked for: `benchmesh collector token --role {wanted}` prints a fitting one"
    )]
    OtherRole { token: Role, wanted: Role },
    #[error("a certificate of the role {role} for `{name}` can only renew itself")]
    OnlyRenewal { role: Role, name: String },
    #[error(
        "the name `{name}` belongs to another {role} with a certificate: choose another name, revoke that one with `benchmesh collector revoke {name}`, or join with a token of `benchmesh collector token --replace`"
    )]
    NameHeld { role: Role, name: String },
    #[error(
        "this agent's uid, in its state directory, belongs to the agent `{known_as}`, and it asks for the name `{name}`: start it with --name {known_as}, give it a --state-dir of its own, or rename it with a token of `benchmesh collector token --replace {known_as}`"
    )]
    UidOfAnother { known_as: String, name: String },
    #[error(
        "the name is empty, longer than {MAX_NAME_BYTES} bytes, or has spaces or control characters"
    )]
    BadName,
    #[error(
        "{MAX_CERTIFICATES} certificates are in use, which is as many as this collector issues: `benchmesh collector revoke NAME` makes room"
    )]
    Full,
    #[error(
        "the {role} `{name}` was given {MAX_PER_MINUTE} certificates within a minute: it gets the next one when the minute is over"
    )]
    TooOften { role: Role, name: String },
}

/// Why there is no token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_TOKENS} tokens are in use: wait until some have expired")]
pub struct TooManyTokens;

impl Registry {
    pub fn look_up(&self, fingerprint: Fingerprint, now_s: u64) -> Lookup {
        let found = self
            .certificates
            .iter()
            .find(|it| it.fingerprint == fingerprint && it.expires_s > now_s);
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

    /// Whether it knows the certificate, good or not.
    pub fn has(&self, fingerprint: Fingerprint) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|it| it.fingerprint == fingerprint)
    }

    /// Whether a request without a certificate names a token that exists. Cheap, because strangers may ask.
    pub fn check_token(&self, token: Option<Fingerprint>, now_s: u64) -> Result<(), EnrolRefusal> {
        let hash = token.ok_or(EnrolRefusal::NoToken)?;
        let mut tokens = self.tokens.iter();
        tokens
            .any(|token| token.hash == hash && token.expires_s > now_s)
            .then_some(())
            .ok_or(EnrolRefusal::UnknownToken)
    }

    /// Decides on a request, and takes one use off its token.
    pub fn grant(
        &mut self,
        request: &CertificateRequest<'_>,
        now_s: u64,
    ) -> Result<Granted, EnrolRefusal> {
        self.forget_expired(now_s);
        check_name(request.name)?;
        self.make_room(request)?;
        match (request.token, request.asker) {
            (Some(hash), _) => self.grant_for_token(request, hash),
            (None, Some(asker)) => grant_to_holder(request, asker),
            (None, None) => Err(EnrolRefusal::NoToken),
        }
    }

    /// A full registry renews certificates all the same. For a new name it forgets the oldest revoked one, which is refused as
    /// an unknown one, too.
    fn make_room(&mut self, request: &CertificateRequest<'_>) -> Result<(), EnrolRefusal> {
        let is_renewal = |it: &Certificate| it.is_of(request.role, request.name);
        if self.certificates.len() < MAX_CERTIFICATES || self.certificates.iter().any(is_renewal) {
            return Ok(());
        }
        let revoked = self.certificates.iter().position(|it| it.revoked);
        self.certificates.remove(revoked.ok_or(EnrolRefusal::Full)?);
        Ok(())
    }

    fn grant_for_token(
        &mut self,
        request: &CertificateRequest<'_>,
        hash: Fingerprint,
    ) -> Result<Granted, EnrolRefusal> {
        let found = self.tokens.iter().position(|token| token.hash == hash);
        let token = found.and_then(|index| self.tokens.get(index));
        let token = token.ok_or(EnrolRefusal::UnknownToken)?.clone();
        if token.role != request.role {
            return Err(EnrolRefusal::OtherRole {
                token: token.role,
                wanted: request.role,
            });
        }
        // The answer to an earlier request may have been lost: the same key does not use the token up again.
        let is_repeated = self
            .certificates
            .iter()
            .any(|it| !it.revoked && it.is_of(request.role, request.name) && it.key == request.key);
        if let Some(former) = request.former_name() {
            let gives_its_place = token.replacement == Replacement::Named(former.to_owned());
            // The place was taken by the first use of the token; who has it by now keeps it.
            let was_taken_since = is_repeated && self.is_held_by_another(former, request);
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
        if !may_replace && self.is_held_by_another(request.name, request) {
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
            Some(name) => self.revoke_where(|it| it.is_held_by_another(name, request)),
        };
        Ok(Granted {
            replaced,
            replaced_name,
            ..request.granted(GrantedBy::Token { hash, uses_left })
        })
    }

    fn is_held_by_another(&self, name: &str, request: &CertificateRequest<'_>) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|it| it.is_held_by_another(name, request))
    }

    /// Adds one. Those that it makes one too many are forgotten and returned: the oldest of the same holder, of which none is in
    /// use if there are such. A holder that cannot keep its new certificate goes on with the one that it has.
    #[must_use]
    pub fn add_certificate(
        &mut self,
        fingerprint: Fingerprint,
        holder: Holder,
        key: Fingerprint,
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
        self.certificates
            .retain(|it| !forgotten.contains(&it.fingerprint));
        self.certificates.push(Certificate {
            fingerprint,
            role: holder.role,
            name: holder.name,
            key,
            expires_s,
            revoked: false,
        });
        forgotten
    }

    /// Each start of the collector writes new credentials for its own user.
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
    ) -> Result<(), TooManyTokens> {
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

    /// Every certificate of an agent or operator of this name that is still good.
    pub fn revoke(&mut self, name: &str) -> Vec<Fingerprint> {
        self.revoke_where(|it| !it.revoked && it.role != Role::Owner && it.name == name)
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

    pub fn forget_expired(&mut self, now_s: u64) {
        self.certificates.retain(|it| it.expires_s > now_s);
        self.tokens.retain(|it| it.expires_s > now_s);
    }
}

impl Certificate {
    fn is_of(&self, role: Role, name: &str) -> bool {
        self.role == role && self.name == name
    }

    /// Whether it gives this name to another key than the request's.
    fn is_held_by_another(&self, name: &str, request: &CertificateRequest<'_>) -> bool {
        !self.revoked && self.is_of(request.role, name) && self.key != request.key
    }
}

impl<'a> CertificateRequest<'a> {
    /// The name that the agent's uid is bound to, if it is not the one that is asked for.
    fn former_name(&self) -> Option<&'a str> {
        self.known_as.filter(|known_as| *known_as != self.name)
    }

    fn uid_of_another(&self, known_as: &str) -> EnrolRefusal {
        EnrolRefusal::UidOfAnother {
            known_as: known_as.to_owned(),
            name: self.name.to_owned(),
        }
    }

    /// Without any certificate that is replaced.
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
    // Agents of the owner's user, which reads all their files anyway. Two of one name cannot be attached at once.
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

/// Whether it can be a name at all.
pub fn check_name(name: &str) -> Result<(), EnrolRefusal> {
    let is_good = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.chars().any(|c| c.is_control() || c.is_whitespace());
    is_good.then_some(()).ok_or(EnrolRefusal::BadName)
}

#[cfg(test)]
mod tests;
