//! Prunes old rows: merges intervals of ended steps into wider ones, thins samples, and finally deletes both. Rows of a
//! running step are merged once their slice is summed up (`running`).
//!
//! The rows are read and the changes are computed outside of the writer (`intervals`, `samples`; `merge` and `thin`
//! decide). The writer receives short, independent slices of changes (`throttle`): after a process was killed between
//! two slices, some rows are merged and some are not, and merging again gives the same result. `retention` decides when
//! to prune.

mod intervals;
mod merge;
mod running;
mod samples;
pub(crate) mod status;
mod thin;
mod throttle;
mod write;

pub use running::RunningStep;
pub use status::{Settings, Size, StepToPrune};
pub use throttle::{PruneTiming, WaitLimits};

use super::writer::CommitPolicy;
use super::{Doing, Store, StoreError};
use benchmesh_model::mesh::{MeshMicros, StepId};
use running::MergedSlice;
use rusqlite::{Connection, OpenFlags};
use std::sync::Arc;
use std::time::{Duration, Instant};
use throttle::{Pauses, Sizes, Slice};
use write::{Part, PruneChange};

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of free pages that one transaction releases.
const PAGES_AT_ONCE: u32 = 128;
/// Minimum size of the free pages that stay in the file.
const MIN_FREE_BYTES: i64 = 16 << 20;
/// A database whose old rows make room for new ones keeps an eighth of its used size free, because releasing pages
/// moves others.
const KEPT_FREE_SHARE: i64 = 8;
/// At least the size of one hour's rows of twelve agents.
const MIN_KEPT_FREE: i64 = 64 << 20;
const MAX_KEPT_FREE: i64 = 256 << 20;

/// The resolution of rows that no longer have one second each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    TenSeconds,
    Minute,
    /// They are deleted; the results stay.
    Nothing,
}

impl Resolution {
    /// All, from fine to coarse.
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Nothing];

    /// The value in `steps.resolution_s`.
    pub fn seconds(self) -> i64 {
        match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Nothing => 0,
        }
    }

    fn of_seconds(seconds: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.seconds() == seconds)
    }

    fn bucket_us(self) -> Option<i64> {
        match self {
            Self::TenSeconds | Self::Minute => Some(self.seconds() * 1_000_000),
            Self::Nothing => None,
        }
    }

    /// What happens to the rows, for messages.
    pub fn done_to_rows(self) -> &'static str {
        match self {
            Self::TenSeconds => "merged into rows of 10 s",
            Self::Minute => "merged into rows of 60 s",
            Self::Nothing => "deleted",
        }
    }
}

/// How much free space stays in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFree {
    /// As little as possible.
    Least,
    /// As much as new rows will soon need.
    ForNewRows,
}

impl KeptFree {
    fn bytes(self, used_bytes: i64) -> i64 {
        match self {
            Self::Least => MIN_FREE_BYTES,
            Self::ForNewRows => (used_bytes / KEPT_FREE_SHARE).clamp(MIN_KEPT_FREE, MAX_KEPT_FREE),
        }
    }
}

/// The work done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub steps: u64,
    /// Number of removed rows: merged into others, or deleted.
    pub rows: u64,
    /// The longest transaction.
    pub longest: Duration,
}

/// Merges, thins and deletes. Only one exists at a time; dropping it stops the work between two transactions.
#[derive(Debug)]
pub struct Pruner {
    store: Store,
    /// For reading; `None` while a thread uses it.
    connection: Option<Connection>,
    timing: PruneTiming,
    sizes: Sizes,
    pauses: Pauses,
    /// Changes that wait until there are enough to fill a slice.
    gathered: Vec<PruneChange>,
    pruned: Pruned,
}

impl Store {
    /// A pruner of this database.
    pub async fn pruner(&self) -> Result<Pruner, StoreError> {
        let path = self.path().to_owned();
        let connection = super::finish::blocking(move || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            Ok::<_, rusqlite::Error>(connection)
        })
        .await?
        .doing("open it to merge old rows")?;
        let ingested = self.shared.writer.ingested();
        Ok(Pruner {
            store: self.for_scheduler(),
            connection: Some(connection),
            timing: PruneTiming::Now,
            sizes: Sizes::new(ingested),
            pauses: Pauses::new(ingested, tokio::time::Instant::now()),
            gathered: Vec::new(),
            pruned: Pruned::default(),
        })
    }
}

impl Pruner {
    pub fn pruned(&self) -> Pruned {
        self.pruned
    }

    pub fn set_timing(&mut self, timing: PruneTiming) {
        self.timing = timing;
    }

    /// Merges the intervals of a step to a resolution. Skips a step that received data after its figures were computed;
    /// returns whether it was pruned.
    pub async fn prune_step(&mut self, step: StepId, to: Resolution) -> Result<bool, StoreError> {
        self.store.flush().await;
        let is_marked = {
            // The figures of a marked step are never computed again.
            let _claim = self.store.claim(step).await;
            self.store
                .write_in(
                    CommitPolicy::OwnTransaction,
                    (step, to),
                    |(step, to), connection| Box::pin(status::mark(*step, *to, connection)),
                )
                .await?
        };
        if !is_marked {
            return Ok(false);
        }
        intervals::prune(self, step, to, intervals::WHOLE).await?;
        self.store
            .write_in(CommitPolicy::OwnTransaction, step, |step, connection| {
                Box::pin(status::mark_merged(*step, connection))
            })
            .await?;
        self.pruned.steps += 1;
        Ok(true)
    }

