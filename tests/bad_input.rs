//! What people get wrong: each mistake is refused before anything runs, and told with its place and its remedy.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::command::{Said, benchmesh};
use support::database::Database;
use support::loop_device::Mounted;
use support::mesh::{Agent, Mesh, alone};
use support::process::Process;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);

fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("bm-bad-")
        .tempdir()
        .unwrap()
}

/// Runs a command that must fail by itself, soon, without a panic.
fn refused(mut command: Command) -> Said {
    let directory = directory();
    let (out, err) = (directory.path().join("out"), directory.path().join("err"));
    command.stdout(std::fs::File::create(&out).unwrap());
    command.stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let status = support::wait::try_until(LIMIT, || child.try_wait().unwrap());
    let status = status.unwrap_or_else(|| {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it hangs: {}", std::fs::read_to_string(&err).unwrap())
    });
    let said = Said {
        code: status.code().unwrap_or(128),
        out: std::fs::read_to_string(&out).unwrap(),
        err: std::fs::read_to_string(&err).unwrap(),
    };
    assert_ne!(said.code, 0, "{}", said.all());
    assert!(!said.err.contains("panicked"), "{}", said.all());
    said
}

fn collector(db: &Path) -> Command {
    let mut command = benchmesh();
    command
        .args(["collector", "--listen", "127.0.0.1:0", "--db"])
        .arg(db);
    command
}

#[test]
fn plans_that_cannot_be_run() {
    let target = directory();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").label("role=client").allow(target.path()));
    let here = target.path().display();
    let phase = "[[phase]]\nworkload = \"files\"\nmodes = [\"create\"]\n";
    let at = |path: &str| format!("[targets.t]\nsystem = \"x\"\npath = \"{path}\"\n");
    let here = at(&here.to_string());
    for (what, plan, line, part) in [
        (
            "an unknown key",
            format!("{here}{phase}fils = 3\n"),
            ":7:",
            "files",
        ),
        (
            "a bad size",
            format!("{here}{phase}size = \"4 parsecs\"\n"),
            ":7:",
            "4 parsecs",
        ),
        (
            "an unknown workload",
            format!("{here}[[phase]]\nworkload = \"fils\"\n"),
            ":5:",
            "files",
        ),
        (
            "an unknown mode",
            format!("{here}[[phase]]\nworkload = \"files\"\nmodes = [\"craete\"]\n"),
            ":6:",
            "create",
        ),
        ("no phase", here.clone(), "", "phase"),
        ("not TOML", "phase = [\n".to_owned(), ":", "TOML"),
        (
            "an empty target",
            format!("{}{phase}", at("")),
            ":3:",
            "empty",
        ),
        ("no target", phase.to_owned(), ":", "target"),
        (
            "no matching agent",
            format!("{here}[clients]\nselect = \"role=nobody\"\n{phase}"),
            ":5:",
            "role=nobody",
        ),
        (
            "a path that no agent allows",
            format!("{}{phase}", at("/nobody/allows/this")),
            ":",
            "/nobody/allows/this",
        ),
        (
            "more bytes than free space",
            format!("{here}{phase}files = 1000000\nsize = \"1t\"\n"),
            ":",
            "free",
        ),
    ] {
        let path = mesh.plan(&plan);
        let mut command = mesh.benchmesh();
        command.arg("run").arg(&path);
        let said = refused(command);
        let wrong = || format!("{what}: {}\nplan:\n{plan}", said.all());
        assert_eq!(said.code, 2, "{}", wrong());
        assert!(said.err.contains("plan.toml"), "{}", wrong());
        assert!(
            said.err.contains(&format!("plan.toml{line}")),
            "{}",
            wrong()
        );
        assert!(said.err.contains(part), "{}", wrong());
        assert!(said.out.is_empty(), "{}", wrong());
    }
    let db = mesh.db();
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM runs"),
        0,
        "a refused plan is no run"
    );
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    mesh.assert_no_complaints();
}

#[test]
fn all_mistakes_of_a_plan_come_at_once() {
    let directory = directory();
    let plan = directory.path().join("plan.toml");
    std::fs::write(
        &plan,
        "repeet = 2\n[[phase]]\nworkload = \"null\"\nops = \"many\"\n",
    )
    .unwrap();
    let mut command = benchmesh();
    command.args(["plan", "check"]).arg(&plan);
    let said = refused(command);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("repeat") && said.err.contains("plan.toml:4:"),
        "{}",
        said.all()
    );
    let mut command = benchmesh();
    command
        .args(["plan", "check", "--format", "json"])
        .arg(&plan);
    let said = refused(command);
    let document: serde_json::Value = serde_json::from_str(&said.out).expect("one JSON document");
    assert!(document.is_object(), "{document}");
}

