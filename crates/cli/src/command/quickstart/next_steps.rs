//! The last lines of a quickstart: path and size of the database, and queries to try.

use crate::terminal::quoted;
use anyhow::Context;
use benchmesh_answers::report::{Report, figures};
use benchmesh_model::systems::OWN;
use std::path::Path;

/// What a quickstart cannot show.
const NO_DAEMON: &str = "\
The disk of this machine has no storage daemon. On a storage system, each load also has the CPU time per operation of
its ceph-osd, glusterfsd, mfschunkserver, ... on every host.

";

/// Three queries with results in every quickstart database.
pub const QUERIES: [(&str, &str); 3] = [
    (
        "every result",
        "SELECT phase, mode, op, ops_per_s, mib_per_s, p50_ms, p99_ms FROM v_results",
    ),
    (
        "second by second",
        "SELECT phase, mode, second, op, ops_per_s, mib_per_s, p99_ms FROM v_timeline",
    ),
    (
        "CPU time by daemon",
        "SELECT name, instance, round(sum(cpu_s), 2) AS cpu_s FROM v_daemon_usage GROUP BY daemon_id ORDER BY cpu_s DESC",
    ),
];

/// The text beneath the report.
pub fn next_steps(path: &Path, report: &Report) -> anyhow::Result<String> {
    let size = std::fs::metadata(path)
        .with_context(|| format!("read the size of {}", path.display()))?
        .len();
    let file = quoted(&path.display().to_string());
    let mut out = String::from("\n");
    if report.costs.iter().all(|cost| cost.name == OWN) {
        out.push_str(NO_DAEMON);
    }
    out.push_str(&format!(
        "Database: {} ({}). All other files are removed. All tables:\n  benchmesh report {} all --db {file}\n\n\
         Query it:\n",
        path.display(),
        figures::bytes(size),
        report.run.id
    ));
    for (what, sql) in QUERIES {
        out.push_str(&format!(
            "  # {what}\n  benchmesh query --db {file} \"{sql}\"\n"
        ));
    }
    out.push_str(&format!(
        "  # or with any SQLite: sqlite3 {file} 'SELECT phase, mode, ops_per_s FROM v_results'\n"
    ));
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn the_queries_are_understood_by_every_new_database() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new.db");
        let store = benchmesh_store::Store::open(&path).await.unwrap();
        for (what, sql) in QUERIES {
            let answer = benchmesh_answers::query::run(
                &path,
                sql,
                benchmesh_answers::query::Limits::own_process(Duration::from_secs(60)),
                (),
            )
            .await;
            assert!(answer.is_ok(), "{what}: {answer:?}");
        }
        drop(store);
    }
}
