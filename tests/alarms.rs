//! Alarms of a plan: raised during the run, marked on its timeline, passed to a command, and ending the run if
//! configured.

use crate::support::mesh::{Agent, Mesh};
use crate::support::plan::{self, READS};
use crate::support::wait;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Far above the rate of the load.
const ALARMS: &str = "
[[alarm]]
when = \"rate < 5000 for 2s\"
then = \"mark\"

[[alarm]]
when = \"no progress for 30s\"
then = \"stop\"

[[alarm]]
when = \"rate < 4000 for 5s\"
then = \"stop\"
";

#[test]
fn an_alarm_is_an_event_and_a_mark_and_stops_the_run() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["c1", "c2"], target.path());
    let text = plan::on(
        target.path(),
        "",
        &format!("{READS}runtime = \"60s\"\nrate_iops = 200\n{ALARMS}"),
    );
    let mut run = mesh.begin(&text);
    let ended = run.exit_within(Duration::from_secs(50)).unwrap();
    assert_eq!(ended.code(), Some(3), "stopped: {}", run.log());

    let db = mesh.db();
    let raised: Vec<String> = db.column(
        "SELECT message FROM events WHERE kind = 'alarm' AND step_id IS NOT NULL ORDER BY id",
    );
    assert_eq!(raised.len(), 2, "{raised:#?}");
    assert!(raised[0].starts_with("alarm `rate < 5000 for 2s`: rate is "));
    assert!(raised[1].starts_with("alarm `rate < 4000 for 5s`: rate is "));
    let marks: Vec<String> = db.column("SELECT text FROM marks");
    assert_eq!(marks, raised[..1]);
    let reason: String = db.one("SELECT stop_reason FROM runs");
    assert_eq!(reason, raised[1]);
    assert!(run.log().contains(&raised[0]), "{}", run.log());
    // It was stopped within seconds of the cause: otherwise the load would have run for 60 s.
    let ran: f64 = db.one("SELECT (ended_us - start_us) / 1e6 FROM steps");
    assert!((5.0..30.0).contains(&ran), "{ran}");
}

/// A command for `--on-alarm` that writes states and conditions to `lines`, and its input to `json`.
fn recorder(directory: &Path) -> String {
    let program = directory.join("told");
    let script = "#!/bin/sh\necho \"$BENCHMESH_ALARM_STATE $BENCHMESH_ALARM_CONDITION\" >> $1/lines\ncat >> $1/json\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{} {}", program.display(), directory.display())
}

/// What the command was told, oldest first.
fn lines_of(directory: &Path) -> Vec<String> {
    let lines = std::fs::read_to_string(directory.join("lines")).unwrap_or_default();
    lines.lines().map(str::to_owned).collect()
}

/// The collector is killed, stopped, and stopped right after the run's end. Takes about 30 s.
#[test]
fn an_alarm_is_over_at_the_end_of_its_run_whatever_becomes_of_the_collector() {
    const LIMIT: Duration = Duration::from_secs(40);
    let target = tempfile::tempdir().unwrap();
    let told = tempfile::tempdir().unwrap();
    let mut mesh = Mesh::with_collector_arguments(&["--on-alarm", &recorder(told.path())]);
    mesh.launch(Agent::named("c1").allow(target.path()));
    mesh.until_attached(&["c1"]);
    let text = |runtime: &str| {
        let load = format!("{READS}runtime = \"{runtime}\"\nrate_iops = 200\n");
        let alarm = "[[alarm]]\nwhen = \"rate < 4000 for 1s\"\n";
        plan::on(target.path(), "", &format!("{load}{alarm}"))
    };
    let count = |state: &str| {
        let lines = lines_of(told.path());
        let of_state = |line: &&String| line.starts_with(state);
        lines.iter().filter(of_state).count()
    };
    let run = mesh.begin(&text("600s"));
    wait::until_true("the alarm is raised", LIMIT, || count("raised") == 1);
    mesh.until_stored(
        "the alarm",
        "SELECT count(*) FROM events WHERE kind = 'alarm'",
    );
    mesh.kill_collector();
    mesh.restart_collector();
    wait::until_true("it is raised again", LIMIT, || count("raised") == 2);
    mesh.end_collector(LIMIT);
    assert_eq!(count("over"), 0, "the run goes on");
    mesh.restart_collector();
    mesh.until_attached(&["c1"]);
    // It may end before it has figures again.
    let stopped = mesh.command(&["stop", "1"]);
    assert_eq!(stopped.code, 0, "{}", stopped.all());
    wait::until_true("the alarm is over", LIMIT, || count("over") == 1);
    drop(run);

    let mut run = mesh.begin(&text("12s"));
    let raised = count("raised");
    wait::until_true("the alarm is raised", LIMIT, || count("raised") > raised);
    assert!(run.exit_within(LIMIT).unwrap().success(), "{}", run.log());
    mesh.end_collector(LIMIT);
    assert_eq!(count("over"), 2, "{:?}", lines_of(told.path()));
    let over: Vec<String> = mesh.db().column(
        "SELECT run_id || ' ' || substr(message, 1, 34) FROM events WHERE kind = 'alarm-over' ORDER BY id",
    );
    let message = "alarm `rate < 4000 for 1s` is over";
    assert_eq!(over, [format!("1 {message}"), format!("2 {message}")]);
}

