//! One spool in its SQLite file: append, read on, reserve, forget, merge.
//!
//! `synchronous` is NORMAL: a killed agent loses nothing, and after a power failure only the newest batches can be
//! missing, of which the collector may have some: it names its last sequence when the agent attaches, and no start of an
//! agent appends to a spool of an earlier one, so no sequence is ever used for two contents. What must not be forgotten
//! is which batches may have been sent, because they must not be merged: the reservation is committed with FULL before
//! the first of its batches leaves, and takes everything before it to the disk too.

mod mark;
mod merge;
mod transaction;

use super::{Envelope, Sequence, SpoolError, SpoolId};
use mark::AppendMark;
pub(super) use mark::SUFFIX as MARK_SUFFIX;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection};
use std::path::{Path, PathBuf};
use std::time::Duration;
use transaction::transaction;
use uuid::Uuid;

const VERSION: i64 = 2;
/// The version before: without checksums and the acked position.
const VERSION_WITHOUT_CHECKSUMS: i64 = 1;

/// Refused batches that a spool keeps for a person to see, in bytes. The oldest are removed beyond it.
const MOST_REFUSED_BYTES: i64 = if cfg!(test) { 64 << 10 } else { 8 << 20 };

/// The sequences that a reservation covers: at one batch a second, one fsync a minute. Few in tests, where merging has
/// to meet sending.
const RESERVE: u64 = if cfg!(test) { 4 } else { 64 };
/// Free pages of 4 KiB that are left in the file for what comes next.
const SPARE_PAGES: i64 = 1024;

