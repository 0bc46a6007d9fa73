//! Sums of time slices of a step, kept in `step_sums` while the step runs. The end of the step adds them up, and
//! reads only the rows outside of them.
//!
//! A slice is claimed by a row without sums before its rows are read. Ingest marks each row of `step_sums` that it
//! brings data for (`ingest/tasks.rs`), so the sums of a slice that received data meanwhile are not used. While the
//! step runs, marked slices are summed up again; after its end their rows are read. The writes are separate from
//! others, so that gathered rows keep waiting for their own commit.
//!
//! The rows of a slice may be merged while the step runs (`prune::running`). From then on its sums do not change, and
//! no other slice overlaps it.

use super::extremes::{self, Extremes};
use super::{SLICE_US, blocking, load, packed};
use crate::Store;
use crate::database::{Doing, StoreError, WriteRows};
use crate::finish::timeline::{self, Comparison, TimelineRow};
use crate::writer::CommitPolicy;
use benchmesh_model::mesh::{StepId, TaskId};
use benchmesh_results::grid::Grid;
use benchmesh_results::{SliceCounts, SliceSum, SliceSummer};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

/// The length of a slice, except at the ends of gaps. At a step's end, two to four slices are read as rows.
const LENGTH_US: i64 = 600_000_000;
/// The newest rows are left out, because more of that time may still arrive.
const LAG_US: i64 = 60_000_000;
/// A slice is extended by this if an interval crosses its end. It is not a multiple of the width of merged intervals,
/// which would cross the grid lines at the same offsets every time.
const LONGER_US: i64 = 61_000_000;
/// Maximum time that one pass spends on summing up a running step, for example after a restart.
const MAX_PASS: Duration = Duration::from_secs(1);

/// A slice with usable sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub id: i64,
    pub from_us: i64,
    pub until_us: i64,
    /// The resolution of its rows.
    pub resolution_s: i64,
}

/// Selects slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceFilter {
    /// With usable sums.
    Sums,
    /// With usable samples.
    Samples,
    /// With both.
    Whole,
}

/// A slice to be summed up.
#[derive(Clone, Copy, Debug)]
struct Missing {
    from_us: i64,
    until_us: i64,
    /// It may be extended up to here at most, where a merged slice begins.
    limit_us: i64,
}

impl Store {
    /// Sums up slices of a running step that have no sums, or received more rows since. Returns the instant that the
    /// newest row has to pass before another attempt is useful.
    pub(super) async fn sum_slices(
        &self,
        step: StepId,
        start_us: i64,
        newest_us: i64,
    ) -> Result<i64, StoreError> {
        let began = Instant::now();
        let without = load::left_early(self.reader(), step).await?;
        let ready_us = Grid::new(start_us).before_a_line(newest_us.saturating_sub(LAG_US));
        while began.elapsed() < MAX_PASS
            && !self.shared.closing.is_cancelled()
            && let Some(missing) = self.missing(step, start_us, ready_us).await?
        {
            let summed = self.sum_slice(step, start_us, missing, ready_us, &without);
            if !summed.await? {
                return Ok(newest_us.saturating_add(LONGER_US));
            }
        }
        Ok(i64::MIN)
    }

    /// The first rows outside of all slices, if they fill a slice.
    async fn missing(
        &self,
        step: StepId,
        start_us: i64,
        ready_us: i64,
    ) -> Result<Option<Missing>, StoreError> {
        let grid = Grid::new(start_us);
        let mut slices = stored(self.reader(), step, SliceFilter::Whole).await?;
        slices.push(Slice {
            id: 0,
            from_us: ready_us,
            until_us: ready_us,
            resolution_s: 1,
        });
        let mut at = i64::MIN;
        let merged = slices.iter().filter(|slice| slice.is_merged());
        let merged: Vec<i64> = merged.map(|slice| slice.from_us).collect();
        for slice in slices {
            let from = at;
            at = slice.until_us;
            // A slice before a merged one could not be extended.
            if from >= slice.from_us || slice.is_merged() {
                continue;
            }
            let first = load::next_instant(self.reader(), step, from).await?;
            let Some(first) = first.filter(|first| *first < slice.from_us) else {
                continue;
            };
            let from_us = grid.before_a_line(first).max(from);
            let end_us = from_us.saturating_add(LENGTH_US);
            let is_open = slice.id == 0;
            if is_open && end_us > ready_us {
                return Ok(None);
            }
            return Ok(Some(Missing {
                from_us,
                until_us: end_us.min(slice.from_us),
                limit_us: merged
                    .iter()
                    .copied()
                    .find(|at| *at > first)
                    .unwrap_or(i64::MAX),
            }));
        }
        Ok(None)
    }

