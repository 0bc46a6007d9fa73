//! A server over a network: TLS, a password, and a certificate that is the wrong one.

use super::lab::{Lab, chain, push};
use benchmesh_archive::postgres::push::PushRequest;
use benchmesh_archive::postgres::{ArchiveError, Server, UrlOrigin};
use benchmesh_testing::postgres::PostgresServer;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::Path;

/// The certificate of an authority, and a certificate with its key that it has signed for `localhost`.
struct Made {
    authority: String,
    certificate: String,
    key: String,
}

fn made() -> Made {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![String::from("localhost")]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    Made {
        authority: authority.pem(),
        certificate: leaf.pem(),
        key: key.serialize_pem(),
    }
}

#[tokio::test]
async fn a_password_goes_only_to_the_right_server() {
    let Some(mut server) = PostgresServer::stopped() else {
        return;
    };
    let ours = made();
    server.file("server.crt", &ours.certificate);
    server.file("server.key", &ours.key);
    server.file(
        "pg_hba.conf",
        "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n",
    );
    let port = server.listen();
    server.run(&["-c", "fsync=off", "-c", "ssl=on"]);
    server.sql(
        "postgres",
        "CREATE ROLE collector LOGIN PASSWORD 'right' SUPERUSER",
    );
    let lab = Lab::on(server).unwrap();
    let directory = lab.directory.path();
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let authority = write("authority.pem", &ours.authority);
    let another = write("another.pem", &made().authority);
    let right = write("right", "right\n");
    let wrong = write("wrong", "wrong\n");
    let to = async |host: &str, root: &Path, password: &Path| -> Result<usize, ArchiveError> {
        let root = root.display();
        let url = format!(
            "postgres://collector@{host}:{port}/bench?sslmode=verify-full&sslrootcert={root}"
        );
        let request = PushRequest {
            server: Server::parse(&url, UrlOrigin::CommandLine, Some(password))?,
            ..lab.request()
        };
        push(&request).await.map(|pushed| pushed.new)
    };
    for (host, root, password, expected) in [
        ("localhost", &another, &right, "certificate is not trusted"),
        // The certificate is for another name.
        (
            "127.0.0.1",
            &authority,
            &right,
            "certificate is not trusted",
        ),
        (
            "localhost",
            &authority,
            &wrong,
            "refuses the password of role collector",
        ),
    ] {
        let error = to(host, root, password).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{}", chain(&error));
        assert!(!error.is_transient(), "{}", chain(&error));
    }
    assert_eq!(to("localhost", &authority, &right).await.unwrap(), 3);
    lab.assert_same_counts();
}
