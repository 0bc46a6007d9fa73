//! Processes killed during a run. The mesh waits for survivors; a killed process is lost with the data that it sent;
//! only a step that no agent holds any more is restarted.

use super::{
    FILES, LIMIT, Stored, assert_exact, assert_no_holes, mesh_on, needs, paced_plan, until_stored,
};
use crate::support::database::{Database, Row};
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use std::time::Duration;

#[test]
fn the_collector_is_killed_and_the_run_goes_on() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    let mut run = mesh.begin(&paced_plan(&fs, ""));
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    mesh.kill_collector();
    run.kill();
    let before = fs.log().len();
    until_true("the load goes on without a collector", LIMIT, || {
        fs.log().len() > before + 200
    });
    mesh.restart_collector();
    let state = mesh.until_run_is(&["done", "failed", "stopped"], LIMIT);
    let db = mesh.db();
    assert_eq!(state, "done", "{:?}", db.rows("SELECT * FROM events"));
    stored.assert_still_in(&db);
    assert_exact(&db, &fs);
    assert!(
        fs.names().is_empty(),
        "left on the target: {:?}",
        fs.names()
    );
}

#[test]
fn an_agent_is_killed_and_what_it_sent_stays() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    let mut run = mesh.begin(&paced_plan(
        &fs,
        "on-loss = \"continue\"\nloss-after = \"2s\"",
    ));
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    mesh.kill_agent("b");
    let ended = run
        .exit_within(LIMIT)
        .expect("the run ends without the lost agent");
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());
    let db = mesh.db();
    stored.assert_still_in(&db);
    db.assert_sound();
    assert_no_holes(&db);
    let steps = db.rows("SELECT partial, state FROM steps WHERE mode = 'delete'");
    assert_eq!(
        (steps[0].integer("partial"), steps[0].text("state")),
        (1, "done".to_owned())
    );
    let tasks = db.rows(
        "SELECT a.name, t.state, coalesce((SELECT sum(ops) FROM op_intervals i WHERE i.task_id = t.id), 0) AS ops
         FROM tasks t JOIN agents a ON a.id = t.agent_id ORDER BY a.name",
    );
    assert_eq!(
        (tasks[0].text("state"), tasks[0].integer("ops")),
        ("done".to_owned(), FILES)
    );
    assert_eq!(tasks[1].text("state"), "lost");
    let sent = tasks[1].integer("ops");
    assert!(
        sent > 0 && sent < FILES,
        "what the lost agent sent stays: {sent}"
    );
    let lost = db.rows(
        "SELECT e.message FROM events e JOIN agents a ON a.id = e.agent_id WHERE a.name = 'b' \
        AND e.severity <> 'info'",
    );
    assert!(!lost.is_empty(), "the loss is an event with its agent");
    mesh.restart_agent("b");
    mesh.until_attached(&["b"]);
    stored.assert_still_in(&mesh.db());
}

/// Attempts, steps and tasks of the load: (attempt, step's state, partial, agent, task's state, operations).
fn attempts(db: &Database) -> Vec<(i64, String, i64, String, String, i64)> {
    let rows = db.rows(
        "SELECT s.attempt, s.state AS step_state, s.partial, a.name, t.state,
                coalesce((SELECT sum(ops) FROM op_intervals i WHERE i.task_id = t.id), 0) AS ops
         FROM tasks t JOIN steps s ON s.id = t.step_id JOIN agents a ON a.id = t.agent_id
         WHERE s.mode = 'delete' ORDER BY s.attempt, a.name",
    );
    let of = |row: &Row| {
        (
            row.integer("attempt"),
            row.text("step_state"),
            row.integer("partial"),
            row.text("name"),
            row.text("state"),
            row.integer("ops"),
        )
    };
    rows.iter().map(of).collect()
}

/// The survivor's task completes; the dead agent's is lost, with its data up to then; the step is partial and is not
/// restarted.
fn assert_one_partial_attempt(db: &Database, lost_why: &str) {
    let tasks = attempts(db);
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    let partial = |name: &str, state: &str, ops: i64| {
        let words = [name, state].map(str::to_owned);
        let [name, state] = words;
        (1, "done".to_owned(), 1, name, state, ops)
    };
    assert_eq!(tasks[0], partial("a", "done", FILES), "{tasks:#?}");
    let sent = tasks[1].5;
    assert_eq!(tasks[1], partial("b", "lost", sent), "{tasks:#?}");
    assert!(sent < FILES, "{tasks:#?}");
    let why: String = db.one("SELECT error FROM tasks WHERE state = 'lost'");
    assert!(why.contains(lost_why), "{why}");
    assert_eq!(
        db.column::<i64>("SELECT ops FROM v_results"),
        [FILES + sent]
    );
}

/// Kills the collector and then these agents during the load, and restarts the collector.
fn kill_with_collector(mesh: &mut Mesh, plan: &str, agents: &[&str]) -> Stored {
    let mut run = mesh.begin(plan);
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(mesh, 4);
    mesh.kill_collector();
    for agent in agents {
        mesh.kill_agent(agent);
    }
    run.kill();
    mesh.restart_collector();
    stored
}

fn assert_run_ends(mesh: &Mesh, stored: &Stored, expected: &str) -> Database {
    let state = mesh.until_run_is(&["done", "failed", "stopped"], LIMIT);
    let db = mesh.db();
    assert_eq!(state, expected, "{:#?}", db.rows("SELECT * FROM events"));
    stored.assert_still_in(&db);
    db.assert_sound();
    assert_no_holes(&db);
    db
}

