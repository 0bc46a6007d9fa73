//! Compares the seconds of a step with the objectives of its run's plan, from the work in `step_intervals`. They are
//! counted when the step has ended, and again when late data have changed its intervals. Seconds of slices whose rows
//! are merged were counted before the merge.

use super::schema::observed_ops;
use super::writer::Haste;
use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{RunId, StepId};
use benchmesh_plan as plan;
use benchmesh_plan::alarms::{Objective, Side, StepFigure};
use benchmesh_results::PERIOD_US;
use benchmesh_results::seconds::MIN_SECOND_US;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Seconds may begin this long before all tasks are active, and end this long after.
const SLACK_US: i64 = PERIOD_US - MIN_SECOND_US;

/// Seconds that were judged by one objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub seconds: i64,
    pub bad: i64,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.bad += other.bad;
    }
}

/// Selects the seconds of a step to count.
#[derive(Clone, Copy, Debug)]
pub(super) enum TallyRange {
    /// Those in the all-active window from an instant on, except those of merged slices.
    Window { from_us: i64 },
    /// All seconds after the ramp in this range.
    Slice { from_us: i64, until_us: i64 },
}

impl Store {
    /// The tallies of a step's seconds from an instant on, by objective; and the end of the counted time.
    #[boxed]
    #[inline(never)]
    pub async fn tally(
        &self,
        step: StepId,
        from_us: i64,
        objectives: &[Objective],
    ) -> Result<(Vec<Tally>, i64), StoreError> {
        let range = TallyRange::Window { from_us };
        let (mut tallies, mut until_us) = self.tally_rows(step, range, objectives).await?;
        let merged: Vec<(String, i64)> = sqlx::query_as(
            "SELECT m.tallies, m.until_us FROM step_sums AS m JOIN steps AS s ON s.id = m.step_id
             WHERE m.step_id = ?1 AND m.resolution_s <> 1 AND m.tallies IS NOT NULL AND m.from_us >= ?2
               AND m.from_us >= coalesce(s.all_active_from_us - ?3, m.from_us)
               AND m.until_us <= coalesce(s.all_active_until_us + ?3, m.until_us)",
        )
        .bind(step.0)
        .bind(from_us)
        .bind(SLACK_US)
        .fetch_all(self.reader())
        .await
        .doing("judge the seconds of a step")?;
        for (of_slice, slice_until_us) in merged {
            let of_slice: BTreeMap<String, Tally> =
                serde_json::from_str(&of_slice).unwrap_or_default();
            for (objective, tally) in objectives.iter().zip(&mut tallies) {
                tally.add(of_slice.get(&objective.holds).copied().unwrap_or_default());
            }
            until_us = until_us.max(slice_until_us);
        }
        Ok((tallies, until_us))
    }

    /// The tallies of a step's seconds that have rows, by objective; and the end of the counted time.
    pub(super) async fn tally_rows(
        &self,
        step: StepId,
        range: TallyRange,
        objectives: &[Objective],
    ) -> Result<(Vec<Tally>, i64), StoreError> {
        let (from_us, within) = match range {
            TallyRange::Window { from_us } => (
                from_us,
                String::from(
                    "AND i.at_us >= coalesce(s.all_active_from_us - ?3, i.at_us)
                     AND i.at_us + i.span_us <= coalesce(s.all_active_until_us + ?3, i.at_us + i.span_us)
                     AND coalesce((SELECT m.resolution_s = 1 OR m.from_us > i.at_us FROM step_sums AS m
                                   WHERE m.step_id = ?1 AND m.until_us > i.at_us AND m.sums IS NOT NULL
                                   ORDER BY m.until_us LIMIT 1), 1)",
                ),
            ),
            TallyRange::Slice { from_us, until_us } => {
                (from_us, format!("AND i.at_us < {until_us} AND ?3 IS NOT NULL"))
            }
        };
        let mut columns = String::new();
        for (index, objective) in objectives.iter().enumerate() {
            let _ = write!(
                columns,
                ", coalesce(sum(iif(coalesce({}, 0), 0, weight)), 0) AS bad_{index}",
                is_good(objective, index + 5)
            );
        }
        let not_work = observed_ops();
        let sql = format!(
            "WITH second AS (
                 SELECT i.at_us, max(i.span_us) AS span_us, sum(i.ops) AS ops, sum(i.bytes) AS bytes,
                        max(i.p50_ns) AS p50_ns, max(i.p99_ns) AS p99_ns, max(i.max_ns) AS max_ns,
                        max((max(i.span_us) + 500000) / 1000000, 1) AS weight
                 FROM step_intervals AS i JOIN steps AS s ON s.id = i.step_id
                 WHERE i.step_id = ?1 AND i.ramp = 0 AND i.at_us >= ?2 AND i.op NOT IN ({not_work}) {within}
                 GROUP BY i.at_us HAVING max(i.span_us) >= ?4)
             SELECT coalesce(max(at_us + span_us), ?2) AS until_us, coalesce(sum(weight), 0) AS seconds{columns}
             FROM second"
        );
        let mut query = sqlx::query(AssertSqlSafe(sql))
            .bind(step.0)
            .bind(from_us)
            .bind(SLACK_US)
            .bind(MIN_SECOND_US);
        for objective in objectives {
            query = query.bind(objective.limit);
        }
        let read = async {
            let row = query.fetch_one(self.reader()).await?;
            let seconds = row.try_get("seconds")?;
            let tallies = (0..objectives.len()).map(|index| {
                let bad = row.try_get(format!("bad_{index}").as_str())?;
                Ok(Tally { seconds, bad })
            });
            let tallies: Result<_, sqlx::Error> = tallies.collect();
            Ok::<_, sqlx::Error>((tallies?, row.try_get("until_us")?))
        };
        read.await.doing("judge the seconds of a step")
    }

    /// The tallies of a run's ended steps, by the text of the objective.
    #[boxed]
    #[inline(never)]
    pub async fn tallies(&self, run: RunId) -> Result<BTreeMap<String, Tally>, StoreError> {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT o.holds, sum(o.seconds), sum(o.bad_seconds)
             FROM steps AS s JOIN step_objectives AS o ON o.step_id = s.id
             WHERE s.run_id = ?1 AND s.state IN ('done', 'failed', 'stopped')
               AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
             GROUP BY o.holds",
        )
        .bind(run.0)
        .fetch_all(self.reader())
        .await
        .doing("read the tallies of objectives")?;
        let by_words = |(holds, seconds, bad)| (holds, Tally { seconds, bad });
        Ok(rows.into_iter().map(by_words).collect())
    }

    /// The objectives of the plan of a step.
    pub(super) async fn objectives_of(&self, step: StepId) -> Result<Vec<Objective>, StoreError> {
        let found: Option<(String, String)> = sqlx::query_as(
            "SELECT r.plan, r.name FROM steps AS s JOIN runs AS r ON r.id = s.run_id
             WHERE s.id = ? AND instr(r.plan, 'objective') > 0",
        )
        .bind(step.0)
        .fetch_optional(self.reader())
        .await
        .doing("read the plan of a step")?;
        let Some((text, name)) = found else {
            return Ok(Vec::new());
        };
        let parsed = super::finish::blocking(move || plan::parse(&text, &name)).await?;
        Ok(parsed.map(|plan| plan.objectives).unwrap_or_default())
    }

    /// Judges an ended step by the objectives of its plan.
    pub(super) async fn judge_objectives(&self, step: StepId) -> Result<(), StoreError> {
        let objectives = self.objectives_of(step).await?;
        if objectives.is_empty() {
            return Ok(());
        }
        let (tallies, _) = self.tally(step, i64::MIN, &objectives).await?;
        self.store_tallies(Haste::AtOnce, step, &objectives, tallies)
            .await
    }

    /// Replaces the tallies of a step.
    pub(crate) async fn store_tallies(
        &self,
        haste: Haste,
        step: StepId,
        objectives: &[Objective],
        tallies: Vec<Tally>,
    ) -> Result<(), StoreError> {
        let words = |objective: &Objective| (objective.holds.clone(), objective.share);
        let rows: Vec<_> = objectives.iter().map(words).zip(tallies).collect();
        self.write_in(haste, (step, rows), |(step, rows), connection| {
            Box::pin(write(*step, rows, connection))
        })
        .await
    }
}

