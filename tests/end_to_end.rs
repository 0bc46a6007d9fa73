//! A complete mesh of real processes, and the commands that a user types, from plan to report.

use crate::needs;
use crate::support::command::{CommandOutput, benchmesh};
use crate::support::database::{Database, assert_believable};
use crate::support::mesh::{Agent, Mesh};
use benchmesh_testing::{measured, timing};
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// Of the plan: null, 6 modes of files, 2 cells of io in 2 modes, 2 of copy, 6 ordered pairs in 2 modes.
const STEPS: usize = 1 + 6 + 4 + 2 + 12;

/// A mesh of three agents, each with a target and a scratch directory.
struct Place {
    mesh: Mesh,
    target: TempDir,
    scratch: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = |prefix| tempfile::Builder::new().prefix(prefix).tempdir().unwrap();
        let (target, scratch) = (directory("bm-target-"), directory("bm-scratch-"));
        let mut mesh = Mesh::start();
        for name in ["a", "b", "c"] {
            let agent = Agent::named(name).label("role=client").allow(target.path());
            mesh.add(
                agent
                    .argument("--scratch")
                    .argument(scratch.path().to_str().unwrap()),
            );
        }
        Self {
            mesh,
            target,
            scratch,
        }
    }

    fn plan(&self) -> String {
        format!(
            r#"
            name = "everything"
            [targets.disk]
            system = "local"
            path = "{}"
            [[phase]]
            workload = "null"
            runtime = "500ms"
            [[phase]]
            name = "small"
            workload = "files"
            files = 3000
            numjobs = 2
            modes = ["create", "list", "stat", "read", "rename", "delete"]
            [[phase]]
            name = "records"
            workload = "io"
            modes = ["write", "read"]
            size = "1m"
            matrix = {{ bs = ["4k", "64k"] }}
            [[phase]]
            workload = "copy"
            files = 3
            size = "1m"
            modes = ["in", "out"]
            [[phase]]
            workload = "network"
            modes = ["throughput", "ping"]
            runtime = "300ms"
            "#,
            self.target.path().display()
        )
    }
}

#[test]
fn every_workload_from_plan_to_report() {
    let place = Place::new();
    let run = place.mesh.run(&place.plan());
    let db = place.mesh.db();
    db.assert_sound();
    check_steps(&db, run);
    check_views(&db, run);
    check_commands(&place.mesh, run);
    for directory in [&place.target, &place.scratch] {
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "left in {}", directory.path().display());
    }
    place.mesh.assert_no_complaints();
}

fn check_steps(db: &Database, run: i64) {
    // On a busy machine a cell may miss its start and be retried; the last attempt counts.
    let steps = db.rows(&format!(
        "SELECT *, (SELECT count(*) FROM tasks t WHERE t.step_id = s.id) AS tasks FROM steps s WHERE run_id = {run}
         AND attempt = (SELECT max(again.attempt) FROM steps again WHERE again.run_id = s.run_id AND again.ordinal = s.ordinal)
         ORDER BY ordinal"
    ));
    assert_eq!(steps.len(), STEPS);
    let attempts: i64 = db.one(&format!(
        "SELECT max(attempt) FROM steps WHERE run_id = {run}"
    ));
    assert!(attempts <= 2, "a cell took {attempts} attempts");
    if attempts == 2 {
        crate::support::gate::say("a cell was tried twice");
    }
    let mut end = 0;
    for step in &steps {
        assert_eq!(
            (step.text("state"), step.integer("partial")),
            ("done".to_owned(), 0),
            "{step:?}"
        );
        let tasks = if step.text("workload") == "network" {
            1
        } else {
            3
        };
        assert_eq!(step.integer("tasks"), tasks, "{step:?}");
        assert!(
            step.integer("start_us") >= end,
            "steps follow one another: {step:?}"
        );
        end = step.integer("ended_us");
        assert!(end > step.integer("start_us"), "{step:?}");
    }
    let skew: i64 = db.one("SELECT max(abs(skew_us)) FROM tasks");
    assert!(skew < 100_000, "workers started {skew} us late");
    let ids: Vec<String> = steps
        .iter()
        .map(|step| step.integer("id").to_string())
        .collect();
    let states: Vec<String> = db.column(&format!(
        "SELECT DISTINCT state FROM tasks WHERE step_id IN ({})",
        ids.join(", ")
    ));
    assert_eq!(states, ["done"]);
}