#[test]
fn a_plan_that_is_not_there() {
    let mut command = benchmesh();
    command.args(["run", "/no/such/plan.toml"]);
    let said = refused(command);
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(said.err.contains("/no/such/plan.toml"), "{}", said.all());
}

#[test]
fn a_file_that_is_no_database() {
    let directory = directory();
    let db = directory.path().join("x.db");
    let text = "this is a shopping list, not a database\n".repeat(400);
    std::fs::write(&db, &text).unwrap();
    let said = refused(collector(&db));
    assert!(
        said.err.contains("x.db") && said.err.contains("not a"),
        "{}",
        said.all()
    );
    assert_eq!(
        std::fs::read_to_string(&db).unwrap(),
        text,
        "it is left as it was"
    );
    let mut query = benchmesh();
    query.args(["query", "SELECT 1", "--db"]).arg(&db);
    let said = refused(query);
    assert!(said.err.contains("x.db"), "{}", said.all());
}

#[test]
fn a_database_of_something_else() {
    let directory = directory();
    let db = directory.path().join("other.db");
    let other = rusqlite::Connection::open(&db).unwrap();
    other
        .execute_batch("CREATE TABLE shopping (item TEXT); INSERT INTO shopping VALUES ('milk')")
        .unwrap();
    drop(other);
    let said = refused(collector(&db));
    assert!(said.err.contains("other.db"), "{}", said.all());
    let left: Vec<String> =
        Database::open(&db).column("SELECT name FROM sqlite_schema ORDER BY name");
    assert_eq!(left, ["shopping"]);
}

#[test]
fn a_database_of_a_newer_benchmesh() {
    let mesh = Mesh::start();
    let db = mesh.directory().join("newer.db");
    let made = mesh.directory().join("made.log");
    let mut collector_once = Process::start("collector", collector(&db), &made);
    support::wait::until_true("the database is made", LIMIT, || {
        rusqlite::Connection::open(&db)
            .and_then(|db| {
                db.query_row("SELECT count(*) FROM runs", [], |row| row.get::<_, i64>(0))
            })
            .is_ok()
    });
    collector_once.interrupt(LIMIT);
    let connection = rusqlite::Connection::open(&db).unwrap();
    connection
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (99999, 'from the future', TRUE, x'00', 0)",
            [],
        )
        .unwrap();
    drop(connection);
    let said = refused(collector(&db));
    assert!(
        said.err.contains("newer.db") && said.err.contains("newer"),
        "{}",
        said.all()
    );
}

#[test]
fn a_database_that_another_collector_has() {
    let mesh = Mesh::start();
    let said = refused(collector(mesh.db_path()));
    assert!(said.err.contains("benchmesh.db"), "{}", said.all());
    assert!(said.err.contains("collector"), "{}", said.all());
    mesh.db().assert_sound();
}

#[test]
fn a_database_on_a_read_only_disk() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(16 << 20);
    let path = fs.path();
    support::command::must("mount", &["-o", "remount,ro", path.to_str().unwrap()]);
    let said = refused(collector(&path.join("x.db")));
    assert!(said.err.contains("x.db"), "{}", said.all());
    assert!(
        said.err.to_lowercase().contains("read-only"),
        "{}",
        said.all()
    );
}

#[test]
fn a_database_on_a_full_disk() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(1 << 20);
    fill(&fs.path().join("ballast"));
    let said = refused(collector(&fs.path().join("x.db")));
    assert!(said.err.contains("x.db"), "{}", said.all());
    assert!(
        said.err.contains("full") || said.err.contains("space"),
        "{}",
        said.all()
    );
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

#[test]
fn a_port_in_use() {
    let directory = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = benchmesh();
    command
        .args(["collector", "--listen", &address, "--db"])
        .arg(directory.path().join("x.db"));
    let said = refused(command);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(
        said.err.contains(&address) && said.err.contains("in use"),
        "{}",
        said.all()
    );
}

#[test]
fn an_address_that_is_open_to_others_without_tls() {
    let directory = directory();
    let mut command = benchmesh();
    command
        .args(["collector", "--listen", "0.0.0.0:0", "--db"])
        .arg(directory.path().join("x.db"));
    let said = refused(command);
    assert!(said.err.contains("--insecure"), "{}", said.all());
}

#[test]
fn no_collector_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let directory = directory();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, "[[phase]]\nworkload = \"null\"\n").unwrap();
    let plan = plan.to_str().unwrap();
    for arguments in [
        vec!["run", plan],
        vec!["agents"],
        vec!["runs"],
        vec!["watch"],
        vec!["stop", "1"],
        vec!["report", "1", "--collector", &address],
        vec!["query", "SELECT 1", "--collector", &address],
    ] {
        let mut command = benchmesh();
        command
            .args(&arguments)
            .env("BENCHMESH_COLLECTOR", &address)
            .current_dir(directory.path());
        let said = refused(command);
        assert_eq!(said.code, 1, "{arguments:?}: {}", said.all());
        assert!(said.err.contains(&address), "{arguments:?}: {}", said.all());
        assert!(
            said.err.contains("benchmesh collector"),
            "{arguments:?}: {}",
            said.all()
        );
    }
}

