//! The samples of a time span: each series is read in slices, and the writer deletes the samples that are not kept.

use super::thin::{Rule, Sample, superfluous};
use super::write::{MAX_DELETED_ROWS, PruneChange};
use super::{Pruner, Resolution};
use crate::database::{Doing, StoreError};
use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, Figure, Figures, HostFigures, NetFigures, TargetFigures,
};
use rusqlite::{Connection, params};
use std::sync::Arc;

const DOING: &str = "read old samples";
const SLICE_ROWS: usize = 4096;
/// Edges of steps within this distance of a slice's samples are considered.
const MAX_DISTANCE_US: i64 = 60_000_000;

/// One kind of series.
#[derive(Clone, Copy, Debug)]
struct SampleTable {
    table: &'static str,
    key: &'static str,
    figures: &'static [Figure],
    /// The series that may have samples in ?1..?2.
    series: &'static str,
    /// An additional column: a sample with a value in it is kept.
    beside: Option<&'static str>,
}

const fn kind<F: Figures>(key: &'static str, series: &'static str) -> SampleTable {
    SampleTable {
        table: F::TABLE,
        key,
        figures: F::ALL,
        series,
        beside: None,
    }
}

const KINDS: [SampleTable; 5] = [
    kind::<DaemonFigures>(
        "daemon_id",
        "SELECT id FROM daemons WHERE first_seen_us <= ?2 AND last_seen_us + 65000000 >= ?1",
    ),
    SampleTable {
        beside: Some("busy_others"),
        ..kind::<HostFigures>("host_id", "SELECT id FROM hosts WHERE ?1 <= ?2")
    },
    kind::<DiskFigures>("disk_id", "SELECT id FROM disks WHERE ?1 <= ?2"),
    kind::<NetFigures>("interface_id", "SELECT id FROM interfaces WHERE ?1 <= ?2"),
    kind::<TargetFigures>(
        "target_id",
        "SELECT id FROM targets AS t WHERE EXISTS (SELECT 1 FROM target_samples AS x
             WHERE x.target_id = t.id AND x.at_us BETWEEN ?1 AND ?2)",
    ),
];

/// The first instant of any sample.
pub(super) const OLDEST: &str = "SELECT min(at_us) FROM (
    SELECT min((SELECT min(at_us) FROM daemon_samples WHERE daemon_id = d.id)) AS at_us FROM daemons AS d
    UNION ALL SELECT min((SELECT min(at_us) FROM host_samples WHERE host_id = h.id)) FROM hosts AS h
    UNION ALL SELECT min((SELECT min(at_us) FROM disk_samples WHERE disk_id = k.id)) FROM disks AS k
    UNION ALL SELECT min((SELECT min(at_us) FROM net_samples WHERE interface_id = i.id)) FROM interfaces AS i
    UNION ALL SELECT min((SELECT min(at_us) FROM target_samples WHERE target_id = t.id)) FROM targets AS t)";

pub(super) async fn prune(
    pruner: &mut Pruner,
    (from, until): (i64, i64),
    to: Resolution,
    untouched: &[(i64, i64)],
) -> Result<(), StoreError> {
    let edges: Arc<[i64]> = pruner
        .read(move |connection| edges((from, until), connection))
        .await?
        .into();
    let untouched: Arc<[(i64, i64)]> = untouched
        .iter()
        .copied()
        .filter(|&(begin, end)| begin <= until && end >= from)
        .collect();
    for kind in KINDS {
        let series = pruner
            .read(move |connection| numbers(kind.series, (from, until), connection))
            .await?;
        for series in series {
            let mut at = from;
            while at < until {
                let (edges, untouched) = (Arc::clone(&edges), Arc::clone(&untouched));
                let (gone, next) = pruner
                    .read(move |connection| {
                        let samples = samples(kind, series, (at, until), connection)?;
                        Ok(slice(samples, kind, to, (&edges, &untouched)))
                    })
                    .await?;
                let chunks = gone
                    .chunks(MAX_DELETED_ROWS)
                    .map(|instants| PruneChange::Thin {
                        table: kind.table,
                        key: kind.key,
                        series,
                        instants: instants.to_vec(),
                    });
                pruner.gather(chunks).await?;
                at = match next {
                    Some(next) => next.max(at.saturating_add(1)),
                    None => until,
                };
            }
        }
    }
    pruner.write_gathered().await
}

