//! Checks, copies, merges and deletions of real databases.

use super::annotations::run_of;
use super::{Mesh, T0};
use crate::annotate::Annotation;
use crate::maintain::{MaintainError, backup, check, delete, merge};
use benchmesh_model::mesh::MeshMicros;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// The results of all runs that people read, without ids.
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

pub(super) async fn with_runs(names: &[&str]) -> Mesh {
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
    let merged = merge(&a.path(), &b.path(), &mut |_, _| {}).await.unwrap();
    assert_eq!(merged.runs, 2);
    assert_eq!(results(&a), expected);
    assert_eq!(check(&a.path()).unwrap(), Vec::<String>::new());
    let again = wrong(
        merge(&a.path(), &b.path(), &mut |_, _| {})
            .await
            .unwrap_err(),
    );
    assert!(
        again.contains("already has these runs")
            && again.ends_with(": 1 (run three), 2 (run four)"),
        "{again}"
    );
    assert_eq!(results(&a), expected, "a refused merge changes nothing");
    let itself = merge(&a.path(), &a.path(), &mut |_, _| {}).await;
    assert!(itself.is_err());
    let newer = Connection::open(b.path()).unwrap();
    newer
        .execute_batch("PRAGMA user_version = 7; UPDATE meta SET schema = 999;")
        .unwrap();
    drop(newer);
    let refused = merge(&a.path(), &b.path(), &mut |_, _| {})
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("has schema 999"), "{refused}");
}

/// A trigger or another view changes what is stored or shown, and SQLite's own checks find neither.
#[tokio::test]
async fn a_check_finds_objects_that_are_not_ours() {
    let mesh = with_runs(&["one"]).await;
    Connection::open(mesh.path())
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER steps AFTER UPDATE ON runs BEGIN DELETE FROM steps; END;
             DROP VIEW v_marks; CREATE VIEW v_marks AS SELECT 1 AS run_id; DROP INDEX marks_by_run;
             CREATE VIEW theirs AS SELECT id FROM runs;",
        )
        .unwrap();
    let found = check(&mesh.path()).unwrap();
    let expected = [
        "the index \"marks_by_run\" is missing",
        "the view \"v_marks\" is not as benchmesh makes it",
        "the trigger \"steps\" is not benchmesh's",
    ];
    assert_eq!(found, expected);
}

/// For each table of samples: the columns that identify a row in any file, and how they are found.
const SAMPLES: [(&str, &str); 5] = [
    (
        "daemon_samples",
        "SELECT h.boot_id || ' ' || d.pid, x.* FROM daemon_samples AS x
         JOIN daemons AS d ON d.id = x.daemon_id JOIN hosts AS h ON h.id = d.host_id",
    ),
    (
        "host_samples",
        "SELECT h.boot_id, x.* FROM host_samples AS x JOIN hosts AS h ON h.id = x.host_id",
    ),
    (
        "disk_samples",
        "SELECT h.boot_id || ' ' || k.name, x.* FROM disk_samples AS x
         JOIN disks AS k ON k.id = x.disk_id JOIN hosts AS h ON h.id = k.host_id",
    ),
    (
        "net_samples",
        "SELECT h.boot_id || ' ' || n.name, x.* FROM net_samples AS x
         JOIN interfaces AS n ON n.id = x.interface_id JOIN hosts AS h ON h.id = n.host_id",
    ),
    (
        "target_samples",
        "SELECT a.uid || ' ' || t.path, x.* FROM target_samples AS x
         JOIN targets AS t ON t.id = x.target_id JOIN agents AS a ON a.id = t.agent_id",
    ),
];

/// All samples of a file with all their columns, by table, sampled object, and instant.
fn samples(path: &Path) -> BTreeMap<String, String> {
    let file = Connection::open(path).unwrap();
    let mut all = BTreeMap::new();
    for (table, sql) in SAMPLES {
        let mut rows = file.prepare(sql).unwrap();
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let text = |column| format!("{:?}", row.get_ref(column).unwrap());
            // The second column is an id, which differs between files.
            let key = format!("{table} {} {}", text(0), text(2));
            let values: Vec<String> = (3..columns).map(text).collect();
            let twice = all.insert(key, values.join(" "));
            assert_eq!(twice, None, "a sample is there twice");
        }
    }
    all
}

fn change(path: &Path, sql: &str) {
    Connection::open(path)
        .unwrap()
        .execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}"))
        .unwrap();
}