#[test]
fn an_agents_state_on_its_own_target() {
    let mesh = Mesh::start();
    let target = directory();
    let state = target.path().join("state");
    let agent = Agent::named("a").allow(target.path()).state_dir(&state);
    let mut process = mesh.agent_process(&agent);
    let ended = process.exit_within(LIMIT).expect("it refuses to start");
    assert!(!ended.success());
    assert!(process.log().contains("state"), "{}", process.log());
}

#[test]
fn runs_that_are_not_there() {
    let mesh = Mesh::start();
    for arguments in [
        ["watch", "4711"].as_slice(),
        &["stop", "nightly"],
        &["report", "4711"],
        &["report", "last"],
    ] {
        let mut command = mesh.benchmesh();
        command.args(arguments).current_dir("/");
        let said = refused(command);
        assert!(said.err.contains("run"), "{arguments:?}: {}", said.all());
    }
    let mut command = mesh.benchmesh();
    command
        .args(["report", "4711", "--format", "json"])
        .current_dir("/");
    let said = refused(command);
    let document: serde_json::Value = serde_json::from_str(&said.out).expect("one JSON document");
    assert!(document.to_string().contains("4711"), "{document}");
}

#[test]
fn queries_only_read() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    let elsewhere = mesh.directory().join("elsewhere.db");
    let file = elsewhere.display();
    let before = fingerprint(&mesh.db());
    for sql in [
        "DELETE FROM runs".to_owned(),
        "UPDATE runs SET name = 'x'".to_owned(),
        "INSERT INTO events (at_us, severity, kind, message) VALUES (1, 'info', 'x', 'x')"
            .to_owned(),
        "DROP TABLE events".to_owned(),
        "DROP VIEW v_results".to_owned(),
        "CREATE TABLE x (y)".to_owned(),
        "CREATE TEMP TABLE x AS SELECT 1".to_owned(),
        "ALTER TABLE runs RENAME TO walks".to_owned(),
        "WITH x AS (SELECT 1) DELETE FROM runs".to_owned(),
        "SELECT 1; DELETE FROM runs".to_owned(),
        "PRAGMA journal_mode = DELETE".to_owned(),
        "PRAGMA writable_schema = ON".to_owned(),
        "PRAGMA user_version = 7".to_owned(),
        format!("ATTACH '{file}' AS other"),
        format!("VACUUM INTO '{file}'"),
        "VACUUM".to_owned(),
        "REINDEX".to_owned(),
        "BEGIN IMMEDIATE".to_owned(),
        "SELECT load_extension('x')".to_owned(),
        "SELECT writefile('x', 'y')".to_owned(),
    ] {
        for source in [
            vec!["--collector".to_owned(), mesh.address().to_string()],
            vec!["--db".to_owned(), mesh.db_path().display().to_string()],
        ] {
            let mut command = benchmesh();
            command
                .args(["query", &sql])
                .args(&source)
                .current_dir(mesh.directory());
            let said = refused(command);
            assert!(!said.err.is_empty(), "{sql}: {}", said.all());
        }
    }
    assert!(!elsewhere.exists(), "a query wrote a file");
    let db = mesh.db();
    db.assert_sound();
    assert_eq!(fingerprint(&db), before);
}

/// The schema and the rows of the tables that a query could have changed.
fn fingerprint(db: &Database) -> String {
    let schema: Vec<String> =
        db.column("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name");
    let runs = db.rows("SELECT * FROM runs");
    let events = db.rows("SELECT * FROM events");
    let results = db.rows("SELECT * FROM v_results");
    format!("{schema:?} {runs:?} {events:?} {results:?}")
}

#[test]
fn a_query_that_takes_for_ever_is_given_up() {
    let _alone = alone();
    let directory = directory();
    let db = directory.path().join("x.db");
    let log = directory.path().join("log");
    let mut collector = Process::start("collector", collector(&db), &log);
    support::wait::until_true("the database is made", LIMIT, || db.exists());
    support::wait::until_true("it has its views", LIMIT, || {
        rusqlite::Connection::open(&db)
            .and_then(|db| {
                db.query_row("SELECT count(*) FROM v_runs", [], |row| {
                    row.get::<_, i64>(0)
                })
            })
            .is_ok()
    });
    let mut command = benchmesh();
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    command
        .args(["query", endless, "--time-limit", "1s", "--db"])
        .arg(&db);
    let said = refused(command);
    assert!(said.err.contains("after 1 s"), "{}", said.all());
    assert!(collector.is_running());
}
