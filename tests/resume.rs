//! Resuming an ended run: completed work stays, the rest is measured, and incompatible changes are refused.

use crate::support::mesh::Mesh;
use crate::support::plan;
use crate::support::wait::until_true;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// Three cells; the second has two modes that share their data.
const PHASES: &str = r#"
[[phase]]
name = "first"
workload = "files"
files = 20
size = "1k"
modes = ["create"]
[[phase]]
name = "second"
workload = "io"
size = "1m"
modes = ["write", "read"]
rate_iops = 50
runtime = "8s"
[[phase]]
name = "third"
workload = "null"
ops = 100
"#;

/// The error of a refused command.
fn refused(mesh: &Mesh, arguments: &[&str]) -> String {
    let output = mesh.command(arguments);
    assert_eq!(output.code, 1, "{arguments:?}: {}", output.all());
    output.err
}

fn assert_refused(mesh: &Mesh, arguments: &[&str], expected: &str) {
    let message = refused(mesh, arguments);
    assert!(message.contains(expected), "{arguments:?}: {message}");
}

/// The policy ends the run because an agent is killed; the collector is killed and restarted in between.
#[test]
fn an_aborted_run_goes_on_with_its_first_cell_that_is_not_done() {
    let target = tempfile::tempdir().unwrap();
    let mut mesh = Mesh::of(&["a", "b"], target.path());
    let keys = "on-loss = \"abort\"\nloss-after = \"10s\"";
    let run = mesh.begin(&plan::on(target.path(), keys, PHASES));
    mesh.until_step_is("write", "running", LIMIT);
    assert_refused(&mesh, &["resume", "1"], "run 1 is running");
    mesh.until_step_is("read", "running", LIMIT);
    mesh.kill_agent("b");
    assert_eq!(mesh.until_run_is(&["failed"], LIMIT), "failed");
    drop(run);
    let results = "SELECT group_concat(step_id || ' ' || op || ' ' || ops) FROM step_results
                   WHERE step_id IN (SELECT id FROM steps WHERE phase = 'first')";
    let (first, ended_us): (String, i64) = (
        mesh.db().one(results),
        mesh.db().one("SELECT ended_us FROM runs"),
    );

    mesh.kill_collector();
    let database = rusqlite::Connection::open(mesh.db_path()).unwrap();
    let change = "UPDATE run_targets SET mount_type = 'another' WHERE agent_id = 1";
    assert_eq!(database.execute(change, []).unwrap(), 1);
    drop(database);
    mesh.restart_collector();
    mesh.until_attached(&["a"]);
    assert_refused(
        &mesh,
        &["resume", "1"],
        "needs agent `b`, and it is not attached",
    );
    mesh.restart_agent("b");
    mesh.until_attached(&["a", "b"]);
    assert_refused(&mesh, &["resume", "1"], "before another");
    assert_refused(&mesh, &["resume", "1"], "--even-if-changed");
    let output = mesh.command(&["resume", "1", "--even-if-changed", "--detach"]);
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "1\n"),
        "{}",
        output.all()
    );
    mesh.until_step_is("read", "running", LIMIT);
    mesh.kill_collector();
    mesh.restart_collector();
    let state = mesh.until_run_is(&["done", "failed"], LIMIT);
    let db = mesh.db();
    let reasons = db.column::<String>("SELECT message FROM events WHERE severity <> 'info'");
    assert_eq!(state, "done", "{reasons:#?}");
    assert_eq!(
        db.one::<String>(results),
        first,
        "the first step was measured again"
    );
    let steps = db.column::<String>(
        "SELECT phase || ' ' || mode || ' ' || attempt || ' ' || state FROM steps ORDER BY ordinal, attempt",
    );
    let expected = [
        "first create 1 done",
        "second write 1 done",
        "second write 2 done",
        "second read 1 failed",
        "second read 2 done",
        "third run 1 done",
    ];
    assert_eq!(steps, expected);
    let newest = "SELECT DISTINCT attempt FROM v_results WHERE phase = 'second'";
    assert_eq!(db.column::<i64>(newest), [2]);
    let row = db
        .rows("SELECT state, partial, reason, halted_us, paused_us FROM runs")
        .remove(0);
    assert_eq!(
        (row.text("state").as_str(), row.integer("partial")),
        ("done", 0)
    );
    assert!(row.is_null("reason") && row.is_null("halted_us"), "{row:?}");
    let resumed_us: i64 = db.one("SELECT at_us FROM events WHERE kind = 'run-resumed'");
    assert_eq!(row.integer("paused_us"), resumed_us - ended_us);
    let changed: i64 = db.one("SELECT count(*) FROM events WHERE kind = 'target-changed'");
    let asked: i64 = db.one("SELECT count(*) FROM events WHERE kind = 'resume-requested'");
    assert_eq!((changed, asked), (1, 1));
    until_true("its directory is removed", LIMIT, || {
        std::fs::read_dir(target.path()).unwrap().next().is_none()
    });
    db.assert_sound();
    assert_refused(
        &mesh,
        &["resume", "1"],
        "run 1 is complete: all of its 4 steps are done",
    );
    let report = mesh.command(&["report", "1"]);
    assert!(report.out.contains("paused for"), "{}", report.all());
}

/// A loop continues where it ended, and `resume` follows the run to its report like `run`.
#[test]
fn a_stopped_loop_goes_on_where_it_ended() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["a"], target.path());
    let plan = "loops = 3\n[[phase]]\nworkload = \"null\"\nrate_iops = 100\nruntime = \"6s\"\n";
    let run = mesh.begin(plan);
    until_true("the second loop runs", LIMIT, || {
        let running = "SELECT count(*) FROM steps WHERE loop = 2 AND state = 'running'";
        mesh.db().one::<i64>(running) == 1
    });
    let stopped = mesh.command(&["stop", "1"]);
    assert_eq!(stopped.code, 0, "{}", stopped.all());
    mesh.until_run_is(&["stopped"], LIMIT);
    drop(run);
    let resumed = mesh.command(&["resume", "1"]);
    assert_eq!(resumed.code, 0, "{}", resumed.all());
    assert!(resumed.out.contains("run 1"), "{}", resumed.all());
    let steps = mesh.db().column::<String>(
        "SELECT loop || ' ' || attempt || ' ' || state FROM steps ORDER BY ordinal, attempt",
    );
    assert_eq!(steps, ["1 1 done", "2 1 stopped", "2 2 done", "3 1 done"]);
    let stop: i64 = mesh
        .db()
        .one("SELECT count(*) FROM runs WHERE stop_reason IS NOT NULL");
    assert_eq!(stop, 0);
    mesh.assert_no_complaints();
}