/// Merges, and expects the samples of both files; for samples that both have, those of this file.
async fn merge_samples(a: &Path, b: &Path) {
    let (before, other) = (samples(a), samples(b));
    let mut expected = other.clone();
    expected.extend(before.clone());
    merge(a, b, &mut |_, _| {}).await.unwrap();
    let after = samples(a);
    let differ: Vec<&String> = expected
        .iter()
        .filter(|(key, values)| after.get(*key) != Some(values))
        .map(|(key, _)| key)
        .collect();
    assert!(
        differ.is_empty(),
        "{} are missing or differ: {:?}",
        differ.len(),
        differ.first()
    );
    assert_eq!(after.len(), expected.len());
    assert_eq!(check(a).unwrap(), Vec::<String>::new());
    assert!(samples(b) == other, "the other file is as it was");
}

fn free_pages(path: &Path) -> i64 {
    let file = Connection::open(path).unwrap();
    file.query_row("PRAGMA freelist_count", [], |row| row.get(0))
        .unwrap()
}

/// A generated database. The generator creates its own runtime, which is not allowed on a thread of a test's runtime.
fn generate(path: &Path, hosts: u32) {
    let shape = benchmesh_synthetic::Shape {
        hosts,
        ..benchmesh_synthetic::Shape::small()
    };
    std::thread::scope(|scope| {
        let made = scope.spawn(|| benchmesh_synthetic::generate(path, &shape));
        made.join().unwrap().unwrap();
    });
}

fn another_site(path: &Path, name: &str) {
    change(
        path,
        &format!(
            "UPDATE runs SET uid = '{name}-' || uid; UPDATE agents SET uid = '{name}-' || uid;
             UPDATE hosts SET boot_id = '{name}-' || boot_id;"
        ),
    );
}

/// Series that both files have, completely or partly, with gaps, with other values, at other times, and series of
/// only one file. The other file has pages with our layout, and others that only SQLite reads.
#[tokio::test]
async fn samples_that_both_have_are_stored_once_and_none_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (a, b) = (at("a.db"), at("b.db"));
    generate(&a, 4);
    change(
        &a,
        "INSERT INTO targets (run_id, agent_id, path, nonce)
             SELECT (SELECT min(id) FROM runs), id, '/mnt/' || id, 'n' FROM agents;
         INSERT INTO target_samples SELECT t.id, x.at_us, 100, x.at_us % 100, NULL, NULL
             FROM targets AS t JOIN host_samples AS x ON x.host_id = t.agent_id;",
    );
    std::fs::copy(&a, &b).unwrap();
    change(
        &b,
        "DELETE FROM target_samples WHERE target_id = 1 AND at_us % 3000000 = 0;
         UPDATE runs SET uid = 'b-' || uid;
         UPDATE hosts SET boot_id = 'boot-b' WHERE id = 2; UPDATE agents SET uid = 'agent-b' WHERE id = 2;
         UPDATE daemons SET pid = pid + 5000 WHERE id = 9;
         UPDATE daemon_samples SET at_us = at_us + 3600000000 WHERE daemon_id = 4;
         UPDATE daemon_samples SET at_us = at_us + 500000 WHERE daemon_id = 5;
         DELETE FROM daemon_samples WHERE daemon_id = 6 AND at_us % 7 = 0;
         UPDATE daemon_samples SET rss_bytes = rss_bytes + 1, threads = NULL WHERE daemon_id = 8 AND at_us % 3 = 0;
         UPDATE host_samples SET load1 = 2.25 WHERE host_id = 2;
         DELETE FROM disk_samples WHERE disk_id = 3;",
    );
    change(
        &a,
        &format!(
            "DELETE FROM daemon_samples WHERE daemon_id = 1 AND (at_us - {0}) / 1000000 % 3 = 0;
             DELETE FROM daemon_samples WHERE daemon_id = 2 AND at_us > {0} + 100000000;
             DELETE FROM daemon_samples WHERE daemon_id = 3 AND at_us < {0} + 50000000;
             DELETE FROM daemon_samples WHERE daemon_id = 7 AND at_us BETWEEN {0} + 50000000 AND {0} + 60000000;
             DELETE FROM daemon_samples WHERE daemon_id IN (10, 40);
             DELETE FROM host_samples WHERE host_id = 1; DELETE FROM net_samples WHERE at_us % 2000000 = 0;",
            benchmesh_synthetic::T0_US
        ),
    );
    let (again, large) = (at("again.db"), at("large-pages.db"));
    std::fs::copy(&a, &again).unwrap();
    std::fs::copy(&b, &large).unwrap();
    change(
        &large,
        "PRAGMA journal_mode = DELETE; PRAGMA page_size = 8192; VACUUM; PRAGMA journal_mode = WAL;",
    );
    merge_samples(&a, &b).await;
    merge_samples(&again, &large).await;
    assert!(samples(&a) == samples(&again));
}

