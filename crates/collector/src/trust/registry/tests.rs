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

/// Grants the request and adds the certificate under this name.
fn join(
    registry: &mut Registry,
    request: &CertificateRequest<'_>,
    certificate: &str,
) -> Result<Granted, EnrolRefusal> {
    let granted = registry.grant(request, NOW)?;
    let holder = holder(request.role, request.name);
    let forgotten = registry.add_certificate(
        print(certificate),
        holder,
        (request.key, request.token),
        NOW + 100,
        |_| false,
    );
    assert_eq!(forgotten, []);
    Ok(granted)
}

fn by_token(uses_left: u32) -> Result<Granted, EnrolRefusal> {
    let hash = print("t");
    Ok(granted(GrantedBy::Token { hash, uses_left }))
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
        .add_token(
            print("t"),
            Role::Agent,
            uses,
            NOW + 10,
            Replacement::Nobody,
            NOW,
        )
        .unwrap();
    registry
}

#[test]
fn a_token_is_good_for_its_uses_and_its_time() {
    let mut registry = with_token(2);
    registry
        .add_token(
            print("u"),
            Role::Agent,
            1,
            NOW + 20,
            Replacement::Nobody,
            NOW,
        )
        .unwrap();
    assert_eq!(
        join(&mut registry, &request("a", "ka", Some("t")), "ca"),
        by_token(1)
    );
    // The same key again, as after a lost answer, does not use up the token.
    assert_eq!(
        join(&mut registry, &request("a", "ka", Some("t")), "ca2"),
        Ok(granted(GrantedBy::UsedToken { hash: print("t") }))
    );
    assert_eq!(
        join(&mut registry, &request("b", "kb", Some("t")), "cb"),
        by_token(0)
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
        .add_token(
            print("r"),
            Role::Agent,
            1,
            NOW + 10,
            Replacement::HolderOfName,
            NOW,
        )
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

/// An agent's uid moves to another name with a token that names the old one, or with the owner's credentials.
#[test]
fn a_uid_stays_with_its_name_until_its_place_is_given_away() {
    let mut registry = with_token(9);
    join(&mut registry, &request("a", "k1", Some("t")), "c1").unwrap();
    registry
        .add_token(
            print("r"),
            Role::Agent,
            1,
            NOW + 10,
            Replacement::HolderOfName,
            NOW,
        )
        .unwrap();
    registry
        .add_token(
            print("s"),
            Role::Agent,
            1,
            NOW + 10,
            Replacement::Named("a".to_owned()),
            NOW,
        )
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
    // A token for one name does not permit another name that is held.
    join(&mut registry, &request("c", "k3", Some("t")), "c3").unwrap();
    assert!(matches!(
        registry.grant(&request("c", "k4", Some("s")), NOW),
        Err(EnrolRefusal::NameHeld { .. })
    ));
    let granted = join(&mut registry, &as_b(Some("s")), "c2").unwrap();
    assert_eq!(granted.replaced, [print("c1")]);
    assert_eq!(granted.replaced_name.as_deref(), Some("a"));
    assert_eq!(granted.former_name.as_deref(), Some("a"));
    // After a lost answer the same request is granted again, unless another agent has become `a` meanwhile.
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
    let owner = holder(Role::Owner, "a");
    let forgotten =
        registry.add_certificate(print("o"), owner, (print("ko"), None), NOW + 100, |_| false);
    assert_eq!(forgotten, []);
    assert_eq!(registry.revoke("b").certificates, []);
    assert_eq!(registry.revoke("a").certificates, [print("c")]);
    assert_eq!(registry.revoke("a").certificates, []);
    assert!(matches!(registry.look_up(print("o"), NOW), Lookup::Good(_)));
    assert!(matches!(
        registry.look_up(print("c"), NOW),
        Lookup::Revoked(_)
    ));
    // Valid to the end of its last second, as in TLS.
    assert!(matches!(
        registry.look_up(print("o"), NOW + 100),
        Lookup::Good(_)
    ));
    assert_eq!(registry.look_up(print("o"), NOW + 101), Lookup::Unknown);
    // The registry survives a round trip through its file.
    let text = serde_json::to_string(&registry).unwrap();
    let mut again: Registry = serde_json::from_str(&text).unwrap();
    assert!(matches!(again.look_up(print("c"), NOW), Lookup::Revoked(_)));
    again.forget_owners();
    assert_eq!(again.look_up(print("o"), NOW), Lookup::Unknown);
    // A grace period after expiry, in time for which the collector itself has run.
    again.pass_time(NOW, 0);
    again.pass_time(u64::MAX, GRACE_S + 99);
    assert!(!again.certificates.is_empty());
    again.pass_time(u64::MAX, 1);
    assert!(again.certificates.is_empty() && again.tokens.is_empty());
}

#[test]
fn names() {
    for name in [
        "",
        "a b",
        "a\n",
        "a/b",
        "..",
        "a\u{202e}b",
        &"n".repeat(129),
    ] {
        let mut registry = with_token(1);
        assert_eq!(
            registry.grant(&request(name, "k", Some("t")), NOW),
            Err(EnrolRefusal::BadName),
            "{name:?}"
        );
    }
}

/// A holder that keeps renewing has few certificates, and others still get theirs.
#[test]
fn renewals_without_end_leave_room_for_others() {
    let mut registry = with_token(1);
    let rogue = holder(Role::Agent, "rogue");
    let renewal = CertificateRequest {
        asker: Some(&rogue),
        ..request("rogue", "k", None)
    };
    let mut forgotten = Vec::new();
    for number in 0..=MAX_CERTIFICATES {
        registry.grant(&renewal, NOW).unwrap();
        let own = print(&format!("c{number}"));
        forgotten.extend(registry.add_certificate(
            own,
            rogue.clone(),
            (renewal.key, None),
            NOW + 100,
            |_| false,
        ));
    }
    let kept = MAX_CERTIFICATES + 1 - MAX_PER_HOLDER;
    let first: Vec<Fingerprint> = (0..kept)
        .map(|number| print(&format!("c{number}")))
        .collect();
    assert_eq!(forgotten, first);
    assert_eq!(
        join(&mut registry, &request("a", "ka", Some("t")), "ca"),
        by_token(0)
    );
}

/// With all entries valid, existing holders can renew, and a new name is granted only after a revocation.
#[test]
fn a_full_registry_renews_and_makes_room_by_revocation() {
    let mut registry = with_token(1);
    registry.certificates = (0..MAX_CERTIFICATES)
        .map(|number| Certificate {
            fingerprint: print(&format!("c{number}")),
            role: Role::Agent,
            name: format!("a{number}"),
            key: print("k"),
            expires_s: NOW + 100,
            revoked: false,
            token: None,
        })
        .collect();
    let own = holder(Role::Agent, "a7");
    let renewal = CertificateRequest {
        asker: Some(&own),
        ..request("a7", "k", None)
    };
    let renewed = registry.grant(&renewal, NOW);
    assert_eq!(renewed, Ok(granted(GrantedBy::Renewal)));
    let new = request("new", "kn", Some("t"));
    assert_eq!(registry.grant(&new, NOW), Err(EnrolRefusal::Full));
    assert_eq!(registry.revoke("a9").certificates, [print("c9")]);
    assert_eq!(registry.grant(&new, NOW), by_token(0));
    assert!(!registry.has(print("c9")) && registry.has(print("c8")));
}

/// Files of earlier versions contain the same two fields.
#[test]
fn replacements_survive_their_file() {
    for (replacement, fields) in [
        (Replacement::Nobody, r#""replace":false"#),
        (Replacement::HolderOfName, r#""replace":true"#),
        (
            Replacement::Named("a".to_owned()),
            r#""replace":true,"replaces":"a""#,
        ),
    ] {
        let mut registry = Registry::default();
        registry
            .add_token(print("t"), Role::Agent, 1, NOW, replacement.clone(), NOW)
            .unwrap();
        let text = serde_json::to_string(&registry).unwrap();
        assert!(text.contains(&format!(",{fields}}}]")), "{text}");
        let again: Registry = serde_json::from_str(&text).unwrap();
        let tokens = again.tokens.into_iter();
        let read: Vec<Replacement> = tokens.map(|token| token.replacement).collect();
        assert_eq!(read, [replacement]);
    }
}
