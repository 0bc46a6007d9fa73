//! One spool in its SQLite file: append, read, reserve, delete, merge.
//!
//! `synchronous` is NORMAL: a killed agent loses no rows. After a power failure only the newest batches can be missing,
//! and the collector may have some of them. It therefore names its last sequence when the agent attaches, and an agent
//! never appends to a spool of an earlier start, so no sequence ever has two contents. Batches that may have been sent
//! must not be merged, and the file must not forget which ones they are. The reservation is therefore committed with
//! FULL before the first of its batches leaves, which also flushes all earlier writes to the disk.

mod header;
mod mark;
mod merge;
mod read;
mod room;
mod transaction;

use super::SpoolError;
use super::error::is_damage;
use crate::envelope::{Sequence, SpoolId};
use header::Header;
use mark::AppendMark;
pub(super) use mark::SUFFIX as MARK_SUFFIX;
pub(super) use read::{Loss, Stored};
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use transaction::transaction;

/// Maximum bytes of refused batches that a spool keeps for inspection. Beyond it, the oldest are removed.
const MAX_REFUSED_BYTES: i64 = if cfg!(test) { 64 << 10 } else { 8 << 20 };

/// Number of sequences per reservation: at one batch a second, one fsync a minute. Small in tests, so that merging and
/// sending interact.
const RESERVE: u64 = if cfg!(test) { 4 } else { 64 };
/// SQLite writes whole pages, and each batch of a second changes five or six of them. An agent with ten daemons writes
/// 20 MiB an hour with this size, and about 50 MiB with pages of 4 KiB. Spools of older agents keep their page size.
pub(super) const PAGE_BYTES: u32 = 512;
/// 4 MiB of free pages are kept in the file for later appends.
const SPARE_PAGES: i64 = (4 << 20) / PAGE_BYTES as i64;
/// 1 MiB of pages: rewriting a page before a checkpoint only costs its space in the log.
const LOG_PAGES: u32 = (1 << 20) / PAGE_BYTES;

