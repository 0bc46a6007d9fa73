//! Forty-eight clients on eight agents, and nested sets of clients, on a file system that identifies each reader.
//! Tolerance: none; operations are counted.

use crate::support::database::Row;
use crate::support::mesh::Mesh;
use std::collections::BTreeSet;

const NAMES: [&str; 8] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];

#[test]
fn forty_eight_clients_on_eight_hosts_and_nested_sets_of_them() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&NAMES, target.path());
    mesh.run(&format!(
        r#"
        [targets.t]
        system = "local"
        path = "{}"
        [[phase]]
        workload = "files"
        files = 25
        size = "100"
        modes = ["create", "stat", "delete"]
        tasks-per-agent = 6
        "#,
        target.path().display()
    ));
    let db = mesh.db();
    let steps = db.rows("SELECT id, mode, clients, start_us FROM steps ORDER BY ordinal");
    assert_eq!(steps.len(), 3);
    for step in &steps {
        let id = step.integer("id");
        assert_eq!(step.integer("clients"), 8, "{step:?}");
        let tasks = db.rows(&format!(
            "SELECT a.name AS agent, count(*) AS tasks, count(DISTINCT t.task_index) AS places,
                    min(t.start_us) AS first, max(t.start_us) AS last, sum(t.state = 'done') AS done,
                    max(t.skew_us) AS skew_us
             FROM tasks t JOIN agents a ON a.id = t.agent_id WHERE t.step_id = {id} GROUP BY a.name ORDER BY a.name"
        ));
        let agents: Vec<String> = tasks.iter().map(|row| row.text("agent")).collect();
        assert_eq!(agents, NAMES);
        for row in &tasks {
            let counted = ["tasks", "places", "done"].map(|column| row.integer(column));
            assert_eq!(counted, [6, 6, 6], "{row:?}");
            let start = step.integer("start_us");
            assert_eq!((row.integer("first"), row.integer("last")), (start, start));
        }
        // Each of the 48 clients has its own files.
        let results = &db.rows(&format!(
            "SELECT tasks, ops, errors FROM step_results WHERE step_id = {id} AND op = '{}'",
            step.text("mode")
        ))[0];
        let counted = ["tasks", "ops", "errors"].map(|column| results.integer(column));
        assert_eq!(counted, [48, 48 * 25, 0], "{step:?}");
        let shares: Vec<i64> = db.column(&format!(
            "SELECT r.ops FROM task_results r JOIN tasks t ON t.id = r.task_id WHERE t.step_id = {id} AND r.op = '{}'",
            step.text("mode")
        ));
        assert_eq!(shares, [25; 48]);
    }
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    check_nested_sets(&mesh);
}

/// Each set of clients is within the next one.
fn check_nested_sets(mesh: &Mesh) {
    let run = mesh.run(
        r#"
        [[phase]]
        workload = "null"
        ops = 100
        matrix = { clients = [1, 2, 4, 8] }
        "#,
    );
    let sets: Vec<Row> = mesh.db().rows(&format!(
        "SELECT s.clients, (SELECT group_concat(name, ' ') FROM (SELECT a.name FROM tasks t JOIN agents a ON a.id = t.agent_id
                            WHERE t.step_id = s.id ORDER BY a.name)) AS agents
         FROM steps s WHERE s.run_id = {run} AND s.state = 'done' ORDER BY s.ordinal"
    ));
    // A cell in which a client was armed too late is restarted: its first attempt is not done.
    let clients: Vec<i64> = sets.iter().map(|set| set.integer("clients")).collect();
    assert_eq!(clients, [1, 2, 4, 8]);
    let names = |set: &Row| -> BTreeSet<String> {
        set.text("agents").split(' ').map(str::to_owned).collect()
    };
    for (set, clients) in sets.iter().zip([1, 2, 4, 8]) {
        assert_eq!(names(set).len(), clients, "{set:?}");
    }
    for pair in sets.windows(2) {
        assert!(names(&pair[0]).is_subset(&names(&pair[1])), "{pair:?}");
    }
}
