//! What can go wrong with an archive, and what the server's codes mean for whoever pushes.

use crate::source::SourceError;
use benchmesh_store::StoreError;
use benchmesh_store::maintain::MaintainError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Maintain(MaintainError),
    #[error(transparent)]
    Store(StoreError),
    #[error("cannot {doing} ({server}){advice}")]
    Server {
        server: String,
        doing: String,
        /// Begins with a colon, or is empty.
        advice: String,
        #[source]
        source: sqlx::Error,
    },
    #[error("the server did not answer for {after_s} s while trying to {doing} ({server})")]
    Silent {
        server: String,
        doing: String,
        after_s: u64,
    },
    #[error("{}: {doing}", path.display())]
    File {
        path: PathBuf,
        doing: &'static str,
        #[source]
        source: rusqlite::Error,
    },
    #[error("cancelled")]
    Cancelled,
}

impl ArchiveError {
    /// Whether the error is in the request, not in the archive, the database or the disk.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Wrong(_) => true,
            Self::Source(error) => error.is_request(),
            Self::Maintain(error) => error.is_request(),
            _ => false,
        }
    }

    /// Whether the same may succeed later without anybody's doing: the server restarts, or the network was cut.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Server { source, .. } => Meaning::of(source).is_transient,
            _ => false,
        }
    }

    /// Whether other runs may be copied although this one cannot.
    pub fn is_of_one_run(&self) -> bool {
        match self {
            Self::Wrong(_) | Self::Source(_) => true,
            // A value that the server refuses, or a row that breaks a constraint.
            Self::Server { source, .. } => {
                let code = source.as_database_error().and_then(|said| said.code());
                code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
            }
            _ => false,
        }
    }

    pub(super) fn server(
        server: &super::Server,
        doing: impl Into<String>,
        source: sqlx::Error,
    ) -> Self {
        let advice = match Meaning::of(&source).advice {
            Some(advice) => format!(": {}", advice.replace("ROLE", &server.user)),
            None => String::new(),
        };
        Self::Server {
            server: server.to_string(),
            doing: doing.into(),
            advice,
            source,
        }
    }
}

/// What an error of the server means.
struct Meaning {
    advice: Option<&'static str>,
    is_transient: bool,
}

/// SQLSTATE codes, or classes of two characters: whether it passes by itself, and what to do.
const CODES: [(&str, bool, &str); 17] = [
    (
        "53100",
        false,
        "the server's disk is full; free space there, then push again",
    ),
    (
        "42501",
        false,
        "its role may not do that; an administrator runs: GRANT benchmesh_writer TO \"ROLE\" (to fetch: \
        benchmesh_reader); the schema itself is made by `benchmesh archive prepare` with the role that shall own it",
    ),
    (
        "28P01",
        false,
        "the server refuses the password of role ROLE; see PGPASSWORD, PGPASSFILE and --password-file",
    ),
    (
        "28000",
        false,
        "the server refuses role ROLE; an administrator checks pg_hba.conf and ALTER ROLE ... LOGIN",
    ),
    (
        "3D000",
        false,
        "there is no such database; create it with: createdb NAME",
    ),
    (
        "25006",
        false,
        "the server is read-only, such as a standby; use its primary",
    ),
    ("57P01", true, "the server ended the connection"),
    ("57P02", true, "the server crashed and starts again"),
    ("57P03", true, "the server starts or stops"),
    ("57P05", true, "the server ended the idle connection"),
    ("40001", true, "another transaction was in the way"),
    ("40P01", true, "another transaction was in the way"),
    ("55P03", true, "another transaction was in the way"),
    ("53300", true, "the server has too many connections"),
    ("53200", true, "the server is out of memory"),
    (
        "42P01",
        false,
        "the archive lacks a table; run `benchmesh archive prepare` with the role that owns it",
    ),
    ("08", true, "the connection was lost"),
];

impl Meaning {
    fn of(error: &sqlx::Error) -> Self {
        let (advice, is_transient) = match error {
            sqlx::Error::Database(said) => {
                let code = said.code().unwrap_or_default();
                let known = CODES.iter().find(|(known, ..)| code.starts_with(known));
                known.map_or((None, false), |(_, passes, advice)| {
                    (Some(*advice), *passes)
                })
            }
            sqlx::Error::Tls(_) => (Some(CERTIFICATE), false),
            sqlx::Error::Io(error) if is_of_tls(error) => (Some(CERTIFICATE), false),
            sqlx::Error::Io(_) => (Some("the connection was lost or could not be made"), true),
            sqlx::Error::Protocol(_) => {
                (Some("the server does not speak as PostgreSQL does"), false)
            }
            _ => (None, false),
        };
        Self {
            advice,
            is_transient,
        }
    }
}

const CERTIFICATE: &str = "the server's certificate is not trusted, or it does not use TLS; sslrootcert=FILE in the \
    URL names the certificate of its authority";

/// rustls' errors come as the cause of an error of the socket.
fn is_of_tls(error: &std::io::Error) -> bool {
    let text = error.to_string();
    error.kind() == std::io::ErrorKind::InvalidData
        && (text.contains("certificate") || text.contains("tls") || text.contains("TLS"))
}