fn check_views(db: &Database, run: i64) {
    let results = db.rows(&format!("SELECT * FROM v_results WHERE run_id = {run}"));
    assert_eq!(results.len(), STEPS);
    for row in &results {
        assert_believable(row);
        assert_eq!(row.text("run"), "everything");
    }
    // The seconds of a step add up to its result.
    let apart = db.rows(
        "SELECT r.step_id, r.op, r.ops, sum(i.ops) AS summed FROM step_results r
         JOIN step_intervals i ON i.step_id = r.step_id AND i.op = r.op GROUP BY r.step_id, r.op HAVING r.ops <> summed",
    );
    assert!(apart.is_empty(), "{apart:?}");
    let links = db.rows("SELECT DISTINCT from_agent, to_agent FROM v_links");
    assert_eq!(links.len(), 6, "{links:?}");
    for (view, least) in [
        ("v_timeline", 10),
        ("v_daemon_usage", 4),
        ("v_host_usage", 1),
        ("v_host_timeline", 10),
        ("run_agents", 3),
        ("run_targets", 1),
        ("v_agents", 3),
        ("v_runs", 1),
    ] {
        let rows: i64 = db.one(&format!("SELECT count(*) FROM {view}"));
        assert!(rows >= least, "{view} has {rows} rows");
    }
    for row in db.rows("SELECT * FROM v_daemon_usage") {
        assert!(
            (0.0..1000.0).contains(&row.number("cpu_percent")),
            "{row:?}"
        );
        assert!(row.number("cpu_s") >= 0.0, "{row:?}");
    }
}

fn check_commands(mesh: &Mesh, run: i64) {
    let id = run.to_string();
    for (arguments, part) in [
        (vec!["report", &id], "small"),
        (vec!["report", "everything", "--format", "markdown"], "|"),
        (vec!["report", "last", "--format", "csv"], "ops_per_s"),
        (vec!["runs"], "everything"),
        (vec!["agents"], "role=client"),
        (vec!["watch", &id], ""),
        (
            vec!["query", "SELECT run FROM v_runs", "--format", "csv"],
            "everything",
        ),
    ] {
        let mut command = mesh.benchmesh();
        let output =
            CommandOutput::of(&command.args(&arguments).current_dir("/").output().unwrap());
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.all());
        assert!(output.out.contains(part), "{arguments:?}: {}", output.all());
    }
    for arguments in [
        vec!["report", &id, "--format", "json"],
        vec!["runs", "--format", "json"],
        vec!["agents", "--format", "json"],
        vec![
            "query",
            "SELECT 1 AS one, NULL AS none, x'00ff' AS blob",
            "--format",
            "json",
        ],
    ] {
        let mut command = mesh.benchmesh();
        let output =
            CommandOutput::of(&command.args(&arguments).current_dir("/").output().unwrap());
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.all());
        let document = serde_json::from_str::<serde_json::Value>(&output.out);
        assert!(document.is_ok(), "{arguments:?}: {}", output.all());
    }
    let csv = mesh.command(&[
        "report",
        &id,
        "--format",
        "csv",
        "--db",
        mesh.db_path().to_str().unwrap(),
    ]);
    let lines: Vec<&str> = csv.out.lines().collect();
    assert_eq!(lines.len(), 1 + STEPS, "{}", csv.all());
}

#[test]
fn overrides_dry_run_and_detach() {
    measured(|| {
        let place = Place::new();
        let plan = place.mesh.plan(&place.plan());
        let plan = plan.to_str().unwrap();
        let output = place
            .mesh
            .command(&["run", plan, "--dry-run", "--set", "repeat=1"]);
        assert_eq!(output.code, 0, "{}", output.all());
        assert!(
            output.out.contains("small") && output.out.contains("create"),
            "{}",
            output.all()
        );
        assert_eq!(place.mesh.db().one::<i64>("SELECT count(*) FROM runs"), 0);
        for arguments in [
            vec!["plan", "check", plan],
            vec!["plan", "show", plan],
            vec!["plan", "show", plan, "--assume-agents", "5"],
        ] {
            let output = place.mesh.command(&arguments);
            assert_eq!(output.code, 0, "{arguments:?}: {}", output.all());
        }
        let short = place
            .mesh
            .plan("name = \"short\"\n[[phase]]\nworkload = \"null\"\nruntime = \"30s\"\n");
        let short = short.to_str().unwrap();
        let output =
            place
                .mesh
                .command(&["run", short, "--set", "phase.null.runtime=1s", "--detach"]);
        assert_eq!(output.code, 0, "{}", output.all());
        assert_eq!(
            output.out.trim(),
            "1",
            "the run's id, and nothing else: {}",
            output.all()
        );
        assert_eq!(place.mesh.until_run_is(&["done", "failed"], LIMIT), "done");
        let db = place.mesh.db();
        let took: i64 = db.one("SELECT ended_us - started_us FROM runs");
        timing!(took < 25_000_000, "--set shortened it: {took} us");
        Ok(())
    });
}