/// One site after the other: the rows of each come after all existing ones, and the tree grows from nothing to
/// several levels.
#[tokio::test]
async fn samples_of_other_sites_are_appended() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (empty, site) = (at("empty.db"), at("site.db"));
    crate::Store::open(&empty).await.unwrap().close().await;
    generate(&site, 2);
    let mut expected = 0;
    for name in ["one", "two", "three", "four"] {
        another_site(&site, name);
        if name == "three" {
            change(
                &site,
                "DELETE FROM daemon_samples WHERE at_us % 700000000 > 0; DELETE FROM host_samples;",
            );
        }
        merge_samples(&empty, &site).await;
        expected += samples(&site).len();
        assert_eq!(samples(&empty).len(), expected);
    }
    // The new rows are at the end, and the file can shrink again.
    change(&empty, "DELETE FROM daemon_samples");
    assert!(free_pages(&empty) > 1);
    let run: String = Connection::open(&empty)
        .unwrap()
        .query_row("SELECT uid FROM runs", [], |row| row.get(0))
        .unwrap();
    delete(&empty, &run).await.unwrap();
    assert_eq!(free_pages(&empty), 0);
    assert_eq!(check(&empty).unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn findings_of_merged_rows_come_along_and_samples_are_thinned_again() {
    let a = with_runs(&["one"]).await;
    let b = with_runs(&["two", "three"]).await;
    change(
        &a.path(),
        "UPDATE meta SET samples_10s_until_us = 50, samples_60s_until_us = 40",
    );
    change(&b.path(), "UPDATE meta SET samples_10s_until_us = 30");
    change(
        &b.path(),
        "UPDATE steps SET resolution_s = 10 WHERE run_id = (SELECT id FROM runs WHERE uid = 'three')",
    );
    change(
        &b.path(),
        "INSERT INTO findings (run_id, kind, verdict, severity, subject, step_id, sentence, sql)
         SELECT s.run_id, 'drift', 'found', 'warning', 'x', s.id, 'it drifts', 'SELECT 1' FROM steps AS s",
    );
    merge(&a.path(), &b.path(), &mut |_, _| {}).await.unwrap();
    let connection = Connection::open(a.path()).unwrap();
    let text = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, String>(0))
            .unwrap()
    };
    let found = text(
        "SELECT group_concat(format('%s %s %s', r.uid, f.sentence, s.run_id = r.id AND f.sql IS NULL))
         FROM findings AS f JOIN runs AS r ON r.id = f.run_id JOIN steps AS s ON s.id = f.step_id",
    );
    assert!(
        found.split(',').all(|one| one == "three it drifts 1"),
        "{found}"
    );
    let until = text(
        "SELECT format('%d %s', samples_10s_until_us, coalesce(samples_60s_until_us, 'anew')) FROM meta",
    );
    assert_eq!(until, "30 anew");
}

#[tokio::test]
async fn a_deleted_run_leaves_nothing_and_takes_nothing_of_others() {
    let both = with_runs(&["one", "two"]).await;
    let alone = with_runs(&["two"]).await;
    change(
        &both.path(),
        "INSERT INTO targets (run_id, agent_id, path, nonce)
             SELECT r.id, (SELECT min(id) FROM agents), '/mnt', r.uid FROM runs AS r;
         INSERT INTO target_samples SELECT id, 1, 100, 50, NULL, NULL FROM targets;",
    );
    let gone = delete(&both.path(), "run one").await.unwrap();
    assert_eq!(gone, (1, "run one".to_owned()));
    let targets = "SELECT group_concat(t.nonce) || ' ' || (SELECT count(*) FROM target_samples) FROM targets AS t";
    let targets: String = Connection::open(both.path())
        .unwrap()
        .query_row(targets, [], |row| row.get(0))
        .unwrap();
    assert_eq!(targets, "two 1");
    assert_eq!(results(&both), results(&alone));
    assert_eq!(free_pages(&both.path()), 0, "the space is given back");
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
    assert!(wrong(backup(&mesh.path(), &copy).unwrap_err()).contains("already exists"));
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
