//! The usage of each daemon during a step, from the samples around its true start and end, stored in `step_daemons`.
//!
//! The number of rows that a query reads depends on the number of daemons, not on the length of the step. SQLite
//! computes the extremes of memory.

mod around;
mod facts;

use super::extremes::{ALIVE, Extremes, between, stored_figures};
use super::slices::{self, SliceFilter};
use crate::database::{Doing, StoreError, WriteRows};
use around::Around;
use benchmesh_model::figures::{DaemonFigures, Figures, InStep, Kind};
use benchmesh_model::mesh::{DaemonId, StepId};
use benchmesh_results::usage::{After, Point, nearest, until_idle, used, value_at};
use facts::Facts;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum distance of a usable sample from a step's start or end.
const MAX_DISTANCE_US: i64 = 5_000_000;
/// Maximum distance from a step's start or end of a reading of peak resident memory that is used for that edge.
const EDGE_US: i64 = 1_000_000;

/// The measured part of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub from_us: i64,
    pub until_us: i64,
}

/// A row of `step_daemons`.
#[derive(Debug)]
pub(super) struct DaemonUsage {
    daemon: DaemonId,
    serves_target: Option<bool>,
    from_us: i64,
    until_us: i64,
    cpu: Option<[i64; 3]>,
    idle_cpu_us: Option<i64>,
    rss: [Option<i64>; 4],
    rss_peak_bytes: Option<i64>,
    /// The figures selected by [`stored_figures`].
    stored: Vec<Option<i64>>,
    samples: i64,
    after: Option<AfterStep>,
}

/// The work of a daemon from a step's end until it was idle.
#[derive(Clone, Copy, Debug)]
struct AfterStep {
    cpu: After,
    write_bytes: Option<i64>,
}

#[derive(Debug, Default)]
struct Readings {
    host: i64,
    name: String,
    born_us: Option<i64>,
    ended_us: Option<i64>,
    /// For each figure, in the order of `DaemonFigures::ALL`.
    figures: [Vec<Point>; DaemonFigures::ALL.len()],
}

impl Readings {
    /// The readings of the figure with this name.
    fn of(&self, name: &str) -> &[Point] {
        let mut all = DaemonFigures::ALL.iter().zip(&self.figures);
        let found = all.find(|(figure, _)| figure.name == name);
        found.map_or(&[], |(_, points)| points.as_slice())
    }

    fn add(&mut self, row: &SqliteRow) -> Result<(), sqlx::Error> {
        let at: i64 = row.try_get("at_us")?;
        for (figure, points) in DaemonFigures::ALL.iter().zip(&mut self.figures) {
            // The windows around the two ends of a short step overlap, so a sample may be read twice.
            if let Some(value) = row.try_get::<Option<i64>, _>(figure.name)?
                && let Err(place) = points.binary_search_by_key(&at, |(at, _)| *at)
            {
                points.insert(place, (at, value));
            }
        }
        Ok(())
    }

    /// The counters of a process born within the step, or just before it, were 0 at its birth.
    fn add_birth(&mut self, measured: Measured) {
        let Some(born) = self.born_us else { return };
        if born < measured.from_us.saturating_sub(MAX_DISTANCE_US) || born > measured.until_us {
            return;
        }
        for (figure, points) in DaemonFigures::ALL.iter().zip(&mut self.figures) {
            let is_later = points.first().is_some_and(|(first, _)| *first > born);
            if figure.kind == Kind::Counter && is_later {
                points.insert(0, (born, 0));
            }
        }
    }
}

