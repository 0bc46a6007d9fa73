//! What has been issued: certificates and tokens. Pure: the time is given, and whoever holds it stores it.
//!
//! Tokens are known by their hash. Entries are forgotten when they have expired.

use benchmesh_trust::{Fingerprint, Role};
use serde::{Deserialize, Serialize};

/// Each is a few hundred bytes in one file that is written at each change.
const MAX_CERTIFICATES: usize = 20_000;
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
    #[serde(flatten)]
    replacement: Replacement,
}

/// Whose place the users of a token may take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// `false`: nobody's.
    pub replace: bool,
    /// `None`: of whoever holds the name that they ask for.
    #[serde(rename = "replaces", default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Whose certificate it is.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Of whom these are.
    pub replaced_name: Option<String>,
    /// The name that the agent's uid is no longer bound to.
    pub former_name: Option<String>,
}

/// What a certificate is given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantedBy {
    /// The same holder's certificate.
    Renewal,
    /// The word of the collector's own user.
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
        "{MAX_CERTIFICATES} certificates are in use, which is as many as this collector issues"
    )]
    Full,
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

    /// Whether a request of somebody without a certificate names a token that there is. Cheap, because anybody may ask.
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
        let former_name = request
            .known_as
            .filter(|known_as| *known_as != request.name);
        let granted = |by| Granted {
            by,
            replaced: Vec::new(),
            replaced_name: None,
            former_name: former_name.map(str::to_owned),
        };
        let keep_uid = || match former_name {
            None => Ok(()),
            Some(known_as) => Err(EnrolRefusal::UidOfAnother {
                known_as: known_as.to_owned(),
                name: request.name.to_owned(),
            }),
        };
        self.forget_expired(now_s);
        check_name(request.name)?;
        if self.certificates.len() >= MAX_CERTIFICATES {
            return Err(EnrolRefusal::Full);
        }
        let Some(hash) = request.token else {
            return match request.asker {
                // Agents of the owner's user, which reads all their files anyway. Two of one name cannot be attached at
                // once.
                Some(asker) if asker.role == Role::Owner && request.role == Role::Agent => {
                    Ok(granted(GrantedBy::Owner))
                }
                Some(asker) if asker.role == request.role && asker.name == request.name => {
                    keep_uid()?;
                    Ok(granted(GrantedBy::Renewal))
                }
                Some(asker) => Err(EnrolRefusal::OnlyRenewal {
                    role: asker.role,
                    name: asker.name.clone(),
                }),
                None => Err(EnrolRefusal::NoToken),
            };
        };
        // The answer to an earlier request may have been lost: the same key does not use the token up again.
        let is_repeated = self.certificates.iter().any(|it| {
            !it.revoked
                && it.key == request.key
                && it.role == request.role
                && it.name == request.name
        });
        let token = self
            .tokens
            .iter_mut()
            .find(|token| token.hash == hash)
            .ok_or(EnrolRefusal::UnknownToken)?;
        if token.role != request.role {
            return Err(EnrolRefusal::OtherRole {
                token: token.role,
                wanted: request.role,
            });
        }
        let held_by_others = |it: &Certificate, name: &str| {
            !it.revoked && it.role == request.role && it.name == name && it.key != request.key
        };
        let held = |name| {
            let mut certificates = self.certificates.iter();
            certificates.any(|it| held_by_others(it, name))
        };
        let replaces = token.replacement.of.as_deref();
        if let Some(former) = former_name
            // The place was taken by the first use of the token; who has it by now keeps it.
            && (replaces != Some(former) || is_repeated && held(former))
        {
            keep_uid()?;
        }
        if is_repeated {
            return Ok(granted(GrantedBy::UsedToken { hash }));
        }
        if token.uses_left == 0 {
            return Err(EnrolRefusal::Exhausted);
        }
        let may_replace = token.replacement.replace && replaces.is_none_or(|it| it == request.name);
        if !may_replace && held(request.name) {
            return Err(EnrolRefusal::NameHeld {
                role: request.role,
                name: request.name.to_owned(),
            });
        }
        token.uses_left -= 1;
        let by = GrantedBy::Token {
            hash,
            uses_left: token.uses_left,
        };
        let replaced_name = replaces.unwrap_or(request.name).to_owned();
        let replaced = self.revoke_where(|it| held_by_others(it, &replaced_name));
        Ok(Granted {
            replaced,
            replaced_name: Some(replaced_name),
            ..granted(by)
        })
    }

    pub fn add_certificate(
        &mut self,
        fingerprint: Fingerprint,
        holder: Holder,
        key: Fingerprint,
        expires_s: u64,
    ) {
        self.certificates.push(Certificate {
            fingerprint,
            role: holder.role,
            name: holder.name,
            key,
            expires_s,
            revoked: false,
        });
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

/// Whether anybody may have this name.
pub fn check_name(name: &str) -> Result<(), EnrolRefusal> {
    let is_good = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.chars().any(|c| c.is_control() || c.is_whitespace());
    is_good.then_some(()).ok_or(EnrolRefusal::BadName)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: u64 = 1000;

    fn print(text: &str) -> Fingerprint {
        Fingerprint::of(text.as_bytes())
    }

    fn holder(role: Role, name: &str) -> Holder {
        Holder {
            role,
            name: name.to_owned(),
        }
    }

    fn request<'a>(name: &'a str, key: &str, token: Option<&str>) -> CertificateRequest<'a> {
        CertificateRequest {
            role: Role::Agent,
            name,
            key: print(key),
            token: token.map(print),
            known_as: None,
            asker: None,
        }
    }

    /// Grants the request, and adds the certificate of this name.
    fn join(
        registry: &mut Registry,
        request: &CertificateRequest<'_>,
        certificate: &str,
    ) -> Result<Granted, EnrolRefusal> {
        let granted = registry.grant(request, NOW)?;
        let holder = holder(request.role, request.name);
        registry.add_certificate(print(certificate), holder, request.key, NOW + 100);
        Ok(granted)
    }

    fn by_token(uses_left: u32, name: &str) -> Result<Granted, EnrolRefusal> {
        let hash = print("t");
        Ok(Granted {
            replaced_name: Some(name.to_owned()),
            ..granted(GrantedBy::Token { hash, uses_left })
        })
    }

    fn granted(by: GrantedBy) -> Granted {
        Granted {
            by,
            replaced: vec![],
            replaced_name: None,
            former_name: None,
        }
    }

    fn with_token(uses: u32) -> Registry {
        let mut registry = Registry::default();
        registry
            .add_token(print("t"), Role::Agent, uses, NOW + 10, of_nobody())
            .unwrap();
        registry
    }

    fn of_nobody() -> Replacement {
        Replacement::default()
    }

    fn of(name: Option<&str>) -> Replacement {
        Replacement {
            replace: true,
            of: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_token_is_good_for_its_uses_and_its_time() {
        let mut registry = with_token(2);
        registry
            .add_token(print("u"), Role::Agent, 1, NOW + 20, of_nobody())
            .unwrap();
        assert_eq!(
            join(&mut registry, &request("a", "ka", Some("t")), "ca"),
            by_token(1, "a")
        );
        // The same key again, as after a lost answer, uses nothing up.
        assert_eq!(
            join(&mut registry, &request("a", "ka", Some("t")), "ca2"),
            Ok(granted(GrantedBy::UsedToken { hash: print("t") }))
        );
        assert_eq!(
            join(&mut registry, &request("b", "kb", Some("t")), "cb"),
            by_token(0, "b")
        );
        let third = request("c", "kc", Some("t"));
        assert_eq!(registry.grant(&third, NOW), Err(EnrolRefusal::Exhausted));
        assert_eq!(
            registry.grant(&third, NOW + 10),
            Err(EnrolRefusal::UnknownToken)
        );
        let other = request("c", "kc", Some("other"));
        assert_eq!(registry.grant(&other, NOW), Err(EnrolRefusal::UnknownToken));
        assert_eq!(registry.check_token(None, NOW), Err(EnrolRefusal::NoToken));
        let unknown = Err(EnrolRefusal::UnknownToken);
        assert_eq!(registry.check_token(Some(print("other")), NOW), unknown);
        assert_eq!(registry.check_token(Some(print("u")), NOW), Ok(()));
        assert_eq!(registry.check_token(Some(print("u")), NOW + 20), unknown);
        assert_eq!(
            registry.grant(&request("c", "kc", None), NOW),
            Err(EnrolRefusal::NoToken)
        );
    }

    #[test]
    fn a_token_makes_no_other_role() {
        let mut registry = with_token(1);
        let operator = CertificateRequest {
            role: Role::Operator,
            ..request("a", "k", Some("t"))
        };
        assert!(matches!(
            registry.grant(&operator, NOW),
            Err(EnrolRefusal::OtherRole { .. })
        ));
    }

    #[test]
    fn a_held_name_needs_a_token_that_replaces() {
        let mut registry = with_token(9);
        join(&mut registry, &request("a", "k1", Some("t")), "c1").unwrap();
        assert!(matches!(
            registry.grant(&request("a", "k2", Some("t")), NOW),
            Err(EnrolRefusal::NameHeld { .. })
        ));
        registry
            .add_token(print("r"), Role::Agent, 1, NOW + 10, of(None))
            .unwrap();
        let revoked = join(&mut registry, &request("a", "k2", Some("r")), "c2");
        assert_eq!(revoked.unwrap().replaced, [print("c1")]);
        let a = holder(Role::Agent, "a");
        assert_eq!(
            registry.look_up(print("c1"), NOW),
            Lookup::Revoked(a.clone())
        );
        assert_eq!(registry.look_up(print("c2"), NOW), Lookup::Good(a));
    }

    /// An agent's uid goes to another name by a token that says whose, or by the owner's word.
    #[test]
    fn a_uid_stays_with_its_name_until_its_place_is_given_away() {
        let mut registry = with_token(9);
        join(&mut registry, &request("a", "k1", Some("t")), "c1").unwrap();
        registry
            .add_token(print("r"), Role::Agent, 1, NOW + 10, of(None))
            .unwrap();
        registry
            .add_token(print("s"), Role::Agent, 1, NOW + 10, of(Some("a")))
            .unwrap();
        let as_b = |token| CertificateRequest {
            known_as: Some("a"),
            ..request("b", "k2", token)
        };
        for token in ["t", "r"] {
            let refused = registry.grant(&as_b(Some(token)), NOW);
            assert!(
                matches!(&refused, Err(EnrolRefusal::UidOfAnother { known_as, name })
                    if known_as == "a" && name == "b"),
                "{refused:?}"
            );
        }
        // A place is one name's, and another name that is held is not it.
        join(&mut registry, &request("c", "k3", Some("t")), "c3").unwrap();
        assert!(matches!(
            registry.grant(&request("c", "k4", Some("s")), NOW),
            Err(EnrolRefusal::NameHeld { .. })
        ));
        let granted = join(&mut registry, &as_b(Some("s")), "c2").unwrap();
        assert_eq!(granted.replaced, [print("c1")]);
        assert_eq!(granted.replaced_name.as_deref(), Some("a"));
        assert_eq!(granted.former_name.as_deref(), Some("a"));
        // The answer was lost: the same once more, unless another has become `a` by now.
        let again = registry.grant(&as_b(Some("s")), NOW).unwrap();
        assert_eq!(again.former_name.as_deref(), Some("a"));
        join(&mut registry, &request("a", "k5", Some("t")), "c5").unwrap();
        assert!(matches!(
            registry.grant(&as_b(Some("s")), NOW),
            Err(EnrolRefusal::UidOfAnother { .. })
        ));
        let owner = holder(Role::Owner, "local");
        let by_owner = CertificateRequest {
            asker: Some(&owner),
            ..as_b(None)
        };
        let granted = registry.grant(&by_owner, NOW).unwrap();
        assert_eq!(granted.former_name.as_deref(), Some("a"));
        let itself = holder(Role::Agent, "b");
        let renewal = CertificateRequest {
            asker: Some(&itself),
            ..as_b(None)
        };
        assert!(registry.grant(&renewal, NOW).is_err());
    }

    #[test]
    fn a_certificate_renews_itself_and_the_owner_makes_agents() {
        let mut registry = Registry::default();
        let (a, owner) = (holder(Role::Agent, "a"), holder(Role::Owner, "local"));
        let asked = |asker, name| CertificateRequest {
            asker: Some(asker),
            ..request(name, "k", None)
        };
        let renewed = registry.grant(&asked(&a, "a"), NOW);
        assert_eq!(renewed, Ok(granted(GrantedBy::Renewal)));
        let by_owner = registry.grant(&asked(&owner, "b"), NOW);
        assert_eq!(by_owner, Ok(granted(GrantedBy::Owner)));
        assert!(matches!(
            registry.grant(&asked(&a, "b"), NOW),
            Err(EnrolRefusal::OnlyRenewal { .. })
        ));
        let operator = CertificateRequest {
            role: Role::Operator,
            ..asked(&a, "a")
        };
        assert!(registry.grant(&operator, NOW).is_err());
    }

    #[test]
    fn revoked_expired_and_unknown_certificates() {
        let mut registry = with_token(9);
        join(&mut registry, &request("a", "k", Some("t")), "c").unwrap();
        registry.add_certificate(print("o"), holder(Role::Owner, "a"), print("ko"), NOW + 100);
        assert_eq!(registry.revoke("b"), vec![]);
        assert_eq!(registry.revoke("a"), vec![print("c")]);
        assert_eq!(registry.revoke("a"), vec![]);
        assert!(matches!(registry.look_up(print("o"), NOW), Lookup::Good(_)));
        assert!(matches!(
            registry.look_up(print("c"), NOW),
            Lookup::Revoked(_)
        ));
        assert_eq!(registry.look_up(print("o"), NOW + 100), Lookup::Unknown);
        // It survives its file.
        let text = serde_json::to_string(&registry).unwrap();
        let mut again: Registry = serde_json::from_str(&text).unwrap();
        assert!(matches!(again.look_up(print("c"), NOW), Lookup::Revoked(_)));
        again.forget_owners();
        assert_eq!(again.look_up(print("o"), NOW), Lookup::Unknown);
        again.forget_expired(NOW + 100);
        assert!(again.certificates.is_empty() && again.tokens.is_empty());
    }

    #[test]
    fn names() {
        for name in ["", "a b", "a\n", &"n".repeat(129)] {
            let mut registry = with_token(1);
            assert_eq!(
                registry.grant(&request(name, "k", Some("t")), NOW),
                Err(EnrolRefusal::BadName),
                "{name:?}"
            );
        }
    }
}
