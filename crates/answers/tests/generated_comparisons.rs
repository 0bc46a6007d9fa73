//! Comparisons on a generated database, changed in between: what is read of clients, marks, events and daemons.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use benchmesh_answers::compare::{Request, Subject, compare_file};
use benchmesh_synthetic::{Shape, generate};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;

async fn runs(path: &Path) -> Value {
    let request = Request::from(Subject::Runs {
        a: "1".to_owned(),
        b: "2".to_owned(),
    });
    serde_json::to_value(compare_file(path, &request).await.unwrap()).unwrap()
}

async fn targets(path: &Path) -> Value {
    let request = Request::from(Subject::Targets {
        run: "2".to_owned(),
    });
    serde_json::to_value(compare_file(path, &request).await.unwrap()).unwrap()
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Two runs of plan `nightly`, each on two targets. Takes some 4 s, mostly to generate.
#[tokio::test]
async fn what_happened_beside_the_figures_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let shape = Shape {
        step_seconds: 10,
        repeats: 1,
        ..Shape::small()
    };
    let made = path.clone();
    // It has a runtime of its own.
    tokio::task::spawn_blocking(move || generate(&made, &shape).unwrap())
        .await
        .unwrap();
    marks_and_disturbed_daemons(&path).await;
    daemons_of_other_versions(&path).await;
    clients_that_stayed(&path).await;
}

/// With the author's own text, and with the side that a daemon worked for.
async fn marks_and_disturbed_daemons(path: &Path) {
    change(
        path,
        "INSERT INTO marks (run_id, at_us, text)
             SELECT run_id, start_us + 1000000, 'switch B rebooted' FROM steps
             WHERE run_id = 2 AND target = 'sr33' ORDER BY ordinal LIMIT 1;
         INSERT INTO marks (run_id, at_us, text)
             SELECT run_id, max(coalesce(last_done_us, ended_us)) + 60000000, 'much later' FROM steps WHERE run_id = 2;
         INSERT INTO events (at_us, agent_id, severity, kind, message, detail)
             SELECT s.start_us + 2000000, a.id, 'warning', 'daemon-stopped', d.name || ' was stopped',
                    json_object('pid', d.pid, 'start_ticks', d.start_ticks)
             FROM steps AS s JOIN step_daemons AS u ON u.step_id = s.id AND u.serves_target = 1
                  JOIN daemons AS d ON d.id = u.daemon_id JOIN agents AS a ON a.host_id = d.host_id
             WHERE s.run_id = 2 AND s.target = 'sr33' ORDER BY s.ordinal LIMIT 1;",
    );
    let answer = targets(path).await;
    let rows = answer["comparisons"][0]["rows"].as_array().unwrap();
    let mut caveats: Vec<&str> = rows
        .iter()
        .flat_map(|row| row["caveats"].as_array().unwrap())
        .map(|caveat| caveat.as_str().unwrap())
        .filter(|caveat| caveat.starts_with("while "))
        .collect();
    caveats.dedup();
    let [only] = caveats[..] else {
        panic!("{caveats:?}");
    };
    assert!(
        only.starts_with("while sr33 ran: mark `switch B rebooted`; "),
        "{only}"
    );
    assert!(only.ends_with(" was stopped (it served sr33)"), "{only}");
}

/// The daemons of the second run differ, and some of them were upgraded.
async fn daemons_of_other_versions(path: &Path) {
    change(
        path,
        "UPDATE daemons SET version = '17.2.7';
         INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us, version)
             SELECT id + 1000, host_id, name, instance, pid + 1000, start_ticks, cmdline, first_seen_us, last_seen_us,
                    iif(host_id = 1, '17.2.7', '18.2.4') FROM daemons;
         UPDATE step_daemons SET daemon_id = daemon_id + 1000
             WHERE step_id IN (SELECT id FROM steps WHERE run_id = 2);",
    );
    let name: String = Connection::open(path)
        .unwrap()
        .query_row("SELECT DISTINCT name FROM daemons", [], |row| row.get(0))
        .unwrap();
    let text = runs(path).await.to_string();
    let said = format!("{name} version 17.2.7 against 17.2.7 and 18.2.4");
    assert!(text.contains(&said), "{said}: {text}");
    let of_one_cluster = targets(path).await.to_string();
    assert!(
        !of_one_cluster.contains(" version 17.2.7"),
        "{of_one_cluster}"
    );
}

/// The clients that stayed are counted from the tasks, and the rate is theirs.
async fn clients_that_stayed(path: &Path) {
    change(
        path,
        "UPDATE steps SET partial = 1, flags = '[\"partial\"]' WHERE run_id = 2;
         UPDATE step_results SET headline = 'window' WHERE step_id IN (SELECT id FROM steps WHERE run_id = 2);
         UPDATE tasks SET state = 'lost' WHERE step_id IN (SELECT id FROM steps WHERE run_id = 2) AND agent_id =
             (SELECT max(t.agent_id) FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 2);",
    );
    let rate = |run: i64| -> f64 {
        let sql = "SELECT o.ops_per_s / (SELECT count(DISTINCT t.agent_id) FROM tasks AS t
                                         WHERE t.step_id = s.id AND t.state = 'done')
                   FROM steps AS s JOIN step_results AS o ON o.step_id = s.id WHERE s.run_id = ? AND s.ordinal = 1";
        let file = Connection::open(path).unwrap();
        file.query_row(sql, [run], |row| row.get(0)).unwrap()
    };
    let answer = runs(path).await;
    let row = &answer["comparisons"][0]["rows"][0];
    assert_eq!(
        (&row["unit"], &row["per_client"], row["judged"].as_bool()),
        (&json!("ops/s per client"), &json!(true), Some(true)),
        "{row}"
    );
    let ratio = row["ratio"].as_f64().unwrap();
    assert!((ratio - rate(2) / rate(1)).abs() < 1e-6, "{row}");
    // A rate over the whole step cannot be attributed to single clients.
    change(
        path,
        "UPDATE step_results SET headline = 'last-done' WHERE step_id IN (SELECT id FROM steps WHERE run_id = 2);",
    );
    let answer = runs(path).await;
    let row = &answer["comparisons"][0]["rows"][0];
    assert_eq!(row["verdict"], json!("not-comparable"), "{row}");
}
