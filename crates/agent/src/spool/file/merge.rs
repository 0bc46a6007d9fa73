//! Frees space in a full spool: merges neighbouring batches that were not sent yet.

use super::room::off_the_runtime;
use super::transaction::transaction;
use super::{SpoolFile, Stored, checksum, number_of};
use crate::envelope::{Envelope, Sequence};
use crate::spool::{SpoolError, compact};
use crate::wire;

/// Maximum number of batches that are merged into one.
const GROUP: usize = 8;
/// Maximum bytes that are read for one merge.
const GROUP_BYTES: usize = 4 << 20;

impl SpoolFile {
    /// Merges the next group of unsent neighbours, oldest first, in repeated rounds. Returns the freed bytes; `None` at
    /// the end of a round.
    pub(in crate::spool) async fn compact(&mut self) -> Result<Option<u64>, SpoolError> {
        let from = self.sweep.max(self.header.reserved);
        let mut group = self.group(from).await?;
        while group.len() > 1 {
            let (cut, merged) = off_the_runtime(move || {
                let merged = merge(&mut group);
                Some((group, merged))
            })
            .await
            .unwrap_or_default();
            group = cut;
            match merged {
                Some(merged) if merged.len() <= wire::batch::MAX_BYTES => {
                    return self.replace(&group, merged).await.map(Some);
                }
                // Too large for one batch: try with fewer.
                Some(_) => group.truncate(group.len() / 2),
                // `merge` has cut the group before the batch that does not decode.
                None => {}
            }
        }
        // A batch that cannot be merged is skipped: it is alone, damaged, or of another version.
        match group.first().map(|alone| alone.sequence) {
            Some(sequence) => {
                self.sweep = sequence;
                Ok(Some(0))
            }
            None => match self.after(from).await? {
                Some(unmergeable) => {
                    self.sweep = unmergeable.sequence();
                    Ok(Some(0))
                }
                None => {
                    self.sweep = Sequence(0);
                    Ok(None)
                }
            },
        }
    }

    /// The next intact neighbours; a damaged batch ends the group.
    async fn group(&mut self, from: Sequence) -> Result<Vec<Envelope>, SpoolError> {
        let mut group: Vec<Envelope> = Vec::with_capacity(GROUP);
        let mut bytes = 0;
        let mut last = from;
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Some(Stored::Intact(envelope)) = self.after(last).await? else {
                break;
            };
            // A batch merged across a gap would claim the missing sequences.
            if !group.is_empty() && envelope.first != last.next() {
                break;
            }
            bytes += envelope.body.len();
            last = envelope.sequence;
            group.push(envelope);
        }
        Ok(group)
    }

    async fn replace(&mut self, group: &[Envelope], merged: Vec<u8>) -> Result<u64, SpoolError> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return Ok(0);
        };
        transaction(&mut self.connection, async |connection| {
            sqlx::query("DELETE FROM batches WHERE sequence BETWEEN ? AND ?")
                .bind(number_of(first.sequence))
                .bind(number_of(last.sequence))
                .execute(&mut *connection)
                .await?;
            sqlx::query("INSERT INTO batches VALUES (?, ?, ?, ?)")
                .bind(number_of(last.sequence))
                .bind(number_of(first.first))
                .bind(merged.as_slice())
                .bind(checksum(first.first, last.sequence, &merged))
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
        .await
        .map_err(SpoolError::sql("merge batches in the spool", &self.path))?;
        let before: u64 = group
            .iter()
            .map(|envelope| envelope.body.len() as u64)
            .sum();
        let freed = before.saturating_sub(merged.len() as u64);
        self.bytes = self.bytes.saturating_sub(freed);
        self.sweep = last.sequence;
        Ok(freed)
    }
}

/// The merged body of the group. `None` if a batch does not decode: the group is then cut before it, or to it alone if
/// it is the first.
fn merge(group: &mut Vec<Envelope>) -> Option<Vec<u8>> {
    let mut opened = Vec::with_capacity(group.len());
    for (place, envelope) in group.iter().enumerate() {
        match wire::batch::open(&envelope.body) {
            Ok(batch) => opened.push(batch),
            Err(error) => {
                tracing::warn!(sequence = %envelope.sequence, %error, "a spooled batch cannot be merged");
                group.truncate(place.max(1));
                return None;
            }
        }
    }
    Some(wire::batch::encode(&compact::merge(opened)))
}
