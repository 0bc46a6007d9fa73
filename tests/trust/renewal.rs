//! Certificates are renewed in time, and expired ones are refused.

use super::*;

/// Waits about 10 s for certificates of 6 s.
#[test]
fn certificates_renew_themselves_and_expired_ones_are_refused() {
    let mut mesh = Mesh::with_collector_arguments(&["--certificate-lifetime", "6s"]);
    let user = directory();
    let operator = joined_operator(&mesh, user.path());
    mesh.add(Agent::named("a"));
    let state = mesh.directory().join("state-a");
    let own = || {
        Credentials::load(&state.join("credentials.json"))
            .unwrap()
            .unwrap()
    };
    let first = own();
    assert_eq!((first.role, first.name.as_str()), (Role::Agent, "a"));
    until_true("the certificate is renewed", LIMIT, || {
        own().fingerprint().unwrap() != first.fingerprint().unwrap()
    });
    // A certificate is valid to the end of its last second.
    let is_past = |own: &Credentials| benchmesh_trust::now_s() > own.expires_s;
    until_true("the first one expires", LIMIT, || is_past(&first));
    // The session continued, and a new one begins with the new certificate.
    assert!(is_attached(&mesh, "a"));
    let log = mesh.agent("a").log();
    assert!(log.contains("renewed the certificate"), "{log}");
    mesh.assert_no_complaints();
    until_true("the operator's expires", LIMIT, || is_past(&operator));
    converse(LIMIT, async {
        for expired in [&first, &operator] {
            let error = dial_as(mesh.address(), expired).await.unwrap_err();
            assert!(error.to_string().contains("it has expired"), "{error}");
        }
    });
    mesh.kill_agent("a");
    let last = own();
    until_true("the last one expires", LIMIT, || is_past(&last));
    // Another user cannot join in any other way.
    let nobody = directory();
    let agent = Agent::named("a").credentials(nobody.path());
    let log = refusal(mesh.agent_process(&agent));
    assert!(log.contains("has expired"), "{log}");
    // The same user gets a new one.
    mesh.restart_agent("a");
    mesh.until_attached(&["a"]);
}

/// The credentials of the operator `ann`, which `join` wrote for this user.
fn joined_operator(mesh: &Mesh, user: &Path) -> Credentials {
    let input = user.join("token");
    std::fs::write(&input, token(mesh, &["--role", "operator"])).unwrap();
    let mut join = mesh.benchmesh();
    join.args(["join", "--token-file", "-", "--name", "ann"])
        .env("BENCHMESH_CREDENTIALS", user)
        .stdin(std::fs::File::open(&input).unwrap());
    let joined = CommandOutput::of(&join.output().unwrap());
    assert_eq!(joined.code, 0, "{}", joined.all());
    let file = credentials::file_for(user, &mesh.address().to_string());
    Credentials::load(&file).unwrap().unwrap()
}

/// An operator's commands renew the certificate once two thirds of its lifetime are over. The test shifts the stored
/// times instead of waiting.
#[test]
fn operators_renew_their_certificates_in_passing() {
    let mesh = Mesh::with_collector_arguments(&["--certificate-lifetime", "1h"]);
    let user = directory();
    let as_ann = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command
            .args(arguments)
            .env("BENCHMESH_CREDENTIALS", user.path());
        CommandOutput::of(&command.output().unwrap())
    };
    let first = joined_operator(&mesh, user.path());
    let file = credentials::file_for(user.path(), &mesh.address().to_string());
    let own = || Credentials::load(&file).unwrap().unwrap();
    // The same certificate, aged by this many seconds.
    let age = |by_s: i64| {
        let mut aged = serde_json::to_value(own()).unwrap();
        for field in ["issued_s", "expires_s"] {
            aged[field] = (aged[field].as_i64().unwrap() - by_s).into();
        }
        std::fs::write(&file, aged.to_string()).unwrap();
    };
    for (by_s, renews) in [(0, false), (2300, false), (200, true)] {
        age(by_s);
        assert_eq!(own().is_due(), renews);
        let listed = as_ann(&["agents"]);
        assert_eq!(listed.code, 0, "{}", listed.all());
        assert_eq!(
            own().fingerprint().unwrap() != first.fingerprint().unwrap(),
            renews
        );
    }
    let renewed = own();
    assert_eq!((renewed.role, &*renewed.name), (Role::Operator, "ann"));
    assert!(renewed.expires_s >= first.expires_s && renewed.key != first.key);
    assert!(!renewed.is_due());
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // A revoked operator cannot renew.
    let revoked = mesh.command(&["collector", "revoke", "ann"]);
    assert_eq!(revoked.code, 0, "{}", revoked.all());
    age(2500);
    let refused = as_ann(&["agents"]);
    assert_eq!(refused.code, 1, "{}", refused.all());
    assert_eq!(own().key, renewed.key);
}