    /// Returns whether the slice could be summed up. It cannot while an interval that crosses its end is incomplete,
    /// or if every grid line is crossed for [`LENGTH_US`], for example by intervals that agents widened during a long
    /// loss of contact.
    async fn sum_slice(
        &self,
        step: StepId,
        start_us: i64,
        missing: Missing,
        ready_us: i64,
        without: &BTreeSet<TaskId>,
    ) -> Result<bool, StoreError> {
        let latest_us = missing
            .until_us
            .saturating_add(LENGTH_US)
            .min(ready_us)
            .min(missing.limit_us);
        let mut summing = Summing::new(start_us, missing, without);
        let id = self
            .write_in(
                CommitPolicy::OwnTransaction,
                (step, missing, text(without)),
                |(step, missing, without), connection| {
                    Box::pin(claim(*step, *missing, without, connection))
                },
            )
            .await?;
        while !self.shared.closing.is_cancelled() {
            summing = self.sum_rows(step, summing).await?;
            if let Some((slice, changes)) = self.summed(step, &mut summing).await? {
                let until_us = summing.until_us;
                let samples = extremes::between(self.reader(), missing.from_us, until_us).await?;
                let counts = summing.summer.counts();
                let packed = blocking(move || {
                    Ok::<_, StoreError>(Packed {
                        sums: pack(&slice)?,
                        samples: pack(&samples)?,
                        counts: pack(&counts)?,
                    })
                })
                .await??;
                self.write_in(
                    CommitPolicy::OwnTransaction,
                    (step, id, packed, changes),
                    |(step, id, packed, changes), connection| {
                        Box::pin(async move {
                            timeline::write(*step, changes, connection).await?;
                            store_sums(*id, packed, connection).await
                        })
                    },
                )
                .await?;
                return Ok(true);
            }
            let longer = Missing {
                from_us: summing.until_us,
                until_us: summing.until_us.saturating_add(LONGER_US),
                limit_us: missing.limit_us,
            };
            if longer.until_us > latest_us {
                break;
            }
            self.write_in(
                CommitPolicy::OwnTransaction,
                (step, id, longer),
                |(step, id, longer), connection| Box::pin(widen(*step, *id, *longer, connection)),
            )
            .await?;
            summing.until_us = longer.until_us;
        }
        Ok(false)
    }

    /// Adds the rows that are not summed up yet.
    async fn sum_rows(&self, step: StepId, mut summing: Summing) -> Result<Summing, StoreError> {
        while let Some(first) = load::next_instant(self.reader(), step, summing.at).await?
            && first < summing.until_us
        {
            let grid = summing.summer.grid();
            let at = grid
                .before_a_line(first.saturating_add(SLICE_US))
                .max(first.saturating_add(1))
                .min(summing.until_us);
            let rows = load::intervals(self.reader(), step, first, at).await?;
            summing = blocking(move || {
                for row in rows {
                    summing.summer.add(&row.facts()?);
                }
                summing.at = at;
                summing.take();
                Ok::<_, StoreError>(summing)
            })
            .await??;
        }
        summing.at = summing.until_us;
        summing.take();
        Ok(summing)
    }

    /// The slice, and the changes of the time line in it; `None` while an interval crosses its end.
    async fn summed(
        &self,
        step: StepId,
        summing: &mut Summing,
    ) -> Result<Option<(SliceSum, timeline::Changes)>, StoreError> {
        let Some(slice) = summing.summer.finish_at(summing.until_us) else {
            return Ok(None);
        };
        let (from, until) = slice.lines();
        let mut timeline = Comparison::default();
        timeline.skip_to(from);
        timeline.add(std::mem::take(&mut summing.rows));
        timeline.compare_before(self.reader(), step, until).await?;
        Ok(Some((slice, timeline.finish())))
    }
}

/// A slice that is being summed up.
struct Summing {
    summer: SliceSummer,
    /// Rows of the time line.
    rows: Vec<TimelineRow>,
    /// Rows before this instant are summed up.
    at: i64,
    until_us: i64,
}

impl Summing {
    fn new(start_us: i64, missing: Missing, without: &BTreeSet<TaskId>) -> Self {
        Self {
            summer: SliceSummer::new(start_us, missing.from_us, without.clone()),
            rows: Vec::new(),
            at: missing.from_us,
            until_us: missing.until_us,
        }
    }

    /// Takes the complete seconds, because each holds histograms until then.
    fn take(&mut self) {
        self.rows.extend(packed(self.summer.take_before(self.at)));
    }
}

/// The stored form of a slice.
struct Packed {
    sums: Vec<u8>,
    samples: Vec<u8>,
    counts: Vec<u8>,
}

/// Slices of a step, by time.
pub(crate) async fn stored(
    reader: &SqlitePool,
    step: StepId,
    wanted: SliceFilter,
) -> Result<Vec<Slice>, StoreError> {
    let rows: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT id, from_us, until_us, resolution_s FROM step_sums
         WHERE step_id = ?1 AND sums IS NOT NULL AND (?2 OR stale = 0) AND (?3 OR stale_samples = 0)
         ORDER BY until_us",
    )
    .bind(step.0)
    .bind(wanted == SliceFilter::Samples)
    .bind(wanted == SliceFilter::Sums)
    .fetch_all(reader)
    .await
    .doing("look for the sums of a step")?;
    Ok(rows
        .into_iter()
        .map(|(id, from_us, until_us, resolution_s)| Slice {
            id,
            from_us,
            until_us,
            resolution_s,
        })
        .collect())
}

