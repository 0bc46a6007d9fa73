//! A file system that hangs: the stall is an event with its place, its end is another, and the run ends as its plan says.

use crate::needs;
use crate::support::fuse_fs::{Fate, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of each write of a copy.
const UNIT: i64 = 1 << 20;
/// The file that is copied.
const FILE: &str = "c000000000";

/// Copies a file in, of which the fourth write hangs.
fn plan(fs: &FuseFs, policy: &str) -> String {
    fs.add_rule(Rule {
        path: FILE.to_owned(),
        after: 3,
        times: 1,
        ..Rule::every(Op::Write, Fate::Hang)
    });
    format!(
        r#"
        on-stall = "{policy}"
        [targets.hanging]
        system = "fuse"
        path = "{}"
        [[phase]]
        workload = "copy"
        size = "8m"
        bs = "1m"
        modes = ["in"]
        stall-after = "2s"
        "#,
        fs.path().display()
    )
}

fn add_agent(mesh: &mut Mesh, fs: &FuseFs) {
    let scratch = mesh.directory().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let agent = Agent::named("a").allow(fs.path()).argument("--scratch");
    mesh.add(agent.argument(scratch.to_str().unwrap()));
}

fn events(mesh: &Mesh, kind: &str) -> i64 {
    mesh.db().one(&format!(
        "SELECT count(*) FROM events WHERE kind = '{kind}'"
    ))
}

#[test]
fn a_stall_is_an_event_with_its_place_and_its_end_another() {
    needs!("fuse");
    // Agents that hang can only be ended when the file system is gone: it is dropped first.
    let mut mesh = Mesh::start();
    let fs = FuseFs::mount();
    add_agent(&mut mesh, &fs);
    let mut run = mesh.begin(&plan(&fs, "continue"));
    until_true("a call hangs", LIMIT, || fs.hanging() == 1);
    until_true("the stall is stored", LIMIT, || events(&mesh, "stall") == 1);
    assert_eq!(events(&mesh, "stall-over"), 0);
    fs.let_go();
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(ended.success(), "{ended}: {}", run.log());

    let db = mesh.db();
    let sql = "SELECT e.kind, e.severity, e.message, e.at_us, a.name AS agent, s.mode, h.name AS host,
                      e.detail ->> 'host' AS on_host, e.detail ->> 'worker' AS worker, e.detail ->> 'op' AS op,
                      e.detail ->> 'path' AS path, e.detail ->> 'offset' AS offset, e.detail ->> 'lasted_us' AS lasted_us
               FROM events e JOIN agents a ON a.id = e.agent_id JOIN steps s ON s.id = e.step_id
               JOIN hosts h ON h.id = a.host_id
               WHERE e.kind LIKE 'stall%' ORDER BY e.id";
    let rows = db.rows(sql);
    let [stall, over] = &rows[..] else {
        panic!("{rows:?}")
    };
    // The kernel may divide a write; what was whole before the one that hung is known from the log.
    let mut log = fs.log();
    log.retain(|call| call.op == Op::Write && call.path.contains(FILE));
    let before: u64 = log.iter().take(3).map(|call| call.amount).sum();
    let copied = before as i64 / UNIT * UNIT;
    for (row, kind, severity) in [(stall, "stall", "warning"), (over, "stall-over", "info")] {
        assert_eq!(
            (&*row.text("kind"), &*row.text("severity")),
            (kind, severity)
        );
        assert_eq!((&*row.text("agent"), &*row.text("mode")), ("a", "in"));
        assert_eq!(row.text("host"), row.text("on_host"));
        assert_eq!((&*row.text("op"), row.integer("worker")), ("copy", 0));
        assert_eq!(row.integer("offset"), copied);
        let path = row.text("path");
        assert!(
            path.starts_with(&*fs.path().to_string_lossy()) && path.ends_with(FILE),
            "{row:?}"
        );
        assert!(row.text("message").contains(&path), "{row:?}");
    }
    let seen_after = Duration::from_micros(stall.integer("lasted_us") as u64);
    assert!((2..5).contains(&seen_after.as_secs()), "{stall:?}");
    assert!(over.integer("lasted_us") > stall.integer("lasted_us"));
    assert_eq!(db.column::<String>("SELECT state FROM runs"), ["done"]);
}

#[test]
fn a_plan_may_end_the_run_at_a_stall_without_waiting_for_it() {
    needs!("fuse");
    // Agents that hang can only be ended when the file system is gone: it is dropped first.
    let mut mesh = Mesh::start();
    let fs = FuseFs::mount();
    add_agent(&mut mesh, &fs);
    let mut run = mesh.begin(&plan(&fs, "abort"));
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(!ended.success(), "{ended}: {}", run.log());
    assert_eq!(fs.hanging(), 1, "nobody has let it go: {}", run.log());
    let db = mesh.db();
    assert_eq!(db.column::<String>("SELECT state FROM steps"), ["failed"]);
    let reason = db.one::<String>("SELECT reason FROM runs");
    assert!(
        reason.contains("on-stall") && reason.contains("has not ended for"),
        "{reason}"
    );
    assert_eq!(
        (events(&mesh, "stall"), events(&mesh, "stall-over")),
        (1, 0)
    );
}