#[test]
fn an_agent_killed_with_the_collector_comes_back_without_its_task() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    let plan = paced_plan(&fs, "loss-after = \"30s\"");
    let stored = kill_with_collector(&mut mesh, &plan, &["b"]);
    mesh.restart_agent("b");
    let db = assert_run_ends(&mesh, &stored, "done");
    assert_one_partial_attempt(&db, "restarted and lost its task");
    // What it had counted and not yet written is unknown, and counted.
    let lost: Vec<(String, i64)> = db.rows("SELECT a.name, l.rows FROM losses l JOIN agents a ON a.id = l.agent_id WHERE l.what = 'batches'")
        .iter().map(|row| (row.text("name"), row.integer("rows"))).collect();
    assert_eq!(lost, [(String::from("b"), 1)]);
    // The mesh is usable at once.
    mesh.until_attached(&["a", "b"]);
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    let tasks: i64 = mesh.db().one(
        "SELECT count(*) FROM tasks t JOIN steps s ON s.id = t.step_id \
        WHERE s.workload = 'null' AND t.state = 'done'",
    );
    assert_eq!(tasks, 2);
}

#[test]
fn an_agent_killed_with_the_collector_stays_away() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    // The surviving agent has the same time to reconnect.
    let plan = paced_plan(&fs, "loss-after = \"12s\"");
    let stored = kill_with_collector(&mut mesh, &plan, &["b"]);
    let db = assert_run_ends(&mesh, &stored, "done");
    assert_one_partial_attempt(&db, "`b`");
}

#[test]
fn all_agents_killed_with_the_collector_begin_anew() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    let plan = paced_plan(&fs, "loss-after = \"30s\"");
    let stored = kill_with_collector(&mut mesh, &plan, &["a", "b"]);
    for agent in ["a", "b"] {
        mesh.restart_agent(agent);
    }
    let db = assert_run_ends(&mesh, &stored, "done");
    let tasks = attempts(&db);
    assert_eq!(tasks.len(), 4, "{tasks:#?}");
    for (task, name) in tasks.iter().zip(["a", "b", "a", "b"]) {
        let (attempt, step, partial, agent, state, ops) = task;
        assert_eq!(agent, name, "{tasks:#?}");
        if *attempt == 1 {
            let ends = (step.as_str(), state.as_str());
            assert_eq!(ends, ("failed", "lost"), "{tasks:#?}");
            assert!(*ops < FILES, "{tasks:#?}");
        } else {
            let whole = (*attempt, step.as_str(), *partial, state.as_str(), *ops);
            assert_eq!(whole, (2, "done", 0, "done", FILES), "{tasks:#?}");
        }
    }
    let results = db.column::<i64>("SELECT ops FROM v_results WHERE mode = 'delete'");
    assert_eq!(results, [2 * FILES]);
    assert!(
        fs.names().is_empty(),
        "left on the target: {:?}",
        fs.names()
    );
}

#[test]
fn an_abort_is_carried_out_by_the_next_collector() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    let plan = paced_plan(&fs, "on-loss = \"abort\"\nloss-after = \"3s\"");
    let plan = format!("{plan}\n[[phase]]\nname = \"after\"\nworkload = \"null\"\nops = 1000\n");
    let mut run = mesh.begin(&plan);
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    mesh.kill_agent("b");
    // The surviving agent cannot stop, so the collector dies between the decision and the end.
    fs.add_rule_first(Rule {
        path: "benchmesh-".to_owned(),
        ..Rule::every(Op::Unlink, Fault::Hang)
    });
    until_true("the policy has decided", LIMIT, || {
        let decided =
            "SELECT count(*) FROM runs WHERE state = 'running' AND reason LIKE '%on-loss%'";
        mesh.db().one::<i64>(decided) == 1
    });
    mesh.kill_collector();
    run.kill();
    mesh.restart_collector();
    let resumed = "SELECT count(*) FROM events WHERE kind = 'step-resumed'";
    until_true("the step is taken up", LIMIT, || {
        mesh.db().one::<i64>(resumed) == 1
    });
    fs.release();
    fs.add_rule(Rule {
        path: "benchmesh-".to_owned(),
        ..Rule::every(Op::Unlink, Fault::Delay(Duration::from_millis(5)))
    });
    let db = assert_run_ends(&mesh, &stored, "failed");
    let reason: String = db.one("SELECT reason FROM runs");
    assert!(reason.contains("on-loss"), "{reason}");
    let tasks = attempts(&db);
    let ends: Vec<_> = tasks
        .iter()
        .map(|task| (task.0, task.1.as_str(), task.3.as_str(), task.4.as_str()))
        .collect();
    assert_eq!(
        ends,
        [(1, "failed", "a", "stopped"), (1, "failed", "b", "lost")]
    );
    assert!(tasks[0].5 < FILES, "{tasks:#?}");
    // The instant of the decision stays that of the first collector.
    let halted = "SELECT e.detail ->> 'stopped_us' = r.halted_us FROM events e JOIN runs r ON r.id = e.run_id
                  WHERE e.kind = 'load-stopped'";
    assert_eq!(db.column::<i64>(halted), [1]);
    let after = db.column::<String>("SELECT state FROM steps WHERE phase = 'after'");
    assert_eq!(after, ["planned"], "the run is over");
}
