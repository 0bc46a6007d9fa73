//! Daemons of a shared host that serve no target of the run: their findings are replaced by one line with their
//! number.

use super::{FindingsError, reading, some_of};
use crate::rows::all_rows;
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer findings of foreign daemons are not replaced.
const MIN_FOREIGN: usize = 2;

/// For each daemon, whether it served a target in some step; NULL if no rule covers it.
const SERVES: &str = "
    SELECT u.daemon_id, iif(count(u.serves_target) = count(*), max(u.serves_target), max(nullif(u.serves_target, 0)))
    FROM steps AS s CROSS JOIN step_daemons AS u ON u.step_id = s.id WHERE s.run_id = ? GROUP BY u.daemon_id";

/// Replaces the findings of daemons that are known to serve no target by one finding. Changes nothing if no daemon is
/// known to serve one.
pub(super) fn in_one_line(
    connection: &Connection,
    run: RunId,
    found: Vec<Finding>,
) -> Result<Vec<Finding>, FindingsError> {
    let rows: Vec<(i64, Option<i64>)> =
        all_rows(connection, SERVES, &[run.0.into()]).map_err(reading("step_daemons"))?;
    if !rows.iter().any(|(_, serves)| *serves == Some(1)) {
        return Ok(found);
    }
    let foreign = rows.iter().filter(|(_, serves)| *serves == Some(0));
    let foreign: BTreeSet<i64> = foreign.map(|(daemon, _)| *daemon).collect();
    let is_foreign = |finding: &Finding| {
        let daemon = finding.daemon_id.filter(|_| finding.is_found());
        daemon.is_some_and(|daemon| foreign.contains(&daemon))
    };
    let (theirs, mut ours): (Vec<Finding>, Vec<Finding>) = found.into_iter().partition(is_foreign);
    if theirs.len() < MIN_FOREIGN {
        ours.extend(theirs);
        return Ok(ours);
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &theirs {
        *kinds.entry(&finding.kind).or_default() += 1;
    }
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let subjects: BTreeSet<String> = theirs.iter().map(|one| one.subject.clone()).collect();
    let subjects: Vec<String> = subjects.into_iter().collect();
    let sentence = format!(
        "{} ({}) of daemons that serve no target of this run: {}",
        figures::plural(theirs.len(), "more finding"),
        kinds.join(", "),
        some_of(&subjects)
    );
    ours.push(Finding {
        sql: Some(format!(
            "SELECT host, name, instance, sum(cpu_s) * 100 / sum(sampled_s) AS cpu_percent, max(rss_last_mib) AS rss_mib \
             FROM v_daemon_usage WHERE run_id = {} AND serves_target = 0 GROUP BY daemon_id ORDER BY 4 DESC",
            run.0
        )),
        ..Finding::new(
            Severity::Info,
            FindingKind::Daemon,
            FindingVerdict::Found,
            "daemons of others",
            sentence,
        )
    });
    Ok(ours)
}
