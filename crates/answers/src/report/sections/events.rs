//! Warnings and errors of a run.

use crate::report::row::{ReportError, Statement, reading, rows_with, value};
use crate::report::{Report, Table};
use benchmesh_model::mesh::{RunId, StepId};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum number of events that are loaded: a soak run with a dead disk has hundreds of thousands.
const EVENTS_LOADED: usize = 1000;

/// Maximum number of shown events; the others are counted.
const EVENTS_SHOWN: usize = 20;

/// A dated fact that may matter to the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventReport {
    pub at_us: i64,
    pub severity: String,
    pub kind: String,
    pub step_id: Option<StepId>,
    pub agent: Option<String>,
    pub message: String,
    #[serde(default)]
    pub detail: Option<Map<String, Value>>,
}

/// Includes the `-over` events: each completes the message of the event that it ends.
pub(in crate::report) const EVENTS: Statement = Statement {
    what: "events",
    sql: "SELECT e.at_us, e.severity, e.kind, e.step_id, e.agent_id, e.message,
                 iif(json_type(e.detail) = 'object', e.detail, NULL) AS detail, coalesce(r.name, a.name) AS agent
          FROM events AS e LEFT JOIN agents AS a ON a.id = e.agent_id
               LEFT JOIN run_agents AS r ON r.run_id = e.run_id AND r.agent_id = e.agent_id
          WHERE e.run_id = ?1 AND (e.severity <> 'info' OR e.kind LIKE '%-over') ORDER BY e.at_us, e.id LIMIT 4000",
};

const TOTAL: &str = "SELECT count(*) FROM events WHERE run_id = ? AND severity <> 'info' AND kind NOT LIKE '%-over'";

/// The key that links a hang to its end: kind, step, agent, start and worker.
type Hang = (String, Option<i64>, Option<i64>, Value, Value);

/// The first warnings and errors, oldest first, and the total number.
pub(in crate::report) fn load(
    connection: &Connection,
    run: RunId,
) -> Result<(Vec<EventReport>, i64), ReportError> {
    let read: Vec<(EventReport, Option<i64>)> = rows_with(connection, EVENTS, run, |row| {
        Ok((value(row)?, row.get("agent_id")?))
    })?;
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
    let total: i64 = connection
        .query_row(TOTAL, [run.0], |row| row.get(0))
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

pub(in crate::report) fn table(report: &Report) -> Option<Table> {
    // The heading already shows the end of the run.
    let is_the_reason = |event: &&EventReport| {
        event.kind.starts_with("run-") && report.run.reason.as_ref() == Some(&event.message)
    };
    let events: Vec<&EventReport> = report
        .events
        .iter()
        .filter(|one| !is_the_reason(one))
        .collect();
    let shown = events.get(..EVENTS_SHOWN).unwrap_or(&events);
    let all = usize::try_from(report.events_total)
        .unwrap_or(0)
        .max(events.len());
    Table::of("Warnings and errors", shown)
        .instant("when", |event| event.at_us)
        .text("severity", |event| &event.severity)
        .text("agent", |event| event.agent.as_deref().unwrap_or_default())
        .if_any()
        .text("event", |event| &event.kind)
        .text("message", |event| &event.message)
        .note_if(all > shown.len(), || {
            format!(
                "{} more: benchmesh query --example what-went-wrong --run {}",
                all - shown.len(),
                report.run.id
            )
        })
        .done()
}
