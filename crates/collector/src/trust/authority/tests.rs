#![allow(clippy::unwrap_used)]
use super::*;
use crate::trust::registry::MAX_PER_HOLDER;

fn authority() -> (Arc<Authority>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path().join("tls"), OWN_LIFETIME).unwrap();
    (Arc::new(authority), directory)
}

fn holder(role: Role, name: &str) -> Holder {
    Holder {
        role,
        name: name.to_owned(),
    }
}

/// Requests a certificate for the agent `a`.
fn enrol(
    authority: &Authority,
    asker: Option<&Holder>,
    token: Option<&JoinToken>,
) -> Result<CertificateDer<'static>, TrustError> {
    let key = NewKey::make().unwrap();
    let request = CertificateRequest {
        role: Role::Agent,
        name: "a",
        key: Fingerprint::of(key.public_key()),
        token: token.map(|token| Fingerprint::of(token.secret())),
        known_as: None,
        asker,
    };
    let (issued, _) = authority.enrol(&request, key.public_key())?;
    Ok(issued.certificate)
}

fn show(authority: &Authority, certificate: &CertificateDer<'_>) -> Arc<CancellationToken> {
    let CertificateStatus::Good { revoked, .. } = authority.status(certificate) else {
        panic!("it was just issued");
    };
    revoked
}

/// Lets everything issued so far expire, followed by a later change of the registry.
fn let_all_expire(authority: &Authority) {
    let mut registry = authority.registry();
    registry.pass_time(u64::MAX, u64::MAX);
    authority.state().registry = Arc::new(registry);
}

/// An open connection outlives its certificate, which the registry has already forgotten.
#[test]
fn revocation_ends_connections_whose_certificate_has_expired() {
    let (authority, _directory) = authority();
    let owner = holder(Role::Owner, OWNER);
    let own = enrol(&authority, Some(&owner), None).unwrap();
    let revoked = show(&authority, &own);
    let_all_expire(&authority);
    assert!(matches!(authority.status(&own), CertificateStatus::Unknown));
    assert!(!revoked.is_cancelled());
    assert_eq!(authority.revoke("b").unwrap().certificates, []);
    assert_eq!(authority.revoke("a").unwrap().certificates.len(), 1);
    assert!(revoked.is_cancelled());
    assert_eq!(authority.revoke("a").unwrap().certificates, []);
}

/// The same applies to a replacement of the holder.
#[test]
fn a_replacement_ends_connections_whose_certificate_has_expired() {
    for (replacement, ends) in [
        (Replacement::Nobody, false),
        (Replacement::HolderOfName, true),
        (Replacement::Named("a".to_owned()), true),
        (Replacement::Named("b".to_owned()), false),
    ] {
        let (authority, _directory) = authority();
        let owner = holder(Role::Owner, OWNER);
        let revoked = show(&authority, &enrol(&authority, Some(&owner), None).unwrap());
        let_all_expire(&authority);
        let hour = Duration::from_secs(3600);
        let token = authority.create_token(Role::Agent, 1, hour, replacement.clone());
        enrol(&authority, None, Some(&token.unwrap().0)).unwrap();
        assert_eq!(revoked.is_cancelled(), ends, "{replacement:?}");
    }
}

/// State about a connection is dropped with it.
#[test]
fn connections_that_ended_are_forgotten() {
    let (authority, _directory) = authority();
    let owner = holder(Role::Owner, OWNER);
    let [first, second] = [(), ()].map(|()| enrol(&authority, Some(&owner), None).unwrap());
    let of_first = show(&authority, &first);
    assert!(Arc::ptr_eq(&of_first, &show(&authority, &first)));
    drop(of_first);
    let of_second = show(&authority, &second);
    assert_eq!(authority.state().shown.len(), 1);
    let_all_expire(&authority);
    drop(of_second);
    assert_eq!(authority.revoke("a").unwrap(), Revocation::default());
}

/// A command may have read the owner's credentials just before their renewal.
#[test]
fn an_owner_is_admitted_with_the_credentials_before_the_renewed_ones() {
    let (authority, directory) = authority();
    let listen = SocketAddr::from(([127, 0, 0, 1], 7700));
    let file = authority.write_owner(directory.path(), listen).unwrap();
    let own = || Credentials::load(&file).unwrap().unwrap();
    let mut first = own();
    authority.write_owner(directory.path(), listen).unwrap();
    assert_eq!(own().certificate, first.certificate);
    // Two thirds of its life have passed.
    first.issued_s = 0;
    first.save(&file).unwrap();
    authority.write_owner(directory.path(), listen).unwrap();
    assert_ne!(own().certificate, first.certificate);
    let is_good = |it: &Credentials| {
        let found = authority
            .state()
            .registry
            .look_up(it.fingerprint().unwrap(), now_s());
        matches!(found, Lookup::Good(_))
    };
    assert!(is_good(&first) && is_good(&own()));
    // Missing credentials are replaced, and the old ones are no longer valid.
    std::fs::remove_file(&file).unwrap();
    authority.write_owner(directory.path(), listen).unwrap();
    assert!(!is_good(&first) && is_good(&own()));
}

#[test]
fn renewals_of_one_name_are_bounded_by_minute_and_the_owner_is_not() {
    let (authority, _directory) = authority();
    let (own, other) = (holder(Role::Agent, "a"), holder(Role::Owner, OWNER));
    let renewed = (0..100).map_while(|_| enrol(&authority, Some(&own), None).ok());
    assert_eq!(renewed.count(), 10);
    let refused = enrol(&authority, Some(&own), None).unwrap_err();
    assert!(refused.to_string().contains("within a minute"), "{refused}");
    enrol(&authority, Some(&other), None).unwrap();
}