const TABLES: &str = "
    CREATE TABLE spool (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        version INTEGER NOT NULL,
        spool_id TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        mesh_uid TEXT,
        reserved INTEGER NOT NULL,
        acked INTEGER NOT NULL,
        checksum INTEGER NOT NULL -- CRC-32 of all other columns
    ) STRICT;
    CREATE TABLE batches (
        sequence INTEGER PRIMARY KEY,
        first_sequence INTEGER NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL -- CRC-32 of all other columns
    ) STRICT;
    CREATE TABLE refused (
        sequence INTEGER PRIMARY KEY,
        first_sequence INTEGER NOT NULL,
        body BLOB NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
";

/// An open spool.
#[derive(Debug)]
pub(super) struct SpoolFile {
    header: Header,
    path: PathBuf,
    connection: SqliteConnection,
    next: Sequence,
    /// An earlier start wrote it; it is never appended to again.
    is_old: bool,
    /// Whether `next` follows the last appended sequence, or only the last known one.
    is_end_known: bool,
    /// A loss after the last known batch has already been reported.
    end_reported: bool,
    bytes: u64,
    sweep: Sequence,
    given_up: GivenUp,
    mark: AppendMark,
}

/// Positions up to which batches were given up for lack of room.
#[derive(Clone, Copy, Debug, Default)]
struct GivenUp {
    /// Position among batches that cannot have been sent yet.
    unsent: Sequence,
    /// Position among the other batches.
    sent: Sequence,
}

impl SpoolFile {
    /// Creates a new spool.
    pub(super) async fn create(path: &Path, id: SpoolId, ordinal: i64) -> Result<Self, SpoolError> {
        let made = Self::try_create(path, id, ordinal).await;
        if made.is_err() {
            // A full disk accepts an empty file, so each start would leave one behind.
            let _ = remove_files(path);
        }
        made
    }

    async fn try_create(path: &Path, id: SpoolId, ordinal: i64) -> Result<Self, SpoolError> {
        let error = || SpoolError::sql("make the spool", path);
        // SQLite gives its other files the mode of this one.
        let made = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path);
        made.map_err(|source| error()(sqlx::Error::Io(source)))?;
        let mut connection = options(path).connect().await.map_err(error())?;
        let header = Header::new(id, ordinal);
        transaction(&mut connection, async |connection| {
            sqlx::raw_sql(TABLES).execute(&mut *connection).await?;
            header.insert(connection).await
        })
        .await
        .map_err(error())?;
        Ok(Self {
            header,
            path: path.to_owned(),
            connection,
            next: Sequence(1),
            is_old: false,
            is_end_known: true,
            end_reported: false,
            bytes: 0,
            sweep: Sequence(0),
            given_up: GivenUp::default(),
            mark: AppendMark::of(path),
        })
    }

    /// Opens the spool of an earlier start. Damaged batches in it are found when they are read.
    pub(super) async fn open(path: &Path) -> Result<Self, SpoolError> {
        let error = SpoolError::sql("read the spool", path);
        let mut connection = options(path).connect().await.map_err(error)?;
        let header = Header::open(&mut connection, path).await?;
        let mut file = Self {
            header,
            path: path.to_owned(),
            connection,
            next: Sequence(1),
            is_old: true,
            is_end_known: false,
            end_reported: false,
            bytes: 0,
            sweep: Sequence(0),
            given_up: GivenUp::default(),
            mark: AppendMark::of(path),
        };
        file.find_end().await?;
        file.bytes = file.count_bytes().await?;
        Ok(file)
    }

    pub(super) fn id(&self) -> SpoolId {
        self.header.id
    }

    /// Number of this start of the agent: the order in which spools are drained.
    pub(super) fn ordinal(&self) -> i64 {
        self.header.ordinal
    }

    /// The mesh that its rows belong to; `None` until the agent has attached.
    pub(super) fn mesh(&self) -> Option<&str> {
        self.header.mesh.as_deref()
    }

    /// The last stored sequence that the collector has acked, as far as it is written to the file.
    pub(super) fn acked(&self) -> Sequence {
        self.header.acked
    }

    /// The bytes of its batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last assigned sequence.
    pub(super) fn last(&self) -> Sequence {
        Sequence(self.next.0.saturating_sub(1))
    }

    /// Continues after `stored`, because the collector has more than this spool remembers.
    pub(super) fn skip_to(&mut self, stored: Sequence) {
        self.next = self.next.max(stored.next());
    }

    /// Binds the spool to the mesh that its rows belong to.
    pub(super) async fn bind(&mut self, mesh_uid: &str) -> Result<(), SpoolError> {
        let header = Header {
            mesh: Some(mesh_uid.to_owned()),
            ..self.header.clone()
        };
        header
            .update(&mut self.connection)
            .await
            .map_err(SpoolError::sql("write to the spool", &self.path))?;
        self.header = header;
        Ok(())
    }

    /// Appends batches and deletes those up to `acked`, in one transaction. Returns the first batch's sequence.
    ///
    /// After an error the spool is unchanged, and the same call may be repeated: a sequence is not used twice, because
    /// no batch is sent before this has returned.
    pub(super) async fn append(
        &mut self,
        bodies: &[Vec<u8>],
        acked: Option<Sequence>,
    ) -> Result<Sequence, SpoolError> {
        let first = self.next;
        let mut sequence = first;
        let mut bytes = self.bytes;
        let mut header = self.header.clone();
        header.acked = header.acked.max(acked.unwrap_or_default());
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
                header.update(connection).await?;
            }
            for body in bodies {
                // A commit with an unknown outcome may have left this sequence behind.
                let sql = "INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?)";
                sqlx::query(sql)
                    .bind(number_of(sequence))
                    .bind(number_of(sequence))
                    .bind(body.as_slice())
                    .bind(checksum(sequence, sequence, body))
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
        self.header = header;
        self.next = sequence;
        self.bytes = bytes;
        Ok(first)
    }

    /// Makes it durable that batches up to `sequence` may have been sent.
    pub(super) async fn reserve(&mut self, sequence: Sequence) -> Result<(), SpoolError> {
        if sequence <= self.header.reserved {
            return Ok(());
        }
        let header = Header {
            reserved: Sequence(sequence.0.saturating_add(RESERVE - 1)),
            ..self.header.clone()
        };
        // The pragma applies from the next transaction on, and is free by itself.
        let sql = format!(
            "PRAGMA synchronous = FULL; UPDATE spool SET reserved = {}, checksum = {}; PRAGMA synchronous = NORMAL;",
            number_of(header.reserved),
            header.checksum(),
        );
        let reserved = sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await;
        match reserved {
            // The readable part of a damaged file is worth more than the space that merging would gain.
            Err(error) if self.is_old && is_damage(&error) => {}
            Err(error) => return Err(SpoolError::sql("write to the spool", &self.path)(error)),
            Ok(_) => {}
        }
        self.header = header;
        Ok(())
    }

    /// Sets aside a batch that cannot be delivered. Its body stays in the file for inspection, until newer ones need
    /// its space; the record that it was set aside is kept.
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
            let sql = "UPDATE refused SET body = x'' WHERE sequence IN ( \
                       SELECT sequence FROM (SELECT sequence, sum(length(body)) OVER (ORDER BY sequence DESC) AS kept \
                       FROM refused) WHERE kept > ?)";
            sqlx::query(sql)
                .bind(MAX_REFUSED_BYTES)
                .execute(&mut *connection)
                .await?;
            Ok(freed)
        })
        .await
        .map_err(SpoolError::sql("write to the spool", &self.path))?;
        self.bytes = self.bytes.saturating_sub(u64::try_from(freed).unwrap_or(0));
        Ok(())
    }

    /// Number and bytes of batches that are not acked.
    pub(super) async fn undelivered(&mut self, acked: Sequence) -> Result<(u64, u64), SpoolError> {
        let error = || SpoolError::sql("read the spool", &self.path);
        let sql = "SELECT count(*), coalesce(sum(length(body)), 0) FROM batches WHERE sequence > ?";
        let row = sqlx::query(sql)
            .bind(number_of(acked.max(self.header.acked)))
            .fetch_one(&mut self.connection)
            .await
            .map_err(error())?;
        let count = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
        Ok((count(0).map_err(error())?, count(1).map_err(error())?))
    }

    /// Whether a batch in this range was set aside.
    pub(super) async fn was_set_aside(
        &mut self,
        first: Sequence,
        last: Sequence,
    ) -> Result<bool, SpoolError> {
        sqlx::query("SELECT 1 FROM refused WHERE sequence BETWEEN ? AND ? LIMIT 1")
            .bind(number_of(first))
            .bind(number_of(last))
            .fetch_optional(&mut self.connection)
            .await
            .map(|row| row.is_some())
            .map_err(SpoolError::sql("read the spool", &self.path))
    }

    /// Whether any batch was set aside, so that the file must stay.
    pub(super) async fn has_refused(&mut self) -> Result<bool, SpoolError> {
        sqlx::query("SELECT 1 FROM refused LIMIT 1")
            .fetch_optional(&mut self.connection)
            .await
            .map(|row| row.is_some())
            .map_err(SpoolError::sql("read the spool", &self.path))
    }

    /// Returns pages to the file system after a long outage, a few at a time.
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

    /// Makes SQLite report a full disk at this number of pages.
    #[cfg(test)]
    pub(super) async fn limit_pages(&mut self, pages: u32) {
        let sql = format!("PRAGMA max_page_count = {pages}");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await
            .expect("a pragma");
    }

    /// Closes the file, after a full checkpoint of the write-ahead log.
    pub(super) async fn close(self) -> Result<(), SpoolError> {
        self.connection
            .close()
            .await
            .map_err(SpoolError::sql("close the spool", &self.path))
    }

    /// Closes and removes the spool.
    pub(super) async fn remove(self) -> Result<(), SpoolError> {
        let path = self.path.clone();
        self.close().await?;
        remove_files(&path)
    }
}

/// Removes a spool's file and its companion files.
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
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .busy_timeout(Duration::from_secs(5))
        // Batches stay only for seconds, so a cache would not help.
        .pragma("cache_size", "-256")
        .pragma("wal_autocheckpoint", LOG_PAGES.to_string())
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

/// CRC-32 of a batch: its sequences and its body. It detects damage on the disk.
fn checksum(first: Sequence, sequence: Sequence, body: &[u8]) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&first.0.to_le_bytes());
    sum.update(&sequence.0.to_le_bytes());
    sum.update(body);
    i64::from(sum.finalize())
}
