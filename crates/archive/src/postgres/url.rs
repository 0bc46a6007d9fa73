//! Which server an archive is on, from a URL, and what is refused of one before anything is opened.

use super::ArchiveError;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::path::Path;
use std::str::FromStr;

/// Where a URL comes from: a command line can be read by every user of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlOrigin {
    CommandLine,
    /// An option of the collector, or the key of its configuration file, which may be on the command line too.
    Collector,
    /// The environment or a configuration file.
    Private,
}

/// A server and a database on it.
#[derive(Clone)]
pub struct Server {
    pub(super) options: PgConnectOptions,
    name: String,
    pub(super) user: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.name)
    }
}

/// For messages; without user and password.
impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

const PASSWORD_ON_COMMAND_LINE: &str = "the URL has a password, and other users of this machine can read a command \
    line: leave it out and use --password-file FILE, PGPASSWORD, a password file (PGPASSFILE, ~/.pgpass), or put the \
    whole URL into BENCHMESH_ARCHIVE_URL";

const PASSWORD_OF_COLLECTOR: &str = "the URL has a password, and other users of this machine can read a command \
    line: leave it out and use --archive-password-file FILE, PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass)";

impl Server {
    /// Reads `postgres://USER@HOST:PORT/DATABASE?sslmode=...&sslrootcert=...`. What it lacks comes from the variables
    /// of libpq (`PGUSER`, `PGSSLMODE`, ...), except the database. The password is that of `password_file` if given.
    ///
    /// Over a network the certificate is verified unless `sslmode` or `PGSSLMODE` says otherwise.
    pub fn parse(
        url: &str,
        origin: UrlOrigin,
        password_file: Option<&Path>,
    ) -> Result<Self, ArchiveError> {
        let wrong = |why: String| ArchiveError::Wrong(why);
        let rest = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme));
        let Some(rest) = rest else {
            return Err(wrong(String::from(
                "the archive's URL must begin with postgres://, as in postgres://user@host/database",
            )));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let parameter = |name: &str| {
            query
                .split('&')
                .filter_map(|one| one.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let has_password = login.contains(':') || parameter("password").is_some();
        let refusal = match origin {
            UrlOrigin::CommandLine => Some(PASSWORD_ON_COMMAND_LINE),
            UrlOrigin::Collector => Some(PASSWORD_OF_COLLECTOR),
            UrlOrigin::Private => None,
        };
        if let (true, Some(refusal)) = (has_password, refusal) {
            return Err(wrong(refusal.to_owned()));
        }
        if database.is_empty() && parameter("dbname").is_none_or(str::is_empty) {
            return Err(wrong(String::from(
                "the archive's URL names no database: postgres://user@host/DATABASE",
            )));
        }
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|error| wrong(format!("the archive's URL cannot be read: {error}")))?
            .application_name("benchmesh archive");
        if let Some(path) = password_file {
            options = options.password(&password_of(path)?);
        }
        let says_mode = parameter("sslmode").is_some() || std::env::var_os("PGSSLMODE").is_some();
        if !says_mode && !is_local(&options) {
            options = options.ssl_mode(PgSslMode::VerifyFull);
        }
        let has_root =
            parameter("sslrootcert").is_some() || std::env::var_os("PGSSLROOTCERT").is_some();
        match options.get_ssl_mode() {
            // As libpq does.
            PgSslMode::Require if has_root => options = options.ssl_mode(PgSslMode::VerifyCa),
            PgSslMode::Allow => {
                return Err(wrong(String::from(
                    "sslmode=allow sends everything unencrypted: use verify-full, require, or disable",
                )));
            }
            _ => {}
        }
        let place = match (options.get_socket(), host.is_empty()) {
            (Some(socket), _) => socket.display().to_string(),
            (None, true) => options.get_host().to_owned(),
            (None, false) => host.to_owned(),
        };
        let database = options.get_database().unwrap_or_default();
        Ok(Self {
            name: format!("database {database} at {place}"),
            user: options.get_username().to_owned(),
            options,
        })
    }
}

fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    options.get_socket().is_some()
        || host.starts_with('/')
        || matches!(host, "localhost" | "127.0.0.1" | "::1" | "[::1]")
}

/// The first line of the file.
fn password_of(path: &Path) -> Result<String, ArchiveError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        ArchiveError::Wrong(format!(
            "cannot read the password file {}: {error}",
            path.display()
        ))
    })?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(ArchiveError::Wrong(format!(
            "the password file {} is empty",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        for (url, reason) in [
            ("mysql://host/db", "must begin with postgres://"),
            ("host/db", "must begin with postgres://"),
            ("postgres://host", "names no database"),
            ("postgres://host/", "names no database"),
            ("postgres://host/?dbname=", "names no database"),
            ("postgres://me:secret@host/db", "has a password"),
            ("postgres://me@host/db?password=secret", "has a password"),
            ("postgres://host/db?sslmode=perhaps", "cannot be read"),
            ("postgres://host:port/db", "cannot be read"),
        ] {
            let error = Server::parse(url, UrlOrigin::CommandLine, None).unwrap_err();
            assert!(error.is_request(), "{url}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let url = "postgres://me:secret@host/db";
        let error = Server::parse(url, UrlOrigin::Collector, None).unwrap_err();
        assert!(
            error.to_string().contains("--archive-password-file"),
            "{error}"
        );
    }

    #[test]
    fn a_certificate_is_verified_over_a_network_unless_said_otherwise() {
        let mode = |url: &str| {
            let server = Server::parse(url, UrlOrigin::Private, None).unwrap();
            server.options.get_ssl_mode()
        };
        for (url, expected) in [
            ("postgres://db.lab/bench", PgSslMode::VerifyFull),
            (
                "postgres://me:secret@db.lab:6432/bench",
                PgSslMode::VerifyFull,
            ),
            (
                "postgres://db.lab/bench?sslmode=require",
                PgSslMode::Require,
            ),
            ("postgres://localhost/bench", PgSslMode::Prefer),
            ("postgres:///bench?host=/run/postgresql", PgSslMode::Prefer),
            ("postgres://%2Frun%2Fpostgresql/bench", PgSslMode::Prefer),
        ] {
            let found = mode(url);
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{url}");
        }
    }

    #[test]
    fn a_password_comes_from_a_file_and_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        let url = "postgres://me@db.lab/bench";
        let parse = || Server::parse(url, UrlOrigin::CommandLine, Some(&file));
        assert!(parse().unwrap_err().to_string().contains("cannot read"));
        std::fs::write(&file, "\n").unwrap();
        assert!(parse().unwrap_err().to_string().contains("is empty"));
        std::fs::write(&file, "secret\n").unwrap();
        let server = parse().unwrap();
        assert_eq!(server.to_string(), "database bench at db.lab");
        assert!(!format!("{server:?}").contains("secret"));
    }
}
