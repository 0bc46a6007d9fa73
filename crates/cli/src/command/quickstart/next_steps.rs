//! The last lines of a quickstart: path and size of the database, and queries to try.

use anyhow::Context;
use benchmesh_answers::report::{Report, figures};
use std::path::Path;

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
    let mut out = format!(
        "\nDatabase: {} ({}). All other files are removed; benchmesh report {} --db {file} prints this again.\n\n\
         Query it:\n",
        path.display(),
        figures::bytes(size),
        report.run.id
    );
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

/// Quotes the text for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+,@%=:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_are_quoted_where_a_shell_needs_it() {
        for (name, expected) in [
            ("a/b-2.db", "a/b-2.db"),
            ("my mesh.db", "'my mesh.db'"),
            ("it's", "'it'\\''s'"),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }

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
