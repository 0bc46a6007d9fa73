//! The disk of an agent's state directory is full while its load runs: the agent stays, keeps its data, and delivers
//! all of them when space is available again.

use super::{LIMIT, assert_exact, fill, needs, paced_plan, until_stored};
use crate::support::fuse_fs::FuseFs;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;

#[test]
fn an_agent_whose_disk_is_full_for_a_while_loses_nothing() {
    needs!("root", "tmpfs", "fuse");
    let fs = FuseFs::mount();
    let disk = Mounted::tmpfs(8 << 20);
    let mut mesh = Mesh::start();
    let state = disk.path().join("state");
    mesh.add(Agent::named("a").allow(fs.path()).state_dir(&state));
    mesh.add(Agent::named("b").allow(fs.path()));
    let mut run = mesh.begin(&paced_plan(&fs, "loss-after = \"60s\"\nlease = \"60s\""));
    mesh.until_step_is("delete", "running", LIMIT);
    let stored = until_stored(&mesh, 4);
    let pid = mesh.agent("a").pid();
    let ballast = disk.path().join("ballast");
    fill(&ballast);
    // Nothing is acked meanwhile, so the spool must grow.
    mesh.collector().signal(libc::SIGSTOP);
    until_true("the agent says that it cannot write", LIMIT, || {
        mesh.agent("a")
            .log()
            .contains("the spool cannot be written")
    });
    let seen = fs.log().len();
    until_true("the load goes on meanwhile", LIMIT, || {
        fs.log().len() > seen + 200
    });
    mesh.collector().signal(libc::SIGCONT);
    let count = |kind: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM events WHERE kind = '{kind}'");
        mesh.db().one(&sql)
    };
    until_true(
        "the collector is told while the disk is full",
        LIMIT,
        || count("spool-blocked") == 1,
    );
    std::fs::remove_file(&ballast).unwrap();
    until_true("the agent writes again", LIMIT, || {
        mesh.agent("a")
            .log()
            .contains("the spool can be written again")
    });
    until_true("and when it is not any more", LIMIT, || {
        count("spool-writable") > 0
    });
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(ended.success(), "{ended}: {}", run.log());
    mesh.until_attached(&["a", "b"]);
    assert_eq!(mesh.agent("a").pid(), pid, "it never left");
    let db = mesh.db();
    stored.assert_still_in(&db);
    assert_exact(&db, &fs);
    assert_eq!(db.column::<i64>("SELECT partial FROM runs"), [0]);
    let gaps: i64 = db.one("SELECT count(*) FROM events WHERE kind = 'spool-gap'");
    assert_eq!(gaps, 0);
}
