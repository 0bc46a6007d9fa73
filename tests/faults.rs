//! Failures during a run: processes killed, links cut, disks full. Afterwards the database must be complete: no stored
//! row is gone or changed, nothing is stored twice, and a load of a fixed number of operations has exactly that number.

mod agent_disk;
mod frozen;
mod killed;
mod links;
mod restored;
mod returned;
mod waiting;

use crate::needs;
use crate::support::database::{Database, Row};
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::intervals::assert_no_holes;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::net::Network;
use crate::support::plan;
use crate::support::wait::{until, until_true};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Operations of each agent in [`paced_plan`].
const FILES: i64 = 1500;

/// Each agent deletes `FILES` files, and each call takes 5 ms: about 8 s of load with a known count.
fn paced_plan(fs: &FuseFs, extra: &str) -> String {
    fs.add_rule(Rule {
        path: "benchmesh-".to_owned(),
        ..Rule::every(Op::Unlink, Fault::Delay(Duration::from_millis(5)))
    });
    plan::on(
        fs.path(),
        extra,
        &format!(
            "[[phase]]\nworkload = \"files\"\nfiles = {FILES}\nsize = \"100\"\nmodes = [\"delete\"]"
        ),
    )
}

/// A mesh of two agents on the slow file system.
fn mesh_on(fs: &FuseFs) -> Mesh {
    Mesh::of(&["a", "b"], fs.path())
}

/// Waits until some seconds of the step are in the database, and returns its rows.
fn until_stored(mesh: &Mesh, intervals: usize) -> Stored {
    until_true("intervals are stored", LIMIT, || {
        let db = mesh.db();
        db.one::<i64>("SELECT count(*) FROM op_intervals") >= intervals as i64
    });
    Stored::of(&mesh.db())
}

/// The rows of the database at one moment; all of them must still exist later.
struct Stored {
    intervals: BTreeMap<(i64, i64, String), Row>,
    samples: i64,
    spools: BTreeMap<String, i64>,
}

impl Stored {
    fn of(db: &Database) -> Self {
        let rows =
            db.rows("SELECT task_id, at_us, op, span_us, ops, bytes, errors FROM op_intervals");
        let key = |row: &Row| (row.integer("task_id"), row.integer("at_us"), row.text("op"));
        let spools = db.rows("SELECT spool_id, last_sequence FROM spools");
        Self {
            intervals: rows.into_iter().map(|row| (key(&row), row)).collect(),
            samples: db.one("SELECT count(*) FROM daemon_samples"),
            spools: spools
                .iter()
                .map(|row| (row.text("spool_id"), row.integer("last_sequence")))
                .collect(),
        }
    }

    /// No row is missing, and no row of operations has changed.
    fn assert_still_in(&self, db: &Database) {
        let now = Self::of(db);
        for (key, row) in &self.intervals {
            assert_eq!(
                now.intervals.get(key),
                Some(row),
                "an acked interval is lost or changed"
            );
        }
        assert!(
            now.samples >= self.samples,
            "{} samples, {} later",
            self.samples,
            now.samples
        );
        for (spool, sequence) in &self.spools {
            let later = now.spools.get(spool);
            assert!(
                later.is_some_and(|later| later >= sequence),
                "spool {spool}: {sequence}, then {later:?}"
            );
        }
    }
}

/// Every operation of both agents appears once in each of the three places.
fn assert_exact(db: &Database, fs: &FuseFs) {
    db.assert_sound();
    let log = fs.log();
    let seen = log
        .iter()
        .filter(|call| call.op == Op::Unlink && call.errno.is_none() && is_data(&call.path))
        .count();
    assert_eq!(
        seen as i64,
        2 * FILES,
        "the file system saw each file go once"
    );
    for sql in [
        "SELECT sum(ops) FROM op_intervals",
        "SELECT sum(ops) FROM step_intervals",
        "SELECT ops FROM step_results",
    ] {
        assert_eq!(db.one::<i64>(sql), 2 * FILES, "{sql}");
    }
    assert_no_holes(db);
}

/// Whether a path is a file of the load rather than one of benchmesh's own (a marker, a state of the layout).
fn is_data(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    !name.starts_with('.') && !name.starts_with("state")
}

#[test]
fn a_stopped_agent_is_lost_and_comes_back() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = mesh_on(&fs);
    let mut run = mesh.begin(&paced_plan(&fs, "loss-after = \"2s\""));
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    mesh.agent("b").signal(libc::SIGSTOP);
    let lost = "SELECT count(*) FROM events e JOIN agents a ON a.id = e.agent_id WHERE a.name = 'b' \
        AND e.kind = 'agent-lost'";
    until_true("the silent agent is lost", LIMIT, || {
        mesh.db().one::<i64>(lost) > 0
    });
    mesh.agent("b").signal(libc::SIGCONT);
    run.exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    mesh.until_attached(&["a", "b"]);
    let db = mesh.db();
    stored.assert_still_in(&db);
    db.assert_sound();
    assert_no_holes(&db);
    assert_eq!(
        db.column::<i64>("SELECT partial FROM steps WHERE mode = 'delete'"),
        [1]
    );
}

