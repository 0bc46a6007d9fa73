//! Checks, copies, merges and deletions of real databases.

use super::annotations::run_of;
use super::{Mesh, T0};
use crate::model::MeshMicros;
use crate::store::annotate::Annotation;
use crate::store::maintain::{MaintainError, backup, check, delete, merge};
use rusqlite::Connection;

/// What people read of all runs, without ids.
fn results(mesh: &Mesh) -> Vec<String> {
    let connection = Connection::open(mesh.path()).unwrap();
    let mut rows = connection
        .prepare(
            "SELECT format('%s %s %s %.3f %d %s', r.run, r.phase, r.op, r.ops_per_s, r.ops, a.name)
             FROM v_results AS r JOIN tasks AS t ON t.step_id = r.step_id JOIN agents AS a ON a.id = t.agent_id
             UNION ALL SELECT format('%s %s %d', n.name, m.text, m.at_us) FROM marks AS m JOIN runs AS n ON n.id = m.run_id
             UNION ALL SELECT format('%s %d', n.name, count(*)) FROM op_intervals AS i JOIN tasks AS t ON t.id = i.task_id
                 JOIN steps AS s ON s.id = t.step_id JOIN runs AS n ON n.id = s.run_id GROUP BY n.id
             ORDER BY 1",
        )
        .unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

async fn with_runs(names: &[&str]) -> Mesh {
    let mesh = Mesh::new().await;
    for name in names {
        run_of(&mesh, name, 50).await;
        let mark = Annotation::Mark {
            text: format!("begin of {name}"),
            at: Some(MeshMicros(T0)),
        };
        mesh.store
            .annotate(name, mark, MeshMicros(T0 + 1))
            .await
            .unwrap();
    }
    mesh.store.close().await;
    mesh
}

fn wrong(error: MaintainError) -> String {
    assert!(error.is_request(), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_merge_adds_all_runs_and_loses_none() {
    let a = with_runs(&["one", "two"]).await;
    let b = with_runs(&["three", "four"]).await;
    let mut expected = [results(&a), results(&b)].concat();
    expected.sort();
    let merged = merge(&a.path(), &b.path()).await.unwrap();
    assert_eq!(merged.runs, 2);
    assert_eq!(results(&a), expected);
    assert_eq!(check(&a.path()).unwrap(), Vec::<String>::new());
    let again = wrong(merge(&a.path(), &b.path()).await.unwrap_err());
    assert!(
        again.ends_with("already: 1 (run three), 2 (run four)"),
        "{again}"
    );
    assert_eq!(results(&a), expected, "a refused merge changes nothing");
    let itself = merge(&a.path(), &a.path()).await;
    assert!(itself.is_err());
    let newer = Connection::open(b.path()).unwrap();
    newer
        .execute_batch("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (999, 'x', 1, x'00', 0)")
        .unwrap();
    drop(newer);
    let refused = merge(&a.path(), &b.path()).await.unwrap_err().to_string();
    assert!(refused.contains("has schema 999"), "{refused}");
}

#[tokio::test]
async fn a_deleted_run_leaves_nothing_and_takes_nothing_of_others() {
    let both = with_runs(&["one", "two"]).await;
    let alone = with_runs(&["two"]).await;
    let gone = delete(&both.path(), "run one").await.unwrap();
    assert_eq!(gone, (1, "run one".to_owned()));
    assert_eq!(results(&both), results(&alone));
    assert_eq!(check(&both.path()).unwrap(), Vec::<String>::new());
    let missing = wrong(delete(&both.path(), "run one").await.unwrap_err());
    assert!(
        missing.starts_with("there is no run \"run one\""),
        "{missing}"
    );
}

#[tokio::test]
async fn a_copy_of_a_live_database_is_whole_and_damage_is_found() {
    let mesh = Mesh::new().await;
    run_of(&mesh, "one", 50).await;
    let copy = mesh.directory.path().join("copy.db");
    backup(&mesh.path(), &copy).unwrap();
    assert_eq!(check(&copy).unwrap(), Vec::<String>::new());
    assert!(wrong(backup(&mesh.path(), &copy).unwrap_err()).contains("is there already"));
    let busy = wrong(delete(&mesh.path(), "one").await.unwrap_err());
    assert!(
        busy.contains("has") && busy.contains("open: stop it first"),
        "{busy}"
    );
    let damaged = Connection::open(&copy).unwrap();
    damaged
        .execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM runs;")
        .unwrap();
    drop(damaged);
    let found = check(&copy).unwrap();
    assert!(
        found
            .iter()
            .any(|line| line.contains("of steps refer to a missing row of runs")),
        "{found:?}"
    );
    assert!(
        wrong(check(&mesh.directory.path().join("none.db")).unwrap_err())
            .contains("there is no database")
    );
}
