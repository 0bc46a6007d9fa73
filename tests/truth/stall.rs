//! A file system that hangs: the stall is an event with its place, its end is another, and the run ends as its plan says.
//!
//! Where a call really hung, the file system's log says: the one that took longer than the limit.

use crate::needs;
use crate::support::fuse_fs::{Call, Fate, FuseFs, Op, Rule};
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

/// What hangs in which mode of what.
struct Hanging {
    phase: &'static str,
    op: Op,
    /// A part of the path, and how many calls on such a path pass before.
    path: &'static str,
    after: u64,
    /// The operation that is told.
    told: &'static str,
    offset: Offset,
}

/// What is told of the offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offset {
    /// The call's.
    Told,
    /// That of one of the four that were in flight together: the oldest that is not seen to have ended is told, and which
    /// one the kernel has let through to the file system is the kernel's affair.
    OneInFlight,
    /// The operation has none.
    None,
}

const fn hanging(
    phase: &'static str,
    op: Op,
    path: &'static str,
    after: u64,
    told: &'static str,
    offset: Offset,
) -> Hanging {
    Hanging {
        phase,
        op,
        path,
        after,
        told,
        offset,
    }
}

const FILES: &str =
    "workload = \"files\"\nfiles = 30\nsize = \"20k\"\nbs = \"4k\"\ndirs = 7\nappend = \"12k\"\n";
const IO: &str = "workload = \"io\"\nsize = \"256k\"\nbs = \"8k\"\nnumjobs = 2\n";
const BYTES: &str = "workload = \"bytes\"\nsize = \"200k\"\nbs = 5000\nnumjobs = 2\nseeks = 60\n";
const TREE: &str =
    "workload = \"tree\"\nfiles = 60\ndirectories = 9\nsize = \"20k\"\nbs = \"4k\"\nnumjobs = 2\n";
const FILL: &str = "workload = \"fill\"\namount = \"5m\"\nfile-size = \"1m\"\nbs = \"128k\"\n";
const COPY: &str =
    "workload = \"copy\"\nfiles = 4\nsize = \"8m\"\nway = \"read-write\"\nbs = \"1m\"\n";
const REPLAY: &str = "workload = \"replay\"\noperations = \"\"\"\n- mkdir logs\n- create logs/a\n- write logs/a 0 5000\n\
                      - write logs/a 9000 100\n- close logs/a\n- open old\n- read old 300 700\n- close old\n\
                      - delete logs/a\n- rmdir logs\n\"\"\"\n";

