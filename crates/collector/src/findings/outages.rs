//! Outages: seconds at or near zero in a step, over all operations of a group.

use super::steps::{Step, json, windows};
use super::{FindingsError, POINTS, finite, reading, some_of};
use crate::figures;
use crate::model::{FindingVerdict, Severity};
use crate::results::outage::{Outage, Second, outage};
use crate::results::{Finding, FindingKind, real};
use benchmesh_analysis::gaps::{Gap, MIN_RATE, NEAR_ZERO, gaps, is_outage};
use sqlx::SqliteConnection;

/// Seconds of outages that are read of one group.
const MAX_SECONDS: i64 = 100_000;
/// Time after the longest gap for the load to recover.
const AFTER_US: i64 = 30_000_000;
/// A gap of this length is an error.
const LONG_US: i64 = 10_000_000;
/// The newest seconds of a running step are incomplete.
const BEHIND_US: i64 = 3_000_000;

const RATES: &str = "
    SELECT coalesce(i.group_name, ''), p.key, sum(i.ops) * 1e6 / ?3 / count(DISTINCT i.at_us)
    FROM json_each(?1) AS p
         CROSS JOIN step_intervals AS i ON i.step_id = ?2 AND i.at_us >= p.value ->> 0 AND i.at_us < p.value ->> 1
    WHERE i.ramp = 0 AND i.span_us = ?3
    GROUP BY 1, 2 ORDER BY 1, 3";

const LOW_SECONDS: &str = "
    SELECT i.at_us, max(i.span_us)
    FROM step_intervals AS i
    WHERE i.step_id = ?1 AND i.at_us >= ?2 AND i.at_us + i.span_us <= ?3 AND i.ramp = 0
      AND coalesce(i.group_name, '') = ?4
    GROUP BY i.at_us HAVING sum(i.ops) * 1e6 < ?5 * max(i.span_us) LIMIT ?6";

const SECONDS: &str = "
    SELECT i.at_us, max(i.span_us), sum(i.ops), max(i.max_ns)
    FROM step_intervals AS i
    WHERE i.step_id = ?1 AND i.at_us >= ?2 AND i.at_us < ?3 AND i.ramp = 0 AND coalesce(i.group_name, '') = ?4
    GROUP BY i.at_us ORDER BY i.at_us";

/// The clients of a group, and whether any operation of theirs ended in a gap.
const CLIENTS: &str = "
    SELECT a.name, EXISTS (SELECT 1 FROM op_intervals AS i
                           WHERE i.task_id = t.id AND i.at_us >= ?3 AND i.at_us < ?4 AND i.ops > 0)
    FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id
    WHERE t.step_id = ?1 AND coalesce(t.group_name, '') = ?2 ORDER BY a.name";

pub(super) async fn find(
    connection: &mut SqliteConnection,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = Vec::new();
    for step in steps {
        for (group, rate) in usual_rates(connection, step).await? {
            if rate >= MIN_RATE {
                found.extend(of_group(connection, step, &group, rate).await?);
            }
        }
    }
    Ok(found)
}

/// The median rate of each group, over all its operations.
async fn usual_rates(
    connection: &mut SqliteConnection,
    step: &Step,
) -> Result<Vec<(String, f64)>, FindingsError> {
    let windows = windows(step.from_us, step.until_us, POINTS, step.period_us);
    let rows: Vec<(String, i64, f64)> = sqlx::query_as(RATES)
        .bind(json(&windows))
        .bind(step.id)
        .bind(step.period_us)
        .fetch_all(connection)
        .await
        .map_err(reading("step_intervals"))?;
    // They come in the order of their rates.
    let groups = rows.chunk_by(|one, other| one.0 == other.0);
    let medians = groups.filter_map(|rows| {
        let (group, _, rate) = rows.get(rows.len() / 2)?;
        Some((group.clone(), *rate))
    });
    Ok(medians.collect())
}

