//! Which samples of another database this one lacks.
//!
//! Samples are nearly all rows of a database, and those of one daemon, disk, interface or host are a series in the order of
//! their instants. A series that this database does not have at all is missing as a whole; of others the instants are read
//! side by side. It only reads, on connections of its own, and uses all processors.

use super::pages::PageError;
use super::records::Cursor;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More readers wait for the disk rather than for each other.
const MOST_THREADS: usize = 4;
/// Spans of one series. Beyond it the last one reaches to the end, and the copy looks at each row.
const MOST_SPANS: usize = if cfg!(test) { 8 } else { 4096 };
/// Each page is read once. As much of the file as SQLite maps at most: such a page costs no system call.
const READING: &str = "PRAGMA mmap_size = 2147418112; PRAGMA cache_size = -4096;";

/// The samples of one daemon, disk, interface or host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) table: &'static str,
    /// What is sampled has this id in the other database, and this one here.
    pub(super) other_id: i64,
    pub(super) id: i64,
}

/// Instants that are missing here, from and until, both included; between them this database may have none of the other's.
pub(super) type Span = (i64, i64);

pub(super) const ALWAYS: Span = (i64::MIN, i64::MAX);

/// What this database lacks of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Everything that the other has: here there is no sample of it.
    Whole,
    Spans(Vec<Span>),
}

/// What this database lacks of each series, in the same order.
pub(super) fn missing(
    path: &Path,
    other: &Path,
    series: &[Series],
) -> Result<Vec<Missing>, PageError> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Missing)>, PageError> {
        let (here, there) = (reader(path)?, reader(other)?);
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = series.get(at) else {
                return Ok(done);
            };
            done.push((at, missing_of(&here, &there, one)?));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut found = thread::scope(|scope| -> Result<Vec<(usize, Missing)>, PageError> {
        let workers: Vec<_> = (0..threads.min(MOST_THREADS))
            .map(|_| scope.spawn(work))
            .collect();
        let mut found = Vec::with_capacity(series.len());
        for worker in workers {
            match worker.join() {
                Ok(done) => found.extend(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(found)
    })?;
    found.sort_unstable_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, missing)| missing).collect())
}

/// A connection that reads, with a transaction open.
pub(super) fn reader(path: &Path) -> Result<Connection, PageError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(super::super::BUSY_TIMEOUT)?;
        connection.execute_batch(READING)?;
        connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")?;
        Ok(connection)
    };
    open().map_err(PageError::Sql)
}

fn missing_of(
    here: &Connection,
    there: &Connection,
    series: &Series,
) -> Result<Missing, PageError> {
    let mut here = Cursor::new(here, series.table)?;
    here.seek(series.id)?;
    let mut held = instant(&mut here, series.id)?;
    if held.is_none() {
        return Ok(Missing::Whole);
    }
    let mut there = Cursor::new(there, series.table)?;
    there.seek(series.other_id)?;
    let mut spans: Vec<Span> = Vec::new();
    let mut is_in_span = false;
    while let Some(at) = instant(&mut there, series.other_id)? {
        while held.is_some_and(|held| held < at) {
            held = instant(&mut here, series.id)?;
        }
        if held == Some(at) {
            is_in_span = false;
            continue;
        }
        let is_full = spans.len() == MOST_SPANS;
        match spans.last_mut() {
            Some((_, until)) if is_in_span => *until = at,
            Some((_, until)) if is_full => {
                *until = i64::MAX;
                break;
            }
            _ => spans.push((at, at)),
        }
        is_in_span = true;
    }
    Ok(Missing::Spans(spans))
}

/// The next instant of a series; `None` at its end.
fn instant(cursor: &mut Cursor<'_>, id: i64) -> Result<Option<i64>, PageError> {
    let next = cursor.next()?;
    Ok(next.and_then(|(key, _)| (key.id == id).then_some(key.at_us)))
}