    /// Merges the oldest rows of a running step, at most `max_slices` slices; returns their number.
    pub async fn prune_running(
        &mut self,
        step: RunningStep,
        to: Resolution,
        max_slices: usize,
    ) -> Result<usize, StoreError> {
        let slices = self.store.mark_slices(step, to, max_slices).await?;
        self.merge_slices(&slices).await?;
        Ok(slices.len())
    }

    /// Finishes slices whose rows are only partly merged, for example after a restart.
    pub async fn finish_slices(&mut self) -> Result<(), StoreError> {
        let slices = self.store.unfinished_slices().await?;
        self.merge_slices(&slices).await
    }

    async fn merge_slices(&mut self, slices: &[MergedSlice]) -> Result<(), StoreError> {
        for slice in slices {
            let part = (slice.from_us, slice.until_us);
            match intervals::prune(self, slice.step, slice.to, part).await {
                // Its rows stay unchanged and do not delay the others.
                Err(error @ StoreError::Histogram { .. }) => {
                    tracing::warn!(step = %slice.step, %error, "cannot merge some rows of a step");
                }
                merged => merged?,
            }
            self.store.slice_merged(*slice).await?;
        }
        Ok(())
    }

    /// Thins the samples of `from..until`, except those within the `untouched` spans.
    pub async fn prune_samples(
        &mut self,
        from: MeshMicros,
        until: MeshMicros,
        to: Resolution,
        untouched: &[(i64, i64)],
    ) -> Result<(), StoreError> {
        if matches!(self.timing, PruneTiming::Now) {
            self.store.flush().await;
        }
        samples::prune(self, (from.0, until.0), to, untouched).await
    }

    /// Releases free pages to the file system, except those that are kept.
    pub async fn release_free_pages(&mut self, kept: KeptFree) -> Result<(), StoreError> {
        loop {
            let before = self.store.size().await?;
            if before.free_bytes <= kept.bytes(before.used_bytes()) {
                return Ok(());
            }
            let slice = Slice::OwnTransaction { rows: 0 };
            self.paced(slice, (), |(), connection| {
                Box::pin(status::vacuum(PAGES_AT_ONCE, connection))
            })
            .await?;
            // A file that was made without auto-vacuum keeps its pages.
            if self.store.size().await?.free_bytes >= before.free_bytes {
                return Ok(());
            }
        }
    }

    /// Reads on a thread that may block.
    async fn read<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = self.connection.take().ok_or(StoreError::Closed)?;
        let (connection, outcome) = super::finish::blocking(move || {
            let outcome = work(&connection);
            (connection, outcome)
        })
        .await?;
        self.connection = Some(connection);
        outcome
    }

    /// Writes changes once they fill a slice, because small writes would write the same pages of the file again and
    /// again. `write_gathered` writes the last ones.
    async fn gather(
        &mut self,
        changes: impl Iterator<Item = PruneChange>,
    ) -> Result<(), StoreError> {
        self.gathered.extend(changes);
        let rows: usize = self.gathered.iter().map(PruneChange::rows).sum();
        if rows < self.next_slice().rows() {
            return Ok(());
        }
        self.write_gathered().await
    }

    async fn write_gathered(&mut self) -> Result<(), StoreError> {
        let changes = std::mem::take(&mut self.gathered);
        self.write(changes).await
    }

    /// Writes changes in slices of the maximum size and time.
    async fn write(&mut self, changes: Vec<PruneChange>) -> Result<(), StoreError> {
        let changes = Arc::new(changes);
        let mut from = 0;
        while from < changes.len() {
            self.check_size().await?;
            let slice = self.next_slice();
            self.sizes.begin(self.store.shared.writer.ingested());
            let part = Part {
                changes: Arc::clone(&changes),
                from,
                max_rows: slice.rows(),
                max_time: self.sizes.max_time(slice),
            };
            let applied = self
                .paced(slice, part, |part, connection| {
                    Box::pin(write::apply(part, connection))
                })
                .await?;
            self.sizes.took(slice, applied.value.rows, applied.took);
            from += applied.value.changes;
            self.pruned.rows += applied.value.gone;
        }
        Ok(())
    }

    fn next_slice(&self) -> Slice {
        let ingested = self.store.shared.writer.ingested();
        self.sizes
            .next(&self.timing, ingested, tokio::time::Instant::now())
    }

    /// Stops waiting for new rows once the database is too large.
    async fn check_size(&mut self) -> Result<(), StoreError> {
        if let PruneTiming::WithNewRows(limits) = &self.timing
            && let Some(limit) = limits.max_used_bytes
            && self.store.size().await?.used_bytes() > limit
        {
            self.timing = PruneTiming::Now;
        }
        Ok(())
    }

    /// Writes one slice, and leaves the writer to others for a while.
    async fn paced<D, T>(
        &mut self,
        slice: Slice,
        data: D,
        apply: super::writer::Apply<D, Timed<T>>,
    ) -> Result<Timed<T>, StoreError>
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
    {
        if self.store.shared.closing.is_cancelled() {
            return Err(StoreError::Closed);
        }
        let done = self
            .store
            .write_in(slice.commit_policy(), data, apply)
            .await?;
        self.pruned.longest = self.pruned.longest.max(done.took);
        let ingested = self.store.shared.writer.ingested();
        let now = tokio::time::Instant::now();
        let pause = self
            .pauses
            .after(slice, done.took, &self.timing, ingested, now);
        tokio::time::sleep(pause).await;
        Ok(done)
    }
}

/// Records a transaction's changes, and how long it used the writer.
#[derive(Debug)]
struct Timed<T> {
    value: T,
    took: Duration,
}

impl<T> Timed<T> {
    fn since(began: Instant, value: T) -> Self {
        Self {
            value,
            took: began.elapsed(),
        }
    }
}