async fn of_group(
    connection: &mut SqliteConnection,
    step: &Step,
    group: &str,
    rate: f64,
) -> Result<Option<Finding>, FindingsError> {
    let until_us = match step.has_ended {
        true => step.until_us,
        false => step.until_us - BEHIND_US,
    };
    let low: Vec<(i64, i64)> = sqlx::query_as(LOW_SECONDS)
        .bind(step.id)
        .bind(step.from_us)
        .bind(until_us)
        .bind(group)
        .bind(NEAR_ZERO * rate)
        .bind(MAX_SECONDS)
        .fetch_all(&mut *connection)
        .await
        .map_err(reading("step_intervals"))?;
    let gaps = gaps(low.iter().map(|(at, span)| Gap {
        from_us: *at,
        until_us: at + span,
    }));
    let Some(longest) = gaps.iter().copied().max_by_key(|gap| gap.length_us()) else {
        return Ok(None);
    };
    if !is_outage(low.len(), longest.length_us()) {
        return Ok(None);
    }
    let around: Vec<(i64, i64, i64, Option<i64>)> = sqlx::query_as(SECONDS)
        .bind(step.id)
        .bind(longest.from_us)
        .bind((longest.until_us + AFTER_US).min(until_us))
        .bind(group)
        .fetch_all(&mut *connection)
        .await
        .map_err(reading("step_intervals"))?;
    let around: Vec<Second> = around
        .into_iter()
        .map(|(at_us, span_us, ops, slowest_ns)| Second {
            at_us,
            until_us: at_us + span_us,
            ops,
            slowest_ns,
            response_ns: None,
        })
        .collect();
    let clients: Vec<(String, bool)> = sqlx::query_as(CLIENTS)
        .bind(step.id)
        .bind(group)
        .bind(longest.from_us)
        .bind(longest.until_us)
        .fetch_all(connection)
        .await
        .map_err(reading("tasks"))?;
    let gone = Gone {
        group,
        rate,
        gaps: &gaps,
        longest,
        around: outage(longest.from_us, rate, &around),
        clients: &clients,
    };
    Ok(Some(gone.finding(step)))
}

/// The outages of a group.
struct Gone<'g> {
    group: &'g str,
    rate: f64,
    gaps: &'g [Gap],
    longest: Gap,
    around: Option<Outage>,
    clients: &'g [(String, bool)],
}

impl Gone<'_> {
    fn finding(&self, step: &Step) -> Finding {
        let Self { longest, gaps, .. } = self;
        let length_s = real(longest.length_us()) / 1e6;
        let subject = match self.group {
            "" => step.label.clone(),
            group => format!("{group} in {}", step.label),
        };
        let gone_s = gaps.iter().map(|gap| real(gap.length_us())).sum::<f64>() / 1e6;
        let mut sentence = format!(
            "{subject} did next to nothing in {} s ({}), usually {} ops/s; the longest gap took {} s from {}, {}",
            figures::rate(gone_s),
            figures::plural(gaps.len(), "gap"),
            figures::rate(self.rate),
            figures::rate(length_s),
            figures::instant(longest.from_us),
            self.who(),
        );
        if let Some(outage) = &self.around {
            match outage.recovered_s {
                Some(seconds) => {
                    sentence.push_str(&format!("; back after {} s", figures::rate(seconds)));
                }
                None => sentence.push_str("; not back half a minute later, or at the end"),
            }
        }
        let severity = match longest.length_us() >= LONG_US {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let (from, until) = (longest.from_us - 10_000_000, longest.until_us + AFTER_US);
        Finding {
            figure: Some("ops_per_s".to_owned()),
            step_id: Some(step.id),
            group_name: Some(self.group.to_owned()).filter(|group| !group.is_empty()),
            from_us: gaps.first().map(|gap| gap.from_us),
            until_us: gaps.last().map(|gap| gap.until_us),
            size: finite(gone_s),
            unit: Some("s".to_owned()),
            sql: Some(format!(
                "SELECT at, op, ops, tasks, max_ms FROM v_timeline WHERE step_id = {} AND ramp = 0 \
                 AND at_us BETWEEN {from} AND {until} ORDER BY at_us",
                step.id
            )),
            ..Finding::new(
                severity,
                FindingKind::Outage,
                FindingVerdict::Found,
                &subject,
                sentence,
            )
        }
    }

    fn who(&self) -> String {
        let idle: Vec<String> = self
            .clients
            .iter()
            .filter(|(_, has_done)| !has_done)
            .map(|(name, _)| name.clone())
            .collect();
        let all = figures::plural(self.clients.len(), "client");
        match idle.len() {
            0 => format!("no client without an operation of {all}"),
            count if count == self.clients.len() => format!("on all of {all}"),
            _ => format!("without an operation of {} of {all}", some_of(&idle)),
        }
    }
}
