//! Keeps the spools within their limit: merges first, then gives up the oldest batches if that is not enough.

use super::SpoolSet;
use crate::spool::SpoolError;
use crate::spool::old::shrink_file;
use benchmesh_workloads::error_chain;
use std::time::{Duration, Instant};

/// Number of appends between two checks of the file's size.
const SHRINK_INTERVAL: u32 = 32;
/// Minimum size of the written spool, even if older ones are large: more than one transaction writes.
const MIN_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 6 << 20 };
/// Upper bound of a spool's write-ahead log: one transaction plus the part that was not checkpointed yet.
const LOG_BYTES: u64 = 6 << 20;
/// Upper bound for one round of merging, during which no rows are appended.
const MERGE_FOR: Duration = if cfg!(test) {
    Duration::from_secs(60)
} else {
    Duration::from_millis(100)
};

/// Batches given up since the spools were last within their limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenUp {
    batches: u64,
    is_told: bool,
}

impl SpoolSet {
    /// Whether a quarter of the limit stays free after `incoming` bytes of batches.
    pub(in crate::spool) async fn has_room(&mut self, incoming: u64) -> Result<bool, SpoolError> {
        self.limit_current().await?;
        let used = self.current.used_bytes().await?;
        if is_above(used, incoming, self.merge_from()) {
            return Ok(false);
        }
        self.merged_to = None;
        if self.given_up.is_told {
            self.given_up = GivenUp::default();
        }
        self.shrink().await?;
        Ok(true)
    }

    /// Size from which batches are merged.
    fn merge_from(&self) -> u64 {
        self.limited_to / 4 * 3
    }

    /// Frees space for `incoming` bytes of batches: merges for a bounded time, then gives up the oldest batches if that
    /// is not enough.
    pub(in crate::spool) async fn make_room(&mut self, incoming: u64) -> Result<(), SpoolError> {
        let (limit, merge_from) = (self.limited_to, self.merge_from());
        let mut used = self.current.used_bytes().await?;
        let until = Instant::now() + MERGE_FOR;
        let is_worth_it = self
            .merged_to
            .is_none_or(|left| used >= left.saturating_add(limit / 8));
        let mut rounds = 0;
        while is_worth_it
            && is_above(used, incoming, merge_from)
            && rounds < 2
            && Instant::now() < until
        {
            if self.current.compact().await?.is_none() {
                rounds += 1;
            }
            used = self.current.used_bytes().await?;
        }
        self.merged_to = match rounds {
            2 => Some(used),
            _ => self.merged_to.filter(|_| !is_worth_it),
        };
        if is_above(used, incoming, limit) {
            self.current.drop_refused_bodies().await?;
        }
        while is_above(self.current.used_bytes().await?, incoming, limit) {
            let Some(batches) = self.current.give_up_next().await? else {
                break;
            };
            self.note_given_up(batches);
        }
        Ok(())
    }

    fn note_given_up(&mut self, batches: u64) {
        if self.given_up.batches == 0 && batches > 0 {
            tracing::warn!(
                limit_bytes = self.limit_bytes,
                "the spool is full (--spool-limit): it drops the oldest undelivered data and counts them as lost"
            );
        }
        self.given_up.batches += batches;
    }

    /// The limit, if batches were given up because of it. Reported once while the spool stays full.
    pub(in crate::spool) fn take_full(&mut self) -> Option<u64> {
        let is_new = self.given_up.batches > 0 && !self.given_up.is_told;
        self.given_up.is_told |= is_new;
        is_new.then_some(self.limit_bytes)
    }

    /// Limits the written file to the size that older ones leave available.
    pub(super) async fn limit_current(&mut self) -> Result<(), SpoolError> {
        let older: u64 = self.old.iter().map(|old| old.bytes).sum();
        let taken = older.saturating_add(LOG_BYTES);
        let limit = self.limit_bytes.saturating_sub(taken).max(MIN_BYTES);
        if limit != self.limited_to {
            self.current.limit_to(limit).await?;
            self.limited_to = limit;
        }
        Ok(())
    }

    /// Returns disk space after a long outage; checks only every few appends.
    async fn shrink(&mut self) -> Result<(), SpoolError> {
        self.appends = self.appends.wrapping_add(1);
        match self.appends % SHRINK_INTERVAL {
            0 => self.current.shrink().await,
            _ => Ok(()),
        }
    }

    /// Keeps the old spools of many short starts within the limit.
    pub(super) async fn shrink_old(&mut self) {
        let most = self.limit_bytes.saturating_sub(LOG_BYTES + MIN_BYTES);
        let mut total: u64 = self.old.iter().map(|old| old.bytes).sum();
        let mut given_up = 0;
        for old in &mut self.old {
            if total <= most {
                break;
            }
            let surplus = total - most;
            match shrink_file(&old.path, old.bytes.saturating_sub(surplus)).await {
                Ok((left, batches)) => {
                    total = total.saturating_sub(old.bytes.saturating_sub(left));
                    old.bytes = left;
                    given_up += batches;
                }
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "an old spool cannot be shortened");
                }
            }
        }
        self.note_given_up(given_up);
    }
}

/// Whether `incoming` bytes of batches make a file larger than `most`. Allows for pages that are not completely filled.
fn is_above(used: u64, incoming: u64, most: u64) -> bool {
    let pages = incoming
        .saturating_add(incoming / 8)
        .saturating_add(64 << 10);
    used.saturating_add(pages) > most
}
