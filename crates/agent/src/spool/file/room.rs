//! Disk usage of a spool's file, and the batches that are given up when it has to shrink.

use super::transaction::transaction;
use super::{PAGE_BYTES, SpoolFile, Stored, checksum, number_of};
use crate::envelope::{Envelope, Sequence};
use crate::spool::{SpoolError, compact};
use crate::wire;
use sqlx::{AssertSqlSafe, Row};

impl SpoolFile {
    /// The bytes of the used pages.
    pub(in crate::spool) async fn used_bytes(&mut self) -> Result<u64, SpoolError> {
        let sql = "SELECT (page_count - freelist_count) * page_size \
                   FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        let bytes: i64 = sqlx::query(sql)
            .fetch_one(&mut self.connection)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(SpoolError::sql("read the spool's size", &self.path))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Limits the future size of a file created by this agent; existing content stays.
    pub(in crate::spool) async fn limit_to(&mut self, bytes: u64) -> Result<(), SpoolError> {
        let pages = (bytes / u64::from(PAGE_BYTES)).clamp(1, u32::MAX.into());
        let sql = format!("PRAGMA max_page_count = {pages}");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await
            .map(drop)
            .map_err(SpoolError::sql("limit the spool", &self.path))
    }

    /// Deletes the bodies of refused batches, but keeps the record of their refusal.
    pub(in crate::spool) async fn drop_refused_bodies(&mut self) -> Result<(), SpoolError> {
        sqlx::raw_sql("UPDATE refused SET body = x'' WHERE length(body) > 0")
            .execute(&mut self.connection)
            .await
            .map(drop)
            .map_err(SpoolError::sql("shrink the spool", &self.path))
    }

    /// Returns all free pages to the file system.
    pub(in crate::spool) async fn trim(&mut self) -> Result<(), SpoolError> {
        sqlx::raw_sql("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")
            .execute(&mut self.connection)
            .await
            .map(drop)
            .map_err(SpoolError::sql("shrink the spool", &self.path))
    }

    /// Gives up the oldest batch that is still whole, and replaces it by counts of its content; unsent batches go
    /// first. Returns the number of batches that it covered; `None` if all have been given up.
    ///
    /// The sequences stay the same, so it does not matter whether the collector has committed the batch before.
    pub(in crate::spool) async fn give_up_next(&mut self) -> Result<Option<u64>, SpoolError> {
        loop {
            let unsent = self.header.reserved.max(self.given_up.unsent);
            if let Some(stored) = self.after(unsent).await? {
                self.given_up.unsent = stored.sequence();
                match self.replaced(stored).await? {
                    0 => continue,
                    batches => return Ok(Some(batches)),
                }
            }
            let reserved = self.header.reserved;
            match self.after(self.given_up.sent).await? {
                Some(stored) if stored.sequence() <= reserved => {
                    self.given_up.sent = stored.sequence();
                    match self.replaced(stored).await? {
                        0 => {}
                        batches => return Ok(Some(batches)),
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// Gives up one batch. Returns the number of batches that it covered; 0 if it was given up before, or cannot be.
    async fn replaced(&mut self, stored: Stored) -> Result<u64, SpoolError> {
        let Stored::Intact(envelope) = stored else {
            return Ok(0);
        };
        let batches = envelope.sequence.0.saturating_sub(envelope.first.0) + 1;
        let (first, sequence) = (envelope.first, envelope.sequence);
        let Some((before, body)) = off_the_runtime(move || left_of(&envelope, batches)).await
        else {
            return Ok(0);
        };
        if body.len() >= before {
            return Ok(0);
        }
        self.overwrite(first, sequence, &body).await?;
        self.bytes = self.bytes.saturating_sub((before - body.len()) as u64);
        Ok(batches)
    }

    async fn overwrite(
        &mut self,
        first: Sequence,
        sequence: Sequence,
        body: &[u8],
    ) -> Result<(), SpoolError> {
        transaction(&mut self.connection, async |connection| {
            sqlx::query("UPDATE batches SET body = ?, checksum = ? WHERE sequence = ?")
                .bind(body)
                .bind(checksum(first, sequence, body))
                .bind(number_of(sequence))
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
        .await
        .map_err(SpoolError::sql("give up a batch of the spool", &self.path))
    }
}

/// The size of a batch in bytes, and what remains of it. `None` if it cannot be decoded.
fn left_of(envelope: &Envelope, batches: u64) -> Option<(usize, Vec<u8>)> {
    let batch = wire::batch::open(&envelope.body).ok()?;
    let left = compact::reduce_to_losses(batch, batches);
    Some((envelope.body.len(), wire::batch::encode(&left)))
}

/// Runs CPU-intensive work on another thread. `None` also if the runtime is shutting down.
pub(super) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok().flatten()
}
