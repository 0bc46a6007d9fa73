#![allow(clippy::unwrap_used)]
use super::*;
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::rows::{Anchor, NewAgent, NewHost};
use benchmesh_trust::JoinToken;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};
use std::path::PathBuf;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);

/// A service with its own database.
struct Fixture {
    service: TrustService,
    authority: Arc<Authority>,
    store: Store,
    database: PathBuf,
    _directory: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("mesh.db");
        let store = Store::open(&database).await.unwrap();
        let clock = Arc::new(MeshClock::new(Anchor {
            boot_id: String::from("b"),
            boottime_ns: 0,
            mesh_us: MeshMicros(1_000_000),
        }));
        let lifetime = Duration::from_secs(3600);
        let authority = Authority::open(directory.path().join("tls"), lifetime).unwrap();
        let authority = Arc::new(authority);
        let gate = Arc::new(Gate::new(Some(Arc::clone(&authority))).unwrap());
        let fleet = Fleet::new(&store, Arc::clone(&clock));
        Self {
            service: TrustService::new(
                Some(Arc::clone(&authority)),
                gate,
                fleet,
                store.clone(),
                clock,
            ),
            authority,
            store,
            database,
            _directory: directory,
        }
    }

    fn token(&self, replacement: Replacement) -> JoinToken {
        let made = self
            .authority
            .create_token(Role::Agent, 1, LIMIT, replacement);
        made.unwrap().0
    }

    async fn attached_before(&self, uid: &str, name: &str) {
        let agent = NewAgent {
            uid: uid.to_owned(),
            name: name.to_owned(),
            host: NewHost {
                boot_id: String::from("b"),
                pid_namespace: String::new(),
                name: String::from("host"),
                kernel: String::new(),
                cpus: 1,
                memory_bytes: 1,
            },
            labels_json: String::from("{}"),
            version: String::from("0"),
            may_rename: false,
            describes_host: true,
            at: MeshMicros(1),
        };
        self.store.attach_agent(agent).await.unwrap();
    }

    /// The kinds of all events, once there are `count`.
    async fn events(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let kinds: Vec<String> =
                sqlx::query_scalar("SELECT kind FROM events ORDER BY at_us, id")
                    .fetch_all(self.store.reader())
                    .await
                    .unwrap();
            if kinds.len() >= count || Instant::now() > deadline {
                return kinds;
            }
            tokio::task::yield_now().await;
        }
    }
}

struct TestKey(EcdsaKeyPair);

impl TestKey {
    fn new() -> Self {
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    fn request(&self, name: &str, token: Option<&JoinToken>) -> v1::EnrolRequest {
        let public_key = self.0.public_key().as_ref().to_vec();
        let proof = key_proof(Role::Agent, name, &public_key);
        let signature = self.0.sign(&SystemRandom::new(), &proof).unwrap();
        v1::EnrolRequest {
            token_secret: token.map_or_else(Vec::new, |token| token.secret().to_vec()),
            role: Role::Agent.word().to_owned(),
            name: name.to_owned(),
            public_key,
            signature: signature.as_ref().to_vec(),
            agent_uid: String::from("u"),
        }
    }
}

/// The registry's change remains valid and is reported, although the uid could not be bound to the new name.
#[tokio::test]
async fn a_rename_that_fails_loses_no_event() {
    let fixture = Fixture::new().await;
    fixture.attached_before("u", "old").await;
    let blocker = rusqlite::Connection::open(&fixture.database).unwrap();
    blocker
        .execute_batch(
            "CREATE TRIGGER t BEFORE UPDATE OF name ON agents BEGIN SELECT RAISE(ABORT, 'full'); END",
        )
        .unwrap();
    let first = fixture.token(Replacement::Nobody);
    let of_old = TestKey::new().request("old", Some(&first));
    fixture.service.enrol(Request::new(of_old)).await.unwrap();
    let before = ["token-used", "token-exhausted", "certificate-issued"];
    assert_eq!(fixture.events(3).await, before);
    let second = fixture.token(Replacement::Named(String::from("old")));
    let renamed = TestKey::new().request("new", Some(&second));
    let failed = fixture.service.enrol(Request::new(renamed.clone())).await;
    assert_eq!(failed.unwrap_err().code(), tonic::Code::Unavailable);
    let done = [
        "certificate-revoked",
        "token-used",
        "token-exhausted",
        "certificate-issued",
    ];
    assert_eq!(fixture.events(7).await.split_off(3), done);
    blocker.execute_batch("DROP TRIGGER t").unwrap();
    fixture.service.enrol(Request::new(renamed)).await.unwrap();
    let again = ["certificate-issued", "agent-renamed"];
    assert_eq!(fixture.events(9).await.split_off(7), again);
    let known_as = fixture.store.agent_known_as("u").await.unwrap();
    assert_eq!(known_as.as_deref(), Some("new"));
}

/// The token is checked before the signature, which costs far more, and before the database is asked.
#[tokio::test]
async fn a_stranger_without_a_good_token_costs_little() {
    let fixture = Fixture::new().await;
    fixture.store.close().await;
    let unknown = JoinToken::new(Fingerprint::of(b"ca")).unwrap();
    for token in [None, Some(&unknown)] {
        let mut request = TestKey::new().request("a", token);
        request.signature = vec![0; 70];
        let refused = fixture.service.enrol(Request::new(request)).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused:?}");
    }
    let good = fixture.token(Replacement::Nobody);
    let mut request = TestKey::new().request("a", Some(&good));
    request.signature = vec![0; 70];
    let refused = fixture.service.enrol(Request::new(request)).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn each_refused_request_for_a_certificate_is_logged() {
    let fixture = Fixture::new().await;
    let token = fixture.token(Replacement::Nobody);
    let of_no_role = |mut request: v1::EnrolRequest| {
        request.role = String::from("king");
        request
    };
    let without_proof = |mut request: v1::EnrolRequest| {
        request.signature = vec![0; 70];
        request
    };
    let good = || TestKey::new().request("a", Some(&token));
    let without_token = TestKey::new().request("a", None);
    for (request, lines) in [
        (of_no_role(good()), 1),
        (without_proof(good()), 2),
        (without_token, 3),
        // A repetition adds no line.
        (without_proof(good()), 3),
    ] {
        let refused = fixture.service.enrol(Request::new(request)).await;
        refused.unwrap_err();
        assert_eq!(fixture.service.gate.refusals().lines(), lines);
    }
}
