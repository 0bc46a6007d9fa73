//! Sequential reading of a spool that the disk may have damaged.
//!
//! A row counts only if its checksum is correct. Unreadable rows are skipped by a search for the next intact batch, so
//! that one damaged page does not block the rest; the sequences in between are reported as lost. Each search is
//! bounded, and no field of a damaged row is trusted.

use super::{SpoolFile, checksum, number_of, sequence_of};
use crate::envelope::{Envelope, Sequence};
use crate::spool::SpoolError;
use crate::spool::error::is_damage;
use crate::telemetry::MeshMicros;
use crate::wire;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// Number of sequences that are tried one by one after a damaged place: more batches than a page has. Later steps
/// double.
const STEPS_OF_ONE: u32 = 256;
/// Maximum number of damaged batches at the end of a file that are checked for the last intact one.
const MAX_ATTEMPTS_FROM_END: u32 = 64;

/// Upper bound of a batch's duration if no other limit is known: a batch starts each second.
const LONGEST_BATCH_US: i64 = 2_000_000;

/// The entry that follows a given sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::spool) enum Stored {
    Intact(Envelope),
    /// Everything up to this sequence is lost.
    Lost {
        upto: Sequence,
        why: Loss,
        /// The keys of damaged batches that are still in the file.
        damaged: Vec<Sequence>,
    },
}

/// Why batches of a file are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) enum Loss {
    Damaged,
    /// The file ends before the last batch that was appended.
    Tail,
}

impl Loss {
    pub(in crate::spool) fn as_str(self) -> &'static str {
        match self {
            Self::Damaged => "they were damaged on the agent's disk",
            Self::Tail => {
                "the end of the spool's file was lost when the agent or its host went down"
            }
        }
    }
}

impl Stored {
    /// The last sequence that the entry covers.
    pub(in crate::spool) fn sequence(&self) -> Sequence {
        match self {
            Self::Intact(envelope) => envelope.sequence,
            Self::Lost { upto, .. } => *upto,
        }
    }
}

/// The result of one read.
enum ReadAttempt {
    Intact(Envelope),
    /// A row with a wrong checksum, by its key.
    Damaged(Sequence),
    /// The disk or SQLite refuses the page.
    Unreadable,
    /// No more batches.
    End,
}

impl SpoolFile {
    /// The entry after `sent`: a batch, which may cover several sequences, or a range of lost sequences; `None` at the
    /// end.
    pub(in crate::spool) async fn after(
        &mut self,
        sent: Sequence,
    ) -> Result<Option<Stored>, SpoolError> {
        let last = self.last();
        match self.try_read(sent).await? {
            ReadAttempt::Intact(envelope) => Ok(Some(Stored::Intact(envelope))),
            ReadAttempt::End => Ok((self.is_old && last > sent).then(|| Stored::Lost {
                upto: last,
                why: Loss::Tail,
                damaged: Vec::new(),
            })),
            // At least one batch is lost, but the number of appended batches is unknown.
            attempt if last <= sent => Ok((self.is_old
                && !self.end_reported
                && (last < sent || !self.is_end_known))
                .then(|| {
                    self.end_reported = true;
                    Stored::Lost {
                        upto: sent.next(),
                        why: Loss::Damaged,
                        damaged: keys(&[attempt]),
                    }
                })),
            attempt => self.behind_damage(sent, attempt).await.map(Some),
        }
    }

    /// Searches for the next intact batch after a damaged one.
    async fn behind_damage(
        &mut self,
        sent: Sequence,
        first: ReadAttempt,
    ) -> Result<Stored, SpoolError> {
        let last = self.last();
        let mut attempts = vec![first];
        let (mut bad, mut step) = (sent.0, 1_u64);
        let mut found = None;
        while found.is_none() && bad < last.0 {
            let at = bad.saturating_add(step).min(last.0);
            match self.try_read(Sequence(at)).await? {
                attempt @ (ReadAttempt::Damaged(_) | ReadAttempt::Unreadable) => {
                    attempts.push(attempt);
                    bad = at;
                }
                usable => found = Some((at, usable)),
            }
            if attempts.len() > STEPS_OF_ONE as usize {
                step = step.saturating_mul(2);
            }
        }
        // Long steps may have skipped readable batches.
        while let Some((good, _)) = found
            && good - bad > 1
        {
            let at = bad + (good - bad) / 2;
            match self.try_read(Sequence(at)).await? {
                attempt @ (ReadAttempt::Damaged(_) | ReadAttempt::Unreadable) => {
                    attempts.push(attempt);
                    bad = at;
                }
                usable => found = Some((at, usable)),
            }
        }
        let upto = match found {
            Some((_, ReadAttempt::Intact(envelope))) => match envelope.first.0.checked_sub(1) {
                Some(upto) if upto > sent.0 => Sequence(upto),
                // It was intact after all, but not found by sequential reading.
                _ => return Ok(Stored::Intact(envelope)),
            },
            _ => last,
        };
        Ok(Stored::Lost {
            upto,
            why: Loss::Damaged,
            damaged: keys(&attempts),
        })
    }

    /// The row that follows `at`.
    async fn try_read(&mut self, at: Sequence) -> Result<ReadAttempt, SpoolError> {
        let row = sqlx::query(
            "SELECT sequence, first_sequence, body, checksum FROM batches WHERE sequence > ? ORDER BY sequence LIMIT 1",
        )
        .bind(number_of(at))
        .fetch_optional(&mut self.connection)
        .await;
        self.judge(row, |sequence| sequence > at)
    }

