//! Decides when a slice of old rows is written: with the rows that agents send, or in its own transaction. Pure.
//!
//! In WAL mode SQLite writes every page that a transaction has changed, including freed ones. A slice in one
//! transaction with new rows frees the pages that the new rows use, so those pages are written once.

use crate::writer::{Haste, Ingested, LONGEST_WAIT};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Whether old rows may wait for new ones.
#[derive(Clone, Debug)]
pub enum Pace {
    AtOnce,
    WithNewRows(Patience),
}

/// Maximum time that old rows wait for new ones.
#[derive(Clone, Debug)]
pub struct Patience {
    pub until: Instant,
    /// In a database that uses more than this, they do not wait.
    pub max_used_bytes: Option<i64>,
    /// Number of callers that wait for the pruner; if there are any, old rows do not wait.
    pub waiting: Arc<AtomicUsize>,
}

/// One transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    Apart { rows: usize },
    WithNewRows { rows: usize },
}

impl Slice {
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Apart { rows } | Self::WithNewRows { rows } => rows,
        }
    }

    pub(super) fn haste(self) -> Haste {
        match self {
            Self::Apart { .. } => Haste::Apart,
            Self::WithNewRows { .. } => Haste::WithOthers,
        }
    }
}

/// The sizes of slices.
#[derive(Debug)]
pub(super) struct Sizes {
    apart: Budget,
    with_new_rows: Budget,
    /// The value of `Ingested::rows` at the last slice.
    ingested: u64,
}

impl Sizes {
    /// While agents send, rows arrive at least this often.
    const SENDING: Duration = Duration::from_secs(2 * LONGEST_WAIT.as_secs());
    /// Number of old rows removed for each new one, as a fraction: more than one, because a slice may miss a commit.
    const SHARE: (usize, usize) = (3, 2);
    /// Used before the rate of new rows is known.
    const FIRST_ROWS: usize = 4096;

    pub(super) fn new(ingested: Option<Ingested>) -> Self {
        Self {
            apart: Budget {
                rows: 512,
                min_rows: 16,
                max_time: Duration::from_millis(15),
            },
            with_new_rows: Budget {
                rows: 16_384,
                min_rows: Self::FIRST_ROWS,
                max_time: Duration::from_millis(20),
            },
            ingested: ingested.map_or(0, |ingested| ingested.rows),
        }
    }

    /// The next slice.
    pub(super) fn next(&self, pace: &Pace, ingested: Option<Ingested>, now: Instant) -> Slice {
        let apart = Slice::Apart {
            rows: self.apart.rows,
        };
        let (Pace::WithNewRows(patience), Some(ingested)) = (pace, ingested) else {
            return apart;
        };
        if now + LONGEST_WAIT > patience.until
            || patience.waiting.load(Ordering::Relaxed) > 0
            || now.saturating_duration_since(ingested.at) > Self::SENDING
        {
            return apart;
        }
        let came = usize::try_from(ingested.rows.saturating_sub(self.ingested));
        let (of, per) = Self::SHARE;
        let due = came.unwrap_or(usize::MAX).saturating_mul(of) / per;
        Slice::WithNewRows {
            rows: due.max(Self::FIRST_ROWS).min(self.with_new_rows.rows),
        }
    }

    /// How long the changes of a slice may take.
    pub(super) fn max_time(&self, slice: Slice) -> Duration {
        match slice {
            Slice::Apart { .. } => self.apart.max_time,
            Slice::WithNewRows { .. } => self.with_new_rows.max_time,
        }
    }

    /// Records how many rows a slice has changed, and how long that took.
    pub(super) fn took(&mut self, slice: Slice, rows: usize, took: Duration) {
        match slice {
            Slice::Apart { .. } => self.apart.took(rows, took),
            Slice::WithNewRows { .. } => self.with_new_rows.took(rows, took),
        }
    }

