//! An agent that is killed and restarted during a step: its client continues as a further task.

use super::LIMIT;
use crate::support::database::Row;
use crate::support::mesh::Mesh;
use crate::support::plan;

/// 25 s of load at a rate that leaves the machine mostly idle.
const TIMED: &str = "[[phase]]\nworkload = \"io\"\nmodes = [\"randwrite\"]\nsize = \"256k\"\nruntime = \"25s\"\nrate_iops = 50\n";

fn tasks(mesh: &Mesh) -> Vec<Row> {
    mesh.db().rows(
        "SELECT a.name, t.id, t.part, coalesce(t.client_index, t.task_index) AS client, t.state, t.start_us,
                coalesce(t.ended_us, 0) AS ended_us, s.start_us AS step_start_us,
                coalesce((SELECT sum(ops) FROM op_intervals AS i WHERE i.task_id = t.id), 0) AS ops,
                coalesce((SELECT max(at_us + span_us) FROM op_intervals AS i WHERE i.task_id = t.id), 0) AS last_us
         FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id JOIN steps AS s ON s.id = t.step_id
         ORDER BY a.name, t.part",
    )
}

#[test]
fn an_agent_that_is_started_again_comes_back_into_its_step() {
    let target = tempfile::tempdir().unwrap();
    let mut mesh = Mesh::of(&["a", "b"], target.path());
    let text = plan::on(target.path(), "loss-after = \"5s\"", TIMED);
    let mut run = mesh.begin(&text);
    mesh.until_step_is("randwrite", "running", LIMIT);
    mesh.until_stored(
        "both have sent some seconds",
        "SELECT count(*) >= 6 AND count(DISTINCT task_id) = 2 FROM op_intervals",
    );
    mesh.kill_agent("b");
    mesh.restart_agent("b");
    let ended = run.exit_within(LIMIT);
    let ended = ended.unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());

    let tasks = tasks(&mesh);
    let states: Vec<(String, i64, String)> = tasks
        .iter()
        .map(|task| (task.text("name"), task.integer("part"), task.text("state")))
        .collect();
    let expected = [("a", 1, "done"), ("b", 1, "lost"), ("b", 2, "done")];
    let expected = expected.map(|(name, part, state)| (name.to_owned(), part, state.to_owned()));
    assert_eq!(states, expected);
    let (whole, first, second) = (&tasks[0], &tasks[1], &tasks[2]);
    assert_eq!(first.integer("client"), second.integer("client"));
    let gap_us = second.integer("start_us") - first.integer("last_us");
    assert!((0..20_000_000).contains(&gap_us), "{gap_us}");
    // It ends with the others, and did not start another 25 s.
    let apart_us = second.integer("ended_us") - whole.integer("ended_us");
    assert!(apart_us.abs() < 2_000_000, "{apart_us}");
    assert!(second.integer("ops") > 0, "{tasks:?}");

    let db = mesh.db();
    db.assert_sound();
    let all: i64 = tasks.iter().map(|task| task.integer("ops")).sum();
    assert_eq!(db.one::<i64>("SELECT ops FROM v_results"), all);
    assert_eq!(db.one::<i64>("SELECT clients FROM v_results"), 2);
    let (from, until): (i64, i64) = (
        db.one("SELECT all_active_from_us FROM steps"),
        db.one("SELECT all_active_until_us FROM steps"),
    );
    // The window of all is the longest time in which neither was away.
    let end_us = whole.integer("ended_us");
    let (before, after) = (
        first.integer("last_us") - whole.integer("start_us"),
        end_us - second.integer("start_us"),
    );
    let longest = before.max(after);
    let window_us = until - from;
    assert!(
        (window_us - longest).abs() < 1_000_000,
        "{window_us}, {longest}"
    );
    assert!(from >= second.integer("start_us") || until <= first.integer("last_us"));
    // It comes back on a second of the step.
    let step_start_us = whole.integer("step_start_us");
    assert_eq!((second.integer("start_us") - step_start_us) % 1_000_000, 0);
    let events = db.rows(
        "SELECT e.message, json_extract(e.detail, '$.gap_us') AS gap_us, json_extract(e.detail, '$.task_id') AS task
         FROM events AS e JOIN agents AS a ON a.id = e.agent_id WHERE e.kind = 'client-returned' AND a.name = 'b'",
    );
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].integer("task"), second.integer("id"));
    let told_us = events[0].integer("gap_us");
    assert!((told_us - gap_us).abs() < 4_000_000, "{told_us}, {gap_us}");
    let partial: String = db.one("SELECT message FROM events WHERE kind = 'step-partial'");
    assert!(
        partial.contains("without `b` (lost after") && partial.contains("back after"),
        "{partial}"
    );

    // The report has one client of this name.
    let report = mesh.command(&["report", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    let clients = &report["steps"][0]["ops"][0]["clients"];
    let each = clients["each"].as_array().unwrap();
    let of_b: Vec<_> = each.iter().filter(|one| one["agent"] == "b").collect();
    assert_eq!(of_b.len(), 1, "{clients}");
    assert_eq!(of_b[0]["tasks"], 1);
    let ops = first.integer("ops") + second.integer("ops");
    assert_eq!(of_b[0]["ops"], ops);
    let rate = of_b[0]["ops_per_s"].as_f64().unwrap();
    assert!((30.0..60.0).contains(&rate), "{rate}");
    mesh.until_attached(&["a", "b"]);
    mesh.run(NEXT);
    let next = "SELECT count(*) FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.workload = 'null' \
                AND t.state = 'done' AND t.part = 1";
    assert_eq!(mesh.db().one::<i64>(next), 2);
}

const NEXT: &str = "[[phase]]\nworkload = \"null\"\nops = 1000\n";
