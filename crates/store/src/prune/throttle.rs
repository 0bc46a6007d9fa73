//! Decides when a slice of old rows is written: with the rows that agents send, or in its own transaction; and how long
//! the writer is then left to others. Pure.
//!
//! In WAL mode SQLite writes every page that a transaction has changed, including freed ones. A slice in one
//! transaction with new rows frees the pages that the new rows use, so those pages are written once.

use crate::writer::{CommitPolicy, Ingested, MAX_WAIT};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The pause after a slice in its own transaction, as a multiple of the time for its changes.
const PAUSE_FACTOR: u32 = 1;
/// The same after any slice while new rows need most of the writer's time.
const BUSY_PAUSE_FACTOR: u32 = 24;
const MIN_PAUSE: Duration = Duration::from_millis(2);
/// An operator's request waits for it.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Time over which the need of new rows is measured; a single commit takes up to 0.1 s.
const MEASURED_OVER: Duration = Duration::from_secs(1);

/// Whether old rows may wait for new ones.
#[derive(Clone, Debug)]
pub enum PruneTiming {
    Now,
    WithNewRows(WaitLimits),
}

/// When old rows no longer wait for new ones.
#[derive(Clone, Debug)]
pub struct WaitLimits {
    pub until: Instant,
    /// In a database that uses more than this, they do not wait.
    pub max_used_bytes: Option<i64>,
    /// Number of callers that wait for the pruner; if there are any, old rows do not wait.
    pub waiting: Arc<AtomicUsize>,
}

impl WaitLimits {
    fn allow_waiting(&self, now: Instant) -> bool {
        now <= self.until && self.waiting.load(Ordering::Relaxed) == 0
    }
}

/// One transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    OwnTransaction { rows: usize },
    WithNewRows { rows: usize },
}

impl Slice {
    pub(super) fn rows(self) -> usize {
        match self {
            Self::OwnTransaction { rows } | Self::WithNewRows { rows } => rows,
        }
    }

    pub(super) fn commit_policy(self) -> CommitPolicy {
        match self {
            Self::OwnTransaction { .. } => CommitPolicy::OwnTransaction,
            Self::WithNewRows { .. } => CommitPolicy::WhenDue,
        }
    }
}

/// The sizes of slices.
#[derive(Debug)]
pub(super) struct Sizes {
    own_transaction: Budget,
    with_new_rows: Budget,
    /// The value of `Ingested::rows` at the last slice.
    ingested: u64,
}

impl Sizes {
    /// While agents send, rows arrive at least this often.
    const SENDING: Duration = Duration::from_secs(2 * MAX_WAIT.as_secs());
    /// Number of old rows removed for each new one, as a fraction: more than one, because a slice may miss a commit.
    const SHARE: (usize, usize) = (3, 2);
    /// Used before the rate of new rows is known.
    const FIRST_ROWS: usize = 4096;