    /// Starts to count the new rows for the next slice.
    pub(super) fn begin(&mut self, ingested: Option<Ingested>) {
        self.ingested = ingested.map_or(0, |ingested| ingested.rows);
    }
}

/// Maximum number of rows of one transaction. After a transaction that reached its time limit: the number of its rows.
#[derive(Debug)]
struct Budget {
    rows: usize,
    /// Each slice also writes inner pages and pages of the pointer map, of which a small slice needs as many as a
    /// large one.
    min_rows: usize,
    max_time: Duration,
}

impl Budget {
    const MAX_ROWS: usize = 32_768;

    fn took(&mut self, rows: usize, took: Duration) {
        if took > self.max_time {
            self.rows = rows.max(self.min_rows);
        } else if took < self.max_time / 3 {
            self.rows = (self.rows * 5 / 4).min(Self::MAX_ROWS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many rows have come since the last slice.
    fn next(came: u64, change: impl Fn(&mut Patience, &mut Ingested, &mut Instant)) -> Slice {
        let mut now = Instant::now();
        let mut ingested = Ingested {
            rows: 1000,
            at: now,
        };
        let mut sizes = Sizes::new(Some(ingested));
        sizes.begin(Some(ingested));
        ingested.rows += came;
        let mut patience = Patience {
            until: now + LONGEST_WAIT,
            max_used_bytes: None,
            waiting: Arc::default(),
        };
        change(&mut patience, &mut ingested, &mut now);
        sizes.next(&Pace::WithNewRows(patience), Some(ingested), now)
    }

    #[test]
    fn a_slice_has_half_as_many_rows_again_as_came() {
        for (came, rows) in [
            (0, 4096),
            (200, 4096),
            (8000, 12_000),
            (24_576, 16_384),
            (u64::MAX - 1000, 16_384),
        ] {
            let slice = next(came, |_, _, _| {});
            assert_eq!(slice, Slice::WithNewRows { rows }, "{came} came");
        }
    }

    #[test]
    fn old_rows_do_not_wait_for_long_nor_while_somebody_waits_or_no_agent_sends() {
        let apart = Slice::Apart { rows: 512 };
        let second = Duration::from_secs(1);
        assert_eq!(next(8000, |patience, _, _| patience.until -= second), apart);
        let somebody = |patience: &mut Patience, _: &mut Ingested, _: &mut Instant| {
            patience.waiting.store(1, Ordering::Relaxed);
        };
        assert_eq!(next(8000, somebody), apart);
        let silence = |patience: &mut Patience, _: &mut Ingested, now: &mut Instant| {
            *now += Sizes::SENDING + second;
            patience.until = *now + LONGEST_WAIT;
        };
        assert_eq!(next(8000, silence), apart);
        let sizes = Sizes::new(None);
        let now = Instant::now();
        assert_eq!(sizes.next(&Pace::AtOnce, None, now), apart);
    }

    #[test]
    fn a_slice_at_its_time_limit_sets_the_size_and_short_ones_raise_it() {
        let mut sizes = Sizes::new(None);
        let apart = Slice::Apart { rows: 512 };
        sizes.took(apart, 300, Duration::from_millis(16));
        assert_eq!(sizes.apart.rows, 300);
        sizes.took(apart, 300, Duration::from_millis(10));
        assert_eq!(sizes.apart.rows, 300);
        for _ in 0..40 {
            sizes.took(apart, 300, Duration::from_millis(4));
        }
        assert_eq!(sizes.apart.rows, Budget::MAX_ROWS);
        sizes.took(apart, 1, Duration::from_secs(1));
        assert_eq!(sizes.apart.rows, 16);
        let with_new_rows = Slice::WithNewRows { rows: 16_384 };
        sizes.took(with_new_rows, 8000, Duration::from_millis(21));
        assert_eq!(sizes.with_new_rows.rows, 8000);
        sizes.took(with_new_rows, 1, Duration::from_secs(1));
        assert_eq!(sizes.with_new_rows.rows, Sizes::FIRST_ROWS);
    }
}
