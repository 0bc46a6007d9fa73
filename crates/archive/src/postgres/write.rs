//! One run on its way into the archive, in one transaction.

use super::connect::within;
use super::push::{Outcome, PushEvent};
use super::reader::{Message, Reading, Subject, Wanted};
use super::revision::Revision;
use super::value::{HEADER, KEY_COLUMNS, TRAILER};
use super::{ArchiveError, Server};
use crate::retention::{self, Counts, StepRetention};
use crate::tables::Table;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use std::time::Duration;

/// A COPY ends after so many bytes and another one begins, because the server tells of a full disk only at its end.
const COPY_BYTES: usize = 64 << 20;

const LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('benchmesh run ' || $1 || ' ' || $2, 0))";
const PUSHED: &str =
    "SELECT revision, seconds::text FROM benchmesh.pushes WHERE site = $1 AND run_uid = $2";

/// What the archive has of a run.
pub struct Archived {
    pub revision: String,
    seconds: Counts,
}

/// One run on its way.
pub struct Writing<'a> {
    pub server: &'a Server,
    pub answer: Duration,
    pub doing: &'a str,
    pub tables: &'a [Table],
    pub subject: &'a Subject,
}

impl Writing<'_> {
    pub async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, ArchiveError> {
        within(self.server, self.answer, self.doing, answer).await
    }

    pub async fn archived(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Option<Archived>, ArchiveError> {
        let read = async {
            let row = sqlx::query(PUSHED)
                .bind(&self.subject.site)
                .bind(&self.subject.run.uid)
                .fetch_optional(connection)
                .await?;
            let Some(row) = row else { return Ok(None) };
            let seconds: String = row.try_get(1)?;
            Ok(Some(Archived {
                revision: row.try_get(0)?,
                seconds: serde_json::from_str(&seconds).unwrap_or_default(),
            }))
        };
        self.within(read).await
    }

    /// Of two pushes of one run the second waits here.
    async fn lock(&self, connection: &mut PgConnection) -> Result<(), ArchiveError> {
        let lock = sqlx::query(LOCK)
            .bind(&self.subject.site)
            .bind(&self.subject.run.uid)
            .execute(connection);
        let run = &self.subject.run;
        let doing = format!("wait for another push of run {} ({})", run.id, run.name);
        let locked = within(self.server, self.answer, &doing, lock).await;
        locked.map(drop)
    }

    /// Writes the run over the revision `archived`. `None`: another push has replaced that meanwhile, perhaps by a newer
    /// state than the one that was read here, so the run is to be read again.
    pub async fn run(
        &self,
        connection: &mut PgConnection,
        reading: Reading,
        revision: Revision,
        archived: Option<&String>,
        progress: &mut (dyn FnMut(PushEvent<'_>) + Send),
    ) -> Result<Option<(Outcome, u64)>, ArchiveError> {
        let mut transaction = self.within(connection.begin()).await?;
        self.lock(&mut transaction).await?;
        let expected = archived;
        let archived = self.archived(&mut transaction).await?;
        if archived.as_ref().map(|archived| &archived.revision) != expected {
            self.within(transaction.rollback()).await?;
            return Ok(None);
        }
        let wanted = match &archived {
            Some(archived) => self.wanted(&mut transaction, archived, &revision).await?,
            None => Wanted::default(),
        };
        let outcome = match &archived {
            None => Outcome::New,
            Some(_) if wanted.kept.is_empty() => Outcome::Replaced,
            Some(_) => Outcome::ReplacedButSeconds,
        };
        if archived.is_some() {
            for table in self.tables.iter().rev() {
                if !wanted.kept.contains(&table.name) {
                    self.delete(&mut transaction, table).await?;
                }
            }
        }
        let mut all = revision.all_rows();
        let mut seconds = revision.seconds.clone();
        for (table, rows) in archived.into_iter().flat_map(|archived| archived.seconds) {
            if wanted.kept.contains(&table) {
                all = all.saturating_sub(seconds.insert(table, rows).unwrap_or(0));
            }
        }
        let Reading {
            mut messages,
            wanted: decision,
        } = reading;
        // The reader says itself if it has ended.
        let _ = decision.send(wanted);
        let sent = self
            .copy(&mut transaction, &mut messages, all, progress)
            .await?;
        self.note_push(
            &mut transaction,
            &revision.text,
            &seconds,
            revision.other_rows,
        )
        .await?;
        self.within(transaction.commit()).await?;
        Ok(Some((outcome, sent)))
    }

    /// What to copy over the archive's rows of a run.
    async fn wanted(
        &self,
        connection: &mut PgConnection,
        archived: &Archived,
        revision: &Revision,
    ) -> Result<Wanted, ArchiveError> {
        let known = self.within(retention_of(connection, self.subject)).await?;
        let (here, there) = (&revision.seconds, &archived.seconds);
        let steps = revision.steps.iter().copied();
        let kept = retention::kept(self.tables, here, there, steps, &known);
        let mut tables = self.tables.iter();
        let keeps_intervals =
            tables.any(|table| retention::is_of_steps(table) && kept.contains(table.name.as_str()));
        Ok(Wanted {
            kept: kept.into_iter().map(str::to_owned).collect(),
            retention: match keeps_intervals {
                true => known,
                false => StepRetention::new(),
            },
        })
    }

    async fn delete(
        &self,
        connection: &mut PgConnection,
        table: &Table,
    ) -> Result<(), ArchiveError> {
        let sql = format!(
            "DELETE FROM benchmesh.{} WHERE site = $1 AND run_uid = $2 AND month = $3::date",
            table.name
        );
        let deleting = sqlx::query(AssertSqlSafe(sql))
            .bind(&self.subject.site)
            .bind(&self.subject.run.uid)
            .bind(self.subject.month.to_string())
            .execute(connection);
        self.within(deleting).await.map(drop)
    }

    /// Sends what the reader gives. Returns the number of rows.
    async fn copy(
        &self,
        connection: &mut PgConnection,
        messages: &mut Messages,
        all: u64,
        progress: &mut (dyn FnMut(PushEvent<'_>) + Send),
    ) -> Result<u64, ArchiveError> {
        let mut sent = 0;
        progress(PushEvent::Rows { sent, all });
        let mut message = next(messages).await?;
        loop {
            let (at, mut first) = match message {
                Message::Rows { table, rows, bytes } => (table, Some((rows, bytes))),
                Message::End => return Ok(sent),
                other => return Err(out_of_turn(&other)),
            };
            let table = self.tables.get(at).ok_or_else(|| {
                ArchiveError::Wrong(String::from("the database has a table that is not known"))
            })?;
            let mut copy = self.within(connection.copy_in_raw(&copy_in(table))).await?;
            self.within(copy.send(HEADER)).await?;
            let mut copied = 0;
            loop {
                let (rows, bytes) = match first.take() {
                    Some(slice) => slice,
                    None => {
                        message = next(messages).await?;
                        match message {
                            Message::Rows { table, rows, bytes }
                                if table == at && copied < COPY_BYTES =>
                            {
                                (rows, bytes)
                            }
                            // Of another table, or the next COPY's.
                            _ => break,
                        }
                    }
                };
                copied += bytes.len();
                self.within(copy.send(bytes)).await?;
                sent += rows;
                progress(PushEvent::Rows { sent, all });
            }
            self.within(copy.send(TRAILER)).await?;
            self.within(copy.finish()).await?;
        }
    }

    async fn note_push(
        &self,
        connection: &mut PgConnection,
        revision: &str,
        seconds: &Counts,
        other_rows: u64,
    ) -> Result<(), ArchiveError> {
        let rows = other_rows + seconds.values().sum::<u64>();
        let seconds = serde_json::to_value(seconds).unwrap_or_default();
        let noting = sqlx::query(
            "INSERT INTO benchmesh.pushes (site, run_uid, month, revision, seconds, rows, version)
             VALUES ($1, $2, $3::date, $4, $5::jsonb, $6, $7)
             ON CONFLICT (site, run_uid) DO UPDATE SET revision = excluded.revision, seconds = excluded.seconds,
                 rows = excluded.rows, version = excluded.version, pushed_at = now()",
        )
        .bind(&self.subject.site)
        .bind(&self.subject.run.uid)
        .bind(self.subject.month.to_string())
        .bind(revision)
        .bind(seconds.to_string())
        .bind(i64::try_from(rows).unwrap_or(i64::MAX))
        .bind(env!("CARGO_PKG_VERSION"))
        .execute(connection);
        self.within(noting).await.map(drop)
    }
}

fn copy_in(table: &Table) -> String {
    let columns = table.columns.iter().map(|one| one.name.as_str());
    let columns: Vec<&str> = KEY_COLUMNS.into_iter().chain(columns).collect();
    format!(
        "COPY benchmesh.{} ({}) FROM STDIN (FORMAT binary)",
        table.name,
        columns.join(", ")
    )
}

/// How the archive's steps say that their intervals are kept.
async fn retention_of(
    connection: &mut PgConnection,
    subject: &Subject,
) -> Result<StepRetention, sqlx::Error> {
    let sql = format!(
        "SELECT id, {} FROM benchmesh.steps WHERE site = $1 AND run_uid = $2",
        retention::COLUMNS.join(", ")
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&subject.site)
        .bind(&subject.run.uid)
        .fetch_all(connection)
        .await?;
    let mut kept = StepRetention::new();
    for row in rows {
        let mut values = [None; retention::COLUMNS.len()];
        for (at, value) in values.iter_mut().enumerate() {
            *value = row.try_get(at + 1)?;
        }
        kept.insert(row.try_get(0)?, values);
    }
    Ok(kept)
}

type Messages = tokio::sync::mpsc::Receiver<Result<Message, ArchiveError>>;

pub async fn next(messages: &mut Messages) -> Result<Message, ArchiveError> {
    match messages.recv().await {
        Some(message) => message,
        None => Err(ArchiveError::Wrong(String::from(
            "the thread that reads the database ended early",
        ))),
    }
}

pub fn out_of_turn(message: &Message) -> ArchiveError {
    let what = match message {
        Message::Revision(_) => "a revision",
        Message::Rows { .. } => "rows",
        Message::End => "the end",
    };
    ArchiveError::Wrong(format!(
        "the thread that reads the database sent {what} out of turn"
    ))
}