    pub(super) fn new(ingested: Option<Ingested>) -> Self {
        Self {
            own_transaction: Budget {
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
    pub(super) fn next(
        &self,
        timing: &PruneTiming,
        ingested: Option<Ingested>,
        now: Instant,
    ) -> Slice {
        let own_transaction = Slice::OwnTransaction {
            rows: self.own_transaction.rows,
        };
        let (PruneTiming::WithNewRows(limits), Some(ingested)) = (timing, ingested) else {
            return own_transaction;
        };
        if !limits.allow_waiting(now + MAX_WAIT)
            || now.saturating_duration_since(ingested.at) > Self::SENDING
        {
            return own_transaction;
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
            Slice::OwnTransaction { .. } => self.own_transaction.max_time,
            Slice::WithNewRows { .. } => self.with_new_rows.max_time,
        }
    }

    /// Records how many rows a slice has changed, and how long that took.
    pub(super) fn took(&mut self, slice: Slice, rows: usize, took: Duration) {
        match slice {
            Slice::OwnTransaction { .. } => self.own_transaction.took(rows, took),
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
    /// When the current measurement began, and the value of `Ingested::busy` then.
    since: Instant,
    busy: Duration,
    /// Whether new rows needed more than half of the writer's time in the last measurement.
    is_busy: bool,
}

impl Pauses {
    pub(super) fn new(ingested: Option<Ingested>, now: Instant) -> Self {
        Self {
            since: now,
            busy: ingested.map_or(Duration::ZERO, |ingested| ingested.busy),
            is_busy: false,
        }
    }

    /// The pause after a slice whose changes took this time: longer while new rows need most of the writer's time, as
    /// long as old rows may wait.
    pub(super) fn after(
        &mut self,
        slice: Slice,
        took: Duration,
        timing: &PruneTiming,
        ingested: Option<Ingested>,
        now: Instant,
    ) -> Duration {
        self.measure(ingested, now);
        let factor = match (timing, slice) {
            (PruneTiming::WithNewRows(limits), _) if self.is_busy && limits.allow_waiting(now) => {
                BUSY_PAUSE_FACTOR
            }
            (_, Slice::OwnTransaction { .. }) => PAUSE_FACTOR,
            (_, Slice::WithNewRows { .. }) => return Duration::ZERO,
        };
        (took * factor).clamp(MIN_PAUSE, MAX_PAUSE)
    }

    fn measure(&mut self, ingested: Option<Ingested>, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed < MEASURED_OVER {
            return;
        }
        let next = Self::new(ingested, now);
        *self = Self {
            is_busy: next.busy.saturating_sub(self.busy) > passed / 2,
            ..next
        };
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

    /// The next slice if `came` rows have come since the last one.
    fn next(came: u64, change: impl Fn(&mut WaitLimits, &mut Ingested, &mut Instant)) -> Slice {
        let mut now = Instant::now();
        let mut ingested = Ingested {
            rows: 1000,
            at: now,
            busy: Duration::ZERO,
        };
        let mut sizes = Sizes::new(Some(ingested));
        sizes.begin(Some(ingested));
        ingested.rows += came;
        let mut limits = WaitLimits {
            until: now + MAX_WAIT,
            max_used_bytes: None,
            waiting: Arc::default(),
        };
        change(&mut limits, &mut ingested, &mut now);
        sizes.next(&PruneTiming::WithNewRows(limits), Some(ingested), now)
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
        let own_transaction = Slice::OwnTransaction { rows: 512 };
        let second = Duration::from_secs(1);
        assert_eq!(
            next(8000, |limits, _, _| limits.until -= second),
            own_transaction
        );
        let somebody = |limits: &mut WaitLimits, _: &mut Ingested, _: &mut Instant| {
            limits.waiting.store(1, Ordering::Relaxed);
        };
        assert_eq!(next(8000, somebody), own_transaction);
        let silence = |limits: &mut WaitLimits, _: &mut Ingested, now: &mut Instant| {
            *now += Sizes::SENDING + second;
            limits.until = *now + MAX_WAIT;
        };
        assert_eq!(next(8000, silence), own_transaction);
        let sizes = Sizes::new(None);
        let now = Instant::now();
        assert_eq!(sizes.next(&PruneTiming::Now, None, now), own_transaction);
    }

    const OWN_TRANSACTION: Slice = Slice::OwnTransaction { rows: 512 };
    const WITH_NEW_ROWS: Slice = Slice::WithNewRows { rows: 4096 };

    fn limits(until: Instant, waiting: usize) -> PruneTiming {
        PruneTiming::WithNewRows(WaitLimits {
            until,
            max_used_bytes: None,
            waiting: Arc::new(waiting.into()),
        })
    }

    /// The pauses after slices of 10 ms. `at_ms`: the time since the beginning, and the writer's time for new rows
    /// until then, both in ms.
    fn pauses_ms<const N: usize>(
        slice: Slice,
        timing: &PruneTiming,
        at_ms: [(u64, u64); N],
    ) -> [u128; N] {
        let began = Instant::now();
        let ingested = |busy_ms| {
            let busy = Duration::from_millis(5000 + busy_ms);
            let (rows, at) = (1000, began);
            Some(Ingested { rows, at, busy })
        };
        let mut pauses = Pauses::new(ingested(0), began);
        at_ms.map(|(after_ms, busy_ms)| {
            let now = began + Duration::from_millis(after_ms);
            let took = Duration::from_millis(10);
            let pause = pauses.after(slice, took, timing, ingested(busy_ms), now);
            pause.as_millis()
        })
    }

    #[test]
    fn old_rows_leave_the_writer_to_new_ones_while_they_are_patient() {
        let later = Instant::now() + MAX_WAIT;
        let now = Instant::now();
        for (slice, timing, while_calm, while_busy) in [
            (OWN_TRANSACTION, limits(later, 0), 10, 240),
            (WITH_NEW_ROWS, limits(later, 0), 0, 240),
            (OWN_TRANSACTION, limits(later, 1), 10, 10),
            (OWN_TRANSACTION, limits(now, 0), 10, 10),
            (OWN_TRANSACTION, PruneTiming::Now, 10, 10),
        ] {
            for (busy_ms, pause) in [(500, while_calm), (520, while_busy)] {
                let found = pauses_ms(slice, &timing, [(1000, busy_ms)]);
                assert_eq!(found, [pause], "{slice:?}, {timing:?}, {busy_ms} ms");
            }
        }
    }

    #[test]
    fn need_is_judged_over_a_second() {
        let later = limits(Instant::now() + MAX_WAIT, 0);
        let burst = [(100, 90), (1100, 400), (2000, 1300), (2100, 1400)];
        assert_eq!(pauses_ms(OWN_TRANSACTION, &later, burst), [10, 10, 10, 240]);
    }

    #[test]
    fn a_slice_at_its_time_limit_sets_the_size_and_short_ones_raise_it() {
        let mut sizes = Sizes::new(None);
        let own_transaction = Slice::OwnTransaction { rows: 512 };
        sizes.took(own_transaction, 300, Duration::from_millis(16));
        assert_eq!(sizes.own_transaction.rows, 300);
        sizes.took(own_transaction, 300, Duration::from_millis(10));
        assert_eq!(sizes.own_transaction.rows, 300);
        for _ in 0..40 {
            sizes.took(own_transaction, 300, Duration::from_millis(4));
        }
        assert_eq!(sizes.own_transaction.rows, Budget::MAX_ROWS);
        sizes.took(own_transaction, 1, Duration::from_secs(1));
        assert_eq!(sizes.own_transaction.rows, 16);
        let with_new_rows = Slice::WithNewRows { rows: 16_384 };
        sizes.took(with_new_rows, 8000, Duration::from_millis(21));
        assert_eq!(sizes.with_new_rows.rows, 8000);
        sizes.took(with_new_rows, 1, Duration::from_secs(1));
        assert_eq!(sizes.with_new_rows.rows, Sizes::FIRST_ROWS);
    }
}