#[test]
fn runs_and_processes_end_when_asked_and_data_stay() {
    let mut place = Place::new();
    let mut run = place.mesh.begin(
        "name = \"long\"\n[[phase]]\nworkload = \"null\"\nruntime = \"10m\"\nrate_iops = 1000\n",
    );
    place.mesh.until_step_is("run", "running", LIMIT);
    crate::support::wait::until_true("a second is stored", LIMIT, || {
        place
            .mesh
            .db()
            .one::<i64>("SELECT count(*) FROM op_intervals")
            >= 3
    });
    // Another run waits for its turn, and is stopped while it waits.
    let waiting = place
        .mesh
        .plan("name = \"next\"\n[[phase]]\nworkload = \"null\"\n");
    let output = place
        .mesh
        .command(&["run", waiting.to_str().unwrap(), "--detach"]);
    assert_eq!(output.code, 0, "{}", output.all());
    let states: Vec<String> = place.mesh.db().column("SELECT state FROM runs ORDER BY id");
    assert_eq!(states, ["running", "queued"]);
    for name in ["next", "long"] {
        let output = place.mesh.command(&["stop", name, "--reason", "enough"]);
        assert_eq!(output.code, 0, "{}", output.all());
    }
    let ended = run
        .exit_within(LIMIT)
        .expect("the stopped run's command ends");
    assert!(!ended.success(), "{}", run.log());
    let db = place.mesh.db();
    db.assert_sound();
    for run in &db.rows("SELECT state, reason FROM runs ORDER BY id") {
        assert_eq!(run.text("state"), "stopped");
        assert!(run.text("reason").contains("enough"), "{run:?}");
    }
    assert!(db.one::<i64>("SELECT sum(ops) FROM op_intervals") > 0);
    // Ctrl-C in the command stops its run, too.
    let mut run = place.mesh.begin(
        "name = \"again\"\n[[phase]]\nworkload = \"null\"\nruntime = \"10m\"\nrate_iops = 1000\n",
    );
    place.mesh.until_step_is("run", "running", LIMIT);
    let ended = run.interrupt(LIMIT);
    assert!(!ended.success());
    let ends = ["stopped", "done", "failed"];
    assert_eq!(place.mesh.until_run_is(&ends, LIMIT), "stopped");
    place.mesh.assert_no_complaints();
    drop(db);
    assert_ends_cleanly(&mut place.mesh);
}

/// The collector leaves the database in one file.
fn assert_ends_cleanly(mesh: &mut Mesh) {
    let ended = mesh.collector_mut().interrupt(LIMIT);
    assert!(ended.success(), "{ended}: {}", mesh.collector().log());
    for tail in ["-wal", "-shm"] {
        let mut beside = mesh.db_path().as_os_str().to_owned();
        beside.push(tail);
        assert!(
            !std::path::Path::new(&beside).exists(),
            "{tail} is left beside the database"
        );
    }
    mesh.db().assert_sound();
}

#[test]
fn sqlite3_reads_every_view() {
    needs!("sqlite3");
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nruntime = \"2s\"\nrate_iops = 1000\n");
    let db = mesh.db_path().to_str().unwrap();
    for view in [
        "v_results",
        "v_timeline",
        "v_daemon_usage",
        "v_cost",
        "v_host_usage",
        "v_host_timeline",
        "v_links",
        "v_agents",
        "v_runs",
    ] {
        crate::support::command::must("sqlite3", &[db, &format!("select * from {view}")]);
    }
    let results = crate::support::command::must("sqlite3", &[db, "select * from v_results"]);
    assert_eq!(results.lines().count(), 1, "{results}");
}

#[test]
fn the_version_is_printed_and_an_unknown_command_refused() {
    let version = CommandOutput::of(&benchmesh().arg("--version").output().unwrap());
    assert!(
        version.out.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        version.all()
    );
    let wrong = CommandOutput::of(&benchmesh().arg("frobnicate").output().unwrap());
    assert_eq!(wrong.code, 2, "{}", wrong.all());
}
