//! Samples that agents had to drop during the run, because their spools were full.

use crate::report::row::Statement;
use serde::{Deserialize, Serialize};

/// Samples that an agent had to drop because its spool was full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossReport {
    pub agent: String,
    pub what: String,
    pub rows: i64,
    pub from_us: i64,
    pub until_us: i64,
}

pub(in crate::report) const LOSSES: Statement = Statement {
    what: "losses",
    sql: "SELECT e.name AS agent, l.what, sum(l.rows) AS rows, min(l.from_us) AS from_us, max(l.until_us) AS until_us
          FROM runs AS r CROSS JOIN run_agents AS e ON e.run_id = r.id CROSS JOIN losses AS l ON l.agent_id = e.agent_id
          WHERE r.id = ? AND l.from_us <= coalesce(r.ended_us, 9223372036854775807) AND l.until_us >= r.started_us
          GROUP BY e.name, l.what ORDER BY e.name, l.what",
};