const HANGING: &[(&str, &[Hanging])] = &[
    (
        FILES,
        &[
            hanging(
                "modes = [\"create\"]",
                Op::Write,
                "/c0",
                33,
                "create",
                Offset::Told,
            ),
            hanging(
                "modes = [\"read\"]",
                Op::Read,
                "/c0",
                42,
                "read",
                Offset::Told,
            ),
            hanging(
                "modes = [\"read\"]\nverify = true\norder = \"random\"",
                Op::Read,
                "/c0",
                42,
                "read",
                Offset::Told,
            ),
            hanging(
                "modes = [\"append\"]",
                Op::Write,
                "/c0",
                152,
                "append",
                Offset::Told,
            ),
            hanging(
                "modes = [\"delete\"]",
                Op::Unlink,
                "/c0",
                11,
                "delete",
                Offset::None,
            ),
            hanging(
                "modes = [\"list\"]",
                Op::Readdir,
                "/d0",
                5,
                "list",
                Offset::None,
            ),
        ],
    ),
    (
        IO,
        &[
            hanging(
                "modes = [\"write\"]",
                Op::Write,
                ".dat",
                17,
                "write",
                Offset::Told,
            ),
            hanging(
                "modes = [\"randread\"]",
                Op::Read,
                ".dat",
                17,
                "read",
                Offset::Told,
            ),
            hanging(
                "modes = [\"randread\"]\niodepth = 4",
                Op::Read,
                ".dat",
                17,
                "read",
                Offset::OneInFlight,
            ),
            hanging(
                "modes = [\"write\"]\niodepth = 4",
                Op::Write,
                ".dat",
                17,
                "write",
                Offset::OneInFlight,
            ),
        ],
    ),
    (
        BYTES,
        &[
            hanging(
                "modes = [\"putc\"]",
                Op::Write,
                "/w",
                17,
                "putc",
                Offset::Told,
            ),
            hanging(
                "modes = [\"getc\"]",
                Op::Read,
                "/w",
                17,
                "getc",
                Offset::Told,
            ),
            hanging(
                "modes = [\"rewrite\"]",
                Op::Read,
                "/w",
                17,
                "rewrite",
                Offset::Told,
            ),
            hanging(
                "modes = [\"fwrite\"]",
                Op::Write,
                "/w",
                17,
                "fwrite",
                Offset::Told,
            ),
            hanging(
                "modes = [\"fread\"]",
                Op::Read,
                "/w",
                17,
                "fread",
                Offset::Told,
            ),
            hanging(
                "modes = [\"seek\"]",
                Op::Read,
                "/w",
                17,
                "seek",
                Offset::Told,
            ),
        ],
    ),
    (
        TREE,
        &[
            hanging(
                "modes = [\"unpack\"]",
                Op::Write,
                "/f0",
                33,
                "create",
                Offset::Told,
            ),
            hanging(
                "modes = [\"unpack\"]",
                Op::Mkdir,
                "/d0",
                3,
                "mkdir",
                Offset::None,
            ),
            hanging(
                "modes = [\"walk\"]",
                Op::Lookup,
                "/f0",
                140,
                "stat",
                Offset::None,
            ),
            hanging(
                "modes = [\"remove\"]",
                Op::Unlink,
                "/f0",
                33,
                "delete",
                Offset::None,
            ),
            hanging(
                "modes = [\"remove\"]",
                Op::Rmdir,
                "/d0",
                3,
                "rmdir",
                Offset::None,
            ),
        ],
    ),
    (
        FILL,
        &[
            hanging(
                "modes = [\"fill\"]",
                Op::Write,
                "/f0",
                17,
                "write",
                Offset::Told,
            ),
            // Between two operations: it hangs all the same.
            hanging(
                "modes = [\"fill\"]",
                Op::Create,
                "/f0",
                2,
                "write",
                Offset::None,
            ),
            hanging(
                "modes = [\"remove\"]",
                Op::Unlink,
                "/f0",
                2,
                "delete",
                Offset::None,
            ),
        ],
    ),
    (
        COPY,
        &[
            hanging(
                "modes = [\"in\"]",
                Op::Write,
                "/c0",
                17,
                "copy",
                Offset::Told,
            ),
            hanging(
                "modes = [\"out\"]",
                Op::Read,
                "/c0",
                12,
                "copy",
                Offset::Told,
            ),
            hanging(
                "modes = [\"in\"]\nverify = true",
                Op::Read,
                "/c0",
                12,
                "read",
                Offset::Told,
            ),
        ],
    ),
    (
        REPLAY,
        &[
            hanging("", Op::Write, "logs/a", 1, "write", Offset::Told),
            hanging("", Op::Read, "old", 0, "read", Offset::Told),
            hanging("", Op::Unlink, "logs/a", 0, "delete", Offset::None),
        ],
    ),
];

#[test]
fn every_workload_says_where_it_hangs() {
    needs!("fuse");
    // Agents that hang can only be ended when the file system is gone: it is dropped first.
    let mut mesh = Mesh::start();
    let fs = FuseFs::mount();
    add_agent(&mut mesh, &fs);
    for (common, cases) in HANGING {
        for case in *cases {
            hang_and_compare(&mesh, &fs, common, case);
        }
    }
}