    fn judge(
        &self,
        row: Result<Option<SqliteRow>, sqlx::Error>,
        is_in_order: impl Fn(Sequence) -> bool,
    ) -> Result<ReadAttempt, SpoolError> {
        let read = match row {
            Ok(None) => return Ok(ReadAttempt::End),
            Ok(Some(row)) => self.read_row(&row),
            Err(error) => Err(error),
        };
        match read {
            // A damaged index can lead backwards, and to rows that are completely lost.
            Ok(ReadAttempt::Intact(envelope)) if !is_in_order(envelope.sequence) => {
                Ok(ReadAttempt::Unreadable)
            }
            Ok(attempt) => Ok(attempt),
            Err(error) if is_damage(&error) => Ok(ReadAttempt::Unreadable),
            Err(error) => Err(SpoolError::sql("read the spool", &self.path)(error)),
        }
    }

    fn read_row(&self, row: &SqliteRow) -> Result<ReadAttempt, sqlx::Error> {
        let sequence = sequence_of(row.try_get(0)?);
        let rest = || -> Result<(Sequence, Vec<u8>, i64), sqlx::Error> {
            Ok((
                sequence_of(row.try_get(1)?),
                row.try_get(2)?,
                row.try_get(3)?,
            ))
        };
        let (first, body, found) = match rest() {
            Ok(rest) => rest,
            Err(error) if is_damage(&error) => return Ok(ReadAttempt::Damaged(sequence)),
            Err(error) => return Err(error),
        };
        let is_intact = found == checksum(first, sequence, &body);
        Ok(if is_intact && first <= sequence {
            ReadAttempt::Intact(Envelope {
                spool: self.header.id,
                first,
                sequence,
                body,
            })
        } else {
            ReadAttempt::Damaged(sequence)
        })
    }

    /// The time range in which the batches after `sent` up to `upto` were measured, estimated from their neighbours and
    /// the last append.
    pub(in crate::spool) async fn span_of_lost(
        &mut self,
        sent: Sequence,
        upto: Sequence,
        now: MeshMicros,
    ) -> (MeshMicros, MeshMicros) {
        let after = match self.try_read(upto).await {
            Ok(ReadAttempt::Intact(envelope)) => span_of(&envelope),
            _ => None,
        };
        let before = sqlx::query(
            "SELECT sequence, first_sequence, body, checksum FROM batches WHERE sequence <= ? \
             ORDER BY sequence DESC LIMIT 1",
        )
        .bind(number_of(sent))
        .fetch_optional(&mut self.connection)
        .await;
        let before = match self.judge(before, |sequence| sequence <= sent) {
            Ok(ReadAttempt::Intact(envelope)) => span_of(&envelope),
            _ => None,
        };
        let batches = i64::try_from(upto.0.saturating_sub(sent.0)).unwrap_or(i64::MAX);
        let longest = batches.saturating_mul(LONGEST_BATCH_US);
        let last_append = now.0.saturating_sub(self.mark.age_us());
        let until = after.map_or(last_append, |(from, _)| from.0);
        let from = before.map_or(until.saturating_sub(longest), |(_, until)| until.0);
        let until = until.max(from);
        (MeshMicros(from.max(1)), MeshMicros(until.max(1)))
    }

    /// Finds the last sequence that an earlier start appended, as far as the file and the mark beside it show.
    pub(super) async fn find_end(&mut self) -> Result<(), SpoolError> {
        let mark = self.mark.read();
        let mut last = mark.unwrap_or_default().max(self.header.acked);
        self.is_end_known = mark.is_some();
        let mut below = i64::MAX;
        // Each damaged batch at the end covers at least one sequence.
        let mut damaged = 0;
        while damaged < MAX_ATTEMPTS_FROM_END {
            let row = sqlx::query(
                "SELECT sequence, first_sequence, body, checksum FROM batches WHERE sequence < ? \
                 ORDER BY sequence DESC LIMIT 1",
            )
            .bind(below)
            .fetch_optional(&mut self.connection)
            .await;
            match self.judge(row, |sequence| number_of(sequence) < below)? {
                ReadAttempt::Intact(envelope) => {
                    let found = envelope.sequence.0.saturating_add(damaged.into());
                    last = last.max(Sequence(found));
                    self.is_end_known = true;
                    break;
                }
                ReadAttempt::Damaged(key) if number_of(key) < below => {
                    below = number_of(key);
                    damaged += 1;
                }
                ReadAttempt::Damaged(_) | ReadAttempt::Unreadable | ReadAttempt::End => break,
            }
        }
        self.next = last.next();
        Ok(())
    }

    /// The bytes of all bodies; for a damaged file, its size on the disk.
    pub(super) async fn count_bytes(&mut self) -> Result<u64, SpoolError> {
        let sum = sqlx::query("SELECT coalesce(sum(length(body)), 0) FROM batches")
            .fetch_one(&mut self.connection)
            .await
            .and_then(|row| row.try_get::<i64, _>(0));
        match sum {
            Ok(sum) => Ok(u64::try_from(sum).unwrap_or(0)),
            Err(error) if is_damage(&error) => {
                Ok(std::fs::metadata(&self.path).map_or(0, |file| file.len()))
            }
            Err(error) => Err(SpoolError::sql("read the spool", &self.path)(error)),
        }
    }
}

fn span_of(envelope: &Envelope) -> Option<(MeshMicros, MeshMicros)> {
    wire::batch::open(&envelope.body).ok()?.span()
}

fn keys(attempts: &[ReadAttempt]) -> Vec<Sequence> {
    let mut keys: Vec<Sequence> = attempts
        .iter()
        .filter_map(|attempt| match attempt {
            ReadAttempt::Damaged(key) => Some(*key),
            _ => None,
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}
