//! The extremes of daemons' samples in a period.

use crate::database::{Doing, StoreError};
use benchmesh_model::figures::{DaemonFigures, Figure, Figures, InStep};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::sqlite::{SqlitePool, SqliteRow};

/// `daemons.last_seen_us` of a watched daemon is updated at least this often.
const SEEN_WITHIN_US: i64 = 65_000_000;
/// SQL: a daemon that may have run within `?1..?2`.
pub(super) const ALIVE: &str =
    "d.first_seen_us <= ?2 AND d.last_seen_us + 65000000 >= ?1 AND d.is_parent = 0";

/// The figures that `step_daemons` stores under their own names.
pub(super) fn stored_figures() -> impl Iterator<Item = (&'static Figure, InStep)> {
    let all = DaemonFigures::ALL.iter();
    all.filter_map(|figure| Some((figure, figure.in_step?)))
}

fn most() -> impl Iterator<Item = (&'static Figure, InStep)> {
    stored_figures().filter(|(_, in_step)| *in_step == InStep::Most)
}

/// The extremes of a daemon's samples in a period.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Extremes {
    pub samples: i64,
    pub first_us: i64,
    pub last_us: i64,
    pub rss_min: Option<i64>,
    pub rss_max: Option<i64>,
    /// For each figure that is one of [`stored_figures`] with [`InStep::Most`].
    pub most: Vec<Option<i64>>,
}

impl Extremes {
    /// Whether it has the same stored figures as this version.
    pub(super) fn is_of_this_version(&self) -> bool {
        self.most.len() == most().count()
    }

    /// Combines it with the extremes of another period.
    pub(super) fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.first_us = self.first_us.min(other.first_us);
        self.last_us = self.last_us.max(other.last_us);
        self.rss_min = self.rss_min.into_iter().chain(other.rss_min).min();
        self.rss_max = self.rss_max.max(other.rss_max);
        for (most, other) in self.most.iter_mut().zip(&other.most) {
            *most = (*most).max(*other);
        }
    }
}

/// Per daemon: the extremes of its samples in `from..until`.
pub(super) async fn between(
    reader: &SqlitePool,
    from: i64,
    until: i64,
) -> Result<Vec<(i64, Extremes)>, StoreError> {
    debug_assert!(ALIVE.contains(&SEEN_WITHIN_US.to_string()));
    if from >= until {
        return Ok(Vec::new());
    }
    let maxima = most().map(|(figure, _)| format!("max(x.{0}) AS {0},", figure.name));
    let maxima: String = maxima.collect();
    let sql = format!(
        "SELECT d.id, count(*) AS samples, min(x.rss_bytes) AS rss_min, max(x.rss_bytes) AS rss_max,
                {maxima} min(x.at_us) AS first_us, max(x.at_us) AS last_us
         FROM daemons AS d CROSS JOIN daemon_samples AS x ON x.daemon_id = d.id AND x.at_us BETWEEN ?1 AND ?2
         WHERE {ALIVE} GROUP BY d.id"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(from)
        .bind(until - 1)
        .try_map(|row: SqliteRow| {
            let extremes = Extremes {
                samples: row.try_get("samples")?,
                first_us: row.try_get("first_us")?,
                last_us: row.try_get("last_us")?,
                rss_min: row.try_get("rss_min")?,
                rss_max: row.try_get("rss_max")?,
                most: most()
                    .map(|(figure, _)| row.try_get(figure.name))
                    .collect::<Result<_, _>>()?,
            };
            Ok((row.try_get::<i64, _>("id")?, extremes))
        })
        .fetch_all(reader)
        .await
        .doing("read the samples of daemons")
}