#[test]
fn a_cut_link_loses_nothing() {
    needs!("root", "netns", "fuse");
    let fs = FuseFs::mount();
    let network = Network::new(2);
    let mut mesh = Mesh::listening_on(&format!("{}:0", network.host()));
    for (node, name) in [(1, "a"), (2, "b")] {
        let agent = Agent::named(name).allow(fs.path());
        mesh.add(agent.inside(&network.namespace(node)));
    }
    let mut run = mesh.begin(&paced_plan(&fs, "loss-after = \"60s\"\nlease = \"60s\""));
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    network.cut(2);
    let others = || -> i64 {
        let sql = "SELECT coalesce(sum(i.ops), 0) FROM op_intervals i JOIN tasks t ON t.id = i.task_id JOIN agents a ON a.id = t.agent_id WHERE a.name = 'a'";
        mesh.db().one(sql)
    };
    let now = others();
    until_true("the other agent's figures still arrive", LIMIT, || {
        others() > now + 400
    });
    network.rejoin(2);
    let ended = run
        .exit_within(Duration::from_secs(120))
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(ended.success(), "{ended}: {}", run.log());
    let db = mesh.db();
    stored.assert_still_in(&db);
    assert_exact(&db, &fs);
    assert_eq!(db.column::<i64>("SELECT partial FROM runs"), [0]);
}

#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing() {
    needs!("root", "tmpfs", "fuse");
    let fs = FuseFs::mount();
    let disk = Mounted::tmpfs(12 << 20);
    let mut mesh = Mesh::with_database_in(Some(&disk.path()));
    for name in ["a", "b"] {
        mesh.add(Agent::named(name).allow(fs.path()));
    }
    let mut run = mesh.begin(&paced_plan(&fs, "loss-after = \"60s\"\nlease = \"60s\""));
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    let ballast = disk.path().join("ballast");
    fill(&ballast);
    let count = || mesh.db().one::<i64>("SELECT count(*) FROM op_intervals");
    let log = |mesh: &Mesh| mesh.collector().log();
    until("the collector says that its disk is full", LIMIT, || {
        let text = log(&mesh);
        (text.contains("full") || text.contains("No space")).then_some(())
    });
    let at_full = count();
    let seen = fs.log().len();
    until_true("the load goes on meanwhile", LIMIT, || {
        fs.log().len() > seen + 200
    });
    std::fs::remove_file(&ballast).unwrap();
    until_true("it stores again", LIMIT, || count() > at_full);
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(ended.success(), "{ended}: {}", run.log());
    let db = mesh.db();
    stored.assert_still_in(&db);
    assert_exact(&db, &fs);
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

#[test]
fn a_hung_call_is_found_and_the_others_go_on() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = mesh_on(&fs);
    let plan = paced_plan(&fs, "");
    let mut run = mesh.begin(&plan);
    mesh.until_step_is("delete", "running", LIMIT);
    until_stored(&mesh, 2);
    fs.add_rule_first(Rule {
        times: 1,
        path: "benchmesh-".to_owned(),
        ..Rule::every(Op::Unlink, Fault::Hang)
    });
    until_true("a call hangs", LIMIT, || fs.hanging() == 1);
    // The agent with the free worker finishes its files; in the database one operation is still in flight.
    until_true("the other agent's task is through", LIMIT, || {
        mesh.db()
            .rows("SELECT task_id FROM op_intervals GROUP BY task_id HAVING sum(ops) = 1500")
            .len()
            == 1
    });
    let stopped = mesh.command(&["stop", "1"]);
    assert_eq!(stopped.code, 0, "{}", stopped.all());
    fs.release();
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(!ended.success());
    let db = mesh.db();
    db.assert_sound();
    assert_eq!(db.column::<String>("SELECT state FROM runs"), ["stopped"]);
    assert_no_holes(&db);
}

#[test]
fn a_listing_that_names_what_was_removed_ends_in_an_error() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(fs.path()));
    fs.list_unlinked();
    let mut run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"fuse\"\npath = \"{}\"\n[[phase]]\nworkload = \"files\"\nfiles = 3\nsize = \"100\"\nmodes = [\"create\"]\n",
        fs.path().display()
    ));
    run.exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    let db = mesh.db();
    let messages = db.column::<String>("SELECT message FROM events WHERE kind = 'cell-left'");
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("still lists it after it was removed"),
        "{messages:?}"
    );
    assert!(messages[0].contains("cannot get rid of `"), "{messages:?}");
    assert_eq!(db.column::<i64>("SELECT ops FROM step_results"), [3]);
}
