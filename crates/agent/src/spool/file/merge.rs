//! Making room in a full spool: neighbours that were not sent yet become one.

use super::whole::whole;
use super::{SpoolFile, number_of};
use crate::spool::{Parcel, Sequence, SpoolError, compact};
use crate::wire;

/// How many neighbours are merged into one.
const GROUP: usize = 8;
/// No more than this is read for one merge, in bytes.
const GROUP_BYTES: usize = 4 << 20;

impl SpoolFile {
    /// Merges the next group of unsent neighbours, oldest first, round and round. Returns the bytes that it freed;
    /// `None` when a round has come to its end.
    pub(in crate::spool) async fn compact(&mut self) -> Result<Option<u64>, SpoolError> {
        let from = self.sweep.max(self.reserved);
        let mut group = self.group(from).await?;
        while group.len() > 1 {
            let merged = self.merge(&group)?;
            if merged.len() <= wire::batch::MOST_BYTES {
                return self.replace(&group, merged).await.map(Some);
            }
            // Too much for one batch: fewer of them.
            group.truncate(group.len() / 2);
        }
        match group.first() {
            Some(alone) => {
                self.sweep = alone.sequence;
                Ok(Some(0))
            }
            None => {
                self.sweep = Sequence(0);
                Ok(None)
            }
        }
    }

    async fn group(&mut self, from: Sequence) -> Result<Vec<Parcel>, SpoolError> {
        let mut group: Vec<Parcel> = Vec::with_capacity(GROUP);
        let mut bytes = 0;
        let mut last = from;
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Some(parcel) = self.after(last).await? else {
                break;
            };
            bytes += parcel.body.len();
            last = parcel.sequence;
            group.push(parcel);
        }
        Ok(group)
    }

    fn merge(&self, group: &[Parcel]) -> Result<Vec<u8>, SpoolError> {
        let mut opened = Vec::with_capacity(group.len());
        for parcel in group {
            let kept = wire::batch::open(&parcel.body).map_err(|source| SpoolError::Body {
                path: self.path.clone(),
                sequence: parcel.sequence,
                source,
            })?;
            opened.push(kept);
        }
        Ok(wire::batch::encode(&compact::merge(opened)))
    }

    async fn replace(&mut self, group: &[Parcel], merged: Vec<u8>) -> Result<u64, SpoolError> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return Ok(0);
        };
        whole(&mut self.connection, async |connection| {
            sqlx::query("DELETE FROM batches WHERE sequence BETWEEN ? AND ?")
                .bind(number_of(first.sequence))
                .bind(number_of(last.sequence))
                .execute(&mut *connection)
                .await?;
            let sql = "INSERT INTO batches (sequence, first_sequence, body) VALUES (?, ?, ?)";
            sqlx::query(sql)
                .bind(number_of(last.sequence))
                .bind(number_of(first.first))
                .bind(merged.as_slice())
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
        .await
        .map_err(SpoolError::sql("merge batches in the spool", &self.path))?;
        let before: u64 = group.iter().map(|parcel| parcel.body.len() as u64).sum();
        let freed = before.saturating_sub(merged.len() as u64);
        self.bytes = self.bytes.saturating_sub(freed);
        self.sweep = last.sequence;
        Ok(freed)
    }
}