const TABLES: &str = "
    CREATE TABLE spool (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        version INTEGER NOT NULL,
        spool_id TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        mesh_uid TEXT,
        reserved INTEGER NOT NULL,
        acked INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE batches (
        sequence INTEGER PRIMARY KEY,
        first_sequence INTEGER NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER -- CRC-32 of the body; NULL: written by a version without checksums
    ) STRICT;
    CREATE TABLE refused (
        sequence INTEGER PRIMARY KEY,
        first_sequence INTEGER NOT NULL,
        body BLOB NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
";

/// From [`VERSION_WITHOUT_CHECKSUMS`] to [`VERSION`].
const ADD_CHECKSUMS: &str = "
    ALTER TABLE spool ADD COLUMN acked INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE batches ADD COLUMN checksum INTEGER;
    UPDATE spool SET version = 2;
";

/// A batch as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Intact(Envelope),
    /// Its bytes are not those that were written.
    Damaged {
        first: Sequence,
        sequence: Sequence,
    },
}

impl Stored {
    /// The last sequence that it stands for.
    pub(super) fn sequence(&self) -> Sequence {
        match self {
            Self::Intact(envelope) => envelope.sequence,
            Self::Damaged { sequence, .. } => *sequence,
        }
    }

    /// The first sequence that it stands for.
    pub(super) fn first(&self) -> Sequence {
        match self {
            Self::Intact(envelope) => envelope.first,
            Self::Damaged { first, .. } => *first,
        }
    }
}

/// An open spool.
#[derive(Debug)]
pub(super) struct SpoolFile {
    pub(super) id: SpoolId,
    /// Counts the starts of the agent: the order in which spools are drained.
    pub(super) ordinal: i64,
    /// The mesh that its rows belong to; `None` until the agent has attached.
    pub(super) mesh: Option<String>,
    path: PathBuf,
    connection: SqliteConnection,
    next: Sequence,
    /// The last sequence in the file when it was opened.
    found: Sequence,
    reserved: Sequence,
    /// What the collector has stored, as far as it was written down.
    pub(super) acked: Sequence,
    bytes: u64,
    sweep: Sequence,
    mark: AppendMark,
}

impl SpoolFile {
    /// Makes a new one.
    pub(super) async fn create(path: &Path, id: SpoolId, ordinal: i64) -> Result<Self, SpoolError> {
        let made = Self::try_create(path, id, ordinal).await;
        if made.is_err() {
            // A full disk takes an empty file: without this each start would leave one behind.
            let _ = remove_files(path);
        }
        made
    }

    async fn try_create(path: &Path, id: SpoolId, ordinal: i64) -> Result<Self, SpoolError> {
        let error = || SpoolError::sql("make the spool", path);
        let mut connection = options(path)
            .create_if_missing(true)
            .connect()
            .await
            .map_err(error())?;
        transaction(&mut connection, async |connection| {
            sqlx::raw_sql(TABLES).execute(&mut *connection).await?;
            sqlx::query("INSERT INTO spool VALUES (1, ?, ?, ?, NULL, 0, 0)")
                .bind(VERSION)
                .bind(id.to_string())
                .bind(ordinal)
                .execute(connection)
                .await
        })
        .await
        .map_err(error())?;
        Ok(Self {
            id,
            ordinal,
            mesh: None,
            path: path.to_owned(),
            connection,
            next: Sequence(1),
            found: Sequence(u64::MAX),
            reserved: Sequence(0),
            acked: Sequence(0),
            bytes: 0,
            sweep: Sequence(0),
            mark: AppendMark::of(path),
        })
    }

    /// Opens one that an earlier start has left.
    pub(super) async fn open(path: &Path) -> Result<Self, SpoolError> {
        let error = || SpoolError::sql("read the spool", path);
        let mut connection = options(path).connect().await.map_err(error())?;
        let version: i64 = sqlx::query("SELECT version FROM spool")
            .fetch_one(&mut connection)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(error())?;
        let not_a_spool = |why: String| SpoolError::NotASpool {
            path: path.to_owned(),
            why,
        };
        if version == VERSION_WITHOUT_CHECKSUMS {
            transaction(&mut connection, async |connection| {
                sqlx::raw_sql(ADD_CHECKSUMS).execute(connection).await
            })
            .await
            .map_err(error())?;
        } else if version != VERSION {
            return Err(not_a_spool(format!(
                "its version is {version}, this agent writes {VERSION}"
            )));
        }
        let row = sqlx::query("SELECT spool_id, ordinal, mesh_uid, reserved, acked FROM spool")
            .fetch_one(&mut connection)
            .await
            .map_err(error())?;
        let id: String = row.try_get(0).map_err(error())?;
        let id = Uuid::parse_str(&id).map_err(|_| not_a_spool(format!("its id is {id:?}")))?;
        let ordinal = row.try_get(1).map_err(error())?;
        let mesh = row.try_get(2).map_err(error())?;
        let reserved: i64 = row.try_get(3).map_err(error())?;
        let acked: i64 = row.try_get(4).map_err(error())?;
        let sums = sqlx::query(
            "SELECT coalesce(max(sequence), 0), coalesce(sum(length(body)), 0) FROM batches",
        )
        .fetch_one(&mut connection)
        .await
        .map_err(error())?;
        let last: i64 = sums.try_get(0).map_err(error())?;
        let bytes: i64 = sums.try_get(1).map_err(error())?;
        let reserved = sequence_of(reserved);
        Ok(Self {
            id: SpoolId(id),
            ordinal,
            mesh,
            path: path.to_owned(),
            connection,
            found: sequence_of(last).max(sequence_of(acked)),
            next: sequence_of(last).max(reserved).next(),
            reserved,
            acked: sequence_of(acked),
            bytes: u64::try_from(bytes).unwrap_or(0),
            sweep: Sequence(0),
            mark: AppendMark::of(path),
        })
    }

    /// What it holds, in bytes of batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last sequence that was given to a batch.
    pub(super) fn last(&self) -> Sequence {
        Sequence(self.next.0.saturating_sub(1))
    }

    /// The last sequence that an earlier start appended, where the file does not have it any more.
    pub(super) fn lost_tail(&self) -> Option<Sequence> {
        self.mark.read().filter(|appended| *appended > self.found)
    }

    /// The collector has more than this spool remembers: go on after it.
    pub(super) fn skip_to(&mut self, stored: Sequence) {
        self.next = self.next.max(stored.next());
    }

    /// Ties the spool to the mesh that its rows belong to.
    pub(super) async fn bind(&mut self, mesh_uid: &str) -> Result<(), SpoolError> {
        sqlx::query("UPDATE spool SET mesh_uid = ?")
            .bind(mesh_uid)
            .execute(&mut self.connection)
            .await
            .map_err(SpoolError::sql("write to the spool", &self.path))?;
        self.mesh = Some(mesh_uid.to_owned());
        Ok(())
    }

    /// Appends batches and forgets what is up to `acked`, in one transaction. Returns the first batch's sequence.
    ///
    /// After an error nothing has changed, and the same may be tried again: a sequence is not used twice, because
    /// nothing is sent before this has returned.
    pub(super) async fn append(
        &mut self,
        bodies: &[Vec<u8>],
        acked: Option<Sequence>,
    ) -> Result<Sequence, SpoolError> {
        let first = self.next;
        let mut sequence = first;
        let mut bytes = self.bytes;
        transaction(&mut self.connection, async |connection| {
            if let Some(acked) = acked {
                let sql = "DELETE FROM batches WHERE sequence <= ? RETURNING length(body)";
                let rows = sqlx::query(sql)
                    .bind(number_of(acked))
                    .fetch_all(&mut *connection)
                    .await?;
                for row in rows {
                    let length: i64 = row.try_get(0)?;
                    bytes = bytes.saturating_sub(u64::try_from(length).unwrap_or(0));
                }
                sqlx::query("UPDATE spool SET acked = max(acked, ?)")
                    .bind(number_of(acked))
                    .execute(&mut *connection)
                    .await?;
            }
            for body in bodies {
                // A commit whose outcome was unknown may have left this sequence behind.
                let sql = "INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?)";
                sqlx::query(sql)
                    .bind(number_of(sequence))
                    .bind(number_of(sequence))
                    .bind(body.as_slice())
                    .bind(checksum(body))
                    .execute(&mut *connection)
                    .await?;
                sequence = sequence.next();
                bytes = bytes.saturating_add(body.len() as u64);
            }
            Ok(())
        })
        .await
        .map_err(SpoolError::sql("write to the spool", &self.path))?;
        if !bodies.is_empty() {
            self.mark.write(Sequence(sequence.0.saturating_sub(1)));
        }
        self.acked = self.acked.max(acked.unwrap_or_default());
        self.next = sequence;
        self.bytes = bytes;
        Ok(first)
    }

    /// The batch that follows `sent`, which may stand for several sequences; `None` when there is none.
    pub(super) async fn after(&mut self, sent: Sequence) -> Result<Option<Stored>, SpoolError> {
        let read = match self.read_after(sent).await {
            Err(error) if is_damage(&error) => self.damaged_after(sent).await,
            read => read,
        };
        read.map_err(SpoolError::sql("read the spool", &self.path))
    }

    async fn read_after(&mut self, sent: Sequence) -> Result<Option<Stored>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT sequence, first_sequence, body, checksum FROM batches WHERE sequence > ? ORDER BY sequence LIMIT 1",
        )
        .bind(number_of(sent))
        .fetch_optional(&mut self.connection)
        .await?;
        row.map(|row| stored(self.id, &row)).transpose()
    }

    /// The same batch without its body, whose pages cannot be read.
    async fn damaged_after(&mut self, sent: Sequence) -> Result<Option<Stored>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT sequence, first_sequence FROM batches WHERE sequence > ? ORDER BY sequence LIMIT 1",
        )
        .bind(number_of(sent))
        .fetch_optional(&mut self.connection)
        .await?;
        row.map(|row| {
            Ok(Stored::Damaged {
                first: sequence_of(row.try_get(1)?),
                sequence: sequence_of(row.try_get(0)?),
            })
        })
        .transpose()
    }

    /// Makes sure that the disk remembers that `sequence` may have been sent.
    pub(super) async fn reserve(&mut self, sequence: Sequence) -> Result<(), SpoolError> {
        if sequence <= self.reserved {
            return Ok(());
        }
        let upto = Sequence(sequence.0.saturating_add(RESERVE - 1));
        // The pragma holds from the next transaction on, and costs nothing by itself.
        let sql = format!(
            "PRAGMA synchronous = FULL; UPDATE spool SET reserved = {}; PRAGMA synchronous = NORMAL;",
            number_of(upto)
        );
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await
            .map_err(SpoolError::sql("write to the spool", &self.path))?;
        self.reserved = upto;
        Ok(())
    }

    /// Takes a batch that cannot be delivered out of the way. It stays in the file for a person to see, until newer ones
    /// need its room.
    pub(super) async fn set_aside(
        &mut self,
        sequence: Sequence,
        reason: &str,
    ) -> Result<(), SpoolError> {
        let freed = transaction(&mut self.connection, async |connection| {
            let sql = "INSERT OR REPLACE INTO refused \
                       SELECT sequence, first_sequence, body, ? FROM batches WHERE sequence = ?";
            sqlx::query(sql)
                .bind(reason)
                .bind(number_of(sequence))
                .execute(&mut *connection)
                .await?;
            let freed = sqlx::query("DELETE FROM batches WHERE sequence = ? RETURNING length(body)")
                .bind(number_of(sequence))
                .fetch_optional(&mut *connection)
                .await?
                .map_or(Ok(0), |row| row.try_get::<i64, _>(0))?;
            let sql = "DELETE FROM refused WHERE sequence IN ( \
                       SELECT sequence FROM (SELECT sequence, sum(length(body)) OVER (ORDER BY sequence DESC) AS kept \
                       FROM refused) WHERE kept > ?)";
            sqlx::query(sql)
                .bind(MOST_REFUSED_BYTES)
                .execute(&mut *connection)
                .await?;
            Ok(freed)
        })
        .await
        .map_err(SpoolError::sql("write to the spool", &self.path))?;
        self.bytes = self.bytes.saturating_sub(u64::try_from(freed).unwrap_or(0));
        Ok(())
    }

    /// Batches beyond what was acked, and their bytes.
    pub(super) async fn undelivered(&mut self, acked: Sequence) -> Result<(u64, u64), SpoolError> {
        let error = || SpoolError::sql("read the spool", &self.path);
        let sql = "SELECT count(*), coalesce(sum(length(body)), 0) FROM batches WHERE sequence > ?";
        let row = sqlx::query(sql)
            .bind(number_of(acked.max(self.acked)))
            .fetch_one(&mut self.connection)
            .await
            .map_err(error())?;
        let count = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
        Ok((count(0).map_err(error())?, count(1).map_err(error())?))
    }

    /// Whether something was set aside, so that the file must stay.
    pub(super) async fn has_refused(&mut self) -> Result<bool, SpoolError> {
        sqlx::query("SELECT 1 FROM refused LIMIT 1")
            .fetch_optional(&mut self.connection)
            .await
            .map(|row| row.is_some())
            .map_err(SpoolError::sql("read the spool", &self.path))
    }

    /// Gives pages back to the file system after a long outage, a slice at a time.
    pub(super) async fn shrink(&mut self) -> Result<(), SpoolError> {
        let error = || SpoolError::sql("shrink the spool", &self.path);
        let free: i64 = sqlx::query("PRAGMA freelist_count")
            .fetch_one(&mut self.connection)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(error())?;
        if free > 2 * SPARE_PAGES {
            let sql = format!("PRAGMA incremental_vacuum({SPARE_PAGES})");
            sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(&mut self.connection)
                .await
                .map_err(error())?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) async fn refused_bytes(&mut self) -> i64 {
        sqlx::query("SELECT coalesce(sum(length(body)), 0) FROM refused")
            .fetch_one(&mut self.connection)
            .await
            .and_then(|row| row.try_get(0))
            .expect("a sum")
    }

    /// The disk is full at so many pages, as SQLite sees it.
    #[cfg(test)]
    pub(super) async fn limit_pages(&mut self, pages: u32) {
        let sql = format!("PRAGMA max_page_count = {pages}");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await
            .expect("a pragma");
    }

    /// Closes the file; everything in it is in the main file then.
    pub(super) async fn close(self) -> Result<(), SpoolError> {
        self.connection
            .close()
            .await
            .map_err(SpoolError::sql("close the spool", &self.path))
    }

    /// Closes and removes it.
    pub(super) async fn remove(self) -> Result<(), SpoolError> {
        let path = self.path.clone();
        self.close().await?;
        remove_files(&path)
    }
}

