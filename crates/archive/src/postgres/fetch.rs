//! Copies runs of an archive back into a database file, as they were.
//!
//! Each run is first written into a file of its own, with the ids that it had, in a directory beside the wanted file.
//! The first one becomes the wanted file if that is not there yet; every other is merged into it as `benchmesh db
//! merge` does. A run that the file has is left alone.

use super::connect::within;
use super::push::blocking;
use super::runs::ArchivedRun;
use super::value::RowDecoder;
use super::{Archive, ArchiveError, Patience, Server};
use crate::tables::{self, Table};
use benchmesh_store::Store;
use benchmesh_store::maintain;
use rusqlite::{Connection, params_from_iter};
use sqlx::Connection as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

/// What is handed to SQLite at once.
const SLICE_BYTES: usize = 1 << 20;
/// Slices that wait for SQLite.
const SLICES_AHEAD: usize = 4;

#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// `SITE:RUN` or `RUN`: a uid, an id or a name.
    pub runs: Vec<String>,
    /// Made if it is not there. No collector may have it open.
    pub db: PathBuf,
    pub server: Server,
    pub patience: Patience,
}

/// How far a fetch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEvent<'a> {
    Run {
        run: &'a ArchivedRun,
        nth: usize,
        runs: usize,
    },
    /// Rows of the run that have come, and all there are.
    Rows {
        come: u64,
        all: u64,
    },
    Fetched(&'a ArchivedRun),
    /// The file has this run.
    IsThere(&'a ArchivedRun),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub runs: usize,
    pub were_there: usize,
    pub rows: u64,
    /// The uids of all wanted runs, in their order.
    pub uids: Vec<String>,
}

/// Fetches runs until all are in the file, one fails, or `cancel` is cancelled. Runs that came before an error stay.
pub async fn fetch_runs(
    request: &FetchRequest,
    cancel: &CancellationToken,
    progress: &mut (dyn FnMut(FetchEvent<'_>) + Send),
) -> Result<Fetched, ArchiveError> {
    match cancel
        .run_until_cancelled(fetch_all(request, progress))
        .await
    {
        Some(fetched) => fetched,
        None => Err(ArchiveError::Cancelled),
    }
}

async fn fetch_all(
    request: &FetchRequest,
    progress: &mut (dyn FnMut(FetchEvent<'_>) + Send),
) -> Result<Fetched, ArchiveError> {
    let mut archive = Archive::connect(&request.server, &request.patience).await?;
    archive.require().await?;
    let mut fetched = Fetched::default();
    let mut runs: Vec<ArchivedRun> = Vec::new();
    for wanted in &request.runs {
        let run = archive.find(wanted).await?;
        fetched.uids.push(run.uid.clone());
        // Of two sites that have the same run, such as an imported one, the first serves.
        if runs.iter().all(|one| one.uid != run.uid) {
            runs.push(run);
        }
    }
    let mut there = uids_of(&request.db).await?;
    for (at, run) in runs.iter().enumerate() {
        if there.contains(&run.uid) {
            fetched.were_there += 1;
            progress(FetchEvent::IsThere(run));
            continue;
        }
        progress(FetchEvent::Run {
            run,
            nth: at + 1,
            runs: runs.len(),
        });
        let beside = Beside::make(&request.db)?;
        fetched.rows += archive.fetch(run, &beside.file, progress).await?;
        place(&beside.file, &request.db).await?;
        there.insert(run.uid.clone());
        fetched.runs += 1;
        progress(FetchEvent::Fetched(run));
    }
    archive.close().await;
    Ok(fetched)
}

/// The runs of a file that may not be there yet.
async fn uids_of(db: &Path) -> Result<BTreeSet<String>, ArchiveError> {
    if !db.exists() {
        return Ok(BTreeSet::new());
    }
    let db = db.to_owned();
    blocking(move || {
        let reader = maintain::reader(&db).map_err(ArchiveError::Maintain)?;
        let read = || {
            let mut uids = reader.prepare("SELECT uid FROM runs")?;
            let uids = uids.query_map([], |row| row.get(0))?;
            uids.collect::<rusqlite::Result<BTreeSet<String>>>()
        };
        read().map_err(|source| file_error(&db, "cannot read its runs", source))
    })
    .await
}

fn file_error(path: &Path, doing: &'static str, source: rusqlite::Error) -> ArchiveError {
    ArchiveError::File {
        path: path.to_owned(),
        doing,
        source,
    }
}

/// A directory beside the wanted file, removed with all that is in it.
struct Beside {
    directory: PathBuf,
    file: PathBuf,
}

impl Beside {
    fn make(db: &Path) -> Result<Self, ArchiveError> {
        let mut name = db.as_os_str().to_owned();
        name.push(format!(".fetching-{}", std::process::id()));
        let directory = PathBuf::from(name);
        // What a killed process of this id has left.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).map_err(|error| {
            ArchiveError::Wrong(format!(
                "cannot make the directory {}: {error}",
                directory.display()
            ))
        })?;
        Ok(Self {
            file: directory.join("run.db"),
            directory,
        })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Makes the file of one run the wanted file, or merges it into that.
async fn place(run: &Path, db: &Path) -> Result<(), ArchiveError> {
    if db.exists() {
        return maintain::merge_with_findings(db, run, &mut |_, _| {})
            .await
            .map(drop)
            .map_err(ArchiveError::Maintain);
    }
    // Does not overwrite a file that somebody made meanwhile.
    std::fs::hard_link(run, db)
        .or_else(|_| std::fs::rename(run, db))
        .map_err(|error| ArchiveError::Wrong(format!("cannot make {}: {error}", db.display())))
}

impl Archive {
    /// Writes one run into a new file. Returns the number of rows.
    async fn fetch(
        &mut self,
        run: &ArchivedRun,
        file: &Path,
        progress: &mut (dyn FnMut(FetchEvent<'_>) + Send),
    ) -> Result<u64, ArchiveError> {
        let store = Store::open(file).await.map_err(ArchiveError::Store)?;
        store.close().await;
        drop(store);
        let tables =
            tables::known().map_err(|source| file_error(file, "cannot read the schema", source))?;
        let (slices, received) = mpsc::channel(SLICES_AHEAD);
        let writing = tokio::spawn(blocking({
            let (file, tables) = (file.to_owned(), tables.clone());
            move || write(&file, &tables, received)
        }));
        let sent = self.send(run, &tables, slices, progress).await;
        let written = match writing.await {
            Ok(written) => written,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(ArchiveError::Cancelled),
        };
        // Why the writer ended early is the better answer than that nobody took the slices.
        let rows = match (sent, written) {
            (Err(ArchiveError::Cancelled), Err(error)) | (Err(error), _) | (Ok(()), Err(error)) => {
                return Err(error);
            }
            (Ok(()), Ok(rows)) => rows,
        };
        if i64::try_from(rows) != Ok(run.rows) {
            return Err(ArchiveError::Wrong(format!(
                "{}: run {} of site {} has {rows} rows, and had {} when it was pushed: somebody changed the archive; \
                 push it again after DELETE FROM benchmesh.pushes WHERE run_uid = '{}'",
                self.server,
                run.run,
                run.site,
                run.rows,
                run.uid.replace('\'', "''")
            )));
        }
        Ok(rows)
    }

    /// Hands the COPY of each table on, in slices, from one snapshot.
    async fn send(
        &mut self,
        run: &ArchivedRun,
        tables: &[Table],
        slices: mpsc::Sender<(usize, Vec<u8>)>,
        progress: &mut (dyn FnMut(FetchEvent<'_>) + Send),
    ) -> Result<(), ArchiveError> {
        let doing = format!("fetch run {} of site {}", run.run, run.site);
        let (server, answer) = (self.server.clone(), self.answer);
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let transaction = self.connection.begin_with(begin);
        let mut transaction = within(&server, answer, &doing, transaction).await?;
        let all = u64::try_from(run.rows).unwrap_or(0);
        let mut come = 0;
        for (at, table) in tables.iter().enumerate() {
            let sql = copy_out(table, run);
            let mut rows = within(&server, answer, &doing, transaction.copy_out_raw(&sql)).await?;
            let mut slice = Vec::with_capacity(SLICE_BYTES);
            loop {
                let piece = async { rows.next().await.transpose() };
                let piece = within(&server, answer, &doing, piece).await?;
                if let Some(piece) = &piece {
                    slice.extend_from_slice(piece);
                    come += 1;
                }
                if slice.len() < SLICE_BYTES && piece.is_some() {
                    continue;
                }
                let full = std::mem::replace(&mut slice, Vec::with_capacity(SLICE_BYTES));
                if slices.send((at, full)).await.is_err() {
                    return Err(ArchiveError::Cancelled);
                }
                progress(FetchEvent::Rows {
                    come: come.min(all),
                    all,
                });
                if piece.is_none() {
                    break;
                }
            }
        }
        within(&server, answer, &doing, transaction.rollback()).await
    }
}

fn copy_out(table: &Table, run: &ArchivedRun) -> String {
    let columns: Vec<&str> = table.columns.iter().map(|one| one.name.as_str()).collect();
    // COPY takes no parameters. Backslashes are not special, as the standard has it.
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let site = literal(&run.site);
    let uid = literal(&run.uid);
    format!(
        "COPY (SELECT {} FROM benchmesh.{} WHERE site = {site} AND run_uid = {uid} AND month = (SELECT month FROM \
         benchmesh.pushes WHERE site = {site} AND run_uid = {uid}) ORDER BY {}) TO STDOUT (FORMAT binary)",
        columns.join(", "),
        table.name,
        table.key.join(", ")
    )
}

/// Inserts what comes, in one transaction. Returns the number of rows.
fn write(
    file: &Path,
    tables: &[Table],
    mut slices: mpsc::Receiver<(usize, Vec<u8>)>,
) -> Result<u64, ArchiveError> {
    let failed = |source| file_error(file, "cannot write the fetched run", source);
    let mut connection = Connection::open(file).map_err(failed)?;
    // A file that is not whole is removed.
    connection
        .execute_batch(
            "PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;",
        )
        .map_err(failed)?;
    let transaction = connection.transaction().map_err(failed)?;
    let mut rows = 0;
    let mut next = slices.blocking_recv();
    while let Some((at, slice)) = next.take() {
        let Some(table) = tables.get(at) else { break };
        let columns: Vec<&str> = table.columns.iter().map(|one| one.name.as_str()).collect();
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({})",
            table.name,
            columns.join(", "),
            vec!["?"; columns.len()].join(", ")
        );
        let mut insert = transaction.prepare(&sql).map_err(failed)?;
        let mut decoder = RowDecoder::new(table);
        let mut slice = Some(slice);
        loop {
            decoder.feed(&slice.take().unwrap_or_default());
            loop {
                let row = decoder.next_row().map_err(|_| {
                    ArchiveError::Wrong(format!(
                        "the archive's table benchmesh.{} has other columns than benchmesh makes",
                        table.name
                    ))
                })?;
                let Some(row) = row else { break };
                insert
                    .execute(params_from_iter(row.iter()))
                    .map_err(failed)?;
                rows += 1;
            }
            match slices.blocking_recv() {
                Some((same, more)) if same == at => slice = Some(more),
                other => {
                    next = other;
                    break;
                }
            }
        }
    }
    let strays: i64 = transaction
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| {
            row.get(0)
        })
        .map_err(failed)?;
    if strays > 0 {
        return Err(ArchiveError::Wrong(format!(
            "{strays} rows of the archived run refer to rows that are missing; push the run again"
        )));
    }
    transaction.commit().map_err(failed)?;
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)")
        .map_err(failed)?;
    Ok(rows)
}
