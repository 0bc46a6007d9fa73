//! Decides when a slice of old rows is written: with the rows that agents send, or in its own transaction; and how long
//! the writer is then left to others. Pure.
//!
//! In WAL mode SQLite writes every page that a transaction has changed, including freed ones. A slice in one
//! transaction with new rows frees the pages that the new rows use, so those pages are written once.

use crate::writer::{Haste, Ingested, LONGEST_WAIT};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The pause after each slice in its own transaction, as a multiple of the slice's duration.
const PAUSES: u32 = 1;
/// The same after each slice while new rows need most of the writer's time.
const BUSY_PAUSES: u32 = 24;
const MIN_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Whether old rows may wait for new ones.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Like `AtOnce`, even if new rows need the writer, because there is no space for them.
    ToMakeRoom,
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

/// Decides how long the writer is left to others after each slice.
#[derive(Debug)]
pub(super) struct Pauses {
    /// The instant of the last decision, and the value of `Ingested::busy` then.
    since: Instant,
    busy: Duration,
}

impl Pauses {
    pub(super) fn new(ingested: Option<Ingested>, now: Instant) -> Self {
        Self {
            since: now,
            busy: ingested.map_or(Duration::ZERO, |ingested| ingested.busy),
        }
    }

    /// The pause after a slice that used the writer for `took`. New rows come first: if they needed more than half of
    /// the writer's time since the last slice, old rows get a twenty-fifth of it.
    pub(super) fn after(
        &mut self,
        slice: Slice,
        took: Duration,
        pace: &Pace,
        ingested: Option<Ingested>,
        now: Instant,
    ) -> Duration {
        let last = std::mem::replace(self, Self::new(ingested, now));
        let busy = self.busy.saturating_sub(last.busy);
        let is_busy = busy > now.saturating_duration_since(last.since) / 2;
        let pauses = match (pace, slice) {
            (Pace::AtOnce | Pace::WithNewRows(_), _) if is_busy => BUSY_PAUSES,
            (_, Slice::Apart { .. }) => PAUSES,
            (_, Slice::WithNewRows { .. }) => return Duration::ZERO,
        };
        (took * pauses).clamp(MIN_PAUSE, MAX_PAUSE)
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
            busy: Duration::ZERO,
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

    /// The pause after a slice of 10 ms if new rows needed the writer for `busy_ms` of the last 100 ms.
    fn pause_ms(slice: Slice, pace: &Pace, busy_ms: u64) -> u128 {
        let began = Instant::now();
        let ingested = |busy_ms| {
            let busy = Duration::from_millis(5000 + busy_ms);
            let (rows, at) = (1000, began);
            Some(Ingested { rows, at, busy })
        };
        let mut pauses = Pauses::new(ingested(0), began);
        let now = began + Duration::from_millis(100);
        let took = Duration::from_millis(10);
        pauses
            .after(slice, took, pace, ingested(busy_ms), now)
            .as_millis()
    }

    #[test]
    fn old_rows_leave_the_writer_to_new_ones_unless_there_is_no_room() {
        let patience = Patience {
            until: Instant::now(),
            max_used_bytes: None,
            waiting: Arc::default(),
        };
        let apart = Slice::Apart { rows: 512 };
        let with_new_rows = Slice::WithNewRows { rows: 4096 };
        for (slice, pace, while_calm, while_busy) in [
            (apart, Pace::AtOnce, 10, 240),
            (apart, Pace::WithNewRows(patience.clone()), 10, 240),
            (apart, Pace::ToMakeRoom, 10, 10),
            (with_new_rows, Pace::WithNewRows(patience), 0, 240),
        ] {
            let pauses = [50, 51].map(|busy_ms| pause_ms(slice, &pace, busy_ms));
            assert_eq!(pauses, [while_calm, while_busy], "{slice:?}, {pace:?}");
        }
    }

    #[test]
    fn the_writers_time_counts_since_the_last_slice() {
        let began = Instant::now();
        let mut pauses = Pauses::new(None, began);
        let mut after = |ms, busy_ms| {
            let now = began + Duration::from_millis(ms);
            let busy = Duration::from_millis(busy_ms);
            let (rows, at) = (1, now);
            let ingested = Some(Ingested { rows, at, busy });
            let apart = Slice::Apart { rows: 512 };
            pauses.after(
                apart,
                Duration::from_millis(1),
                &Pace::AtOnce,
                ingested,
                now,
            )
        };
        assert_eq!(after(100, 90), Duration::from_millis(24));
        assert_eq!(after(200, 100), MIN_PAUSE);
        assert_eq!(after(210, 110), Duration::from_millis(24));
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