impl Readings {
    /// Peak resident memory in the step, also between samples: the process's high-water mark, if it rose within the
    /// step. The kernel keeps it from the process's birth.
    fn peak(&self, measured: Measured, sampled: Option<i64>) -> Option<i64> {
        let at_edge = |edge: i64| {
            let peaks = self.of("rss_peak_bytes").iter();
            let nearest = peaks.min_by_key(|(at, _)| at.abs_diff(edge));
            nearest.filter(|(at, _)| at.abs_diff(edge) <= EDGE_US.unsigned_abs())
        };
        let last = at_edge(measured.until_us)?;
        let born_within = self.born_us.is_some_and(|born| born >= measured.from_us);
        let rose = match at_edge(measured.from_us) {
            Some(first) if first.0 < last.0 => last.1 > first.1,
            _ => born_within,
        };
        sampled.map(|sampled| if rose { sampled.max(last.1) } else { sampled })
    }

    /// The daemon's work after the step's end.
    fn after(&self, total: &[Point], until_us: i64, limit_us: i64, rest: f64) -> Option<AfterStep> {
        if self.ended_us.is_some_and(|ended| ended <= until_us) {
            let cpu = After {
                until_us,
                amount: 0,
                is_idle: true,
            };
            return Some(AfterStep {
                cpu,
                write_bytes: Some(0),
            });
        }
        let cpu = until_idle(total, until_us, limit_us, rest)?;
        let written = self.of("write_bytes");
        let write_bytes = match cpu.until_us > until_us {
            true => used(written, until_us, cpu.until_us, None).map(|used| used.amount),
            false => written.first().map(|_| 0),
        };
        Some(AfterStep { cpu, write_bytes })
    }
}

/// The columns of a sample and of its daemon. `d` and `x` are the aliases of daemons and samples.
const SAMPLE: &str = "d.id, d.host_id, d.name, d.born_us, d.ended_us, x.*";

/// The usage of every daemon in the measured part of a step, from the samples stored now.
pub(super) async fn usage(
    reader: &SqlitePool,
    step: StepId,
    measured: Measured,
) -> Result<Vec<DaemonUsage>, StoreError> {
    if measured.from_us >= measured.until_us {
        return Ok(Vec::new());
    }
    let mut readings = BTreeMap::new();
    let edges = [measured.from_us, measured.until_us];
    for edge in edges {
        let window = [
            edge.saturating_sub(MAX_DISTANCE_US),
            edge.saturating_add(MAX_DISTANCE_US),
        ];
        add_samples(reader, &mut readings, measured, window).await?;
    }
    let mut extremes = extremes(reader, step, measured).await?;
    // A daemon first sampled late in the step, or last sampled long before its end, counts with the samples it has.
    let mut missing = BTreeSet::new();
    for (
        daemon,
        Extremes {
            first_us: first,
            last_us: last,
            ..
        },
    ) in &extremes
    {
        let known: &[Point] = readings
            .get(daemon)
            .map_or(&[], |one: &Readings| one.of("cpu_user_us"));
        if known.first().is_none_or(|(at, _)| at > first) {
            missing.insert(*first);
        }
        if known.last().is_none_or(|(at, _)| at < last) {
            missing.insert(*last);
        }
    }
    for at in missing {
        add_samples(reader, &mut readings, measured, [at, at]).await?;
    }
    let facts = Facts::of(reader, step, measured).await?;
    let around = Around::of(reader, step, measured).await?;
    Ok(readings
        .into_iter()
        .filter_map(|(daemon, one)| {
            let extremes = extremes.remove(&daemon);
            usage_of(DaemonId(daemon), one, measured, extremes, &facts, &around)
        })
        .collect())
}

async fn add_samples(
    reader: &SqlitePool,
    readings: &mut BTreeMap<i64, Readings>,
    measured: Measured,
    [from, until]: [i64; 2],
) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {SAMPLE} FROM daemons AS d CROSS JOIN daemon_samples AS x ON x.daemon_id = d.id
             AND x.at_us BETWEEN ?3 AND ?4
         WHERE {ALIVE} ORDER BY d.id, x.at_us"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(measured.from_us)
        .bind(measured.until_us)
        .bind(from)
        .bind(until)
        .fetch_all(reader)
        .await
        .doing("read the samples of daemons")?;
    let add = |row: &SqliteRow, readings: &mut BTreeMap<i64, Readings>| {
        let one = readings.entry(row.try_get("id")?).or_default();
        one.host = row.try_get("host_id")?;
        one.name = row.try_get("name")?;
        one.born_us = row.try_get("born_us")?;
        one.ended_us = row.try_get("ended_us")?;
        one.add(row)
    };
    for row in &rows {
        add(row, readings).doing("read the samples of daemons")?;
    }
    Ok(())
}