fn hang_and_compare(mesh: &Mesh, fs: &FuseFs, common: &str, case: &Hanging) {
    let what = format!("{common}{}: {:?}", case.phase, case.op);
    let (stalls, before) = (events(mesh, "stall"), fs.log().len());
    fs.add_rule(Rule {
        path: case.path.to_owned(),
        after: case.after,
        times: 1,
        ..Rule::every(case.op, Fate::Hang)
    });
    let mut run = mesh.begin(&format!(
        "[targets.hanging]\nsystem = \"fuse\"\npath = \"{}\"\n[[phase]]\n{common}{}\nstall-after = \"1s\"\n",
        fs.path().display(),
        case.phase
    ));
    until_true(&format!("a call hangs: {what}"), LIMIT, || {
        fs.hanging() == 1
    });
    until_true(&format!("the stall is stored: {what}"), LIMIT, || {
        events(mesh, "stall") == stalls + 1
    });
    fs.let_go();
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("{what}: the run hangs:\n{}", run.log()));
    assert!(ended.success(), "{what}: {ended}: {}", run.log());
    let log = fs.log();
    let mut hung = log
        .iter()
        .skip(before)
        .filter(|call| call.op == case.op && call.ended_us - call.began_us > 900_000);
    let (Some(hung), None) = (hung.next(), hung.next()) else {
        panic!("{what}: one call hangs")
    };
    let stall = &mesh.db().rows(
        "SELECT detail ->> 'op' AS op, detail ->> 'path' AS path, detail ->> 'offset' AS offset FROM events
         WHERE kind = 'stall' ORDER BY id DESC LIMIT 1",
    )[0];
    assert_eq!(stall.text("op"), case.told, "{what}");
    let path = fs.path().join(&hung.path);
    assert_eq!(stall.text("path"), path.to_string_lossy(), "{what}");
    match case.offset {
        Offset::None => assert!(stall.is_null("offset"), "{what}: {stall:?}"),
        Offset::Told => assert_eq!(stall.integer("offset"), hung.offset as i64, "{what}"),
        Offset::OneInFlight => {
            let mut calls: Vec<&Call> = log
                .iter()
                .skip(before)
                .filter(|call| (call.op, &call.path) == (case.op, &hung.path))
                .collect();
            calls.sort_by_key(|call| call.began_us);
            let place = |offset: u64| calls.iter().position(|call| call.offset == offset);
            let told = place(stall.integer("offset") as u64).unwrap();
            let apart = told.abs_diff(place(hung.offset).unwrap());
            assert!(apart < 4, "{what}: {apart} apart: {stall:?} {hung:?}");
        }
    }
    assert_eq!(events(mesh, "stall-over"), events(mesh, "stall"), "{what}");
}

/// A thread within io_uring, one within a tree, and one on its way to an operation: none of them holds the run up.
#[test]
fn a_plan_may_end_any_workload_at_a_stall() {
    needs!("fuse");
    for (common, phase, op, path) in [
        (IO, "modes = [\"randread\"]\niodepth = 4", Op::Read, ".dat"),
        (BYTES, "modes = [\"getc\"]", Op::Read, "/w"),
        (TREE, "modes = [\"unpack\"]", Op::Write, "/f0"),
        (FILL, "modes = [\"fill\"]", Op::Create, "/f0"),
        (REPLAY, "", Op::Read, "old"),
    ] {
        let mut mesh = Mesh::start();
        let fs = FuseFs::mount();
        add_agent(&mut mesh, &fs);
        fs.add_rule(Rule {
            path: path.to_owned(),
            times: 1,
            ..Rule::every(op, Fate::Hang)
        });
        let mut run = mesh.begin(&format!(
            "on-stall = \"abort\"\n[targets.hanging]\nsystem = \"fuse\"\npath = \"{}\"\n[[phase]]\n{common}{phase}\n\
             stall-after = \"1s\"\n",
            fs.path().display()
        ));
        let ended = run
            .exit_within(LIMIT)
            .unwrap_or_else(|| panic!("{common}: the run hangs:\n{}", run.log()));
        assert!(!ended.success(), "{common}: {ended}: {}", run.log());
        assert_eq!(fs.hanging(), 1, "nobody has let it go: {}", run.log());
        let db = mesh.db();
        assert_eq!(db.column::<String>("SELECT state FROM steps"), ["failed"]);
        let reason = db.one::<String>("SELECT reason FROM runs");
        assert!(reason.contains("has not ended for"), "{reason}");
    }
}