/// A holder with more certificates than allowed loses the oldest one without a connection: a holder that cannot store
/// its new certificate keeps renewing with the old one.
#[test]
fn a_certificate_in_use_is_not_forgotten() {
    let (authority, _directory) = authority();
    let owner = holder(Role::Owner, OWNER);
    let [used, unused] = [(), ()].map(|()| enrol(&authority, Some(&owner), None).unwrap());
    let connection = show(&authority, &used);
    for _ in 0..2 * MAX_PER_HOLDER {
        enrol(&authority, Some(&owner), None).unwrap();
    }
    assert!(!connection.is_cancelled());
    assert!(matches!(
        authority.status(&used),
        CertificateStatus::Good { .. }
    ));
    assert!(matches!(
        authority.status(&unused),
        CertificateStatus::Unknown
    ));
}

/// With more certificates in use than allowed, the oldest is dropped and its connections end.
#[test]
fn the_connections_of_forgotten_certificates_end() {
    let (authority, _directory) = authority();
    let owner = holder(Role::Owner, OWNER);
    let connections: Vec<_> = (0..=MAX_PER_HOLDER)
        .map(|_| {
            let own = enrol(&authority, Some(&owner), None).unwrap();
            show(&authority, &own)
        })
        .collect();
    let ended = connections.iter().map(|it| it.is_cancelled());
    let ended: Vec<bool> = ended.collect();
    assert_eq!(ended.first(), Some(&true));
    assert_eq!(ended.iter().filter(|ended| **ended).count(), 1);
}

/// A connection is admitted or refused while a change waits for the disk.
#[test]
fn looking_up_a_certificate_does_not_wait_for_a_change() {
    let (authority, _directory) = authority();
    let owner = holder(Role::Owner, OWNER);
    let own = enrol(&authority, Some(&owner), None).unwrap();
    let changing = authority.changing();
    let looked_up = std::thread::spawn({
        let authority = Arc::clone(&authority);
        move || {
            drop(show(&authority, &own));
            authority.check_token(None)
        }
    });
    assert_eq!(looked_up.join().unwrap(), Err(EnrolRefusal::NoToken));
    drop(changing);
}

/// A single start with the clock far ahead must not invalidate certificates once the clock is right again.
#[test]
fn a_start_with_a_clock_far_ahead_costs_nobody_a_certificate() {
    const YEARS_S: u64 = 10 * 365 * 24 * 3600;
    let (authority, directory) = authority();
    let owner = holder(Role::Owner, OWNER);
    let own = enrol(&authority, Some(&owner), None).unwrap();
    let mut registry = authority.registry();
    registry.pass_time(now_s() + YEARS_S, 3600);
    authority.store(registry, &[]).unwrap();
    let again = Authority::open(directory.path().join("tls"), OWN_LIFETIME).unwrap();
    assert!(matches!(again.status(&own), CertificateStatus::Good { .. }));
}

#[test]
fn a_revocation_cancels_what_is_left_of_the_token() {
    let (authority, _directory) = authority();
    let hour = Duration::from_secs(3600);
    let made = |uses| authority.create_token(Role::Agent, uses, hour, Replacement::Nobody);
    let (used, other) = (made(5).unwrap().0, made(5).unwrap().0);
    enrol(&authority, None, Some(&used)).unwrap();
    // A renewed certificate refers to the same token.
    enrol(&authority, Some(&holder(Role::Agent, "a")), None).unwrap();
    let revocation = authority.revoke("a").unwrap();
    assert_eq!(revocation.certificates.len(), 2);
    let hash = Fingerprint::of(used.secret());
    assert_eq!(revocation.tokens, [(hash, 4)]);
    let refused = enrol(&authority, None, Some(&used)).unwrap_err();
    assert!(refused.to_string().contains("used up"), "{refused}");
    let left: Vec<_> = authority
        .tokens()
        .iter()
        .map(|it| (it.hash, it.uses_left))
        .collect();
    assert_eq!(left, [(Fingerprint::of(other.secret()), 5)]);
    let id = Fingerprint::of(other.secret()).to_string();
    assert_eq!(authority.cancel_token("00000000").unwrap(), None);
    assert_eq!(
        authority.cancel_token(&id[..8]).unwrap().unwrap().uses_left,
        5
    );
    assert_eq!(authority.tokens(), []);
    enrol(&authority, None, Some(&other)).unwrap_err();
}

/// A registry restored from an older copy.
#[test]
fn what_was_withdrawn_since_a_copy_is_withdrawn_again() {
    let (authority, directory) = authority();
    let hour = Duration::from_secs(3600);
    let token = authority.create_token(Role::Agent, 1, hour, Replacement::Nobody);
    let token = token.unwrap().0;
    let owner = holder(Role::Owner, OWNER);
    let own = enrol(&authority, Some(&owner), None).unwrap();
    let file = directory.path().join("tls/registry.json");
    let copy = fs::read(&file).unwrap();
    let revoked = authority.revoke("a").unwrap().certificates;
    fs::write(&file, copy).unwrap();
    let again = Authority::open(directory.path().join("tls"), OWN_LIFETIME).unwrap();
    assert!(matches!(again.status(&own), CertificateStatus::Good { .. }));
    let hash = Fingerprint::of(token.secret()).to_string();
    let mut withdrawals: Vec<_> = revoked.into_iter().map(Withdrawal::Certificate).collect();
    withdrawals.push(Withdrawal::Token {
        id: hash[..8].to_owned(),
        uses_left: 0,
    });
    assert!(again.withdraw(&withdrawals).unwrap());
    assert!(!again.withdraw(&withdrawals).unwrap());
    assert!(matches!(again.status(&own), CertificateStatus::Revoked(_)));
    enrol(&again, None, Some(&token)).unwrap_err();
    assert_eq!(again.revoked().len(), 1);
}