impl Slice {
    pub(crate) fn is_merged(&self) -> bool {
        self.resolution_s != 1
    }

    /// The counts of its intervals; `None` if the slice has been deleted.
    pub(super) async fn counts(
        &self,
        reader: &SqlitePool,
    ) -> Result<Option<SliceCounts>, StoreError> {
        self.read(reader, "SELECT counts FROM step_sums WHERE id = ?")
            .await
    }

    /// `None` if the slice has been deleted, or is of another version.
    pub(crate) async fn sums(&self, reader: &SqlitePool) -> Result<Option<SliceSum>, StoreError> {
        self.read(reader, "SELECT sums FROM step_sums WHERE id = ?")
            .await
    }

    /// Per daemon, the extremes of its samples; `None` as for `sums`.
    pub(super) async fn samples(
        &self,
        reader: &SqlitePool,
    ) -> Result<Option<Vec<(i64, Extremes)>>, StoreError> {
        let sql = "SELECT samples FROM step_sums WHERE id = ?";
        let samples: Option<Vec<(i64, Extremes)>> = self.read(reader, sql).await?;
        Ok(samples.filter(|all| all.iter().all(|(_, it)| it.is_of_this_version())))
    }

    /// Whether its samples are usable.
    pub(crate) async fn has_samples(&self, reader: &SqlitePool) -> Result<bool, StoreError> {
        self.samples(reader).await.map(|samples| samples.is_some())
    }

    async fn read<T: DeserializeOwned + Send + 'static>(
        &self,
        reader: &SqlitePool,
        sql: &'static str,
    ) -> Result<Option<T>, StoreError> {
        let packed: Option<Option<Vec<u8>>> = sqlx::query_scalar(sql)
            .bind(self.id)
            .fetch_optional(reader)
            .await
            .doing("read the sums of a step")?;
        match packed.flatten() {
            Some(packed) => blocking(move || unpack(&packed)).await,
            None => Ok(None),
        }
    }
}

/// Deletes the sums of a step.
pub(crate) async fn delete(
    step: StepId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM step_sums WHERE step_id = ?")
        .bind(step.0)
        .write(connection, "forget the sums of a step")
        .await
}

async fn claim(
    step: StepId,
    missing: Missing,
    without: &str,
    connection: &mut SqliteConnection,
) -> Result<i64, StoreError> {
    const DOING: &str = "claim a slice of a step";
    sqlx::query(
        "DELETE FROM step_sums WHERE step_id = ? AND until_us > ? AND from_us < ? AND resolution_s = 1",
    )
    .bind(step.0)
    .bind(missing.from_us)
    .bind(missing.until_us)
    .write(connection, DOING)
    .await?;
    sqlx::query("INSERT INTO step_sums (step_id, from_us, until_us, without) VALUES (?, ?, ?, ?)")
        .bind(step.0)
        .bind(missing.from_us)
        .bind(missing.until_us)
        .bind(without)
        .execute(connection)
        .await
        .map(|done| done.last_insert_rowid())
        .doing(DOING)
}

/// Extends a claimed slice.
async fn widen(
    step: StepId,
    id: i64,
    longer: Missing,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    const DOING: &str = "claim a slice of a step";
    sqlx::query(
        "DELETE FROM step_sums WHERE step_id = ? AND id <> ? AND until_us > ? AND from_us < ? AND resolution_s = 1",
    )
    .bind(step.0)
    .bind(id)
    .bind(longer.from_us)
    .bind(longer.until_us)
    .write(connection, DOING)
    .await?;
    sqlx::query("UPDATE step_sums SET until_us = ? WHERE id = ?")
        .bind(longer.until_us)
        .bind(id)
        .write(connection, DOING)
        .await
}

/// Stores the sums, and leaves the marks that the slice received meanwhile.
async fn store_sums(
    id: i64,
    packed: &Packed,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE step_sums SET sums = ?, samples = ?, counts = ? WHERE id = ?")
        .bind(packed.sums.as_slice())
        .bind(packed.samples.as_slice())
        .bind(packed.counts.as_slice())
        .bind(id)
        .write(connection, "store the sums of a step")
        .await
}

fn text(without: &BTreeSet<TaskId>) -> String {
    let ids: Vec<i64> = without.iter().map(|task| task.0).collect();
    serde_json::Value::from(ids).to_string()
}

fn pack<T: Serialize>(sums: &T) -> Result<Vec<u8>, StoreError> {
    let doing = |why: String| StoreError::NotWritten { why };
    let text = serde_json::to_vec(sums).map_err(|error| doing(error.to_string()))?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(&text)
        .and_then(|()| encoder.finish())
        .map_err(|error| doing(error.to_string()))
}

fn unpack<T: DeserializeOwned>(packed: &[u8]) -> Option<T> {
    serde_json::from_reader(std::io::BufReader::new(ZlibDecoder::new(packed))).ok()
}