/// The instants to delete from a slice, and the start of the next slice if there may be one.
fn slice(
    mut samples: Vec<Sample>,
    kind: SampleTable,
    to: Resolution,
    (edges, untouched): (&[i64], &[(i64, i64)]),
) -> (Vec<i64>, Option<i64>) {
    let mut next = None;
    if samples.len() >= SLICE_ROWS
        && let Some(last) = samples.last().map(|sample| sample.at_us)
    {
        // The last bucket is incomplete.
        let bucket_us = to.bucket_us().unwrap_or(1);
        let begin = last.div_euclid(bucket_us) * bucket_us;
        next = Some(begin);
        samples.retain(|sample| sample.at_us < begin);
    }
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return (Vec::new(), next);
    };
    let begin = edges.partition_point(|&edge| edge < first.at_us - MAX_DISTANCE_US);
    let end = edges.partition_point(|&edge| edge <= last.at_us + MAX_DISTANCE_US);
    let rule = Rule {
        figures: kind.figures,
        bucket_us: to.bucket_us(),
        edges: edges.get(begin..end).unwrap_or_default(),
        untouched,
    };
    (superfluous(&samples, rule), next)
}

/// Starts and ends of steps, at which a step's figures stay exact.
fn edges((from, until): (i64, i64), connection: &Connection) -> Result<Vec<i64>, StoreError> {
    numbers(
        "WITH s AS MATERIALIZED (SELECT * FROM steps WHERE (ended_us >= ?1 - 60000000 OR ended_us IS NULL)
                                                        AND start_us <= ?2 + 60000000)
         SELECT start_us FROM s UNION SELECT measured_from_us FROM s WHERE measured_from_us IS NOT NULL
         UNION SELECT last_done_us FROM s WHERE last_done_us IS NOT NULL
         UNION SELECT ended_us FROM s WHERE ended_us IS NOT NULL ORDER BY 1",
        (from, until),
        connection,
    )
}

fn numbers(
    sql: &'static str,
    (from, until): (i64, i64),
    connection: &Connection,
) -> Result<Vec<i64>, StoreError> {
    let read = || {
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([from, until], |row| row.get(0))?;
        rows.collect::<rusqlite::Result<Vec<i64>>>()
    };
    read().doing(DOING)
}

fn samples(
    kind: SampleTable,
    series: i64,
    (from, until): (i64, i64),
    connection: &Connection,
) -> Result<Vec<Sample>, StoreError> {
    let figures: Vec<String> = kind
        .figures
        .iter()
        .map(|figure| format!("CAST({} AS REAL)", figure.name))
        .collect();
    let beside = kind
        .beside
        .map_or(String::from("0"), |column| format!("{column} IS NOT NULL"));
    let sql = format!(
        "SELECT at_us, {beside}, {} FROM {} WHERE {} = ?1 AND at_us >= ?2 AND at_us < ?3 ORDER BY at_us LIMIT {SLICE_ROWS}",
        figures.join(", "),
        kind.table,
        kind.key
    );
    let read = || {
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map(params![series, from, until], |row| {
            let values = (0..kind.figures.len()).map(|place| row.get(place + 2));
            Ok(Sample {
                at_us: row.get(0)?,
                must_stay: row.get(1)?,
                values: values.collect::<rusqlite::Result<_>>()?,
            })
        })?;
        rows.collect::<rusqlite::Result<Vec<Sample>>>()
    };
    read().doing(DOING)
}