#[test]
fn an_alarm_ends_the_run_as_failed_and_is_given_to_the_command_as_is_a_broken_objective() {
    let target = tempfile::tempdir().unwrap();
    let told = tempfile::tempdir().unwrap();
    let command = recorder(told.path());
    let mut mesh = Mesh::with_collector_arguments(&["--on-alarm", &command]);
    mesh.launch(Agent::named("c1").allow(target.path()));
    mesh.until_attached(&["c1"]);
    let text = plan::on(
        target.path(),
        "",
        &format!(
            "{READS}runtime = \"60s\"\nrate_iops = 200\n
             [[alarm]]\nwhen = \"rate < 4000 for 8s\"\nthen = \"abort\"\n
             [[objective]]\nholds = \"rate > 4000 for 99% of seconds\"\n
             [[objective]]\nholds = \"rate > 1 for 50% of seconds\"\n"
        ),
    );
    let mut run = mesh.begin(&text);
    let ended = run.exit_within(Duration::from_secs(50)).unwrap();
    assert_eq!(ended.code(), Some(1), "failed: {}", run.log());

    let db = mesh.db();
    let row = &db.rows("SELECT state, reason FROM runs")[0];
    let reason = row.text("reason");
    assert_eq!(row.text("state"), "failed");
    assert!(
        reason.starts_with("alarm `rate < 4000 for 8s`: rate is "),
        "{reason}"
    );
    let broken = wait::until(
        "the objective is said to be broken",
        Duration::from_secs(20),
        || {
            let sql = "SELECT message FROM events WHERE kind = 'objective-broken'";
            Some(db.column::<String>(sql)).filter(|broken| !broken.is_empty())
        },
    );
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(broken[0].starts_with("objective `rate > 4000 for 99% of seconds` is broken"));
    let kept: i64 = db.one(
        "SELECT count(*) FROM step_objectives WHERE holds = 'rate > 1 for 50% of seconds' AND seconds >= 5 AND bad_seconds = 0",
    );
    assert_eq!(kept, 1);
    let report = mesh.command(&["report"]).out;
    assert!(
        report.contains("rate > 4000 for 99% of seconds") && report.contains("broken"),
        "{report}"
    );
    let lines = || std::fs::read_to_string(told.path().join("lines")).unwrap_or_default();
    wait::until_true(
        "the command is told of all",
        Duration::from_secs(20),
        || lines().lines().count() == 3,
    );
    let expected = [
        "raised rate < 4000 for 8s",
        "over rate < 4000 for 8s",
        "broken rate > 4000 for 99% of seconds",
    ];
    assert!(
        expected
            .iter()
            .all(|line| lines().lines().any(|told| told == *line)),
        "{}",
        lines()
    );
    let json = std::fs::read_to_string(told.path().join("json")).unwrap();
    assert!(json.contains("\"run_id\":1"), "{json}");
    let failures: i64 = db.one("SELECT count(*) FROM events WHERE kind = 'alarm-command'");
    assert_eq!(failures, 0);
}