type ByDaemon<T> = HashMap<i64, T>;

/// Per daemon: the extremes of its samples within the step, from stored sums, and from the samples of the rest.
async fn extremes(
    reader: &SqlitePool,
    step: StepId,
    measured: Measured,
) -> Result<ByDaemon<Extremes>, StoreError> {
    let beyond = measured.until_us.saturating_add(1);
    let mut all = ByDaemon::new();
    let mut at = measured.from_us;
    for slice in slices::stored(reader, step, SliceFilter::Samples).await? {
        if slice.from_us < at || slice.until_us > beyond {
            continue;
        }
        if let Some(sums) = slice.samples(reader).await? {
            add_extremes(&mut all, between(reader, at, slice.from_us).await?);
            add_extremes(&mut all, sums);
            at = slice.until_us;
        }
    }
    add_extremes(&mut all, between(reader, at, beyond).await?);
    // Some processes may have been recognized as parents since.
    let alive: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
        "SELECT d.id FROM daemons AS d WHERE {ALIVE}"
    )))
    .bind(measured.from_us)
    .bind(measured.until_us)
    .fetch_all(reader)
    .await
    .doing("read the daemons of a step")?;
    let alive: BTreeSet<i64> = alive.into_iter().collect();
    all.retain(|daemon, _| alive.contains(daemon));
    Ok(all)
}

fn add_extremes(all: &mut ByDaemon<Extremes>, more: Vec<(i64, Extremes)>) {
    for (daemon, more) in more {
        match all.entry(daemon) {
            Entry::Occupied(mut there) => there.get_mut().merge(&more),
            Entry::Vacant(place) => {
                place.insert(more);
            }
        }
    }
}

fn usage_of(
    daemon: DaemonId,
    mut one: Readings,
    measured: Measured,
    extremes: Option<Extremes>,
    facts: &Facts,
    around: &Around,
) -> Option<DaemonUsage> {
    one.add_birth(measured);
    let Measured { from_us, until_us } = measured;
    let (user, system) = (one.of("cpu_user_us"), one.of("cpu_system_us"));
    let total: Vec<Point> = user
        .iter()
        .zip(system)
        .map(|(user, system)| (user.0, user.1.saturating_add(system.1)))
        .collect();
    let covered = |points: &[Point]| {
        let ends = [from_us, until_us].map(|at| value_at(points, at, None));
        match ends {
            [Some(from), Some(until)] if from.at_us < until.at_us => {
                Some((from.at_us, until.at_us))
            }
            _ => None,
        }
    };
    let (from, until) = covered(&total)?;
    let amount = |points: &[Point]| used(points, from_us, until_us, None).map(|used| used.amount);
    let cpus = facts.cpus.get(&one.host).copied();
    let cpu = used(&total, from_us, until_us, cpus).and_then(|all| {
        let user = amount(user)?.min(all.amount);
        Some([user, all.amount - user, all.error])
    });
    let rss = one.of("rss_bytes");
    let (first, last) = (nearest(rss, from), nearest(rss, until));
    let extreme = |pick: fn(i64, i64) -> i64, within: Option<i64>| {
        within.into_iter().chain(first).chain(last).reduce(pick)
    };
    let idle = around.idle.get(&daemon.0).copied();
    let rss_max = extreme(i64::max, extremes.as_ref().and_then(|e| e.rss_max));
    let after = match until == until_us {
        true => one.after(&total, until_us, around.limit_us, around::rest(idle)),
        // It was last sampled before the end.
        false => None,
    };
    let mut most = extremes
        .iter()
        .flat_map(|extreme| extreme.most.iter().copied());
    let values = stored_figures().map(|(figure, in_step)| {
        let points = one.of(figure.name);
        match in_step {
            InStep::Amount => amount(points),
            InStep::AtEnd => nearest(points, until),
            InStep::Most => nearest(points, until).max(most.next().flatten()),
        }
    });
    let values = values.collect();
    Some(DaemonUsage {
        daemon,
        serves_target: facts.serves(one.host, &one.name),
        from_us: from,
        until_us: until,
        cpu,
        idle_cpu_us: idle.map(|rate| {
            #[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
            let us = (rate * benchmesh_results::real(until - from)).round() as i64;
            us
        }),
        rss: [
            first,
            extreme(i64::min, extremes.as_ref().and_then(|e| e.rss_min)),
            rss_max,
            last,
        ],
        rss_peak_bytes: one.peak(measured, rss_max),
        stored: values,
        samples: extremes.as_ref().map_or(0, |e| e.samples),
        after,
    })
}

