//! A certificate with its key and the CA to trust, in one private file.
//!
//! One file, so that key and certificate always belong together. An agent keeps its own in its state directory; a
//! person's are in [`directory`], one file per collector. The collector writes one there for its own user at each
//! start, so that a mesh on one machine needs no setup.

use crate::fingerprint::Fingerprint;
use crate::{ALPN, now_s, private_file, provider};
use rustls::RootCertStore;
use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The permissions of a certificate's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May attach under its name, and nothing else.
    Agent,
    /// May start and stop runs, query and compare, but not attach.
    Operator,
    /// The collector's own user: an operator that also creates tokens, revokes, and lets agents of this user join.
    Owner,
}

impl Role {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        [Self::Agent, Self::Operator, Self::Owner]
            .into_iter()
            .find(|role| role.word() == word)
            .ok_or("a role is agent, operator or owner")
    }
}

/// A certificate, its key, and the CA of the collector that issued it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    pub role: Role,
    pub name: String,
    /// Wall clock, in seconds since 1970.
    pub issued_s: u64,
    pub expires_s: u64,
    /// PEM.
    pub ca: String,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
}

/// Why credentials are unusable.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("use the credentials in {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} holds no credentials: remove it, and join again", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the {part} of the credentials is not usable: {problem}")]
    Part { part: &'static str, problem: String },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("role", &self.role)
            .field("name", &self.name)
            .field("expires_s", &self.expires_s)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Loads a file; `None`: it does not exist.
    ///
    /// # Errors
    ///
    /// When the file is not private, cannot be read, or holds something else.
    pub fn load(path: &Path) -> Result<Option<Self>, CredentialsError> {
        let text = private_file::read(path).map_err(|source| CredentialsError::File {
            path: path.to_owned(),
            source,
        })?;
        text.map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|source| CredentialsError::Content {
                path: path.to_owned(),
                source,
            })
    }

    /// Writes the file, creating its directory if necessary.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), CredentialsError> {
        let failed = |source| CredentialsError::File {
            path: path.to_owned(),
            source,
        };
        let text =
            serde_json::to_string_pretty(self).map_err(|error| failed(io::Error::other(error)))?;
        if let Some(directory) = path.parent() {
            private_file::make_directory(directory).map_err(failed)?;
        }
        private_file::write(path, text.as_bytes()).map_err(failed)
    }

    /// Fingerprint of the CA.
    ///
    /// # Errors
    ///
    /// When the CA is not a certificate.
    pub fn ca_fingerprint(&self) -> Result<Fingerprint, CredentialsError> {
        certificate("CA", &self.ca).map(|ca| Fingerprint::of(&ca))
    }

    /// Fingerprint of the certificate.
    ///
    /// # Errors
    ///
    /// When it is not a certificate.
    pub fn fingerprint(&self) -> Result<Fingerprint, CredentialsError> {
        certificate("certificate", &self.certificate).map(|own| Fingerprint::of(&own))
    }

    #[must_use]
    pub fn is_expired(&self) -> bool {
        now_s() >= self.expires_s
    }

    /// Whether two thirds of its lifetime have passed.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let life = self.expires_s.saturating_sub(self.issued_s);
        now_s() >= self.expires_s.saturating_sub(life / 3)
    }

    /// A TLS configuration that trusts this CA alone and presents this certificate.
    ///
    /// # Errors
    ///
    /// When a part is not usable.
    pub fn client_config(&self) -> Result<ClientConfig, CredentialsError> {
        let mut roots = RootCertStore::empty();
        let unusable = |part| {
            move |error: rustls::Error| CredentialsError::Part {
                part,
                problem: error.to_string(),
            }
        };
        roots
            .add(certificate("CA", &self.ca)?)
            .map_err(unusable("CA"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| {
            CredentialsError::Part {
                part: "key",
                problem: error.to_string(),
            }
        })?;
        let chain = vec![certificate("certificate", &self.certificate)?];
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable("provider"))?
            .with_root_certificates(Arc::new(roots))
            .with_client_auth_cert(chain, key)
            .map_err(unusable("key"))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would not present its certificate.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

fn certificate(part: &'static str, pem: &str) -> Result<CertificateDer<'static>, CredentialsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| CredentialsError::Part {
        part,
        problem: error.to_string(),
    })
}

