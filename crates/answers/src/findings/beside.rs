//! Other events at the time of a finding, appended to its sentence.

use super::{FindingsError, reading};
use crate::rows::all_rows;
use benchmesh_model::mesh::RunId;
use benchmesh_store::IS_OF_RUN;
use benchmesh_workloads::figures;
use rusqlite::Connection;

/// Events this long before and after an instant are listed with it.
const BEFORE_US: i64 = 30_000_000;
const AFTER_US: i64 = 10_000_000;
const SHOWN: usize = 3;
/// Maximum number of events of a run that are read.
const MAX_EVENTS: i64 = 20_000;

const EVENTS: &str = "
    SELECT e.at_us, e.kind, coalesce(a.name || ': ', '') || e.message
    FROM runs AS r CROSS JOIN events AS e LEFT JOIN run_agents AS a ON a.run_id = r.id AND a.agent_id = e.agent_id
    WHERE r.id = ?1 AND e.at_us >= ?2 AND e.at_us <= ?3 AND (e.run_id = r.id OR a.agent_id IS NOT NULL)
      AND /* IS_OF_RUN */
      AND (e.kind IN ('daemon-started', 'daemon-restarted', 'daemon-ended', 'daemon-stopped', 'daemon-continued',
                      'carrier-lost', 'carrier-back', 'link-errors', 'link-silent', 'agent-lost', 'agent-back',
                      'client-frozen', 'client-returned', 'clock-gap', 'stall'))
    UNION ALL
    SELECT m.at_us, 'mark', 'mark: ' || m.text FROM marks AS m
    WHERE m.run_id = ?1 AND m.at_us >= ?2 AND m.at_us <= ?3
    ORDER BY 1 LIMIT ?4";

/// The events of a run that may explain its figures, in order of time.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<(i64, String, String)>);

pub(super) fn load(
    connection: &Connection,
    run: RunId,
    from_us: i64,
    until_us: i64,
) -> Result<Events, FindingsError> {
    let rows: Vec<(i64, String, String)> = all_rows(
        connection,
        &EVENTS.replace("/* IS_OF_RUN */", IS_OF_RUN),
        &[
            run.0.into(),
            (from_us - BEFORE_US).into(),
            (until_us + AFTER_US).into(),
            MAX_EVENTS.into(),
        ],
    )
    .map_err(reading("events"))?;
    Ok(Events(rows))
}

impl Events {
    /// `; at that time: node2: ceph-osd osd.3 (pid 7) has ended (14:02:10)`, or empty.
    pub fn near(&self, from_us: i64, until_us: i64) -> String {
        let span = from_us - BEFORE_US..=until_us + AFTER_US;
        let near: Vec<String> = self
            .0
            .iter()
            .filter(|(at, _, _)| span.contains(at))
            .map(|(at, _, message)| format!("{message} ({})", figures::instant(*at)))
            .collect();
        match near.is_empty() {
            true => String::new(),
            false => {
                let more = near.len().saturating_sub(SHOWN);
                let shown = near.get(..SHOWN).unwrap_or(&near).join("; ");
                let more = if more > 0 {
                    format!("; {more} more events")
                } else {
                    String::new()
                };
                format!("; at that time: {shown}{more}")
            }
        }
    }
}
