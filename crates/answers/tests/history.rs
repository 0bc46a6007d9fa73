//! The views, questions, reports and pictures of a run stay the same, byte for byte, when its agents and hosts
//! change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use benchmesh_answers::compare::{Request, Subject, compare_file};
use benchmesh_answers::pictures;
use benchmesh_answers::query::questions;
use benchmesh_answers::report::{self, Detail};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::Store;
use benchmesh_store::rows::{NewAgent, NewHost};
use std::collections::BTreeMap;
use std::path::Path;

const DATA: &str = include_str!("questions/data.sql");
/// After the last run of the data.
const LATER_US: i64 = 500_000_000;

/// All output about run 2, by view, question or format.
async fn outputs(path: &Path) -> BTreeMap<String, String> {
    let mut outputs = BTreeMap::new();
    let file = rusqlite::Connection::open(path).unwrap();
    // As `benchmesh query` has them.
    for (name, function) in [("ln", f64::ln as fn(f64) -> f64), ("exp", f64::exp)] {
        let flags = rusqlite::functions::FunctionFlags::default();
        file.create_scalar_function(name, 1, flags, move |context| {
            Ok(context.get::<Option<f64>>(0)?.map(function))
        })
        .unwrap();
    }
    let mut views = file
        .prepare("SELECT m.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c ON c.name = 'run_id'
                  WHERE m.type = 'view'")
        .unwrap();
    let views: Vec<String> = views
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(views.len() >= 9, "{views:?}");
    for view in views {
        let rows = rows(&file, &format!("SELECT * FROM {view} WHERE run_id = 2"));
        assert!(!rows.is_empty(), "{view}");
        outputs.insert(view, rows);
    }
    for question in questions::all() {
        outputs.insert(question.name.to_owned(), rows(&file, &question.about(2)));
    }
    let report = report::load_file(path, "2").await.unwrap();
    let drawn = pictures::load(path, std::sync::Arc::new(report.clone()))
        .await
        .unwrap();
    outputs.insert(
        "json".to_owned(),
        serde_json::to_string_pretty(&report).unwrap(),
    );
    let html = pictures::html(&report, &drawn);
    // The nonce is random for each file.
    let (_, nonce) = html.split_once("'nonce-").unwrap();
    let (nonce, _) = nonce.split_once('\'').unwrap();
    outputs.insert("html".to_owned(), html.replace(nonce, "NONCE"));
    outputs.insert(
        "markdown".to_owned(),
        report::markdown(&report, Detail::All),
    );
    let runs = Request::from(Subject::Runs {
        a: "1".to_owned(),
        b: "2".to_owned(),
    });
    let compared = compare_file(path, &runs).await.unwrap();
    outputs.insert("compare".to_owned(), format!("{compared:#?}"));
    outputs
}

fn rows(file: &rusqlite::Connection, sql: &str) -> String {
    let mut statement = file.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let cells: Vec<_> = (0..columns)
            .map(|at| format!("{:?}", row.get::<_, rusqlite::types::Value>(at).unwrap()))
            .collect();
        Ok(cells.join(" | ") + "\n")
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn client() -> NewAgent {
    NewAgent {
        uid: "a1".to_owned(),
        name: "c1".to_owned(),
        host: NewHost {
            boot_id: "b1".to_owned(),
            pid_namespace: "p".to_owned(),
            name: "c1".to_owned(),
            kernel: "Linux 6.1".to_owned(),
            cpus: 4,
            memory_bytes: 8 << 30,
        },
        labels_json: r#"{"role":"client"}"#.to_owned(),
        version: "0.1.0".to_owned(),
        may_rename: true,
        describes_host: true,
        at: MeshMicros(LATER_US),
    }
}

fn server() -> NewAgent {
    let mut agent = client();
    agent.uid = "a2".to_owned();
    agent.name = "s1".to_owned();
    agent.host.boot_id = "b2".to_owned();
    agent.host.name = "s1".to_owned();
    agent.host.cpus = 8;
    agent.host.memory_bytes = 16 << 30;
    agent.labels_json = r#"{"role":"storage"}"#.to_owned();
    agent
}

/// The agents attach again, each time with the next of these changes.
fn changes() -> Vec<(&'static str, NewAgent)> {
    let (mut one, mut two) = (client(), server());
    let mut changes = vec![("nothing new", one.clone()), ("nothing new", two.clone())];
    one.name = "renamed".to_owned();
    changes.push(("a renamed agent", one.clone()));
    two.host.name = "renamed-host".to_owned();
    two.host.kernel = "Linux 7.0".to_owned();
    changes.push(("a renamed host", two.clone()));
    two.host.cpus = 2;
    two.host.memory_bytes = 1 << 30;
    changes.push(("fewer CPUs and less memory", two.clone()));
    two.labels_json = r#"{"role":"client","serves":"other"}"#.to_owned();
    two.version = "9.9.9".to_owned();
    changes.push(("other labels and another version", two.clone()));
    one.host.boot_id = "b1-rebooted".to_owned();
    changes.push(("a reboot of the client", one.clone()));
    two.host.boot_id = "b2-rebooted".to_owned();
    two.host.name = "again".to_owned();
    changes.push(("a reboot of the server", two));
    one.name = "s1".to_owned();
    one.host.boot_id = "b2-rebooted".to_owned();
    changes.push(("the client moved to the server's host", one));
    changes
}

#[tokio::test]
async fn an_old_run_reads_the_same_whatever_becomes_of_its_agents_and_hosts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let store = Store::open(&path).await.unwrap();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(DATA)
        .unwrap();
    let before = outputs(&path).await;
    assert!(
        before["v_host_usage"].contains("c1"),
        "{}",
        before["v_host_usage"]
    );
    for (after, (what, mut agent)) in (1_i64..).zip(changes()) {
        agent.at = MeshMicros(LATER_US + after);
        store.attach_agent(agent).await.unwrap();
        let now = outputs(&path).await;
        for (name, text) in &before {
            assert_eq!(text, &now[name], "{name} after {what}");
        }
    }
    let file = rusqlite::Connection::open(&path).unwrap();
    let today =
        "SELECT a.name, h.name FROM agents AS a JOIN hosts AS h ON h.id = a.host_id ORDER BY a.id";
    let today = rows(&file, today);
    assert_eq!(today, "Text(\"s1\") | Text(\"c1\")\n".repeat(2));
    store.close().await;
}