async fn write(
    step: StepId,
    rows: &[((String, f64), Tally)],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for ((holds, share), tally) in rows {
        sqlx::query(
            "INSERT OR REPLACE INTO step_objectives (step_id, holds, share, seconds, bad_seconds) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(step.0)
        .bind(holds.as_str())
        .bind(share)
        .bind(tally.seconds)
        .bind(tally.bad)
        .write(connection, "store the tallies of objectives")
        .await?;
    }
    Ok(())
}

/// SQL: whether a second is good; `parameter` is the number of the parameter with the limit. NULL if no operation
/// ended in the second.
fn is_good(objective: &Objective, parameter: usize) -> String {
    let figure = match objective.figure {
        StepFigure::P50 => "p50_ns / 1e6",
        StepFigure::P99 => "p99_ns / 1e6",
        StepFigure::Max => "max_ns / 1e6",
        StepFigure::Rate => "ops * 1e6 / span_us",
        StepFigure::Throughput => "bytes * 1e6 / span_us",
    };
    let side = match objective.side {
        Side::Above => '>',
        Side::Below => '<',
    };
    format!("{figure} {side} ?{parameter}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tests::{Mesh, S, T0, batch, interval, new_step, send};

    /// Ten datagrams of 4096 bytes a second, all of which are received, with a jitter of 9 ms.
    #[tokio::test]
    async fn what_the_other_end_observed_is_in_no_second() {
        let mesh = Mesh::new().await;
        let (publisher, agent, _) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let (step, tasks) = mesh
            .step(run, new_step(0, "network", "udp-stream"), &[agent])
            .await;
        let mut one = batch("s", 1);
        for second in 0..4 {
            let at = T0 + second * S;
            for (op, ns) in [("send", 1000), ("receive", 1000), ("jitter", 9_000_000)] {
                one.op_intervals
                    .push(interval(*tasks.first().unwrap(), at, op, 10, ns));
            }
        }
        send(&publisher, one).await.unwrap();
        mesh.finish(step, T0 + 4 * S).await;
        let plan = "name = \"links\"
            [[phase]]
            workload = \"null\"
            modes = [\"run\"]
            runtime = \"1s\"
            [[objective]]
            holds = \"rate > 15 for 50% of seconds\"
            [[objective]]
            holds = \"throughput > 60k for 50% of seconds\"
            [[objective]]
            holds = \"p99 < 1ms for 50% of seconds\"
            [[objective]]
            holds = \"rate > 5 for 50% of seconds\"";
        let objectives = plan::parse(plan, "plan").unwrap().objectives;
        let (tallies, _) = mesh.store.tally(step, i64::MIN, &objectives).await.unwrap();
        let bad: Vec<(i64, i64)> = tallies.iter().map(|one| (one.seconds, one.bad)).collect();
        assert_eq!(bad, [(4, 4), (4, 4), (4, 0), (4, 0)]);
    }
}
