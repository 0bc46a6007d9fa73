//! Copies the WAL into the database beside the writer, so that no commit waits for it.
//!
//! The writer looks at the size of the WAL after each commit. The copying has a thread and a connection of its own;
//! SQLite lets it read the WAL while the writer appends to it.

use super::super::open;
use crate::database::StoreError;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Requests checkpoints; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// `None` only while it is dropped.
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        // A request that comes during a checkpoint is done after it.
        let (requests, requested) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || checkpoint_on_request(&path, &requested))
            .map_err(|source| StoreError::NoThread { source })?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Requests a checkpoint if the WAL is large enough. Call it after a commit, with the writer's connection.
    pub(super) fn after_commit(&self, connection: &Connection) -> rusqlite::Result<()> {
        let (pages, copied): (u32, u32) =
            connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| {
                Ok((row.get(1)?, row.get(2)?))
            })?;
        if pages < open::CHECKPOINT_PAGES || copied >= pages {
            return Ok(());
        }
        if let Some(requests) = &self.requests {
            // A request that waits already is enough. Without the thread, SQLite checkpoints on this connection.
            let _ = requests.try_send(());
        }
        Ok(())
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It has reported its panic itself.
            drop(thread.join());
        }
    }
}

fn checkpoint_on_request(path: &Path, requested: &Receiver<()>) {
    let connection = match connect(path) {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(%error, "checkpoints are done between commits: {} was not opened a second time", path.display());
            return;
        }
    };
    while requested.recv().is_ok() {
        let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = done {
            // A full or failing disk stops the commits too, and they report it.
            tracing::debug!(%error, "the WAL was not copied into the database");
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(open::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_large_wal_is_copied_beside_the_writer_and_a_small_one_is_left() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("mesh.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)",
            )
            .unwrap();
        let checkpoints = Checkpoints::start(&path).unwrap();
        let write = |mib: u32| {
            writer
                .execute("INSERT INTO t VALUES (zeroblob(? << 20))", [mib])
                .unwrap();
            checkpoints.after_commit(&writer).unwrap();
        };
        let sizes = || -> (u32, u32) {
            writer
                .query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| {
                    Ok((row.get(1)?, row.get(2)?))
                })
                .unwrap()
        };
        write(16);
        assert_eq!(sizes().1, 0);
        write(20);
        let began = Instant::now();
        while sizes().0 > sizes().1 {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", sizes());
            std::thread::yield_now();
        }
        write(1);
        assert!(sizes().0 < 1000, "the WAL begins anew: {:?}", sizes());
    }
}