/// Directory of this user's credentials: `$BENCHMESH_CREDENTIALS`, otherwise `$XDG_CONFIG_HOME/benchmesh`, otherwise
/// `~/.config/benchmesh`. `None`: the environment has none of them.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    directory_from(
        variable("BENCHMESH_CREDENTIALS"),
        variable("XDG_CONFIG_HOME"),
        variable("HOME"),
        rustix::process::geteuid().is_root(),
    )
}

fn directory_from(
    own: Option<PathBuf>,
    xdg: Option<PathBuf>,
    home: Option<PathBuf>,
    root: bool,
) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    own.filter(absolute)
        .or_else(|| xdg.filter(absolute).map(|path| path.join("benchmesh")))
        .or_else(|| {
            // Services of root have no HOME.
            let home = home.filter(absolute);
            let home = home.or_else(|| root.then(|| PathBuf::from("/root")));
            home.map(|path| path.join(".config/benchmesh"))
        })
}

/// The file in [`directory`] for the collector at `host:port`. All names of the loopback interface map to one.
#[must_use]
pub fn file_for(directory: &Path, address: &str) -> PathBuf {
    let address = address.to_lowercase();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let host = match host {
        "localhost" | "[::1]" | "0.0.0.0" | "[::]" => "127.0.0.1",
        host => host,
    };
    directory.join(format!("{}_{port}.json", host.replace('/', "_")))
}

/// The file in [`directory`] for the collector at `host:port`. If there is none under this name and the host is this
/// machine, the collector's own file under the address that it listens on is returned if it exists.
pub async fn find_for(directory: &Path, address: &str) -> PathBuf {
    let file = file_for(directory, address);
    if file.exists() {
        return file;
    }
    // The name may be unknown; whoever connects reports it.
    let Ok(addresses) = tokio::net::lookup_host(address).await else {
        return file;
    };
    let here = addresses.filter(|at| is_of_this_machine(at.ip()));
    let of_collector = here.flat_map(|at| {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port());
        [at, any].map(|at| file_for(directory, &at.to_string()))
    });
    let mut existing = of_collector.filter(|file| file.exists());
    existing.next().unwrap_or(file)
}

/// Whether an interface of this machine has the address: a socket can be bound to no other.
fn is_of_this_machine(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_collector_has_one_file_under_all_names_of_loopback() {
        let file = |address| file_for(Path::new("/c"), address);
        for address in [
            "localhost:1",
            "LOCALHOST:1",
            "[::1]:1",
            "0.0.0.0:1",
            "[::]:1",
        ] {
            assert_eq!(file(address), Path::new("/c/127.0.0.1_1.json"), "{address}");
        }
        assert_eq!(file("Central:4750"), Path::new("/c/central_4750.json"));
        assert_eq!(file("../x:1"), Path::new("/c/.._x_1.json"));
    }

    #[tokio::test]
    async fn the_collector_of_this_machine_is_found_under_each_of_its_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path();
        let file = |address: &str| file_for(own, address);
        // Nothing exists yet, and the address of a documentation network is another machine's.
        for address in ["127.0.0.2:1", "192.0.2.7:1", "no.such.name.invalid:1"] {
            assert_eq!(find_for(own, address).await, file(address), "{address}");
        }
        std::fs::write(file("0.0.0.0:1"), "").unwrap();
        assert_eq!(find_for(own, "127.0.0.2:1").await, file("0.0.0.0:1"));
        assert_eq!(find_for(own, "127.0.0.2:2").await, file("127.0.0.2:2"));
        assert_eq!(find_for(own, "192.0.2.7:1").await, file("192.0.2.7:1"));
        std::fs::write(file("127.0.0.2:1"), "").unwrap();
        assert_eq!(find_for(own, "127.0.0.2:1").await, file("127.0.0.2:1"));
    }

    #[test]
    fn the_directory_follows_the_environment() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (own, xdg, home, root, expected) in [
            (path("/o"), path("/x"), path("/h"), false, path("/o")),
            (None, path("/x"), path("/h"), false, path("/x/benchmesh")),
            (None, None, path("/h"), true, path("/h/.config/benchmesh")),
            (None, path("x"), None, true, path("/root/.config/benchmesh")),
            (None, None, None, false, None),
        ] {
            assert_eq!(directory_from(own, xdg, home, root), expected);
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        let credentials = Credentials {
            role: Role::Agent,
            name: "a".to_owned(),
            issued_s: 0,
            expires_s: 90,
            ca: String::new(),
            certificate: String::new(),
            key: "secret".to_owned(),
        };
        assert!(!format!("{credentials:?}").contains("secret"));
        assert!(credentials.is_expired() && credentials.is_due());
    }
}
