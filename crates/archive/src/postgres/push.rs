//! Copies ended runs of a database into the archive, each in one transaction.
//!
//! A run whose revision the archive has is skipped, so that a push that was interrupted goes on with the run at which
//! it was. A run that has changed is replaced. Where the database has merged or deleted rows of seconds since, the
//! archive keeps its own, and only the rest is replaced.

use super::date::Month;
use super::reader::{self, Message, Subject};
use super::sites::Site;
use super::write::{Writing, next, out_of_turn};
use super::{Archive, ArchiveError, Patience, Server};
use crate::source::{EndedRun, Source, SourceError};
use crate::tables::{self, Table};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

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
    Rows {
        sent: u64,
        all: u64,
    },
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
    'runs: for (at, run) in runs.iter().enumerate() {
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
        let (mut failures, mut since, mut best) = (0, None, 0);
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
                Err(ArchiveError::Source(error @ SourceError::NotEnded { .. }))
                    if request.runs.is_empty() =>
                {
                    progress(PushEvent::Note(&error.to_string()));
                    archive = None;
                    continue 'runs;
                }
                Err(error) => error,
            };
            archive = None;
            if most > best {
                // The server took more of it than before, so that it may take all of it.
                (best, since) = (most, None);
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
    let doing = format!("push run {} ({})", subject.run.id, subject.run.name);
    loop {
        let mut reading = reader::read(subject.clone())?;
        let revision = match next(&mut reading.messages).await? {
            Message::Revision(revision) => revision,
            other => return Err(out_of_turn(&other)),
        };
        let writing = Writing {
            server: &open.server,
            answer: open.answer,
            doing: &doing,
            tables,
            subject,
        };
        // Without a lock first: nearly all runs of a later push are there as they are.
        let archived = writing.archived(&mut open.connection).await?;
        let archived = archived.map(|archived| archived.revision);
        if archived.as_ref() == Some(&revision.text) {
            return Ok((Outcome::Unchanged, 0));
        }
        let partitions = sqlx::query("SELECT benchmesh.make_partitions($1::date)")
            .bind(subject.month.to_string())
            .execute(&mut open.connection);
        writing.within(partitions).await?;
        let written = writing.run(
            &mut open.connection,
            reading,
            revision,
            archived.as_ref(),
            progress,
        );
        if let Some(written) = written.await? {
            return Ok(written);
        }
    }
}
