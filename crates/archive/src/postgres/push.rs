//! Copies ended runs of a database into the archive, each in one transaction.
//!
//! A run whose revision the archive has is skipped, so that a push that was interrupted goes on with the run at which it
//! was. A run that has changed is replaced. Where the database has merged or deleted rows of seconds since, the archive
//! keeps its own, and only the rest is replaced.

use super::connect::within;
use super::date::Month;
use super::reader::{self, KeptRetention, Message, RETENTION_COLUMNS, Reading, Subject, Wanted};
use super::revision::{Revision, is_counted};
use super::value::{HEADER, KEY_COLUMNS, TRAILER};
use super::{Archive, ArchiveError, Patience, Server};
use crate::source::{EndedRun, Source};
use crate::tables::{self, Table};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A COPY ends after so many bytes and another one begins, because the server tells of a full disk only at its end.
const COPY_BYTES: usize = 64 << 20;

/// Which runs to push, and where to.
#[derive(Clone, Debug)]
pub struct PushRequest {
    pub db: PathBuf,
    /// Ids, uids or names; empty: all runs that have ended.
    pub runs: Vec<String>,
    pub site: Site,
    pub server: Server,
    pub patience: Patience,
}

/// The name under which a collector's runs are archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    Named(String),
    /// The one under which the database's runs are there already, else this one, such as the host's name.
    Default(String),
}