/// Replaces the rows of a step.
pub(super) async fn store(
    step: StepId,
    usage: &[DaemonUsage],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    const DOING: &str = "store the usage of daemons in a step";
    sqlx::query("DELETE FROM step_daemons WHERE step_id = ?")
        .bind(step.0)
        .write(connection, DOING)
        .await?;
    let names: Vec<&str> = stored_figures().map(|(figure, _)| figure.name).collect();
    let insert = format!(
        "INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, cpu_user_us, cpu_system_us,
             cpu_error_us, idle_cpu_us, rss_first_bytes, rss_min_bytes, rss_max_bytes, rss_last_bytes, rss_peak_bytes,
             {}, samples, after_us, after_cpu_us, after_write_bytes, after_idle)
         VALUES ({})",
        names.join(", "),
        vec!["?"; 19 + names.len()].join(", "),
    );
    for one in usage {
        let mut row = sqlx::query(sqlx::AssertSqlSafe(insert.as_str()))
            .bind(step.0)
            .bind(one.daemon.0)
            .bind(one.serves_target)
            .bind(one.from_us)
            .bind(one.until_us);
        for value in one.cpu.map_or([None; 3], |cpu| cpu.map(Some)) {
            row = row.bind(value);
        }
        row = row.bind(one.idle_cpu_us);
        for value in one.rss {
            row = row.bind(value);
        }
        row = row.bind(one.rss_peak_bytes);
        for value in &one.stored {
            row = row.bind(value);
        }
        row.bind(one.samples)
            .bind(
                one.after
                    .map(|after| after.cpu.until_us.saturating_sub(one.until_us)),
            )
            .bind(one.after.map(|after| after.cpu.amount))
            .bind(one.after.and_then(|after| after.write_bytes))
            .bind(one.after.map(|after| after.cpu.is_idle))
            .write(connection, DOING)
            .await?;
    }
    Ok(())
}

/// The measured part of an ended step, according to its results.
pub(super) async fn measured(
    reader: &SqlitePool,
    step: StepId,
) -> Result<Option<Measured>, StoreError> {
    let ends: Option<(Option<i64>, Option<i64>)> = sqlx::query_as(
        "SELECT coalesce(measured_from_us, start_us), coalesce(last_done_us, ended_us) FROM steps
         WHERE id = ? AND state IN ('done', 'failed', 'stopped')",
    )
    .bind(step.0)
    .fetch_optional(reader)
    .await
    .doing("read a step")?;
    Ok(ends.and_then(|ends| {
        Some(Measured {
            from_us: ends.0?,
            until_us: ends.1?,
        })
    }))
}

/// Ended steps that received samples of their time since.
pub(super) async fn stale(reader: &SqlitePool) -> Result<Vec<StepId>, StoreError> {
    sqlx::query_scalar::<_, i64>("SELECT id FROM steps WHERE stale_samples > 0 ORDER BY id")
        .fetch_all(reader)
        .await
        .map(|ids| ids.into_iter().map(StepId).collect())
        .doing("look for steps with late samples")
}
