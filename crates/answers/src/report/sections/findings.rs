//! Anomalies of a run: drifts, leaks, outages, outliers.

use crate::findings::all_kinds;
use crate::report::row::{ReportError, Statement, rows};
use crate::report::{Finding, Report, RunReport, Table};
use benchmesh_results::FindingKind;
use rusqlite::Connection;
use std::collections::BTreeSet;

/// Maximum number of shown findings; the others are counted.
const SHOWN: usize = 20;

pub(in crate::report) const FINDINGS: Statement = Statement {
    what: "findings",
    sql: "SELECT kind, verdict, severity, subject, figure, step_id, group_name, op, agent_id, host_id, daemon_id, from_us,
                 until_us, size, unit, low, high, p, sentence, sql
          FROM findings WHERE run_id = ? ORDER BY id",
};

/// The stored findings. For a run without any, such as a running one, findings of its current data.
pub(in crate::report) fn findings(
    connection: &Connection,
    run: &RunReport,
) -> Result<Vec<Finding>, ReportError> {
    if run.imported_from.is_some() {
        return Ok(Vec::new());
    }
    let stored: Vec<Finding> = rows(connection, FINDINGS, run.id)?;
    if !stored.is_empty() {
        return Ok(stored);
    }
    all_kinds(connection, run.id).map_err(ReportError::Findings)
}

/// The anomalies; `None` if there are none.
pub(in crate::report) fn table(report: &Report) -> Option<Table> {
    let found: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|one| one.is_found())
        .collect();
    let shown = found.get(..SHOWN).unwrap_or(&found);
    let kinds: BTreeSet<&str> = shown.iter().map(|one| one.kind.as_str()).collect();
    let meanings = FindingKind::ROWS
        .iter()
        .filter(|row| kinds.contains(row.name))
        .map(|row| format!("{}: {}", row.name, row.meaning));
    let meanings: Vec<String> = meanings.collect();
    Table::of("Findings", shown)
        .text("severity", |one| &one.severity)
        .text("kind", |one| &one.kind)
        .text("finding", |one| &one.sentence)
        .note_if(!meanings.is_empty(), || {
            format!("{} (docs/findings.md).", meanings.join("; "))
        })
        .note_if(found.len() > shown.len(), || {
            format!("{} more.", found.len() - shown.len())
        })
        .note_if(true, || {
            format!(
                "What was judged, and the SQL that shows it: benchmesh findings {}.",
                report.run.id
            )
        })
        .done()
}
