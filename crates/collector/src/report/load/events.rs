//! Warnings and errors of a run, and the samples that its agents had to give up.

use super::{ReportError, Statement, json_if_any, reading, rows};
use crate::model::{RunId, StepId};
use crate::report::{EventReport, LossReport};
use serde_json::Value;
use sqlx::{Row, SqliteConnection};
use std::collections::HashMap;

/// A soak run with a dead disk has hundreds of thousands.
const EVENTS_LOADED: usize = 1000;

pub(super) const LOSSES: Statement = Statement {
    what: "losses",
    sql: "SELECT e.name AS agent, l.what, sum(l.rows) AS rows, min(l.from_us) AS from_us, max(l.until_us) AS until_us
          FROM runs AS r CROSS JOIN run_agents AS e ON e.run_id = r.id CROSS JOIN losses AS l ON l.agent_id = e.agent_id
          WHERE r.id = ? AND l.from_us <= coalesce(r.ended_us, 9223372036854775807) AND l.until_us >= r.started_us
          GROUP BY e.name, l.what ORDER BY e.name, l.what",
};

/// The `-over` events come along: each ends the message of the event that it ends.
pub(super) const EVENTS: Statement = Statement {
    what: "events",
    sql: "SELECT e.at_us, e.severity, e.kind, e.step_id, e.agent_id, e.message, e.detail,
                 coalesce(r.name, a.name) AS agent
          FROM events AS e LEFT JOIN agents AS a ON a.id = e.agent_id
               LEFT JOIN run_agents AS r ON r.run_id = e.run_id AND r.agent_id = e.agent_id
          WHERE e.run_id = ?1 AND (e.severity <> 'info' OR e.kind LIKE '%-over') ORDER BY e.at_us, e.id LIMIT 4000",
};

const TOTAL: &str = "SELECT count(*) FROM events WHERE run_id = ? AND severity <> 'info' AND kind NOT LIKE '%-over'";

/// What ties a hang to its end: kind, step, agent, beginning and worker.
type Hang = (String, Option<i64>, Option<i64>, Value, Value);

/// The first warnings and errors, oldest first, and how many there are.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<(Vec<EventReport>, i64), ReportError> {
    let read = rows(connection, EVENTS, run, |row| {
        let event = EventReport {
            at_us: row.try_get("at_us")?,
            severity: row.try_get("severity")?,
            kind: row.try_get("kind")?,
            step_id: row.try_get::<Option<i64>, _>("step_id")?.map(StepId),
            agent: row.try_get("agent")?,
            message: row.try_get("message")?,
            detail: json_if_any(row, "detail")?,
        };
        Ok((event, row.try_get::<Option<i64>, _>("agent_id")?))
    })
    .await?;
    let (ends, begins): (Vec<_>, Vec<_>) = read
        .into_iter()
        .partition(|(event, _)| event.kind.ends_with("-over"));
    let ends: HashMap<Hang, String> = ends
        .into_iter()
        .rev()
        .map(|(event, agent)| {
            let kind = event.kind.trim_end_matches("-over").to_owned();
            (hang(kind, &event, agent), event.message)
        })
        .collect();
    let events = begins
        .into_iter()
        .take(EVENTS_LOADED)
        .map(|(mut event, agent)| {
            if let Some(over) = ends.get(&hang(event.kind.clone(), &event, agent)) {
                event.message = format!("{}; {over}", event.message);
            }
            event
        })
        .collect();
    let total = sqlx::query_scalar(TOTAL)
        .bind(run.0)
        .fetch_one(connection)
        .await
        .map_err(reading("events"))?;
    Ok((events, total))
}

fn hang(kind: String, event: &EventReport, agent: Option<i64>) -> Hang {
    let of = |key: &str| {
        let detail = event.detail.as_ref();
        detail
            .and_then(|detail| detail.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let step = event.step_id.map(|step| step.0);
    (kind, step, agent, of("since_us"), of("worker"))
}

pub(super) async fn losses(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<LossReport>, ReportError> {
    rows(connection, LOSSES, run, |row| {
        Ok(LossReport {
            agent: row.try_get("agent")?,
            what: row.try_get("what")?,
            rows: row.try_get("rows")?,
            from_us: row.try_get("from_us")?,
            until_us: row.try_get("until_us")?,
        })
    })
    .await
}