/// How far a push is. Texts are for people.
#[derive(Clone, Copy, Debug)]
pub enum PushEvent<'a> {
    /// Something an administrator should do.
    Note(&'a str),
    Site(&'a str),
    /// Reading and comparing run `nth` of `runs` (from 1).
    Run {
        run: &'a EndedRun,
        nth: usize,
        runs: usize,
    },
    /// Rows of the run that were sent, and all there are.
    Rows { sent: u64, all: u64 },
    Pushed {
        run: &'a EndedRun,
        outcome: Outcome,
        rows: u64,
    },
    /// The connection was lost, or the server is busy; the run begins again after the wait.
    Again {
        error: &'a ArchiveError,
        wait: Duration,
    },
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    New,
    Replaced,
    /// Replaced, but for the rows of seconds, of which the archive has more than the database.
    ReplacedButSeconds,
    Unchanged,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    pub site: String,
    pub new: usize,
    pub replaced: usize,
    pub unchanged: usize,
    pub rows: u64,
    /// How often a run was begun again.
    pub retries: u32,
}

/// Pushes runs until all are there, an error needs a person, or `cancel` is cancelled. Runs that were pushed before an
/// error stay.
pub async fn push_runs(
    request: &PushRequest,
    cancel: &CancellationToken,
    progress: &mut (dyn FnMut(PushEvent<'_>) + Send),
) -> Result<Pushed, ArchiveError> {
    let pushing = push_all(request, progress);
    match cancel.run_until_cancelled(pushing).await {
        Some(pushed) => pushed,
        None => Err(ArchiveError::Cancelled),
    }
}

async fn push_all(
    request: &PushRequest,
    progress: &mut (dyn FnMut(PushEvent<'_>) + Send),
) -> Result<Pushed, ArchiveError> {
    let (runs, mesh_uid) = runs_of(&request.db, request.runs.clone()).await?;
    let patience = &request.patience;
    let mut archive = Archive::connect(&request.server, patience).await?;
    for note in archive.prepare().await? {
        progress(PushEvent::Note(&note));
    }
    let site = archive.claim(&request.site, &mesh_uid).await?;
    progress(PushEvent::Site(&site));
    let tables = tables::known().map_err(|source| ArchiveError::File {
        path: request.db.clone(),
        doing: "cannot read the schema",
        source,
    })?;
    let mut pushed = Pushed {
        site: site.clone(),
        ..Pushed::default()
    };
    let mut archive = Some(archive);
    for (at, run) in runs.iter().enumerate() {
        progress(PushEvent::Run {
            run,
            nth: at + 1,
            runs: runs.len(),
        });
        let subject = Subject {
            db: request.db.clone(),
            run: run.clone(),
            site: site.clone(),
            month: Month::of(run.created_us),
        };
        let (mut failures, mut since) = (0, None);
        let (outcome, rows) = loop {
            let mut most = 0;
            let mut watched = |event: PushEvent<'_>| {
                if let PushEvent::Rows { sent, .. } = event {
                    most = sent;
                }
                progress(event);
            };
            let done = attempt(&mut archive, request, &tables, &subject, &mut watched).await;
            let error = match done {
                Ok(done) => break done,
                Err(error) => error,
            };
            archive = None;
            if most > 0 {
                // The server took some of it, so that it may take all of it.
                (failures, since) = (0, None);
            }
            failures += 1;
            let since = *since.get_or_insert_with(Instant::now);
            if !error.is_transient() || since.elapsed() >= patience.give_up_after {
                return Err(error);
            }
            let wait = patience.wait(failures);
            pushed.retries += 1;
            progress(PushEvent::Again {
                error: &error,
                wait,
            });
            tokio::time::sleep(wait).await;
        };
        match outcome {
            Outcome::New => pushed.new += 1,
            Outcome::Replaced | Outcome::ReplacedButSeconds => pushed.replaced += 1,
            Outcome::Unchanged => pushed.unchanged += 1,
        }
        pushed.rows += rows;
        progress(PushEvent::Pushed { run, outcome, rows });
    }
    if let Some(archive) = archive {
        archive.close().await;
    }
    Ok(pushed)
}

/// The wanted runs, and the uid of the database's mesh.
async fn runs_of(db: &Path, wanted: Vec<String>) -> Result<(Vec<EndedRun>, String), ArchiveError> {
    let db = db.to_owned();
    blocking(move || {
        let source = Source::open(&db)?;
        let mut runs = Vec::new();
        for one in &wanted {
            let run = source.find(one)?;
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        if wanted.is_empty() {
            runs = source.ended_runs()?;
        }
        Ok((runs, source.mesh_uid().to_owned()))
    })
    .await
}

/// Runs blocking work beside the runtime.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ArchiveError::Cancelled),
    }
}

/// Pushes one run over the open connection, or over a new one.
async fn attempt(
    archive: &mut Option<Archive>,
    request: &PushRequest,
    tables: &[Table],
    subject: &Subject,
    progress: &mut (dyn FnMut(PushEvent<'_>) + Send),
) -> Result<(Outcome, u64), ArchiveError> {
    let open = match archive.take() {
        Some(open) => open,
        None => Archive::connect(&request.server, &request.patience).await?,
    };
    let open = archive.insert(open);
    let mut reading = reader::read(subject.clone())?;
    let revision = match next(&mut reading.messages).await? {
        Message::Revision(revision) => revision,
        other => return Err(out_of_turn(&other)),
    };
    let doing = format!("push run {} ({})", subject.run.id, subject.run.name);
    let writing = Writing {
        server: &open.server,
        answer: open.answer,
        doing: &doing,
        tables,
        subject,
    };
    // Without a lock first: nearly all runs of a later push are there as they are.
    let archived = writing.archived(&mut open.connection, false).await?;
    if archived.is_some_and(|archived| archived.revision == revision.text) {
        return Ok((Outcome::Unchanged, 0));
    }
    let partitions = sqlx::query("SELECT benchmesh.make_partitions($1::date)")
        .bind(subject.month.to_string())
        .execute(&mut open.connection);
    writing.within(partitions).await?;
    writing
        .run(&mut open.connection, reading, revision, progress)
        .await
}

type Messages = tokio::sync::mpsc::Receiver<Result<Message, ArchiveError>>;

async fn next(messages: &mut Messages) -> Result<Message, ArchiveError> {
    match messages.recv().await {
        Some(message) => message,
        None => Err(ArchiveError::Wrong(String::from(
            "the thread that reads the database ended early",
        ))),
    }
}

fn out_of_turn(message: &Message) -> ArchiveError {
    ArchiveError::Wrong(format!("the database's reader said {message:?} out of turn"))
}

/// What the archive has of a run.
struct Archived {
    revision: String,
    seconds: BTreeMap<String, u64>,
}

/// One run on its way.
struct Writing<'a> {
    server: &'a Server,
    answer: Duration,
    doing: &'a str,
    tables: &'a [Table],
    subject: &'a Subject,
}

impl Writing<'_> {
    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, ArchiveError> {
        within(self.server, self.answer, self.doing, answer).await
    }

    async fn archived(
        &self,
        connection: &mut PgConnection,
        locked: bool,
    ) -> Result<Option<Archived>, ArchiveError> {
        if locked {
            // Of two pushes of one run the second waits here, and then finds it there.
            let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('benchmesh run ' || $1 || ' ' || $2, 0))")
                .bind(&self.subject.site)
                .bind(&self.subject.run.uid)
                .execute(&mut *connection);
            self.within(lock).await?;
        }
        let read = async {
            let row = sqlx::query("SELECT revision, seconds::text FROM benchmesh.pushes WHERE site = $1 AND run_uid = $2")
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

    async fn run(
        &self,
        connection: &mut PgConnection,
        reading: Reading,
        revision: Revision,
        progress: &mut (dyn FnMut(PushEvent<'_>) + Send),
    ) -> Result<(Outcome, u64), ArchiveError> {
        let mut transaction = self.within(connection.begin()).await?;
        let archived = self.archived(&mut transaction, true).await?;
        if archived.as_ref().is_some_and(|archived| archived.revision == revision.text) {
            self.within(transaction.rollback()).await?;
            return Ok((Outcome::Unchanged, 0));
        }
        let kept = match &archived {
            Some(archived) if revision.is_thinner_than(&archived.seconds) => {
                let kept = self.within(retention(&mut transaction, self.subject)).await?;
                // A step that the archive lacks has seconds that it lacks: the run was resumed.
                revision.steps.iter().all(|step| kept.contains_key(step)).then_some(kept)
            }
            _ => None,
        };
        let keeps_seconds = kept.is_some();
        let outcome = match (&archived, keeps_seconds) {
            (None, _) => Outcome::New,
            (Some(_), false) => Outcome::Replaced,
            (Some(_), true) => Outcome::ReplacedButSeconds,
        };
        if archived.is_some() {
            for table in self.tables.iter().rev() {
                if !(keeps_seconds && is_counted(table)) {
                    self.delete(&mut transaction, table).await?;
                }
            }
        }
        let all = match keeps_seconds {
            true => revision.other_rows,
            false => revision.all_rows(),
        };
        let Reading {
            mut messages,
            wanted,
        } = reading;
        // The reader says itself if it has ended.
        let _ = wanted.send(kept.map_or(Wanted::All, Wanted::ButSeconds));
        let sent = self.copy(&mut transaction, &mut messages, all, progress).await?;
        let seconds = match (archived, keeps_seconds) {
            (Some(archived), true) => archived.seconds,
            _ => revision.seconds.clone(),
        };
        self.note_push(&mut transaction, &revision.text, &seconds, revision.other_rows).await?;
        self.within(transaction.commit()).await?;
        Ok((outcome, sent))
    }

    async fn delete(&self, connection: &mut PgConnection, table: &Table) -> Result<(), ArchiveError> {
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
                            Message::Rows { table, rows, bytes } if table == at && copied < COPY_BYTES => {
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
        seconds: &BTreeMap<String, u64>,
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

/// How the archive's steps say that their seconds are kept.
async fn retention(
    connection: &mut PgConnection,
    subject: &Subject,
) -> Result<KeptRetention, sqlx::Error> {
    let sql = format!(
        "SELECT id, {} FROM benchmesh.steps WHERE site = $1 AND run_uid = $2",
        RETENTION_COLUMNS.join(", ")
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&subject.site)
        .bind(&subject.run.uid)
        .fetch_all(connection)
        .await?;
    let mut kept = HashMap::with_capacity(rows.len());
    for row in rows {
        let mut values = [None; RETENTION_COLUMNS.len()];
        for (at, value) in values.iter_mut().enumerate() {
            *value = row.try_get(at + 1)?;
        }
        kept.insert(row.try_get(0)?, values);
    }
    Ok(kept)
}

impl Archive {
    /// The site of a mesh; a name that nobody has yet becomes its own.
    async fn claim(&mut self, site: &Site, mesh_uid: &str) -> Result<String, ArchiveError> {
        let doing = "register the site";
        let name = match site {
            Site::Named(name) => name.clone(),
            Site::Default(name) => {
                let known = sqlx::query_scalar::<_, String>(
                    "SELECT site FROM benchmesh.sites WHERE mesh_uid = $1 ORDER BY site",
                )
                .bind(mesh_uid)
                .fetch_all(&mut self.connection);
                let known = within(&self.server, self.answer, doing, known).await?;
                match known.as_slice() {
                    [] => name.clone(),
                    [one] => one.clone(),
                    several => {
                        return Err(ArchiveError::Wrong(format!(
                            "runs of this database are archived under several sites; choose with --site: {}",
                            several.join(", ")
                        )));
                    }
                }
            }
        };
        if name.is_empty() || name.contains([':', '\0']) {
            return Err(ArchiveError::Wrong(format!(
                "a site's name is not empty and has no colon: {name:?}"
            )));
        }
        let claiming = async {
            sqlx::query("INSERT INTO benchmesh.sites (site, mesh_uid) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(&name)
                .bind(mesh_uid)
                .execute(&mut self.connection)
                .await?;
            sqlx::query_scalar::<_, String>("SELECT mesh_uid FROM benchmesh.sites WHERE site = $1")
                .bind(&name)
                .fetch_one(&mut self.connection)
                .await
        };
        let owner = within(&self.server, self.answer, doing, claiming).await?;
        if owner != mesh_uid {
            return Err(ArchiveError::Wrong(format!(
                "site {name:?} is another collector's (mesh {owner}, this database is of mesh {mesh_uid}): choose another \
                 name with --site. If that collector is gone for good and this one takes its place, an administrator runs: \
                 UPDATE benchmesh.sites SET mesh_uid = '{mesh_uid}' WHERE site = '{}'",
                name.replace('\'', "''")
            )));
        }
        Ok(name)
    }
}
