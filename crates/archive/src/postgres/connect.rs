//! A connection to an archive: made, checked, and made again after a loss.

use super::{ArchiveError, Server};
use sqlx::{ConnectOptions, Connection, PgConnection, Row};
use std::time::Duration;

/// The oldest server: what the tests run.
const MIN_VERSION: i32 = 150_000;
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// How long a server may take, and how long lost connections are made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// No answer to a statement, or no room for a slice, for this long: the connection counts as lost. A commit to a
    /// slow disk, or a push of the same run by someone else, takes long too.
    pub answer: Duration,
    /// The wait before the first new attempt; doubled each time.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// How long a run is tried again without progress. Zero: never.
    pub give_up_after: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(300),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            give_up_after: Duration::from_secs(600),
        }
    }
}

impl Patience {
    /// The wait before the attempt after `failures` failed ones.
    pub(super) fn wait(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_wait
            .saturating_mul(factor)
            .min(self.longest_wait)
    }
}

/// An open connection to a server that is PostgreSQL and new enough.
#[derive(Debug)]
pub struct Archive {
    pub(super) server: Server,
    pub(super) connection: PgConnection,
    pub(super) answer: Duration,
}

impl Archive {
    pub async fn connect(server: &Server, patience: &Patience) -> Result<Self, ArchiveError> {
        let connecting = tokio::time::timeout(CONNECT_WITHIN, server.options.connect()).await;
        let connection = match connecting {
            Ok(connected) => {
                connected.map_err(|source| ArchiveError::server(server, "connect", source))?
            }
            Err(_) => {
                return Err(ArchiveError::Silent {
                    server: server.to_string(),
                    doing: String::from("connect"),
                    after_s: CONNECT_WITHIN.as_secs(),
                });
            }
        };
        let mut archive = Self {
            server: server.clone(),
            connection,
            answer: patience.answer,
        };
        archive.check().await?;
        Ok(archive)
    }

    async fn check(&mut self) -> Result<(), ArchiveError> {
        // A role's own limits are for people's queries, not for a COPY. When the network is cut, the server ends the
        // session, which holds the run's lock, after about a minute and not after two hours.
        let sql = "SELECT version(), current_setting('server_version_num'), set_config('statement_timeout', '0', false),
                   set_config('idle_in_transaction_session_timeout', '0', false),
                   set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),
                   set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '60000', false)";
        let asked = sqlx::query(sql).fetch_one(&mut self.connection);
        let row = within(&self.server, self.answer, "ask for its version", asked).await?;
        let read = |at: usize| row.try_get::<String, _>(at).unwrap_or_default();
        refuse_version(&read(0), &read(1))
            .map_err(|why| ArchiveError::Wrong(format!("{}: {why}", self.server)))
    }

    /// Ends the connection in order. Dropping it does, too, except for a line in the server's log.
    pub async fn close(self) {
        // Everything is committed by now.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.connection.close()).await;
    }
}

/// Waits for the server, but not forever.
pub(super) async fn within<T>(
    server: &Server,
    limit: Duration,
    doing: &str,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, ArchiveError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|source| ArchiveError::server(server, doing, source)),
        Err(_) => Err(ArchiveError::Silent {
            server: server.to_string(),
            doing: doing.to_owned(),
            after_s: limit.as_secs(),
        }),
    }
}

fn refuse_version(name: &str, number: &str) -> Result<(), String> {
    let first_words: Vec<&str> = name.split_whitespace().take(2).collect();
    let first_words = first_words.join(" ");
    if !name.starts_with("PostgreSQL ") || name.contains("Redshift") {
        return Err(format!(
            "the server is {first_words:?}, not PostgreSQL; an archive needs PostgreSQL 15 or newer"
        ));
    }
    match number.parse::<i32>() {
        Ok(number) if number >= MIN_VERSION => Ok(()),
        _ => Err(format!(
            "the server is {first_words}, which is too old; an archive needs PostgreSQL 15 or newer"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_and_those_of_another_kind_are_refused() {
        for (name, number, refusal) in [
            ("PostgreSQL 15.16 (Debian 15.16-0+deb12u1)", "150016", None),
            ("PostgreSQL 18.1", "180001", None),
            ("PostgreSQL 14.20", "140020", Some("too old")),
            (
                "PostgreSQL 8.0.2, Redshift 1.0.1",
                "80002",
                Some("not PostgreSQL"),
            ),
            ("CockroachDB CCL v24.1.0", "130000", Some("not PostgreSQL")),
            ("PostgreSQL 15.2-YB", "nonsense", Some("too old")),
        ] {
            let refused = refuse_version(name, number).err();
            let matches = match (&refused, refusal) {
                (None, None) => true,
                (Some(said), Some(expected)) => said.contains(expected),
                _ => false,
            };
            assert!(matches, "{name}: {refused:?}");
        }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let patience = Patience {
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(10),
            ..Patience::default()
        };
        let waits: Vec<u64> = [1, 2, 3, 4, 5, 60]
            .iter()
            .map(|failures| patience.wait(*failures).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }
}