/// Removes a spool's file and those beside it.
pub(super) fn remove_files(path: &Path) -> Result<(), SpoolError> {
    for suffix in ["", "-wal", "-shm", mark::SUFFIX] {
        let mut name = path.to_owned().into_os_string();
        name.push(suffix);
        match std::fs::remove_file(&name) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(SpoolError::Remove {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
    Ok(())
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .busy_timeout(Duration::from_secs(5))
        // The batches come and go within seconds: there is nothing worth caching.
        .pragma("cache_size", "-256")
        .pragma("wal_autocheckpoint", "256")
        .pragma("journal_size_limit", "1048576")
        .statement_cache_capacity(16)
        .thread_name(|_| "bm-spool".to_owned())
        .disable_statement_logging()
}

fn number_of(sequence: Sequence) -> i64 {
    i64::try_from(sequence.0).unwrap_or(i64::MAX)
}

fn sequence_of(number: i64) -> Sequence {
    Sequence(u64::try_from(number).unwrap_or(0))
}

/// What tells a body that was damaged on the disk from one that was written.
pub(super) fn checksum(body: &[u8]) -> i64 {
    i64::from(crc32fast::hash(body))
}

/// Whether the disk has changed or lost what a row consists of.
fn is_damage(error: &sqlx::Error) -> bool {
    const CORRUPT: i32 = 11;
    const NOT_A_DATABASE: i32 = 26;
    const IO_ERROR_AT_READ: i32 = 266;
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            code.is_some_and(|code| {
                code == IO_ERROR_AT_READ || matches!(code & 0xff, CORRUPT | NOT_A_DATABASE)
            })
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
        _ => false,
    }
}

fn stored(spool: SpoolId, row: &sqlx::sqlite::SqliteRow) -> Result<Stored, sqlx::Error> {
    let sequence = sequence_of(row.try_get(0)?);
    let first = sequence_of(row.try_get(1)?);
    let body: Vec<u8> = row.try_get(2)?;
    let expected: Option<i64> = row.try_get(3)?;
    if expected.is_some_and(|expected| expected != checksum(&body)) {
        return Ok(Stored::Damaged { first, sequence });
    }
    Ok(Stored::Intact(Envelope {
        spool,
        first,
        sequence,
        body,
    }))
}
